"""What a log sees of a training, where there is no terminal."""

import sys

import pytest

from evaluation.protocols.detection.progress import Progress


@pytest.fixture(autouse=True)
def no_terminal(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys.stderr, "isatty", lambda: False, raising=False)


def test_a_log_has_a_line_for_each_tenth(capsys: pytest.CaptureFixture) -> None:
    with Progress("detection", 40) as shown:
        for step in range(1, 41):
            shown.update(step, [(step - step % 20, 1.5)] if step >= 20 else [])
    lines = capsys.readouterr().err.strip().splitlines()
    assert len(lines) == 10 and lines[0] == "detection  step 4/40" and lines[-1] == "detection  step 40/40  loss 1.500"


def test_a_run_that_goes_on_says_from_where(capsys: pytest.CaptureFixture) -> None:
    with Progress(True, 2000, 1500):
        pass
    assert "training  goes on at step 1,500 of 2,000" in capsys.readouterr().err
    with Progress(False, 2000, 1500) as shown:
        shown.update(1600, [])
    assert capsys.readouterr().err == ""
