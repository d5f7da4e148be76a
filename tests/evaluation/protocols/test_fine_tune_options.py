"""What fine-tuning is given: one setting, numbers of numpy, damaged files, options of a protocol."""

import json
from contextlib import suppress
from pathlib import Path

import numpy as np
import pytest
import torch
from PIL import Image

import evaluation.protocols.fine_tune as module
from evaluation.datasets import Reading
from evaluation.judging.run import evaluate
from evaluation.protocols.base import Subject
from evaluation.protocols.fine_tune import fine_tune
from evaluation.results.result import Result
from sslkit.models.loading import load
from sslkit.models.model import Model
from sslkit.runtime.context import Runtime

QUICK = {"steps": 5, "batch_size": 32, "crop": (0.6, 1.0), "mirror": False, "progress": False, "device": "cpu"}


def model() -> Model:
    """4 features of a digit."""
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(0)
        layers = [torch.nn.Conv2d(1, 4, 3), torch.nn.ReLU(), torch.nn.AdaptiveAvgPool2d(1), torch.nn.Flatten()]
        return load(torch.nn.Sequential(*layers), image_size=8, in_chans=1)


def lines(folder: Path) -> list[dict]:
    return [json.loads(line) for line in (folder / "fine_tune.jsonl").read_text().splitlines()]


def numbers(result: Result) -> dict:
    return {k: v for k, v in json.loads(result.to_json()).items() if k not in ("date", "seconds")}


@pytest.mark.parametrize("select", ["held_out", "test"])
def test_of_one_setting_nothing_is_chosen(select: str) -> None:
    result = fine_tune(model(), "digits", grid={"lr": [0.3]}, select=select, **QUICK)
    assert result.recipe == "one setting, nothing chosen, 5 steps of 32" and not result.leaky


def test_whole_numbers_of_numpy_are_the_same_run(tmp_path: Path) -> None:
    first = fine_tune(model(), "digits", grid={"lr": [0.3]}, out=tmp_path, **QUICK)
    own = {"seeds": np.arange(1), "steps": np.int64(5), "batch_size": np.int32(32), "workers": np.int64(1)}
    second = fine_tune(model(), "digits", grid={"lr": [0.3]}, out=tmp_path, **{**QUICK, **own})
    assert numbers(first) == numbers(second) and len(lines(tmp_path)) == 1


def faces(root: Path, damaged: str = "") -> Path:
    rng = np.random.default_rng(0)
    for split in ("train", "test"):
        for number in range(12):
            path = root / split / "ab"[number % 2] / f"{number}.png"
            path.parent.mkdir(parents=True, exist_ok=True)
            Image.fromarray(rng.integers(256, size=(12, 12), dtype=np.uint8)).save(path)
    if damaged:
        (root / damaged).write_bytes(b"not an image")
    return root


@pytest.mark.parametrize("damaged", ["train/a/4.png", "test/b/7.png"])
def test_a_damaged_file_is_left_out_and_said_before_the_first_step(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], damaged: str
) -> None:
    def stopped(*_: object, **__: object) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr("evaluation.tuning.trials.train_classifier", stopped)
    with suppress(KeyboardInterrupt):
        fine_tune(model(), faces(tmp_path, damaged), grid={"lr": [0.3, 0.1]}, out=tmp_path / "out", **QUICK)
    assert (
        f"1 of 12 images of {tmp_path.name} cannot be read and are left out: {damaged[-7:]}" in capsys.readouterr().out
    )


def test_a_grid_may_be_given_as_an_option_and_counts_is_passed_on(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    given = {"grid": {"lr": [0.3]}, "steps": 2, "batch_size": 8}
    how = {"out": tmp_path, "device": "cpu", "mirror": False}
    (result,) = evaluate(model(), faces(tmp_path / "data"), ["fine_tune"], options={"fine_tune": given}, **how)
    assert result.recipe.startswith("one setting") and result.recipe.endswith("2 steps of 8")
    asked = []
    monkeypatch.setattr("evaluation.protocols.base.open_splits", lambda data, reading: asked.append(reading.counts))
    monkeypatch.setattr(module, "open_task", lambda model, splits, reading: None)
    monkeypatch.setattr(module, "tune_grid", lambda *_: None)
    for how in ({}, {"counts": "warn"}):
        module.run(Subject(model(), "digits", Reading(**how)), module.Options(), Runtime())
    assert asked == ["raise", "warn"]
