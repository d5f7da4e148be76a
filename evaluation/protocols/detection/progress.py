"""What is seen of a long training: a bar on a terminal, a line now and then where there is none."""

import sys
from collections.abc import Sequence

from tqdm import tqdm

from sslkit.distributed import rank

LINES = 10  # at most, of a training whose output is no terminal


class Progress:
    """Of `steps` steps, beginning at `first`; to be used as a context.

    shown: False shows nothing; a text is its title. Ranks other than 0 show nothing.
    """

    def __init__(self, shown: bool | str, steps: int, first: int = 0) -> None:
        self.title = shown if isinstance(shown, str) else "training"
        self.shown = bool(shown) and rank() == 0
        self.steps, self.every = steps, -(-steps // LINES)
        hidden = None if self.shown else True
        self.bar = tqdm(total=steps, initial=first, desc=self.title, unit="step", leave=False, disable=hidden)
        if first and self.shown:
            self._say(f"goes on at step {first:,} of {steps:,}")

    def __enter__(self) -> "Progress":
        return self

    def __exit__(self, *_error: object) -> None:
        self.bar.close()

    def update(self, step: int, losses: Sequence[tuple[int, float]]) -> None:
        """One step more. losses: (step, mean loss), the last is shown."""
        loss = f"loss {losses[-1][1]:.3f}" if losses else ""
        self.bar.update()
        self.bar.set_postfix_str(loss, refresh=False)
        if self.shown and self.bar.disable and step % self.every == 0:
            self._say(f"step {step:,}/{self.steps:,}  {loss}".rstrip())

    def _say(self, text: str) -> None:
        tqdm.write(f"{self.title}  {text}", file=sys.stderr)
