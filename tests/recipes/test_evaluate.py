"""The evaluating command lines as a person types them."""

import importlib
import json
import os
import re
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
from own_protocol import OWN

from evaluation import protocols
from sslkit import backbones, zoo
from sslkit.data.sources.named import open_images
from sslkit.options import members
from sslkit.options.settings import iter_settings

RECIPES = Path(__file__).parents[2] / "recipes"


@pytest.fixture
def place(tmp_path: Path) -> Path:
    """A folder with two zoo entries and a small data set of real digits."""
    for name in ("a", "b"):
        body = backbones.build("narrow_resnet", image_size=8, in_chans=1)
        card = {
            "backbone": {"name": "narrow_resnet", "lines": body.recipe.lines, "image_size": 8, "in_chans": 1},
            "normalize": {"mean": [0.3], "std": [0.4]},
        }
        zoo.save(tmp_path / "zoo" / name, body.export(), card)
    arrays = {}
    for split, n in (("train", 200), ("test", 100)):
        images = open_images("digits", split=split)
        arrays |= {f"x_{split}": images.pixels[:n, 0], f"y_{split}": images.labels[:n]}
    np.savez(tmp_path / "digits, 200=few.npz", **arrays)
    return tmp_path


def test_two_checkpoints_are_judged_and_compared(place: Path, typed) -> None:
    done = typed(
        "evaluate",
        "checkpoint=[zoo/a,zoo/b]",
        f"data={place}/digits, 200=few.npz",
        "protocols=[linear,knn,few_shot]",
        "few_shot.n_query=2",
        "few_shot.k_shot=[1]",
        "few_shot.episodes=30",
        "pictures=false",
        cwd=place,
    )
    assert done.returncode == 0, done.stderr
    for said in ("wilson over images", "5-way 1-shot", "± ", "results   zoo/a/results.jsonl, zoo/b/results.jsonl"):
        assert said in done.stdout, done.stdout
    assert "McNemar" in done.stdout or "no difference" in done.stdout, done.stdout
    for name in ("a", "b"):
        lines = [json.loads(line) for line in (place / "zoo" / name / "results.jsonl").read_text().splitlines()]
        assert [line["protocol"] for line in lines] == ["linear", "knn", "few_shot"]
        assert all(line["model"] == name for line in lines)


def test_a_zoo_is_judged_whole_and_one_protocol_has_a_command_of_its_own(place: Path, typed) -> None:
    data = f"data={place}/digits, 200=few.npz"
    done = typed("linear_eval", "zoo=zoo", data, "scale=l2", cwd=place)
    assert done.returncode == 0, done.stderr
    assert done.stdout.count("lbfgs on frozen features") == 1 and done.stdout.count("[1]") == 3 and "l2" in done.stdout
    done = typed("few_shot", "checkpoint=zoo/a", data, "n_query=2", "k_shot=[2]", "episodes=20", cwd=place)
    assert done.returncode == 0, done.stderr
    assert "5-way 2-shot" in done.stdout


def test_help_names_every_protocol_and_option(tmp_path: Path, typed) -> None:
    said = typed("evaluate", "--help=all", cwd=tmp_path).stdout
    for name in protocols.names():
        assert f"options of {name}" in said
    for setting in ("checkpoint=null", "few_shot.episodes=2000", "knn.k=20", "cache=runs/cache", "range=null"):
        assert setting in said
    assert "k_shot=[1,5]" in typed("few_shot", "--help", cwd=tmp_path).stdout


@pytest.mark.parametrize("recipe", ["detect", "action_eval"])
def test_options_stand_with_their_protocol_alone(recipe: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.syspath_prepend(str(Path(__file__).parents[2] / "recipes"))
    command, shared = importlib.import_module(recipe), importlib.import_module("evaluation.judging.command_line")
    known = {one.path: one for one in iter_settings(command.SETTINGS)}
    assert all(one.help for one in known.values()), "each has its line"
    of_all = {one.path: one for one in iter_settings(shared.settings_of(shared.Subjects, shared.Output))}
    own = members.declarations(command.Options)
    assert known.items() >= own.items()
    of_shared = [path for path in of_all if path.partition(".")[0] in command.SHARED and path not in own]
    assert {name for name in command.SHARED if name not in own} == {path.partition(".")[0] for path in of_shared}
    assert all(known[path] == of_all[path] for path in of_shared)


@pytest.mark.parametrize(
    ("words", "said"),
    [
        ([], "name what to evaluate: checkpoint=runs/zoo/NAME"),
        (["checkpoint=zoo/a", "zoo=zoo"], "name what to evaluate"),
        (["chekpoint=zoo/a"], "did you mean 'checkpoint'"),
        (["checkpoint=zoo/c"], "there is no model 'zoo/c'"),
        (["checkpoint=zoo"], "is a folder of entries: name one of them"),
        (["checkpoint=zoo/a", "protocols=[lineer]"], "did you mean 'linear'"),
        (["checkpoint=zoo/a", "data=fashion_mnits"], "did you mean 'fashion_mnist'"),
        (["checkpoint=zoo/a", "data=pets"], "Oxford-IIIT Pets cannot be opened"),
        (["checkpoint=zoo/a", "few_shot.k_shots=3"], "did you mean 'k_shot'"),
        (["checkpoint=zoo/a", "device=cuda"], "torch sees no GPU"),
        (["checkpoint=zoo/a", "precision=half"], "precision must be float32 or bfloat16, got 'half'"),
    ],
)
def test_a_mistake_is_one_line_and_exit_code_2(words: list[str], said: str, place: Path, typed) -> None:
    done = typed("evaluate", *words, cwd=place)
    assert done.returncode == 2 and said in done.stderr, done.stderr
    assert len([line for line in done.stderr.splitlines() if line.strip()]) == 1, done.stderr
    assert not list(place.rglob("results.jsonl")) and not list(place.rglob("features.npy"))


def test_a_card_from_a_stranger_is_one_error(place: Path, typed) -> None:
    """Its function would end the process with exit code 0."""
    path = place / "zoo" / "a" / "card.json"
    card = json.loads(path.read_text())
    card["backbone"]["lines"] = ["from sys import exit", "net = exit()"]
    path.write_text(json.dumps(card))
    done = typed("evaluate", "checkpoint=zoo/a", "data=digits", cwd=place)
    (line,) = done.stderr.splitlines()
    assert done.returncode == 2 and line.startswith("error: zoo/a/card.json: its network is made by sys:exit")
    assert "(trust=sys:exit on a command line)" in line


@pytest.mark.parametrize("recipe", ["evaluate", "linear_eval", "action_eval", "detect", "rank", "ground_truth"])
def test_code_of_ones_own_is_trusted_by_a_word(recipe: str, place: Path, typed) -> None:
    path = place / "zoo" / "a" / "card.json"
    card = json.loads(path.read_text())
    card["backbone"]["lines"] = ["from own_net import fails", "net = fails()"]
    path.write_text(json.dumps(card))
    (place / "own_net.py").write_text("def fails():\n    raise KeyError('own')\n")
    sys.path.insert(0, str(place))
    try:
        which = "zoo=[zoo/a]" if recipe in ("rank", "ground_truth") else "checkpoint=zoo/a"
        data = "data=clipart_boxes" if recipe == "detect" else "data=digits"
        words = ["schedule=smoke"] if recipe == "detect" else []
        without = typed(recipe, which, data, *words, cwd=place)
        assert "pass trust='own_net:fails'" in without.stderr and "own_net" not in sys.modules
        for trust in ("trust=own_net:fails", "trust=[own_net:fails,a.b:c]"):
            done = typed(recipe, which, data, trust, *words, cwd=place)
            assert done.returncode in (1, 2) and "own_net:fails failed: KeyError: 'own'" in done.stderr
    finally:
        sys.path.remove(str(place))
        sys.modules.pop("own_net", None)


@pytest.mark.parametrize("recipe", ["evaluate", "embed", "rank", "ground_truth", "choose"])
def test_an_image_of_a_few_pixels_is_refused(recipe: str, typed, tmp_path: Path) -> None:
    done = typed(recipe, "image_size=1", cwd=tmp_path)
    assert done.returncode == 2 and "image_size must be" in done.stderr and "at least 8" in done.stderr, done.stderr


@pytest.fixture
def mine(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> str:
    """A protocol of one's own, by its name."""
    (tmp_path / "mine").mkdir()
    (tmp_path / "mine" / "counted.py").write_text(OWN)
    monkeypatch.syspath_prepend(str(tmp_path))
    monkeypatch.setattr(protocols, "_given", {})
    yield "mine.counted:Options"
    for name in ("mine", "mine.counted"):
        sys.modules.pop(name, None)


def test_a_protocol_from_outside_has_options_yaml_and_results(mine: str, place: Path, typed) -> None:
    said = ("evaluate", "checkpoint=zoo/a", f"data={place}/digits, 200=few.npz", f"protocols=[{mine},knn]")
    done = typed(*said, "counted.times=3", "--cfg=job", cwd=place)
    assert done.returncode == 0 and "counted:\n  times: 3\n  kind: rows\n  minus: null" in done.stdout, done.stderr
    done = typed(*said, "counted.times=3", "counted.kind=classes", "pictures=false", cwd=place)
    assert done.returncode == 0 and "counted.times=3 counted.kind=classes" in " ".join(
        done.stdout.replace("\\", "").split()
    )
    lines = [json.loads(line) for line in (place / "zoo/a/results.jsonl").read_text().splitlines()]
    assert [(line["protocol"], line["value"]) for line in lines if line["protocol"] == "counted"] == [("counted", 30.0)]
    for words, message in (
        (("counted.times=10",), "protocol counted option times must be a whole number, .*at most 9"),
        (("counted.time=1",), "there is no setting 'counted.time' in counted: did you mean 'times'"),
        (("counted.kind=row",), "kind must be rows or classes, got 'row': did you mean 'rows'"),
        (("protocols=mine.no:Options",), "error: cannot import 'mine.no:Options' .written package.module:Options."),
    ):
        done = typed(*said, *words, cwd=place)
        assert done.returncode == 2 and re.search(message, done.stderr) and done.stderr.count("\n") == 1, done.stderr


def test_a_protocol_from_outside_has_help(mine: str, tmp_path: Path) -> None:
    command = [sys.executable, RECIPES / "evaluate.py", f"protocols={mine}", "--help=counted"]
    done = subprocess.run(command, env={**os.environ, "PYTHONPATH": str(tmp_path)}, capture_output=True, text=True)
    said = " ".join(done.stdout.split())
    assert done.returncode == 0 and "counted.times=2 how often each is counted" in said, done.stderr
