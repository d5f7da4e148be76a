"""A training that is stopped at any step goes on with the same numbers; a signal waits for the end of a step."""

import os
import signal
from pathlib import Path

import numpy as np
import pytest
import torch

from evaluation.learners.descent import descend
from evaluation.tuning.checkpoint import Checkpoint
from sslkit.runtime.context import Runtime

HOW = {"n": 10, "batch_size": 4, "iterations": 7, "label": "steps", "runtime": Runtime(seed=3, progress=False)}


def trained(saved: Checkpoint | None = None, stop: int | None = None, by_signal: bool = False) -> tuple:
    """The state after all steps and the batches that were seen; `stop` ends the run in that step."""
    state, seen = torch.zeros(10), []

    def step(number: int, rows: np.ndarray) -> None:
        if number == stop and by_signal:
            os.kill(os.getpid(), signal.SIGINT)
        elif number == stop:
            raise RuntimeError("killed")
        state[torch.from_numpy(rows)] += number + 1
        seen.append((number, rows.tolist()))

    try:
        descend(step, [state], saved=saved, **HOW)
    except (RuntimeError, KeyboardInterrupt):
        assert stop is not None
    return state, seen


@pytest.mark.parametrize("by_signal", [False, True])
@pytest.mark.parametrize("stop", [1, 2, 5])
def test_a_stopped_training_goes_on_with_the_same_numbers(tmp_path: Path, stop: int, by_signal: bool) -> None:
    whole, steps = trained()
    saved = Checkpoint(tmp_path / "a.ckpt", "run", seconds=1e9 if by_signal else 0.0)
    before = trained(saved, stop, by_signal)[1]
    assert len(before) == stop + by_signal, "a signal lets its step end"
    state, after = trained(saved)
    assert torch.equal(state, whole) and before + after == steps
    again, none = trained(saved)
    assert torch.equal(again, whole) and none == [], "a finished one is read"


def test_each_epoch_has_each_row_at_most_once() -> None:
    rows = [rows for _, rows in trained()[1]]
    assert all(len(set(rows[first] + rows[first + 1])) == 8 for first in (0, 2, 4))
