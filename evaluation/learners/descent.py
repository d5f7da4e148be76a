"""Steps of a training whose state is some tensors: their batches, and the file from which a stopped one goes on."""

import itertools
import time
from collections.abc import Callable, Iterator, Sequence
from typing import Any, Protocol

import numpy as np
from torch import Tensor
from tqdm import tqdm

from sslkit.data.loader import EpochBatches
from sslkit.runtime.context import Runtime
from sslkit.runtime.signals import Stops


class Saved(Protocol):
    """The file of a training, as `evaluation.tuning.checkpoint.Checkpoint`. seconds: between two saves."""

    seconds: float

    def save(self, state: dict[str, Any]) -> None: ...

    def load(self) -> dict[str, Any] | None: ...


def descend(
    step: Callable[[int, np.ndarray], None],
    state: Sequence[Tensor],
    *,
    n: int,
    batch_size: int,
    iterations: int,
    label: str,
    runtime: Runtime,
    saved: Saved | None = None,
) -> None:
    """Call `step` with the number and the rows (B,) of each batch of n rows, the order by the seed.

    state: all tensors that the steps change, in place. saved: the state is written there every so often, at a signal,
    and at the end; a training that was stopped goes on from there with the same numbers.
    """
    done = _restore(state, saved)
    stops = Stops(lambda: _save(state, done, saved), {}) if saved else None
    hidden = None if runtime.progress else True  # None: only on a terminal
    batches = _batches(n, batch_size, runtime.seed, done)
    bar = tqdm(range(done, iterations), label, iterations, initial=done, leave=False, disable=hidden)
    if stops is None:
        for number in bar:
            step(number, next(batches))
        return
    stops.begin()
    last = time.monotonic()
    try:
        for number in bar:
            stops.busy = True
            step(number, next(batches))
            done = number + 1
            if stops.asked is not None or time.monotonic() - last >= saved.seconds:
                _save(state, done, saved)
                last = time.monotonic()
            stops.busy = False
            if stops.asked is not None:
                stops.obey(stops.asked)
        _save(state, done, saved)
    finally:
        stops.end()


def _restore(state: Sequence[Tensor], saved: Saved | None) -> int:
    """Return the number of steps that are done, and their state in place."""
    before = saved.load() if saved else None
    if before is None:
        return 0
    for tensor, value in zip(state, before["state"], strict=True):
        tensor.copy_(value)
    return before["step"]


def _save(state: Sequence[Tensor], done: int, saved: Saved | None) -> None:
    if saved:
        saved.save({"step": done, "state": [tensor.detach().cpu() for tensor in state]})


def _batches(n: int, batch_size: int, seed: int, done: int) -> Iterator[np.ndarray]:
    """Yield the rows (B,) of each batch after the first `done`; an incomplete last batch of an epoch is dropped."""
    batches = EpochBatches(n, batch_size, seed)
    start, batches.first = divmod(done, len(batches))
    for epoch in itertools.count(start):
        batches.set_epoch(epoch)
        yield from map(np.array, batches)
