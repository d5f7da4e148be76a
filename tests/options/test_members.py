"""Members are files found by name; unknown names and options are refused with the nearest one."""

import inspect
import math
from pathlib import Path
from typing import Literal

import pytest

from evaluation import protocols
from sslkit import objectives, regularizers
from sslkit.errors import UserError
from sslkit.options import members
from sslkit.options.settings import alternatives, plain


@pytest.mark.parametrize("family", [objectives, regularizers])
def test_every_file_of_the_folder_is_a_member(family) -> None:
    folder = Path(family.__file__).parent
    there = {p.stem for p in folder.iterdir() if (p.suffix == ".py" or (p / "__init__.py").exists())}
    assert set(family.names()) == there - {"__init__", "base", "__pycache__"}
    for name in family.names():
        assert members.summary(family.find(name)), f"{name} needs a first docstring line for --help"


SHARED = {"segmentation": "detection"}  # a protocol that is another one with masks


@pytest.mark.parametrize(
    "family", ["sslkit.objectives", "sslkit.regularizers", "sslkit.zoo.exporting", *protocols.families()]
)
def test_every_member_has_a_test_of_its_own(family: str) -> None:
    folder = Path(__file__).parents[1].joinpath(*family.removeprefix("sslkit.").split("."))
    for name in members.names(family):
        own = SHARED.get(name, name)
        found = (folder / f"test_{own}.py").is_file() or (folder / own).is_dir()
        assert found, f"the member {name} of {family} has no test: add {folder / f'test_{name}.py'}"


@pytest.mark.parametrize("family", [objectives, regularizers])
def test_options_are_the_signature(family) -> None:
    for name in family.names():
        first, *rest = inspect.signature(family.find(name)).parameters.values()
        assert first.kind is first.POSITIONAL_OR_KEYWORD
        for p in rest:
            assert p.kind is p.KEYWORD_ONLY and p.default is not p.empty and p.annotation is not p.empty, (name, p)
            assert p.name in inspect.getdoc(family.find(name)), f"{name}: option {p.name} is not explained"


def test_unknown_names_come_with_the_nearest() -> None:
    with pytest.raises(UserError, match="did you mean 'simclr'"):
        objectives.find("simclrr")
    with pytest.raises(UserError, match="did you mean 'temperature'"):
        members.check_options(objectives.find("simclr"), {"temprature": 1}, "objective")


@pytest.mark.parametrize("name", ["no.such.module:Thing", "sslkit.layers.heads:nothing", "sslkit.layers.heads:mlp"])
def test_a_bad_name_from_outside_is_one_clear_error(name: str) -> None:
    with pytest.raises(UserError):
        objectives.find(name)


def test_a_class_from_outside_is_taken() -> None:
    assert objectives.find("sslkit.objectives.simclr:SimCLR") is objectives.find("simclr")


def test_modules_that_are_functions_too() -> None:
    import sslkit

    assert sslkit.regularizers() == regularizers.names()
    assert set(sslkit.methods()) >= {"byol", "simclr"}


def test_a_name_that_begins_another_one_finds_its_own() -> None:
    assert objectives.find("moco").__name__ == "MoCo" and objectives.find("moco_v3").__name__ == "MoCoV3"
    assert objectives.find("mae").__name__ == "MAE" and objectives.find("u_mae").__name__ == "UMAE"


@pytest.mark.parametrize("family", [objectives, regularizers])
def test_every_option_has_a_line_of_text(family) -> None:
    for name in family.names():
        member = family.find(name)
        said = members.texts(member)
        assert {option for option in members.options(member) if len(said.get(option, "")) < 5} == set(), name


def test_the_text_of_an_option_is_its_first_sentence() -> None:
    class Base:
        """One.

        a: of the base. More of it.
        b, c: of both (Song et al. 2024), over
            two lines; no more. d: on the same line.
        Raises UserError: never.
        """

    class Own(Base):
        """As in Base: a, b, c.

        d: its own
        """

    own = {"a": "of the base", "b": "of both (Song et al. 2024), over two lines; no more", "d": "its own"}
    assert members.texts(Own) == {**own, "c": own["b"]}
    assert members.texts(Base)["d"] == "on the same line"
    assert members.texts(lambda: None) == {}


def test_numpys_numbers_are_numbers() -> None:
    import numpy as np

    from sslkit.regularizers.dsa import DSA

    assert members.check_options(DSA, {"nu": np.float32(0.5)}, "dsa")
    with pytest.raises(UserError, match="must be a number"):
        members.check_options(DSA, {"nu": np.True_}, "dsa")


NUMERIC = [
    (member, name, parameter.annotation)
    for family in (objectives, regularizers)
    for member in map(family.find, family.names())
    for name, parameter in inspect.signature(member).parameters.items()
    if parameter.kind is parameter.KEYWORD_ONLY and {int, float} & set(alternatives(plain(parameter.annotation)[0]))
]


@pytest.mark.parametrize(("member", "name", "annotation"), NUMERIC, ids=lambda part: getattr(part, "__name__", ""))
def test_every_number_has_a_range(member: type, name: str, annotation: object) -> None:
    """DSA's alpha alone is any number."""
    bad = [math.nan, math.inf, -math.inf, 10**400, True, [1]]
    bad += [] if name == "alpha" and member.__name__ == "DSA" else [-1, -0.5, 10**12]
    for value in bad:
        with pytest.raises(UserError, match=rf"^x option {name} must be .*, got "):
            members.check_options(member, {name: value}, "x")
    default = members.options(member)[name]
    assert members.check_options(member, {name: default}, "x") == {name: default}


def test_options_must_be_a_mapping_and_lists_are_checked_within() -> None:
    vicregl = objectives.find("vicregl")
    for given in (5, "dim", ["dim"]):
        with pytest.raises(UserError, match="x must be a mapping of options"):
            members.check_options(vicregl, given, "x")
    for value in (5, "20", [20, "4"], [20, 0], [math.nan]):
        with pytest.raises(UserError, match="num_matches must be a list"):
            members.check_options(vicregl, {"num_matches": value}, "x")


def test_a_literal_is_a_text_of_a_list() -> None:
    def evaluate(*, form: Literal["a", "b"] = "a") -> None: ...

    assert members.check_options(evaluate, {"form": "b"}, "x") == {"form": "b"}
    for value in ("c", 1, None):
        with pytest.raises(UserError, match=r"^x option form must be a or b, got "):
            members.check_options(evaluate, {"form": value}, "x")
