"""Progress of a training in a log, where there is no terminal."""

import itertools
import sys
from types import SimpleNamespace

import pytest

from sslkit.runtime import progress
from sslkit.runtime.progress import ProgressBar


@pytest.fixture(autouse=True)
def no_terminal(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys.stderr, "isatty", lambda: False, raising=False)


@pytest.fixture
def seconds(monkeypatch: pytest.MonkeyPatch):
    """Seconds between two looks at the clock, one for each step."""

    def set_them(apart: float) -> None:
        clock = itertools.count()
        monkeypatch.setattr(progress.time, "perf_counter", lambda: apart * next(clock))

    return set_them


def lines(bar: ProgressBar, steps: range, caplog: pytest.LogCaptureFixture, batches: int, **given: object) -> list[str]:
    """What is said in these steps of an epoch. given: of the loop."""
    loop = SimpleNamespace(epoch=0, epochs=1, batches=batches, batch=steps[0], is_main=True, waited=0)
    vars(loop).update(given)
    caplog.clear()
    with caplog.at_level("INFO", "sslkit.say"):
        bar.epoch_begin(loop)
        for loop.batch in steps:
            bar.batch_end(loop, None, None)
        bar.epoch_end(loop)
    return [record.getMessage() for record in caplog.records]


def test_a_line_now_and_then_says_the_step_and_the_time_to_go(caplog, seconds) -> None:
    seconds(25)
    assert lines(ProgressBar(), range(40, 48), caplog, 100, epoch=2, epochs=5) == [  # resumed inside the epoch
        "epoch 3/5  step 43 of 100  24 min to go in this epoch",
        "epoch 3/5  step 46 of 100  22 min to go in this epoch",
    ]


@pytest.mark.parametrize(("is_main", "batches"), [(False, 100), (True, 4)])
def test_other_ranks_and_the_last_step_say_nothing(is_main: bool, batches: int, caplog, monkeypatch) -> None:
    clock = iter((0.0, 1.0, 2.0, 3.0, 100.0))
    monkeypatch.setattr(progress.time, "perf_counter", lambda: next(clock))
    assert not lines(ProgressBar(), range(4), caplog, batches, is_main=is_main)


def test_a_training_of_one_epoch_has_a_line_for_each_tenth(caplog, monkeypatch) -> None:
    monkeypatch.setattr(progress, "PAUSE", 0.0)
    losses = iter([float("nan")] * 20 + [1.5] * 20)
    found = lines(ProgressBar("detection", lines=10, loss=lambda: next(losses)), range(40), caplog, 40)
    assert len(found) == 10 and found[0] == "detection  step 4 of 40"
    assert found[-1] == "detection  step 40 of 40  loss 1.500"


def test_a_log_says_how_long_the_run_still_takes(caplog, seconds) -> None:
    seconds(300)
    found = lines(ProgressBar("resnet18, select: run 3 of 12, lr 0.01", lines=10), range(10), caplog, 10)
    assert found[0] == "resnet18, select: run 3 of 12, lr 0.01  step 1 of 10  45 min to go in this run"


def test_a_short_training_says_nothing_in_a_log(caplog) -> None:
    assert not lines(ProgressBar("detection"), range(40), caplog, 40)


def test_a_resumed_run_says_from_where(caplog) -> None:
    said = ["training  goes on at step 1,500 of 2,000"]
    assert lines(ProgressBar("training"), range(1500, 1501), caplog, 2000) == said
    assert not lines(ProgressBar("training"), range(1500, 1501), caplog, 2000, is_main=False)


def test_the_share_of_waiting_is_shown(monkeypatch: pytest.MonkeyPatch, seconds) -> None:
    seconds(2)
    shown = []
    monkeypatch.setattr(progress.tqdm, "set_postfix_str", lambda bar, text, refresh: shown.append(text))
    loop = SimpleNamespace(epoch=0, epochs=1, batches=9, batch=0, is_main=True, waited=5)
    bar = ProgressBar(loss=lambda: 2.0)
    bar.epoch_begin(loop)
    loop.waited = 6
    bar.batch_end(loop, None, None)
    assert shown == ["loss 2.000, waiting for data 50%"]
