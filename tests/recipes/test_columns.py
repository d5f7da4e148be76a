"""`columns.*` are obeyed by each command that reads labels, and refused by the others, before anything is computed."""

import inspect
from collections.abc import Callable, Collection
from pathlib import Path
from typing import Any

import pytest
import torch
from commands import COMMANDS
from patients import NAMES, picture, rows
from random_entries import made

import evaluation
import sslkit
from sslkit import zoo
from sslkit.data.columns import OPTIONS
from sslkit.zoo.classifier import SOFTMAX, Classifier

UNUSUAL = {"bild": "file_name", "Befund": "finding", "Teil": "part", "Fall": "patient"}
WORDS = ["columns.image=bild", "columns.label=Befund", "columns.split=Teil", "columns.group=Fall"]
CHOSEN = "columns.where=Befund != other"
FEW = ["image_size=16", "batch_size=16", "epochs=1", "eval.tsne=0", "eval.k=3", "progress=false"]
TUNED = ["steps=2", "lr=[0.01]"]
OBEYED = {  # a command as short as it gets, and what it says when it has read the columns
    "train": (["method=simclr", *FEW], "intervals as of 2 images, since they come in groups"),
    "zoo": (["methods=simclr", "plugins=none", *FEW], "python recipes/rank.py zoo=runs/zoo data=list.csv"),
    "evaluate": (["checkpoint=zoo/a", "protocols=[knn]"], "wilson over 2 groups of images"),
    "linear_eval": (["checkpoint=zoo/a"], "wilson over 2 groups of images"),
    "few_shot": (
        ["checkpoint=zoo/a", "n_way=2", "k_shot=[1]", "n_query=1", "episodes=3"],
        None,
    ),  # 2 groups: too few
    "rank": (["zoo=zoo", "metrics=[logme,leep]", "bootstrap=0", "pictures=false"], "are of 8 groups"),
    "choose": (["zoo=zoo", "metrics=[knn]", "first=2", *TUNED, "pictures=false"], "are of 6 groups"),
    "solve": (["zoo=zoo", "methods=[]", "tune=false"], "groups of images"),
    "ground_truth": (["zoo=zoo", *TUNED, "seeds=[0]"], "list.csv: a"),
    "finetune": (["checkpoint=zoo/a", "head=linear"], "wilson over 2 groups of images"),
    "embed": (["checkpoint=zoo/a", "out=features.npz"], "40 images"),
    "predict": (["checkpoint=zoo/a"], "predicted 40 images"),
    "look": ([], "40 images (32 train, 8 test), 2 classes, 10 groups"),
    "shards": (["out=shards"], "data=shards:shards columns.group=group"),
    "action_eval": (["checkpoint=random:slow_r50"], None),  # of films
}
DATA = {"shards": "folder"}
REFUSED = sorted({*COMMANDS, "train", "zoo"} - OBEYED.keys())  # no data set with labels of its own


STEPS = {"grid": {"iterations": 2}}
CALLS: dict[str, Callable[..., Any]] = {  # of Python: with what each is called, as short as it gets
    "action_recognition": lambda data, **how: evaluation.action_recognition("random:slow_r50", f"video:{data}", **how),
    "attentive": lambda data, **how: evaluation.attentive("random:narrow_vit", data, image_size=32, **STEPS, **how),
    "embed": lambda data, **how: evaluation.embed("zoo/a", data, **how),
    "evaluate": lambda data, **how: evaluation.evaluate("zoo/a", data, protocols=["knn"], **how),
    "extract": lambda data, **how: evaluation.extract("zoo/a", data, **how),
    "fine_tune": lambda data, **how: evaluation.fine_tune("zoo/a", data, steps=2, grid={"lr": [0.01]}, **how),
    "finetune": lambda data, **how: evaluation.finetune("zoo/a", data, head="linear", **how),
    "lidar": lambda data, **how: evaluation.lidar("zoo/a", data, **how),
    "linear_grid": lambda data, **how: evaluation.linear_grid("zoo/a", data, **STEPS, **how),
    "look": lambda data, **how: sslkit.look(data, **how),
    "open_images": lambda data, **how: sslkit.open_images(data, **how),
    "open_split": lambda data, **how: evaluation.open_split(data, "train", **how),
    "patch_quality": lambda data, **how: evaluation.patch_quality("random:narrow_vit", data, image_size=32, **how),
    "predict": lambda data, **how: sslkit.predict("zoo/a", data, **how),
    "rank": lambda data, **how: evaluation.rank(["zoo/a"], data, metrics=["logme"], **how),
    "retrieval": lambda data, **how: evaluation.retrieval("zoo/a", data, **how),
    "robustness": lambda data, **how: evaluation.robustness("zoo/a", data, **how),
    "evaluators": lambda data, **how: evaluation.evaluators("knn", data, **how)[0].check(sslkit.load("zoo/a")),
    "semi_supervised": lambda data, **how: evaluation.semi_supervised("zoo/a", data, **how),
    "solve": lambda data, **how: evaluation.solve(data, zoo=["zoo/a"], methods=[], tune=False, **how),
    "view_retrieval": lambda data, **how: evaluation.view_retrieval("zoo/a", data, **how),
}


@pytest.fixture(scope="module")
def place(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Pictures with a table whose columns have no usual name, and a zoo that was trained on them."""
    folder = tmp_path_factory.mktemp("columns")
    for name in NAMES:
        (folder / name).write_bytes(picture(name))
    lines = [",".join(str(row[column]) for column in UNUSUAL.values()) for row in rows()]
    (folder / "list.csv").write_text("\n".join([",".join(UNUSUAL), *lines]))
    columns = dict(word.removeprefix("columns.").split("=") for word in WORDS)
    for seed, name in enumerate("ab"):
        entry = zoo.ZooEntry.load(made(folder / "zoo", name, "list.csv", seed=seed, images=32))
        entry = zoo.update(entry, config={"columns": columns})
        layers = torch.nn.Sequential(torch.nn.Linear(128, 2)).eval()
        entry.keep_classifier(Classifier(layers, ("x", "y"), SOFTMAX, {"data": "list.csv", "made": "at random"}))
    return folder


@pytest.mark.parametrize("command", [name for name, (_, said) in OBEYED.items() if said])
def test_columns_are_obeyed_and_stand_in_the_next_command(command: str, place: Path, typed) -> None:
    words, said = OBEYED[command]
    done = typed(command, f"{DATA.get(command, 'data')}=list.csv", *words, *WORDS, CHOSEN, cwd=place)
    assert done.returncode == 0, done.stderr
    text = " ".join(done.stdout.replace("\\\n", "").split())
    assert said in text and "cannot be opened" not in text, text
    following = text.rpartition("python recipes/")[2]
    without = ("finetune", "ground_truth", "look", "predict", "shards", "solve")
    assert command in without or all(word in following for word in (*WORDS, CHOSEN[:14])), following


def test_retrieval_looks_for_instances(place: Path, typed) -> None:
    words = ["checkpoint=zoo/a", "data=list.csv", "protocols=[retrieval]", "retrieval.split=train", "cache=null"]
    done = typed("evaluate", *words, *WORDS[:3], "columns.instance=Fall", cwd=place)
    assert done.returncode == 0, done.stderr
    text = " ".join(done.stdout.replace("\\\n", "").split())
    assert "jackknife over images" in text
    assert "columns.instance=Fall" in text.rpartition("python recipes/")[2]


@pytest.mark.parametrize("command", OBEYED)
def test_a_column_that_is_not_there_ends_in_one_line(command: str, place: Path, typed) -> None:
    data = f"{DATA.get(command, 'data')}={'video:' if command == 'action_eval' else ''}list.csv"
    for word in WORDS[1:]:
        others = [other for other in WORDS if other != word]
        done = typed(command, data, *OBEYED[command][0], *others, f"{word}x", "out=nothing.csv", cwd=place)
        assert done.returncode == 2 and len(done.stderr.strip().splitlines()) == 1, done.stderr
        assert f"{word}x: list.csv has no such column: did you mean" in done.stderr
        assert not (place / "nothing.csv").exists()
    done = typed(command, data, *OBEYED[command][0], *WORDS, "columns.where=Fal == p0", "out=nothing.csv", cwd=place)
    assert done.returncode == 2 and len(done.stderr.strip().splitlines()) == 1, done.stderr
    assert "columns.where='Fal == p0': list.csv has no column 'Fal': did you mean 'Fall'?" in done.stderr


@pytest.mark.parametrize("command", OBEYED)
def test_a_column_of_texts_that_is_said_to_hold_numbers_ends_in_one_line(command: str, place: Path, typed) -> None:
    data = f"{DATA.get(command, 'data')}={'video:' if command == 'action_eval' else ''}list.csv"
    done = typed(command, data, *OBEYED[command][0], *WORDS, "columns.label_kind=number", "out=nothing.csv", cwd=place)
    assert done.returncode == 2 and len(done.stderr.strip().splitlines()) == 1, done.stderr
    said = {"look": "a manifest holds classes", "action_eval": "list.csv"}
    assert said.get(command, "is no finite number, and columns.label_kind=number reads numbers") in done.stderr
    assert not (place / "nothing.csv").exists()


@pytest.mark.parametrize("command", [name for name in OBEYED if name not in ("evaluate", "action_eval")])
def test_instances_are_refused_where_nothing_is_retrieved(command: str, place: Path, typed) -> None:
    data = f"{DATA.get(command, 'data')}=list.csv"
    words = ["columns.instance=Fall", "out=nothing.csv"]
    done = typed(command, data, *OBEYED[command][0], *WORDS, *words, cwd=place)
    assert done.returncode == 2 and len(done.stderr.strip().splitlines()) == 1, done.stderr
    assert "columns.instance=Fall: only the protocol retrieval reads it" in done.stderr
    assert not (place / "nothing.csv").exists()


@pytest.mark.parametrize("command", REFUSED)
@pytest.mark.parametrize("option", OPTIONS)
def test_a_command_without_columns_says_so(command: str, option: str, place: Path, typed) -> None:
    done = typed(command, f"{option}=Befund", cwd=place)
    assert done.returncode == 2 and f"there is no setting '{option}'" in done.stderr, done.stderr


def test_every_call_with_columns_is_here() -> None:
    public = [(module, name) for module in (sslkit, evaluation) for name in module.__all__]
    calls = {name for module, name in public if "columns" in _parameters(getattr(module, name))}
    assert calls - {"anomaly"} == CALLS.keys()  # whose images are told by folders of normal ones, and by no table


def _parameters(value: Any) -> Collection[str]:
    return inspect.signature(value).parameters if inspect.isfunction(value) else ()


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("call", CALLS)
def test_a_call_is_told_of_a_column_that_is_not_there(call: str, place: Path, monkeypatch) -> None:
    monkeypatch.chdir(place)
    named = dict(word.removeprefix("columns.").split("=") for word in WORDS)
    with pytest.raises(
        sslkit.UserError, match=r"columns\.group=Fal: list\.csv has no such column: did you mean 'Fall'"
    ):
        CALLS[call]("list.csv", columns=named | {"group": "Fal"})


@pytest.mark.filterwarnings("ignore")
def test_features_and_a_tuned_network_have_the_labels_and_groups_of_columns(place: Path, monkeypatch) -> None:
    monkeypatch.chdir(place)
    columns = dict(word.removeprefix("columns.").split("=") for word in WORDS) | {"where": "Fall != 'no 0'"}
    quick = {"columns": columns, "cache": None, "device": "cpu", "progress": False}
    features = evaluation.extract("zoo/a", "list.csv", **quick)
    named = {row["file_name"]: row for row in rows() if row["part"] == "train" and row["patient"] != "no 0"}
    assert len(features.y) == len(named) and len(set(features.groups.tolist())) == 7
    labels = [features.classes[label] for label in features.y]
    assert labels == [named[name]["finding"] for name in sorted(named)]
    result = CALLS["fine_tune"]("list.csv", batch_size=8, **quick)
    assert result.details["images"] == len(named)


def test_a_manifest_is_written_anew_with_its_columns(place: Path, typed) -> None:
    assert typed("look", "data=list.csv", *WORDS, "out=mine.csv", cwd=place).returncode == 0
    changed = (place / "mine.csv").read_text().replace(NAMES[0], "p0_9.png", 1)
    (place / "mine.csv").write_text(changed)
    with pytest.raises(sslkit.UserError) as raised:
        sslkit.open_images(str(place / "mine.csv"))
    assert f"python recipes/look.py data=list.csv out={place}/mine.csv {' '.join(WORDS)}" in str(raised.value)
