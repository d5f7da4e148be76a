"""action_eval.py as a person types it, and what it calls."""

import dataclasses
import importlib
import inspect
import os
import subprocess
import sys
import time
from pathlib import Path

import pytest
from motion_films import write_motions

from evaluation import store
from evaluation.action.judging import judge
from evaluation.action.recipes import RECIPES as NAMED
from evaluation.protocols.action import action
from evaluation.records import read_records
from sslkit.errors import UserError

RECIPES = Path(__file__).parents[2] / "recipes"
NET = ["checkpoint=random:narrow_slow", "image_size=16", "frames=4", "stride=2"]
QUICK = ["epochs=1", "batch_size=8", "clips=2", "crops=1", "workers=0"]


def command(*words: str, cwd: Path) -> subprocess.CompletedProcess:
    call = [sys.executable, str(RECIPES / "action_eval.py"), *words]
    return subprocess.run(call, capture_output=True, text=True, cwd=cwd, timeout=600, env={**os.environ})


@pytest.fixture(scope="module")
def place(tmp_path_factory) -> Path:
    root = tmp_path_factory.mktemp("place")
    write_motions(root / "motion", train=4)
    return root


@pytest.mark.slow
def test_both_protocols_run_end_to_end(place: Path) -> None:
    for words, said in ((["features=once"], "linear, paper_k400"), (["protocol=fine_tune"], "fine-tune, paper_ucf101")):
        done = command(*NET, "data=video:motion", *QUICK, *words, cwd=place)
        assert done.returncode == 0, done.stderr
        assert "8 training and 6 test films" in done.stdout and said in done.stdout
        assert "wilson over images" in done.stdout and "next      python recipes/action_eval.py" in done.stdout
    kept = store.read(place / "runs" / "evaluation" / "random_narrow_slow")
    assert [result.protocol for result in kept] == ["action", "action"]
    assert (place / "runs" / "cache").is_dir(), "the index of the films is kept"


def test_what_is_missing_is_one_line_and_exit_code_2(tmp_path: Path) -> None:
    done = command(*NET, "recipe=paper_ucf101", cwd=tmp_path)
    assert done.returncode == 2 and done.stderr.count("\n") == 1, done.stderr
    assert done.stderr.startswith("error: UCF101 cannot be opened from") and "crcv.ucf.edu" in done.stderr


def test_help_says_every_recipe_and_setting(monkeypatch) -> None:
    monkeypatch.syspath_prepend(str(RECIPES))
    recipe, shared = (importlib.import_module(name) for name in ("action_eval", "command"))
    said = shared.plain_help(recipe.Settings(), recipe.__doc__, {})
    assert all(name in said for name in NAMED)
    assert "checkpoint=null" in said and "rule=slowfast" in said
    taken = {**inspect.signature(judge).parameters, **inspect.signature(action).parameters}
    assert {field.name for field in dataclasses.fields(recipe.Settings)} <= set(taken)


@pytest.mark.slow
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
    said = capsys.readouterr().out
    assert [result.model for result in results] == both and results[0].paired_on == results[1].paired_on
    assert all(name in said for name in both) and "0.49 M parameters, 128 features, clips of 16 frames" in said
    assert "action on motion" in said and "p=" in said.replace(" = ", "=").replace("p ", "p"), "McNemar's test"
    for name in both:
        (kept,) = store.read(place / "out" / name.replace(":", "_"))
        assert kept.outcomes is not None and len(kept.outcomes) == 6


@pytest.mark.parametrize(
    ("given", "said"),
    [
        ({"recipe": "paper_k400"}, "annotations/train.csv"),
        ({"recipe": "paper_ucf101"}, "ucfTrainTestlist/classInd.txt"),
        ({"recipe": "paper_hmdb51"}, "testTrainMulti_7030_splits"),
        ({"recipe": "slowfast_ucf101", "data": "ucf101:elsewhere"}, "cannot be opened from"),
        ({"recipe": "slowfast_hmdb51"}, "test_train_splits.rar"),
        ({"data": "video:nowhere"}, "there is no folder"),
        ({"data": "pets"}, "'pets' is no set of films"),
        ({"checkpoint": None}, "name what to judge: checkpoint="),
        ({"checkpoint": "random:narrow_resnet", "data": "video:nowhere"}, "random:narrow_resnet takes images"),
    ],
)
def test_mistakes_are_said_before_anything_is_computed(given: dict, said: str, tmp_path: Path, monkeypatch) -> None:
    monkeypatch.chdir(tmp_path)
    with pytest.raises(UserError, match=said) as raised:
        judge(**{"checkpoint": "random:narrow_slow", "image_size": 16, **given})
    assert "\n" not in str(raised.value) and not list(tmp_path.rglob("*.jsonl"))
