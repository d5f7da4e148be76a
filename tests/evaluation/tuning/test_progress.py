"""Lines of a training in a log, where there is no terminal."""

import sys

import pytest

from evaluation.tuning import progress
from evaluation.tuning.progress import Progress


@pytest.fixture(autouse=True)
def no_terminal(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys.stderr, "isatty", lambda: False, raising=False)


def run(shown: Progress, steps: int) -> None:
    for step, _ in enumerate(shown.feed(range(steps)), 1):
        shown.loss = 1.5 if step >= 20 else shown.loss


def test_a_log_has_a_line_for_each_tenth(capsys: pytest.CaptureFixture, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(progress, "APART", 0.0)
    run(Progress("detection", 40), 40)
    lines = capsys.readouterr().err.strip().splitlines()
    assert len(lines) == 10 and lines[0] == "detection  step 4/40" and lines[-1] == "detection  step 40/40  loss 1.500"


def test_a_log_says_how_long_the_run_still_takes(
    capsys: pytest.CaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    now = iter(range(0, 10**6, 100))  # three looks at the clock for each step
    monkeypatch.setattr(progress.time, "perf_counter", lambda: next(now))
    run(Progress("resnet18, select: run 3 of 12, lr 0.01", 10), 10)
    lines = capsys.readouterr().err.splitlines()
    assert (
        lines[0].startswith("resnet18, select: run 3 of 12, lr 0.01  step 1/10")
        and "45 min to go in this run" in lines[0]
    )


def test_a_short_training_says_nothing_in_a_log(capsys: pytest.CaptureFixture) -> None:
    run(Progress("detection", 40), 40)
    assert capsys.readouterr().err == ""


def test_a_resumed_run_says_from_where(capsys: pytest.CaptureFixture) -> None:
    Progress(True, 2000, 1500)
    assert "training  goes on at step 1,500 of 2,000" in capsys.readouterr().err
    run(Progress(False, 2000, 1500), 500)
    assert capsys.readouterr().err == ""


def test_the_share_of_waiting_is_measured(monkeypatch: pytest.MonkeyPatch) -> None:
    now = iter(range(100))
    monkeypatch.setattr(progress.time, "perf_counter", lambda: next(now))
    shown = Progress(False, 3)
    run(shown, 3)
    assert shown.waited == 4, "three batches and the end, a second each"
