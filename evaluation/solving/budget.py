"""The budget of time: what was spent, also before a stop, and what fits into the rest."""

import re
import time
from dataclasses import dataclass, field

from sslkit.errors import UserError
from sslkit.terminal.say import lasting

UNITS = {"s": 1, "min": 60, "h": 3600, "d": 86_400}


@dataclass
class Budget:
    """seconds: in all. before: of these, those of stages that were finished in a process before."""

    seconds: float
    before: float = 0.0
    started: float = field(default_factory=time.monotonic)

    @classmethod
    def parse(cls, text: str | float) -> "Budget":
        """Read 90s, 30min, 2h or 1.5d; a number alone is minutes. Raises UserError for others, and for none."""
        match = re.fullmatch(rf"\s*([\d.]+)\s*({'|'.join(UNITS)}|)\s*", str(text))
        try:
            seconds = float(match[1]) * UNITS[match[2] or "min"]
        except (TypeError, ValueError):
            seconds = 0.0
        if seconds <= 0:
            raise UserError(f"budget={text}: give a time such as 90s, 30min or 2h")
        return cls(seconds)

    @property
    def spent(self) -> float:
        return self.before + time.monotonic() - self.started

    @property
    def left(self) -> float:
        return self.seconds - self.spent

    def __str__(self) -> str:
        return f"{lasting(self.spent)} of {lasting(self.seconds)}"
