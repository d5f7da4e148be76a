"""Names with signs that Hydra reads, and several folders, on command lines."""

import shlex
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import fuzzing
import pytest
from hydra.core.override_parser.overrides_parser import OverridesParser
from omegaconf import OmegaConf
from PIL import Image

from sslkit.cli import grid
from sslkit.cli.words import hint_to_escape, quote_each, quote_value

from sslkit.options.settings import setting
from sslkit.terminal.say import words
from sslkit.training.config import Config


@dataclass
class Zoo:
    """The settings of recipes/zoo.py that say which members there are."""

    methods: list[str] | str = setting((), "methods")
    plugins: list[str] | str = setting(("none",), "plugins")
    seeds: list[int] | int = setting((0,), "seeds")
    cluster: str | None = setting(None, "launcher")


PLAIN = ("method=simclr", "batch_size=128")


def parsed(word: str) -> Any:
    """What a recipe gets of a word as the shell passes it on."""
    value = OverridesParser.create().parse_override(quote_value(word, {"data"})).value()
    return OmegaConf.to_container(OmegaConf.create({"x": value}), resolve=True)["x"]


@pytest.mark.parametrize("name", ["d${x}", "a/${b}/${c}", "a@b", "runs/a@b,c", "x$y", "a b${c}"])
def test_the_words_of_a_printed_command_mean_the_name(name: str) -> None:
    (word,) = shlex.split(words({"data": name}))
    assert parsed(word) == name


@pytest.mark.parametrize(
    ("typed", "said"),
    [
        (["method=byol", "data=d${x}"], "; if the ${ belongs to a name, write 'data=d\\${x}'"),
        (["out=a/${b}/${c}"], "; if the ${ belongs to a name, write 'out=a/\\${b}/\\${c}'"),
        (["data=d\\${x}"], ""),
        (["data=$x"], ""),
    ],
)
def test_the_way_to_write_it(typed: list[str], said: str) -> None:
    assert hint_to_escape(typed) == said


@pytest.mark.parametrize("setting", ["data", "out", "init", "name"])
def test_a_name_that_is_taken_for_another_setting_is_one_line_that_says_how_to_write_it(setting: str, tmp_path) -> None:
    ended = fuzzing.run("train", (*PLAIN, f"{setting}=x${{y}}"), tmp_path)
    assert ended.code == 2 and not ended.fault()
    assert "Interpolation key 'y' not found" in ended.err and "write '" in ended.err and "x\\${y}" in ended.err


def test_so_written_it_is_the_name(tmp_path: Path) -> None:
    ended = fuzzing.run("train", (*PLAIN, r"data=x\${y}.npz"), tmp_path)
    assert ended.code == 2 and "there is no file or folder" in ended.err and "x${y}.npz" in ended.err


@pytest.mark.parametrize("typed", ["data=first,second", "data=[first,second]", 'data="first,second"'])
def test_several_folders_are_typed_as_they_are_read(typed: str, tmp_path: Path) -> None:
    for name in ("first", "second"):
        (tmp_path / name).mkdir()
        Image.new("L", (8, 8)).save(tmp_path / name / "1.png")
    ended = fuzzing.run("train", (*PLAIN, typed), tmp_path)
    assert ended.code == 2 and "data 'first,second' has 2 images, fewer than one batch" in ended.err


def test_a_sweep_on_a_cluster_keeps_them_together() -> None:
    ones = [(grid.Wanted("x", 0, ("method=x", "seed=0", "data=a,b", "epochs=3")), False)]
    assert grid.multiruns(ones) == [["-m", "method=x", "seed=0", 'data="a,b"', "epochs=3"]]


ODD = (
    "photos/Ünal",
    "photos Ü",
    "d/photos (2024)",
    "Anna & Bob",
    "shards:d/imagenet-{train,val}-{000..146}.tar",
    "2024",
)


@pytest.mark.parametrize("name", ODD)
def test_a_zoo_and_a_sweep_take_what_one_run_takes(name: str) -> None:
    word = f"data={name}"
    _, shared = grid.parse_words(["methods=[byol]", word], Zoo(), Config())
    ((*_, as_sweep),) = grid.multiruns([(grid.Wanted("x", 0, ("method=x", "seed=0", *shared)), False)])
    for typed in (as_sweep, *([] if "," in name else [quote_each(word, {"data"})])):
        override = OverridesParser.create().parse_override(typed)
        assert not override.is_sweep_override() and str(getattr(override.value(), "text", override.value())) == name
    assert parsed(word) == name


def test_each_value_of_a_sweep_is_a_text() -> None:
    typed = quote_each("data=Ünal/a b,2024,'c,d',plain,null", {"data"})
    values = list(OverridesParser.create().parse_override(typed).sweep_iterator())
    assert [getattr(one, "text", one) for one in values] == ["Ünal/a b", "2024", "c,d", "plain", None]
    for word in ("seed=range(0,3)", "data=choice(a,b)", "epochs=1,2", r"data=a\,b", "method=byol,simclr+dsa", "-m"):
        assert quote_each(word, {"data"}) == word


def test_names_in_a_list() -> None:
    typed = "checkpoint=[runs/zoo/byol-Übung-e6-s0,timm:resnet18, a=b ,'c,d',[x,y],ped(lam=0.3)]"
    value = OverridesParser.create().parse_override(quote_value(typed)).value()
    assert [getattr(one, "text", one) for one in value] == [
        *("runs/zoo/byol-Übung-e6-s0", "timm:resnet18", "a=b", "c,d"),
        ["x", "y"],
        "ped(lam=0.3)",
    ]


@pytest.mark.parametrize(
    "typed", ["zoo=[a,,b]", "zoo=[a,]", "zoo=[a,[b,[c]]]", "zoo=[[[a,b]],c]", "zoo=[]", "zoo=[[a],{b:c}]"]
)
def test_a_list_of_another_form_is_left_to_the_grammar(typed: str) -> None:
    assert quote_value(typed) == typed
    assert quote_each("data=a,,b", {"data"}) in ("data=a,,b", 'data="a,,b"')
