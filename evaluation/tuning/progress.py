"""Progress of a training: a bar on a terminal; in a log a line now and then, if the training takes long."""

import math
import sys
import time
from collections.abc import Iterable, Iterator
from typing import Any

from tqdm import tqdm

from sslkit.runtime.distributed import rank
from sslkit.terminal.say import printable

LINES = 10  # most lines of one training in a log
APART = 60.0  # least seconds between two of them


class Progress:
    """Progress from step `first` to `steps`, with the loss and the share of time spent on waiting for batches.

    shown: False shows nothing; a string is the title. Ranks other than 0 show nothing.
    loss: of the last steps, set by the training.
    """

    def __init__(self, shown: bool | str, steps: int, first: int = 0) -> None:
        self.title = shown if isinstance(shown, str) else "training"
        self.shown = bool(shown) and rank() == 0
        self.step, self.steps, self.loss = first, steps, math.nan
        hidden = None if self.shown else True  # None: shown on a terminal only
        self.bar = tqdm(
            total=steps,
            initial=first,
            desc=printable(self.title, keep=""),
            leave=False,
            disable=hidden,
            dynamic_ncols=True,
            unit="step",
        )
        self.start = self.said = time.perf_counter()
        self.waited = 0.0
        if first and self.shown:
            self._say(f"goes on at step {first:,} of {steps:,}")

    def feed(self, batches: Iterable[Any]) -> Iterator[Any]:
        """Yield the batches, and advance the bar by a step after each."""
        source = iter(batches)
        with self.bar:
            while True:
                asked = time.perf_counter()
                batch = next(source, None)
                self.waited += time.perf_counter() - asked
                if batch is None:
                    return
                yield batch
                self._advance()

    def _advance(self) -> None:
        self.step += 1
        now = time.perf_counter()
        share = f"data={self.waited / (now - self.start):.0%}"
        loss = "" if math.isnan(self.loss) else f"loss {self.loss:.3f}"
        self.bar.set_postfix_str(", ".join(filter(None, (loss, share))), refresh=False)
        self.bar.update()
        due = self.step % -(-self.steps // LINES) == 0 and now - self.said >= APART
        if self.shown and self.bar.disable and due:
            self.said = now
            self._say(f"step {self.step:,}/{self.steps:,}  {loss}".rstrip())

    def _say(self, text: str) -> None:
        tqdm.write(printable(f"{self.title}  {text}", keep=""), file=sys.stderr)
