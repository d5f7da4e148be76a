"""Progress within an epoch: a bar on a terminal, else now and then a line."""

import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from tqdm import tqdm

from sslkit.runtime.loop import Hook, Loop
from sslkit.terminal import say
from sslkit.terminal.say import lasting

PAUSE = 60.0  # seconds between two lines


@dataclass
class Bar(Hook):
    """One tqdm bar per epoch, only on a terminal; it is removed when the epoch's line is printed.

    unit: what a batch has `batch_size` of. waited: seconds that were spent waiting for data so far.
    """

    batch_size: int
    unit: str
    waited: Callable[[], float]
    bar: tqdm | None = None
    started: tuple[float, float] = (0.0, 0.0)

    def epoch_begin(self, loop: Loop) -> None:
        self.started = (time.perf_counter(), self.waited())
        self.bar = tqdm(
            total=loop.batches * self.batch_size,
            initial=loop.batch * self.batch_size,
            desc=f"epoch {loop.epoch + 1}/{loop.epochs}",
            unit=f" {self.unit}",
            leave=False,
            dynamic_ncols=True,
            disable=not loop.is_main,
        )

    def batch_end(self, loop: Loop, outputs: Any, batch: Any) -> None:
        start, waited = self.started
        share = (self.waited() - waited) / max(time.perf_counter() - start, 1e-9)
        self.bar.set_postfix_str(f"waiting for data {100 * share:.0f} %", refresh=False)
        self.bar.update(self.batch_size)

    def epoch_end(self, loop: Loop) -> None:
        self.bar.close()


class Lines(Hook):
    """A line every minute of a long epoch, where there is no terminal for a bar: the step, and the time to go."""

    def epoch_begin(self, loop: Loop) -> None:
        self.count, self.started = 0, time.perf_counter()
        self.said = self.started

    def batch_end(self, loop: Loop, outputs: Any, batch: Any) -> None:
        self.count += 1  # less than `done` after a resume inside the epoch
        now, done = time.perf_counter(), loop.batch + 1
        if not loop.is_main or now - self.said < PAUSE or done == loop.batches:
            return
        self.said = now
        left = (now - self.started) / self.count * (loop.batches - done)
        place = f"epoch {loop.epoch + 1}/{loop.epochs}  step {done:,} of {loop.batches:,}"
        say.line(f"{place}  {lasting(left)} to go in this epoch")
