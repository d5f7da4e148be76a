"""Settings of fine-tuning that are chosen on several held-out fifths."""

import json
from pathlib import Path

import numpy as np
import pytest
from torch import nn

from evaluation.datasets import open_split
from evaluation.datasets.base import Split
from evaluation.protocols.fine_tune import fine_tune
from sslkit.errors import UserError
from sslkit.models.loading import load
from sslkit.models.model import Model

QUICK = {"steps": 20, "batch_size": 32, "crop": (0.6, 1.0), "mirror": False, "progress": False, "device": "cpu"}
GRID = {"lr": [0.3, 1e-5]}


@pytest.fixture
def model() -> Model:
    return load(nn.Sequential(nn.Flatten(), nn.Linear(64, 16), nn.ReLU()), image_size=8, in_chans=1)


@pytest.fixture
def data() -> dict[str, Split]:
    train, test = open_split("digits", "train"), open_split("digits", "test")
    rows = np.concatenate([np.flatnonzero(train.y == label)[:10] for label in range(10)])
    return {"train": train.take(rows), "test": test.take(np.arange(100))}


def test_the_mean_over_the_folds_decides(model: Model, data: dict, tmp_path: Path) -> None:
    one = fine_tune(model, data, grid=GRID, out=tmp_path, **QUICK)
    five = fine_tune(model, data, grid=GRID, folds=5, out=tmp_path, **QUICK)
    lines = [json.loads(line) for line in (tmp_path / "fine_tune.jsonl").read_text().splitlines()]
    by_rate = {lr: [line for line in lines if line["stage"] == "select" and line["lr"] == lr] for lr in GRID["lr"]}
    assert [len(own) for own in by_rate.values()] == [5, 5], "the runs of one fold are those of the first of five"
    means = {lr: np.mean([line["value"] for line in own]) for lr, own in by_rate.items()}
    assert {tried["lr"]: tried["value"] for tried in five.details["grid"]} == pytest.approx(means)
    assert five.details["chosen"]["lr"] == max(means, key=means.get)
    assert [tried["value"] for tried in one.details["grid"]] == [own[0]["value"] for own in by_rate.values()]
    assert "chosen on 5 held-out fifths" in five.recipe and "chosen on held-out images" in one.recipe
    assert five.seconds == pytest.approx(sum(line["seconds"] for line in lines))


def test_folds_that_cannot_be_had_are_one_line(model: Model, data: dict) -> None:
    few = data["train"].take(np.concatenate([np.flatnonzero(data["train"].y == label)[:3] for label in range(10)]))
    with pytest.raises(UserError, match=r"no class has 4 labelled images.*fewer folds"):
        fine_tune(model, {"train": few, "test": data["test"]}, grid=GRID, folds=5, **QUICK)
    with pytest.raises(UserError, match="validation images of its own"):
        fine_tune(model, {**data, "val": few}, grid=GRID, folds=2, **QUICK)
