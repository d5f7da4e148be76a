"""Progress of a training: a bar on a terminal, else now and then a line."""

import math
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

from tqdm import tqdm

from sslkit.runtime.loop import Hook, Loop
from sslkit.terminal import say
from sslkit.terminal.say import lasting, printable

PAUSE = 60.0  # least seconds between two lines
WORTH = 30.0  # seconds to go that are said


@dataclass
class ProgressBar(Hook):
    """A tqdm bar for each epoch, on a terminal alone; elsewhere lines with the step and the time to go.

    title: of a training that is one epoch; "": each epoch has its number, and its last step no line.
    unit: what a batch has `size` of. lines: most of an epoch. loss: the latest mean, NaN before there is one.
    """

    title: str = ""
    unit: str = "step"
    size: int = 1
    lines: float = math.inf
    loss: Callable[[], float] = lambda: math.nan
    bar: tqdm | None = field(default=None, init=False)

    def epoch_begin(self, loop: Loop) -> None:
        self.name = self.title or f"epoch {loop.epoch + 1}/{loop.epochs}"
        if self.title and loop.batch and loop.is_main:
            say.line(f"{self.title}  goes on at step {loop.batch:,} of {loop.batches:,}")
        self.bar = tqdm(
            total=loop.batches * self.size,
            initial=loop.batch * self.size,
            desc=printable(self.name, keep=""),
            unit=f" {self.unit}",
            leave=False,
            dynamic_ncols=True,
            disable=None if loop.is_main else True,  # None: shown on a terminal only
        )
        self.first, self.waited = loop.batch, loop.waited
        self.start = self.told = time.perf_counter()

    def batch_end(self, loop: Loop, outputs: Any, batch: Any) -> None:
        now, loss = time.perf_counter(), self.loss()
        loss = "" if math.isnan(loss) else f"loss {loss:.3f}"
        share = f"waiting for data {(loop.waited - self.waited) / max(now - self.start, 1e-9):.0%}"
        self.bar.set_postfix_str(", ".join(filter(None, (loss, share))), refresh=False)
        self.bar.update(self.size)
        if self.bar.disable and loop.is_main and self._is_due(loop, now):
            self.told, done = now, loop.batch + 1
            left = (now - self.start) / (done - self.first) * (loop.batches - done)
            to_go = f"{lasting(left)} to go in this {'run' if self.title else 'epoch'}" if left >= WORTH else ""
            position = f"{self.name}  step {done:,} of {loop.batches:,}"
            say.line("  ".join(filter(None, (position, loss, to_go))))

    def epoch_end(self, loop: Loop) -> None:
        if self.bar is not None:
            self.bar.close()

    end = epoch_end

    def _is_due(self, loop: Loop, now: float) -> bool:
        """Return whether there is a line after this batch; that of a whole epoch follows its last one."""
        done = loop.batch + 1
        is_told_after = done == loop.batches and not self.title
        return now - self.told >= PAUSE and done % math.ceil(loop.batches / self.lines or 1) == 0 and not is_told_after
