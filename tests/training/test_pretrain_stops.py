"""A signal or a kill inside an epoch: the run goes on after that step, to the weights and rows of the unbroken run."""

import os
import signal
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import torch
from forks import exit_code

import sslkit
from sslkit.runtime.loop import Hook, Loop
from sslkit.training import pretrain
from sslkit.training.monitor import Monitor

OF_TIME = ("images_per_second", "waiting")
METHODS = ["byol+dsa", "dino", "mae+guide", "swav", "moco+koleo", "vicreg"]


class Raise(Hook):
    """Sends this process a signal while a step is computed."""

    def __init__(self, number: int, at: int) -> None:
        self.number, self.at = number, at

    def before_step(self, loop: Loop) -> None:
        if loop.step == self.at:
            os.kill(os.getpid(), self.number)


def with_signal(config: dict, number: int, at: int) -> None:
    with pytest.MonkeyPatch.context() as patch:
        make = pretrain.make_loop
        patch.setattr(pretrain, "make_loop", lambda *given: make(*given[:-1], [Raise(number, at), *given[-1]]))
        sslkit.pretrain(config)


def rows(folder: Path) -> list[list[str]]:
    lines = [line.split(",") for line in (folder / "metrics.csv").read_text().splitlines()]
    keep = [i for i, name in enumerate(lines[0]) if name not in OF_TIME]
    return [[line[i] for i in keep] for line in lines]


def is_same(one: sslkit.ZooEntry, other: sslkit.ZooEntry) -> bool:
    before, after = one.state_dict(), other.state_dict()
    weights = before.keys() == after.keys() and all(torch.equal(before[name], after[name]) for name in before)
    return weights and rows(one.folder) == rows(other.folder) and one.card["after"] == other.card["after"]


@pytest.fixture(autouse=True)
def handlers_of_python() -> Iterator[None]:
    """Python's own handlers of signals: a test that imports a command leaves the command's."""
    before = {number: signal.signal(number, signal.SIG_DFL) for number in (signal.SIGTERM, signal.SIGHUP)}
    before[signal.SIGINT] = signal.signal(signal.SIGINT, signal.default_int_handler)
    yield
    for number, handler in before.items():
        signal.signal(number, handler)


@pytest.fixture
def run(small_run) -> dict:
    """Nine batches in three epochs; every second row of metrics.csv is open when the run is stopped."""
    return {**small_run, "epochs": 3, "trainer": {**small_run["trainer"], "log_every": 2}}


def place(folder: Path) -> tuple[int, int, int]:
    state = torch.load(folder / "checkpoints" / "last.ckpt", weights_only=True)
    return state["epoch"], state["batch"], state["step"]


@pytest.fixture
def unbroken(run: dict) -> sslkit.ZooEntry:
    return sslkit.pretrain({**run, "name": "unbroken"})


def test_sigterm_inside_an_epoch(run: dict, unbroken: sslkit.ZooEntry, tmp_path: Path, capsys) -> None:
    folder = tmp_path / "zoo" / "broken"
    with pytest.raises(SystemExit) as stop:
        with_signal({**run, "name": "broken"}, signal.SIGTERM, 4)
    assert stop.value.code == 143 and place(folder) == (1, 2, 5)
    assert f"stopped; the same call with resume=True continues {folder}" in " ".join(capsys.readouterr().out.split())
    assert signal.getsignal(signal.SIGTERM) is signal.SIG_DFL
    assert is_same(unbroken, sslkit.pretrain({**run, "name": "broken", "resume": True}))


def test_sigterm_while_an_epoch_is_evaluated(run: dict, unbroken: sslkit.ZooEntry, tmp_path: Path, monkeypatch) -> None:
    """When the probe of the second epoch has learned: it learns that once."""
    judge = Monitor._judge

    def stop(self: Monitor, loop: Loop) -> Any:
        found = judge(self, loop)
        if loop.epoch == 1:
            os.kill(os.getpid(), signal.SIGTERM)
        return found

    with monkeypatch.context() as patch, pytest.raises(SystemExit):
        patch.setattr(Monitor, "_judge", stop)
        sslkit.pretrain({**run, "name": "broken"})
    assert place(tmp_path / "zoo" / "broken") == (1, 3, 6), "the end of the epoch is still to come"
    assert is_same(unbroken, sslkit.pretrain({**run, "name": "broken", "resume": True}))


@pytest.mark.slow
def test_a_kill_loses_one_interval(run: dict, unbroken: sslkit.ZooEntry, tmp_path: Path) -> None:
    broken = {**run, "name": "broken", "save_seconds": 0}
    assert exit_code(tmp_path / "said", with_signal, broken, signal.SIGKILL, 5) == -signal.SIGKILL
    assert place(tmp_path / "zoo" / "broken") == (1, 2, 5)
    assert is_same(unbroken, sslkit.pretrain({**broken, "resume": True}))


@pytest.mark.slow
@pytest.mark.parametrize("method", METHODS)
def test_ctrl_c_inside_the_second_epoch(method: str, run: dict, tmp_path: Path) -> None:
    run = {**run, "method": method}
    unbroken = sslkit.pretrain({**run, "name": "unbroken"})
    before = signal.getsignal(signal.SIGINT)
    with pytest.raises(KeyboardInterrupt, match="resume=True continues"):
        with_signal({**run, "name": "broken"}, signal.SIGINT, 4)
    assert signal.getsignal(signal.SIGINT) is before and place(tmp_path / "zoo" / "broken") == (1, 2, 5)
    assert is_same(unbroken, sslkit.pretrain({**run, "name": "broken", "resume": True}))
