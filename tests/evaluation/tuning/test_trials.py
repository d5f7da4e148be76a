"""Keys of runs, and workers that are killed."""

from concurrent.futures.process import BrokenProcessPool
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from torch import nn

import sslkit
from evaluation.datasets import open_split
from evaluation.tuning import trials
from evaluation.tuning.classifier import Setting
from evaluation.tuning.task import Task, open_task
from sslkit.errors import UserError
from sslkit.runtime.context import Runtime


@pytest.fixture
def task() -> Task:
    model = sslkit.load(nn.Sequential(nn.Flatten(), nn.Linear(64, 4)), image_size=8, in_chans=1)
    return open_task(model, {split: open_split("digits", split) for split in ("train", "test")})


def trial(seed: int = 0) -> trials.Trial:
    return trials.Trial("test", Setting(0.1, steps=1, seed=seed), np.arange(64))


def test_a_run_is_of_its_images_and_of_how_they_are_prepared(task: Task) -> None:
    usual = trials.key(task, trial())
    assert trials.key(task, trial()) == usual
    how = task.model.resizing
    wider, bilinear = replace(how, crop_pct=0.8), replace(how, interpolation="bilinear")
    for change in ({"resizing": bilinear}, {"resizing": wider}, {"std": (0.2,)}):
        assert trials.key(replace(task, model=replace(task.model, **change)), trial()) != usual
    assert trials.key(replace(task, digest="other images"), trial()) != usual


def test_a_model_that_cannot_be_sent_to_workers_is_said(task: Task, tmp_path: Path) -> None:
    task.model.net.own = lambda x: x
    with (
        pytest.raises(UserError, match="workers=2: the model or data cannot be sent"),
        trials.open_runner(task, "runs", Runtime(device="cpu", out=tmp_path, workers=2, progress=False)) as runner,
    ):
        runner.run([trial(0), trial(1)], "two")


def test_a_killed_worker_is_one_line(task: Task, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    class Killed:
        def __init__(self, *_: object, **__: object) -> None:
            raise BrokenProcessPool("a process was terminated abruptly")

    monkeypatch.setattr(trials, "ProcessPoolExecutor", Killed)
    with (
        pytest.raises(UserError, match=r"workers=2 was killed.*the same command goes on"),
        trials.open_runner(task, "runs", Runtime(device="cpu", out=tmp_path, workers=2, progress=False)) as runner,
    ):
        runner.run([trial(0), trial(1)], "two")
