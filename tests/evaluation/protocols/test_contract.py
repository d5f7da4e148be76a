"""What every protocol of the folder defines, and that one more file is all that a new one takes."""

import dataclasses
import inspect
import sys
from pathlib import Path

import numpy as np
import pytest
from own_protocol import OWN

from evaluation.judging.command_line import Subjects, settings_of
from sslkit.cli.help import plain_help

import evaluation
import sslkit
from evaluation import protocols
from evaluation.judging import run
from evaluation.judging.summary import list_rows
from evaluation.protocols.base import Protocol, Subject, Task, Terminal, defaults_of_all
from evaluation.results.result import Result
from evaluation.results.statistics import Estimate
from evaluation.results.tables import table
from sslkit.data.sources.named import open_images
from sslkit.errors import UserError
from sslkit.options import members
from sslkit.runtime.context import Runtime

FOLDER = Path(protocols.__file__).parent
FOLDERS = (FOLDER, *FOLDER.parent.glob("tasks/*/protocols"))
LISTED = sorted(
    path.stem
    for folder in FOLDERS
    for path in folder.iterdir()
    if not path.name.startswith(("_", ".")) and path.stem != "base" and (path.suffix == ".py" or path.is_dir())
)


def test_the_folders_are_the_list_of_protocols() -> None:
    assert tuple(LISTED) == protocols.names()


@pytest.mark.parametrize("name", LISTED)
def test_a_protocol_is_four_names_and_what_it_says(name: str) -> None:
    module, protocol = protocols.module_of(name), protocols.find(name)
    assert isinstance(protocol, Protocol) and [field.name for field in dataclasses.fields(Protocol)] == [
        "Options",
        "open",
        "run",
        "beside",
        "terminal",
    ]
    for part in ("open", "run", "beside"):
        function = getattr(protocol, part)
        assert function is getattr(module, part) and function.__module__ == module.__name__
        assert all(p.kind is p.POSITIONAL_OR_KEYWORD for p in inspect.signature(function).parameters.values())
    opening, running = inspect.signature(protocol.open), inspect.signature(protocol.run)
    assert list(opening.parameters) == ["subject", "options"]
    assert list(running.parameters) == ["opened", "options", "runtime"]
    assert opening.parameters["subject"].annotation is Subject
    assert running.parameters["runtime"].annotation is Runtime
    assert opening.parameters["options"].annotation is running.parameters["options"].annotation is protocol.Options
    assert opening.return_annotation is running.parameters["opened"].annotation
    assert running.return_annotation == list[Result] and protocol.open.__doc__ and protocol.run.__doc__
    beside = inspect.signature(protocol.beside)
    assert list(beside.parameters) == ["result"] and beside.return_annotation == tuple[str, ...]
    assert protocol.terminal == vars(module).get("terminal", Terminal())
    assert not {"evaluate", "open_data", "check"} & set(vars(module))


@pytest.mark.parametrize("name", LISTED)
def test_what_is_said_by_default_and_where_no_data_are_named(name: str) -> None:
    terminal = protocols.find(name).terminal
    assert terminal.usual is None or terminal.usual in run.SUITE
    assert run.list_pairs(None, [name])[-1] in [(source, name) for source in (terminal.usual, *run.SUITE)]
    assert all(
        type(getattr(terminal, field.name)) in (bool, str, type(None)) or callable(getattr(terminal, field.name))
        for field in dataclasses.fields(terminal)
    )
    assert Terminal().plan(None, Task(name, "digits", None), Runtime()) == [("", f"{name} on digits")]


@pytest.mark.parametrize("name", LISTED)
def test_options_are_frozen_keywords_with_defaults_and_ranges(name: str) -> None:
    own = protocols.find(name).Options
    assert dataclasses.is_dataclass(own) and own.__dataclass_params__.frozen
    for field in dataclasses.fields(own):
        assert field.kw_only and field.default is not dataclasses.MISSING, field.name
    assert members.options(own) == vars(own()), "the command line sees each of them with its default"
    given = members.check_options(own, vars(own()), f"protocol {name}")
    assert own(**given) == own()
    texts = [one.path for one in members.declarations(own).values() if one.kind is str and not one.limits.choices]
    assert set(texts) <= FREE


FREE = {"schedule", "protocol", "recipe", "rule", "features", "split"}  # names that `open` checks, with the nearest


CALLED = {"linear": "linear_probe", "linear_aug": "linear_on_views"}  # the public functions of other names


@pytest.mark.parametrize("name", LISTED)
def test_the_public_function_has_every_option_as_it_is_declared(name: str) -> None:
    module = protocols.module_of(name)
    function = getattr(module, CALLED.get(name, name))
    parameters, said = inspect.signature(function).parameters, members.texts(function)
    for option in members.declarations(module.Options).values():
        if (name, option.path) != ("few_shot", "k_shot"):  # a call is of one
            own = parameters[option.path]
            assert (own.default, own.annotation) == (option.default, option.kind)
            assert said[option.path]
    shared = [parameter for parameter in parameters if parameter in defaults_of_all()]
    assert all(parameters[one].default == defaults_of_all()[one] for one in shared if one not in vars(module.Options()))
    with pytest.raises(TypeError, match="has no option 'no_option'"):
        function(**{name: None for name, own in parameters.items() if own.default is own.empty}, no_option=1)


@pytest.mark.parametrize("name", LISTED)
def test_every_option_has_a_line_of_text(name: str) -> None:
    own = protocols.find(name).Options
    assert [name for name, option in members.declarations(own).items() if len(option.help) < 5] == []


@pytest.mark.parametrize("name", LISTED)
def test_nothing_stands_beside_a_result_that_has_nothing_else(name: str) -> None:
    result = Result(name, "", "top1", 0.5)
    assert protocols.find(name).beside(result) == () and list_rows([result]) == [result]


def test_a_result_of_an_unknown_protocol_is_one_row() -> None:
    result = Result("of another version", "", "top1", 0.5)
    assert list_rows([result]) == [result]


@pytest.fixture
def counted(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    """One more file in the family."""
    (tmp_path / "own").mkdir()
    (tmp_path / "own" / "counted.py").write_text(OWN)
    monkeypatch.setattr(protocols, "__path__", [*protocols.__path__, str(tmp_path / "own")])
    members.names.cache_clear()
    yield
    members.names.cache_clear()
    sys.modules.pop("evaluation.protocols.counted", None)
    vars(protocols).pop("counted", None)


def test_a_new_file_is_found_shown_and_run(counted: None, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    usual = {"times": 2, "kind": "rows", "minus": None}
    assert "counted" in protocols.names() and members.options(protocols.find("counted").Options) == usual
    assert OWN.count("\n") < 80, "three options, their help, signature, checks and YAML are one short file"
    settings = settings_of(Subjects)
    options = protocols.options_by_key([], every=True)
    said = " ".join(plain_help(settings, "", options, "all").split())
    assert "options of counted counted.times=2 how often each is counted counted.kind=rows what is counted" in said
    function = protocols.function("counted")
    own = inspect.signature(function).parameters
    assert [(own[name].default, own[name].annotation) for name in usual] == [
        (2, int),
        ("rows", str),
        (None, float | None),
    ]
    assert {"device", "cache", "seed"} <= own.keys() and "how often each is counted" in function.__doc__
    few_digits(tmp_path)
    model = sslkit.load("random:narrow_resnet", image_size=8, in_chans=1)
    how = {"out": tmp_path / "out", "cache": None, "progress": False}
    said: list[str] = []
    [result] = evaluation.evaluate(
        model, tmp_path / "few.npz", "counted", options={"counted": {"times": 3}}, say=said.append, **how
    )
    assert result.value == 120 and any(line.startswith("counted on ") for line in said)
    assert [(row.metric, row.value) for row in list_rows([result])] == [("counted", 120), ("rows", 40)]
    assert "rows" in table(list_rows([result])) and "hidden" not in table(list_rows([result]))
    [counted] = function(model, tmp_path / "few.npz", times=3, kind="classes", minus=1, cache=None, progress=False)
    assert counted.value == 29
    with pytest.raises(UserError, match="kind must be rows or classes, got 'row': did you mean 'rows'"):
        function(model, tmp_path / "few.npz", kind="row")
    for given, message in (({"times": 10}, "at most 9"), ({"time": 1}, "did you mean 'times'"), ({"times": 9}, "nine")):
        with pytest.raises(UserError, match=message):
            evaluation.evaluate(model, tmp_path / "few.npz", "counted", options={"counted": given}, **how)


@pytest.fixture
def outside(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> str:
    """The same file in a package of one's own, and its name."""
    (tmp_path / "mine").mkdir()
    (tmp_path / "mine" / "__init__.py").write_text("")
    (tmp_path / "mine" / "counted.py").write_text(OWN)
    monkeypatch.syspath_prepend(str(tmp_path))
    monkeypatch.setattr(protocols, "_given", {})
    yield "mine.counted:Options"
    for name in ("mine", "mine.counted"):
        sys.modules.pop(name, None)


def few_digits(folder: Path) -> Path:
    images = open_images("digits", split="train")
    few = {"x_train": images.pixels[:40, 0], "y_train": images.labels[:40]}
    np.savez(folder / "few.npz", **few, x_test=images.pixels[40:60, 0], y_test=images.labels[40:60])
    return folder / "few.npz"


def test_a_protocol_from_outside_is_run_by_its_name(outside: str, tmp_path: Path) -> None:
    data, model = few_digits(tmp_path), sslkit.load("random:narrow_resnet", image_size=8, in_chans=1)
    how = {"out": tmp_path / "out", "cache": None, "progress": False}
    options = {"counted": {"times": 3, "kind": "classes", "minus": 1}}
    found, known = evaluation.evaluate(model, data, [outside, "knn"], options=options, **how)
    assert (found.protocol, found.value, known.protocol) == ("counted", 29, "knn")
    assert [(row.metric, row.value) for row in list_rows([found])] == [("counted", 29), ("rows", 40)]
    function = protocols.function(outside)
    own = inspect.signature(function).parameters
    assert (own["times"].default, own["kind"].annotation, function.__name__) == (2, str, "counted")
    assert "how often each is counted" in function.__doc__ and {"device", "cache", "seed"} <= own.keys()
    [again] = function(model, data, times=3, cache=None, progress=False)
    assert again.value == 120
    for given, message in (
        ({"times": 10}, "protocol counted option times must be a whole number, .*at most 9"),
        ({"kind": "row"}, "kind must be rows or classes, got 'row': did you mean 'rows'"),
        ({"time": 1}, "protocol counted has no option 'time': did you mean 'times'"),
        ({"times": 9}, "nine times is once too often"),
    ):
        with pytest.raises(UserError, match=message) as caught:
            evaluation.evaluate(model, data, outside, options={"counted": given}, **how)
        assert "\n" not in str(caught.value)


def test_a_result_never_makes_code_run_that_was_not_named(outside: str) -> None:
    for name in ("counted", outside):
        result = Result(name, "", "counted", 1.0, others={"rows": Estimate(40.0)})
        assert list_rows([result]) == [result]
    assert "mine.counted" not in sys.modules


@pytest.mark.parametrize(
    ("name", "content", "message"),
    [
        ("mine.none:Options", None, r"cannot import 'mine.none:Options' \(written package.module:Options\)"),
        ("mine.counted:Own", OWN, r"cannot import 'mine.counted:Own'.*has no attribute 'Own'"),
        ("mine.counted:open", OWN, "is no protocol: mine.counted has no dataclass open"),
        ("mine.counted:Options", OWN[: OWN.index("def run")], "is no protocol: mine.counted has no run, beside"),
        ("mine.counted:Options", "1 / 0", r"ZeroDivisionError: division by zero \(.*counted.py, line 1\)"),
        ("mine.knn:Options", OWN, "there is another protocol 'knn': give the module another name"),
    ],
)
def test_what_is_no_protocol_is_one_line(
    name: str, content: str | None, message: str, outside: str, tmp_path: Path
) -> None:
    if content is not None:
        (tmp_path / "mine" / f"{protocols.key(name)}.py").write_text(content)
    sys.modules.pop("mine.knn", None)
    with pytest.raises(UserError, match=message) as caught:
        evaluation.evaluate("random:narrow_resnet", "digits", name, image_size=8)
    assert "\n" not in str(caught.value)


def test_a_file_that_lacks_a_name_is_no_protocol(counted: None, tmp_path: Path) -> None:
    (tmp_path / "own" / "counted.py").write_text(OWN[: OWN.index("def beside")])
    with pytest.raises(AttributeError, match="beside"):
        protocols.find("counted")
