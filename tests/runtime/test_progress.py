"""Progress within an epoch, without a terminal."""

from types import SimpleNamespace

import pytest

from sslkit.runtime import progress


def test_a_line_now_and_then_says_the_step_and_the_time_to_go(caplog, monkeypatch) -> None:
    clock = iter(range(0, 10_000, 25))  # seconds: a call of the clock each
    monkeypatch.setattr(progress.time, "perf_counter", lambda: float(next(clock)))
    lines = progress.Lines()
    loop = SimpleNamespace(epoch=2, epochs=5, batches=100, batch=0, is_main=True)
    with caplog.at_level("INFO", "sslkit.say"):
        lines.epoch_begin(loop)
        for loop.batch in range(40, 48):  # resumed inside the epoch
            lines.batch_end(loop, None, None)
    assert [one.getMessage() for one in caplog.records] == [
        "epoch 3/5  step 43 of 100  24 min to go in this epoch",
        "epoch 3/5  step 46 of 100  22 min to go in this epoch",
    ]


@pytest.mark.parametrize(("is_main", "batches"), [(False, 100), (True, 4)])
def test_other_ranks_and_the_last_step_say_nothing(is_main: bool, batches: int, caplog, monkeypatch) -> None:
    clock = iter((0.0, 1.0, 2.0, 3.0, 100.0))
    monkeypatch.setattr(progress.time, "perf_counter", lambda: next(clock))
    lines = progress.Lines()
    loop = SimpleNamespace(epoch=0, epochs=1, batches=batches, batch=0, is_main=is_main)
    with caplog.at_level("INFO", "sslkit.say"):
        lines.epoch_begin(loop)
        for loop.batch in range(4):
            lines.batch_end(loop, None, None)
    assert not caplog.records
