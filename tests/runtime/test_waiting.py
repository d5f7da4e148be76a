"""Ranks that wait for each other: longer than the group's time-out, but not for one that has failed or died."""

import os
import signal
import time
from collections.abc import Callable
from pathlib import Path

import pytest
import torch.distributed as dist
from forks import WORLD, free_port, set_timeout, start_ranks, started

from sslkit.errors import UserError
from sslkit.runtime import waiting
from sslkit.runtime.waiting import Orders, from_all, from_first, together

TIMEOUT = 0.4  # seconds of the group's own barriers


def join(rank: int, port: int) -> None:
    dist.init_process_group("gloo", init_method=f"tcp://127.0.0.1:{port}", rank=rank, world_size=WORLD)
    set_timeout(TIMEOUT)


def meetings(rank: int, port: int, folder: Path) -> None:
    join(rank, port)
    for slow in range(WORLD):
        with together("a test") as others:
            others.check()
            if rank == slow:
                time.sleep(3 * TIMEOUT)
                (folder / f"done-{slow}").touch()
        assert (folder / f"done-{slow}").exists()
    assert from_all("a test", {"rank": rank}) == [{"rank": 0}, {"rank": 1}]
    assert from_first("a test", lambda: [rank, time.sleep(2 * TIMEOUT)]) == [0, None]
    dist.destroy_process_group()


def test_a_slow_rank_is_waited_for_beyond_the_time_out_of_the_group(tmp_path: Path) -> None:
    start_ranks(meetings, free_port(), tmp_path)


def orders(rank: int, port: int) -> None:
    """Rank 0 gives an order at step 3; at step 5 rank 1 asks for one, which comes with the next look of rank 0."""
    join(rank, port)
    for _ in range(2):  # a second training of the group does not read the orders of the first
        own, given = Orders(60.0), []
        for step in range(1, 10):
            if rank == 1 and step == 5:
                own.ask()
                own.ask()
            from_all("a step", None)  # as the gradients
            if own.given(step, lambda step=step: step == 3, now=step in (3, 6)):
                given.append(step)
        assert len(given) == 2 and given[0] == 3 and given[1] in (5, 6), given
        assert from_all("the orders", given) == [given] * WORLD
    dist.destroy_process_group()


def test_the_first_rank_orders_for_all_and_any_may_ask() -> None:
    start_ranks(orders, free_port())


def barrier_of_torch(rank: int, port: int) -> None:
    join(rank, port)
    if rank == 0:
        time.sleep(3 * TIMEOUT)
    dist.barrier()


def test_a_barrier_of_torch_would_have_ended_the_run() -> None:
    with pytest.raises(Exception, match=r"(?i)time|closed|terminated|reset"):
        start_ranks(barrier_of_torch, free_port())


def fail(rank: int, port: int, failing: int, inside: bool) -> None:
    """One rank fails; within the work of the other, or while that waits."""
    join(rank, port)
    with together("reading"), together("the work within"):
        pass
    try:
        with together("reading") as others, together("the work within") as inner:
            if rank == failing:
                raise UserError("photo 7 is damaged")
            while inside:
                others.check()
                inner.check()
                time.sleep(0.02)
    except UserError as error:
        print(f"{type(error).__name__}: {error}")


@pytest.mark.parametrize("inside", [True, False])
@pytest.mark.parametrize("failing", [0, 1])
def test_the_failure_of_a_rank_ends_the_others_with_its_reason(failing: int, inside: bool, tmp_path: Path) -> None:
    said = outputs(tmp_path, fail, failing, inside)
    assert said[failing] == ["UserError: photo 7 is damaged"]
    assert said[1 - failing] == [f"OthersStopped: process {failing} has stopped in the work within: photo 7 is damaged"]


def outputs(tmp_path: Path, work: Callable[..., None], *arguments: object) -> list[list[str]]:
    """The lines of each rank. A rank that hangs is killed, and fails the test."""
    port, logs = free_port(), [tmp_path / str(rank) for rank in range(WORLD)]
    ranks = [started(log, work, rank, port, *arguments) for rank, log in enumerate(logs)]
    for process in ranks:
        process.join(60)
    hanging = [process for process in ranks if process.is_alive()]
    for process in hanging:
        process.kill()
        process.join()
    assert not hanging
    return [log.read_text().splitlines() for log in logs]


def die(rank: int, port: int, dying: int) -> None:
    waiting.SILENCE = 2.0
    join(rank, port)
    try:
        with together("reading"):
            if rank == dying:
                time.sleep(0.3)
                os.kill(os.getpid(), signal.SIGKILL)
    except UserError as error:
        print(error)


@pytest.mark.parametrize("dying", [0, 1])
def test_a_killed_rank_is_found_missing(dying: int, tmp_path: Path) -> None:
    (line,) = outputs(tmp_path, die, dying)[1 - dying]
    if dying == 0:  # it held the store
        assert line.startswith("lost the connection to the first process in reading: it has ended")
    else:
        assert line.startswith("process 1 gave no sign of life for 2 s in reading: it was killed or hangs")


def test_one_process_waits_for_nobody() -> None:
    with together("a test") as others:
        others.check()
    assert from_all("a test", 5) == [5] and from_first("a test", lambda: 6) == 6
    with pytest.raises(KeyError), together("a test"):
        raise KeyError
