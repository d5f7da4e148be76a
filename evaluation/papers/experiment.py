"""The contract of an experiment: jobs that measure, and what is shown of their numbers beside the paper's."""

from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path

from evaluation.results.statistics import Estimate
from sslkit.runtime.context import Runtime

Numbers = Mapping[str, float]
SCALES = ("small", "paper")
AGREES, DISAGREES, OPEN = "agrees", "disagrees", "open"


@dataclass(frozen=True, kw_only=True)
class Lab:
    """The place and scale of an experiment.

    scale: "small" (the sets in the package) or "paper" (the published sets and settings). root: folder of the published
    sets. zoo: folder of the entries that are trained, which the experiments share. conf: folder of Hydra's files.
    """

    scale: str
    root: Path
    zoo: Path
    conf: Path
    runtime: Runtime = field(default_factory=Runtime)


@dataclass(frozen=True)
class Cell:
    """One number: measured here (None: not measured at this scale), and the paper's (None: it has none)."""

    measured: Estimate | None = None
    published: float | None = None


@dataclass(frozen=True)
class Shown:
    """The table of an experiment: rows of cells by column, and the verdict on the paper's claim.

    outcome: AGREES, DISAGREES or OPEN (the interval has room for both). sentence: the numbers behind it.
    findings: the outcome of each finding that says a difference and has an interval.
    """

    rows: Mapping[str, Mapping[str, Cell]]
    outcome: str
    sentence: str
    findings: tuple[str, ...] = ()


@dataclass(frozen=True, kw_only=True)
class Experiment(ABC):
    """A table, figure or claim of a paper.

    caption: as the paper has it. cost: of scale=small, in words.
    needs: published data sets of scale=paper, names of `evaluation.datasets` or of `recipes/train.py`'s data.
    readings: what was decided where the paper is ambiguous.
    """

    caption: str
    cost: str = ""
    needs: tuple[str, ...] = ()
    readings: tuple[str, ...] = ()

    @abstractmethod
    def jobs(self, lab: Lab) -> dict[str, Callable[[], Numbers]]:
        """Each measurement by its key; a finished one is not run again. Raises UserError before any is run."""

    @abstractmethod
    def shown(self, found: Mapping[str, Numbers]) -> Shown:
        """The table of the jobs' numbers."""

    @abstractmethod
    def draw(self, found: Mapping[str, Numbers], path: Path, title: str) -> None:
        """Write the picture."""


@dataclass(frozen=True, kw_only=True)
class Absent:
    """A table or figure that is not run, and the reason."""

    caption: str
    reason: str
