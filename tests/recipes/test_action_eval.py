"""action_eval.py as a person types it, and what it calls."""

import dataclasses
import importlib
import os
import shlex
import subprocess
import sys
import time
from pathlib import Path

import pytest
from motion_films import write_motions
from unfolded import unfolded

import sslkit
from evaluation.judging.summary import evaluate_by_protocol
from evaluation.results import OUT, store
from evaluation.results.records import read_records
from evaluation.results.result import Result
from evaluation.tasks.action.output import hint
from evaluation.tasks.action.protocols.action import Options, action
from evaluation.tasks.action.recipes import RECIPES as NAMED
from sslkit import backbones, zoo
from sslkit.data.columns import Columns
from sslkit.errors import UserError
from sslkit.options import members
from sslkit.zoo import ZooEntry

RECIPES = Path(__file__).parents[2] / "recipes"
NET = ["checkpoint=random:narrow_slow", "image_size=16", "frames=4", "stride=2"]
QUICK = ["epochs=1", "batch_size=8", "clips=2", "crops=1", "workers=0"]


def judge(checkpoint: object = None, data: object = None, **words: object) -> list[Result]:
    return evaluate_by_protocol("action", checkpoint, None, data, **words)


def command(*words: str, cwd: Path) -> subprocess.CompletedProcess:
    call = [sys.executable, str(RECIPES / "action_eval.py"), *words]
    return subprocess.run(call, capture_output=True, text=True, cwd=cwd, timeout=600, env={**os.environ})


@pytest.fixture(scope="module")
def place(tmp_path_factory) -> Path:
    root = tmp_path_factory.mktemp("place")
    write_motions(root / "motion", train=4)
    return root


@pytest.mark.nightly
def test_both_protocols_run_end_to_end(place: Path) -> None:
    for words, said in ((["features=once"], "linear, paper_k400"), (["protocol=fine_tune"], "fine-tune, paper_ucf101")):
        done = command(*NET, "data=video:motion", *QUICK, *words, cwd=place)
        assert done.returncode == 0, done.stderr
        assert "8 training and 6 test videos" in done.stdout and said in done.stdout
        assert "wilson over images" in done.stdout and "next      python recipes/action_eval.py" in done.stdout
    kept = store.read(place / "runs" / "evaluation" / "random_narrow_slow")
    assert [result.protocol for result in kept] == ["action", "action"]
    assert (place / "runs" / "cache").is_dir(), "the index of the films is kept"


def test_what_is_missing_is_one_line_and_exit_code_2(tmp_path: Path, typed) -> None:
    done = typed("action_eval", *NET, "recipe=paper_ucf101", cwd=tmp_path)
    assert done.returncode == 2 and done.stderr.count("\n") == 1, done.stderr
    assert done.stderr.startswith("error: UCF101 cannot be opened from") and "crcv.ucf.edu" in done.stderr


def test_help_says_every_recipe_and_setting(monkeypatch) -> None:
    monkeypatch.syspath_prepend(str(RECIPES))
    recipe, shared = (importlib.import_module(name) for name in ("action_eval", "sslkit.cli.help"))
    said = shared.plain_help(recipe.SETTINGS, recipe.__doc__, {})
    assert all(name in said for name in NAMED)
    assert "checkpoint=null" in said and "rule=slowfast" in said


def test_one_list_of_options_is_that_of_the_others(monkeypatch) -> None:
    """`action`, its protocol's `Options` and the command's settings: the same names, the same defaults."""
    monkeypatch.syspath_prepend(str(RECIPES))
    settings = vars(importlib.import_module("action_eval").SETTINGS)
    options, of_protocol = members.options(action), members.options(Options)
    assert of_protocol == {name: options[name] for name in of_protocol}
    options = {name: value for name, value in options.items() if name != "say"}
    assert settings == {"checkpoint": None, "zoo": None, "data": None, **options, "out": OUT}


@pytest.mark.nightly
def test_a_killed_command_goes_on_and_ends_the_same(place: Path, tmp_path: Path) -> None:
    words = [*NET, f"data=video:{place}/motion", "protocol=fine_tune", "epochs=6", *QUICK[1:], "save_seconds=0"]
    call = [sys.executable, str(RECIPES / "action_eval.py"), *words]
    process = subprocess.Popen(call, cwd=tmp_path, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    while not (found := list(tmp_path.rglob(".action-*.ckpt"))) and process.poll() is None:
        time.sleep(0.01)
    process.kill()
    process.wait()
    assert found, "it was killed while it trained"
    assert command(*words, cwd=tmp_path).returncode == 0
    assert command(*words, "out=whole", cwd=tmp_path).returncode == 0
    cut, whole = (
        next(iter(read_records(folder / "random_narrow_slow" / "action.jsonl").values()))
        for folder in (tmp_path / "runs" / "evaluation", tmp_path / "whole")
    )
    assert cut["losses"] == whole["losses"] and cut["right"] == whole["right"] and cut["run"] == whole["run"]


def test_two_networks_are_compared_and_their_results_kept(place: Path, monkeypatch, capsys) -> None:
    monkeypatch.chdir(place)
    options = {"epochs": 1, "frames": 4, "stride": 2, "clips": 2, "crops": 1, "features": "once", "workers": 0}
    both = ["random:narrow_slow:1", "random:narrow_slow:2"]
    results = judge(both, data="video:motion", image_size=16, out="out", cache=None, progress=False, **options)
    said = unfolded(capsys.readouterr().out)
    assert (
        "no verdict" not in said
        and [result.model for result in results] == both
        and results[0].paired_on == results[1].paired_on
    )
    assert all(name in said for name in both) and "0.49 M parameters, 128 features, clips of 16 frames" in said
    (line,) = (line for line in said.splitlines() if line.startswith("next "))
    assert all(word in shlex.split(line) for word in ("image_size=16", "out=out", "stride=2", "protocol=fine_tune"))
    assert f"checkpoint=[{','.join(both)}]" in shlex.split(line)
    assert "action on motion, top1: " in said and "McNemar Holm-adjusted p (3 pairs) = 1.00" in said
    for name in both:
        (kept,) = store.read(place / "out" / name.replace(":", "_"))
        assert kept.outcomes is not None and len(kept.outcomes) == 6


def test_networks_of_other_clips_get_no_verdict(place: Path, monkeypatch, capsys) -> None:
    monkeypatch.chdir(place)
    options = {"epochs": 1, "frames": 4, "clips": 1, "crops": 1, "features": "once", "workers": 0, "progress": False}
    both = [sslkit.load(f"random:narrow_slow:{size}", image_size=size) for size in (16, 20)]
    judge(both, data="video:motion", out="sizes", cache=None, **options)
    said = unfolded(capsys.readouterr().out)
    assert "no verdict between networks of other clips (" in said and "McNemar" not in said
    told = "random:narrow_slow:16: 4 x 16 at 16 px; random:narrow_slow:20: 4 x 16 at 20 px"
    assert told in " ".join(said.split())


def parsed(command: str, monkeypatch) -> dict:
    """The settings that Hydra reads of a command line, given by a shell."""
    from hydra.core.override_parser.overrides_parser import OverridesParser
    from omegaconf import OmegaConf

    monkeypatch.syspath_prepend(str(RECIPES))
    quote_value = importlib.import_module("sslkit.cli.words").quote_value
    program, recipe, *words = shlex.split(command, comments=True)
    assert (program, recipe) == ("python", "recipes/action_eval.py")
    found = OverridesParser.create().parse_overrides([quote_value(word) for word in words])
    return {one.key_or_group: OmegaConf.to_container(OmegaConf.create([one.value()]))[0] for one in found}


UNUSUAL = {
    "data": 'video:my films/a=b, c\'s "d"',
    "root": "other root",
    "folds": [1],
    "frames": 4,
    "stride": 2,
    "clips": 3,
    "crops": 1,
    "rule": "endpoints",
    "precision": "bfloat16",
    "seed": 3,
    "image_size": 16,
    "cache": None,
    "out": "here",
    "counts": "warn",
    "on_error": "raise",
    "save_seconds": 1.5,
    "mirror": False,
    "device": "cpu",
    "workers": 0,
    "progress": False,
    "in_chans": 3,
    "trust": "own:net",
}
TRAINED = {"epochs": 2, "batch_size": 3, "lr": 0.25, "weight_decay": 1e-3, "dropout": 0.5, "recipe": "paper_k400"}
TRAINED |= {"protocol": "linear", "features": "once"}


def result(stride: int = 2) -> Result:
    return Result("action", "", "top1", 0.5, details={"stride": stride})


def test_the_next_command_has_every_option_and_can_be_pasted(monkeypatch) -> None:
    assert {*UNUSUAL, *TRAINED} | {"say", "columns"} == {*members.options(action), "data"}, "all of them are tried here"
    model = sslkit.load("random:narrow_slow:1", image_size=16)
    said = hint(["random:narrow_slow:1"], model, result(), {**UNUSUAL, **TRAINED})
    wanted = {"checkpoint": "random:narrow_slow:1", **UNUSUAL, "protocol": "fine_tune"}
    assert parsed(said, monkeypatch) == wanted, "those of the linear recipe are not for the other protocol"
    said = hint(
        ["a", "random:b"], model, result(), {**members.options(action), "protocol": "fine_tune", "seed": 1, "out": OUT}
    )
    wanted = {"checkpoint": ["a", "random:b"], "seed": 1, "protocol": "linear"}
    assert parsed(said, monkeypatch) == wanted, "defaults are left out"
    said = hint(["a", "random:b"], model, result(), {"columns": Columns(group="film", label=["a", "b"])})
    assert "columns.group=film" in said and "columns.label=[a,b]" in said


def test_the_next_command_of_an_entry_gives_its_films_and_stride_to_the_untrained_network(monkeypatch) -> None:
    entry = ZooEntry(Path("my zoo/byol+dsa,0"), {"data": {"source": "video:own films"}})
    model = dataclasses.replace(sslkit.load("random:narrow_slow", image_size=16), entry=entry)
    both = ["my zoo/byol+dsa,0", "random:my zoo/byol+dsa,0"]
    said = hint(both[:1], model, result(stride=3), {})
    assert parsed(said, monkeypatch) == {"checkpoint": both, "data": "video:own films", "stride": 3}
    said = hint(both[:1], model, result(), {**UNUSUAL, **TRAINED})
    assert parsed(said, monkeypatch) == {"checkpoint": both, **UNUSUAL, **TRAINED}
    said = hint(both[:1], model, result(), {"recipe": "paper_ucf101", "folds": [2]})
    assert parsed(said, monkeypatch) == {"checkpoint": both, "recipe": "paper_ucf101", "folds": [2], "stride": 2}


def test_the_next_command_of_an_entry_compares_it_with_the_untrained_network(place: Path, monkeypatch, capsys) -> None:
    monkeypatch.chdir(place)
    body = backbones.build("narrow_slow", image_size=16, in_chans=3, frames=4)
    shape = {"name": "narrow_slow", "lines": body.recipe.lines, "image_size": 16, "in_chans": 3, "frames": 4}
    card = {"backbone": {**shape, "stride": 1}, "data": {"source": "video:motion"}}
    card["normalize"] = {"mean": [0.4] * 3, "std": [0.2] * 3}
    zoo.save(Path("my zoo/a"), body.export(), card)
    options = {"epochs": 1, "clips": 1, "crops": 1, "features": "once", "workers": 0, "progress": False}

    def judged(**given) -> tuple[str, dict]:
        judge(**given)
        said = unfolded(capsys.readouterr().out)
        (line,) = (line for line in said.splitlines() if line.startswith("next "))
        return said, parsed(line.removeprefix("next").strip(), monkeypatch)

    _, given = judged(checkpoint="my zoo/a", cache=None, **options)
    said, following = judged(**given)
    assert "no verdict" not in said and "action on motion, top1" in said, "they are a pair"
    assert following["checkpoint"] == given["checkpoint"] == ["my zoo/a", "random:my zoo/a"]
    assert following["protocol"] == "fine_tune" and "features" not in following
    said, _ = judged(checkpoint=given["checkpoint"], cache=None, **options)
    assert "action on motion, top1" in said, "the entry's films and stride hold for the network beside it"


@pytest.mark.parametrize(
    ("given", "said"),
    [
        ({"recipe": "paper_k400"}, "annotations/train.csv"),
        ({"recipe": "paper_ucf101"}, "ucfTrainTestlist/classInd.txt"),
        ({"recipe": "paper_hmdb51"}, "testTrainMulti_7030_splits"),
        ({"recipe": "slowfast_ucf101", "data": "ucf101:elsewhere"}, "cannot be opened from"),
        ({"recipe": "slowfast_hmdb51"}, "test_train_splits.rar"),
        ({"data": "video:nowhere"}, "folder of videos .* is not there"),
        ({"data": "pets"}, "'pets' is not a video data set"),
        ({"checkpoint": None}, "name what to evaluate: checkpoint="),
        ({"checkpoint": "random:narrow_resnet", "data": "video:nowhere"}, "random:narrow_resnet takes images"),
        ({"checkpoint": ["random:narrow_slow", "random:narrow_resnet"]}, "random:narrow_resnet takes images"),
    ],
)
def test_mistakes_are_said_before_anything_is_computed(given: dict, said: str, tmp_path: Path, monkeypatch) -> None:
    monkeypatch.chdir(tmp_path)
    with pytest.raises(UserError, match=said) as raised:
        judge(**{"checkpoint": "random:narrow_slow", "image_size": 16, **given})
    assert "\n" not in str(raised.value) and not list(tmp_path.rglob("*.jsonl"))
