"""The budget of time: what was spent, also before a stop, and what fits into the rest."""

import time
from dataclasses import dataclass, field

from sslkit.options.durations import seconds_of
from sslkit.terminal.say import lasting


@dataclass
class Budget:
    """seconds: in all. before: of these, those of stages that were finished in a process before."""

    seconds: float
    before: float = 0.0
    started: float = field(default_factory=time.monotonic)

    @classmethod
    def parse(cls, text: str | float) -> "Budget":
        """Read a time, see `seconds_of`. Raises UserError for what is none."""
        return cls(seconds_of("budget", text))

    @property
    def spent(self) -> float:
        return self.before + time.monotonic() - self.started

    @property
    def left(self) -> float:
        return self.seconds - self.spent

    def __str__(self) -> str:
        return f"{lasting(self.spent)} of {lasting(self.seconds)}"
