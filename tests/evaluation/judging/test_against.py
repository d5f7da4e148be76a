"""An entry beside its start: paired differences, printed and on the card."""

from pathlib import Path

import numpy as np
import pytest
from random_entries import made

import sslkit
from evaluation.judging.against import evaluate_against, with_start
from sslkit import zoo
from sslkit.data.sources.named import open_images
from sslkit.errors import UserError
from sslkit.zoo.entry import WEIGHTS
from sslkit.zoo.weights import sha256


@pytest.fixture
def place(tmp_path: Path) -> Path:
    arrays = {}
    for split, n in (("train", 60), ("test", 40)):
        batch = open_images("fashion_mnist", split=split).__getitems__(list(range(n)))
        arrays |= {f"x_{split}": batch["images"][:, 0].numpy(), f"y_{split}": batch["label"].numpy()}
    np.savez(tmp_path / "few.npz", **arrays)
    start = made(tmp_path, "start", "digits")
    entry = zoo.ZooEntry.load(made(tmp_path, "after", "digits", seed=1))
    zoo.update(entry, init={"source": str(start), "sha256": sha256(start / WEIGHTS)})
    return tmp_path


def run(place: Path, **how: object) -> list:
    given = {"data": str(place / "few.npz"), "protocols": ["knn", "linear"], "zoo": None, "checkpoint": place / "after"}
    quiet = {"out": place / "out", "cache": place / "cache", "progress": False, "nulls": (), "device": "cpu"}
    return evaluate_against("start", **{**given, **how}, **quiet)


def test_each_number_stands_beside_its_start_with_the_difference(place: Path, capsys) -> None:
    results = run(place)
    said = " ".join(capsys.readouterr().out.split())
    gains = zoo.ZooEntry.load(place / "after").card["against_start"]
    assert [gain["protocol"] for gain in gains] == ["knn", "linear"] and len(results) == 4
    for gain in gains:
        after, before = (r for r in results if r.protocol == gain["protocol"])
        assert (after.model, before.model) == ("after", "start")
        assert gain["difference"] == pytest.approx(after.value - before.value) and gain["n"] == 40
        low, high = gain["interval"]
        assert low <= gain["difference"] <= high
        assert f"{gain['protocol']} on " in said and f"{100 * gain['difference']:+.1f} points" in said


def test_both_see_the_same_squares(place: Path) -> None:
    zoo.update(zoo.ZooEntry.load(place / "after"), resizing={"crop_pct": 0.5, "interpolation": "bilinear"})
    _, start = with_start(str(place / "after"), None, "start", None)
    assert start.resizing == sslkit.load(place / "after").resizing and start.resizing.crop_pct == 0.5
    assert start.name == "start" and start.digest == sslkit.load(place / "start").digest


def test_what_has_no_start_is_one_line(place: Path) -> None:
    with pytest.raises(UserError, match="started from random weights"):
        run(place, checkpoint=place / "start")
    with pytest.raises(UserError, match="takes one zoo entry"):
        run(place, checkpoint=None, zoo=place)
    made(place, "start", "digits", seed=5)
    with pytest.raises(UserError, match=r"not the weights that .* started from"):
        run(place)
