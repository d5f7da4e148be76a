"""The contract of a study: jobs that measure, and what is shown of their numbers beside the published ones."""

from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

import sslkit
from evaluation.studies.claims import Numbers, Summary
from evaluation.studies.drawing import draw_panels
from sslkit.runtime.context import Runtime


@dataclass(frozen=True, kw_only=True)
class Lab:
    """The place and scale of a study.

    scale: "small" (the sets in the package) or "paper" (the published sets and settings). root: folder of the published
    sets. zoo: folder of the entries that are trained, which the studies share. train: trains by words of
    recipes/train.py; None where a process has no part in the result.
    """

    scale: str
    root: Path
    zoo: Path
    train: Callable[[Sequence[str]], sslkit.ZooEntry | None]
    runtime: Runtime = field(default_factory=Runtime)


@dataclass(frozen=True, kw_only=True)
class Study(ABC):
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
    def summarize(self, by_job: Mapping[str, Numbers]) -> Summary:
        """The table of the jobs' numbers."""

    def draw(self, by_job: Mapping[str, Numbers], path: Path, title: str) -> None:
        """Write the picture: the table, a panel for each column, unless the study has one of its own."""
        draw_panels(self.summarize(by_job).rows, path, title)


@dataclass(frozen=True, kw_only=True)
class Absent:
    """A table or figure that is not run, and the reason."""

    caption: str
    reason: str
