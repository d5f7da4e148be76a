"""Experiments that train networks: rows of words for recipes/train.py, each evaluated by the same protocols."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np

from sslkit.cli.command import composed

import evaluation
import sslkit
from evaluation.papers.drawing import rows_of_columns
from evaluation.papers.experiment import AGREES, DISAGREES, OPEN, Cell, Experiment, Lab, Numbers, Shown
from evaluation.papers.names import by_row, digest
from evaluation.results.result import Result
from evaluation.results.statistics import Estimate, over_seeds
from sslkit.errors import UserError
from sslkit.training.config import Config


@dataclass(frozen=True)
class Column:
    """A column of a table: a protocol's value, or with `other` one of its other numbers."""

    protocol: str
    other: str = ""
    unit: str = "fraction"

    def value(self, result: Result) -> float:
        return (result.others[self.other] if self.other else result.estimate).value


@dataclass(frozen=True)
class Row:
    """A network: words for recipes/train.py at each scale, and the paper's numbers by column.

    base: the row that this one adds something to; the gains over it are the verdict's.
    """

    small: tuple[str, ...]
    paper: tuple[str, ...] = ()
    published: Mapping[str, float] = field(default_factory=dict)
    base: str | None = None


@dataclass(frozen=True, kw_only=True)
class Training(Experiment):
    """Networks x seeds, evaluated on one data set.

    rows, columns: by their names in the table. judged_on: data of the evaluation at each scale. options: of the
    protocols. gain: the column whose gain over `base` is compared with the paper's. seeds: of the training.
    """

    rows: Mapping[str, Row]
    columns: Mapping[str, Column]
    judged_on: Mapping[str, str]
    gain: str
    options: Mapping[str, Mapping[str, Any]] = field(default_factory=dict)
    seeds: tuple[int, ...] = (0, 1, 2)

    def jobs(self, lab: Lab) -> dict[str, Callable[[], Numbers]]:
        return {
            f"{name} | {seed}": partial(self._measure, row, seed, lab)
            for seed in self.seeds
            for name, row in self.rows.items()
            if lab.scale == "small" or row.paper
        }

    def _measure(self, row: Row, seed: int, lab: Lab) -> Numbers:
        entry = trained(getattr(row, lab.scale), seed, lab)
        runtime = lab.runtime
        results = evaluation.evaluate(
            entry,
            self.judged_on[lab.scale],
            sorted({column.protocol for column in self.columns.values()}),
            options=self.options,
            root=lab.root,
            device=runtime.device,
            workers=runtime.workers,
            cache=runtime.cache,
            progress=runtime.progress,
        )
        of = {result.protocol: result for result in results}
        return {name: column.value(of[column.protocol]) for name, column in self.columns.items()}

    def shown(self, found: Mapping[str, Numbers]) -> Shown:
        rows = {name: self._cells(row, by_row(found, name)) for name, row in self.rows.items()}
        return Shown(rows, *self._verdict(found))

    def _cells(self, row: Row, seeds: Mapping[int, Numbers]) -> dict[str, Cell]:
        cells = {}
        for name, column in self.columns.items():
            values = [numbers[name] for numbers in seeds.values()]
            measured = over_seeds(values, unit=column.unit) if values else None
            cells[name] = Cell(measured, row.published.get(name))
        return cells

    def _verdict(self, found: Mapping[str, Numbers]) -> tuple[str, str]:
        """The mean gain of the rows over their bases, with its interval over rows and seeds, against the paper's."""
        gains, published = self.gains(found)
        if not gains:
            return OPEN, "no row of this table is compared with another one"
        mean = over_seeds(list(gains.values()), unit=self.columns[self.gain].unit)
        sentence = f"{self.gain} gains {said(mean)} over {len(gains)} rows (mean over seeds each)"
        if published is None:
            return OPEN, f"{sentence}; the paper gives no number"
        return outcome(mean, published), f"{sentence}; in the paper {published:+.3g}"

    def gains(self, found: Mapping[str, Numbers]) -> tuple[dict[str, float], float | None]:
        """The gain of each row over its base, the mean over their common seeds, and the paper's mean gain."""
        gains, published = {}, []
        for name, row in self.rows.items():
            if row.base is None:
                continue
            seeds, base = by_row(found, name), by_row(found, row.base)
            both = sorted(seeds.keys() & base.keys())
            if both:
                gains[name] = float(np.mean([seeds[seed][self.gain] - base[seed][self.gain] for seed in both]))
            if self.gain in row.published and self.gain in self.rows[row.base].published:
                published.append(row.published[self.gain] - self.rows[row.base].published[self.gain])
        return gains, float(np.mean(published)) if published else None

    def draw(self, found: Mapping[str, Numbers], path: Path, title: str) -> None:
        rows_of_columns(self.shown(found).rows, path, title)


def trained(words: tuple[str, ...], seed: int, lab: Lab) -> sslkit.ZooEntry:
    """Train, resume or open the entry of these words and this seed; experiments with the same words share it."""
    method = next((word.partition("=")[2] for word in words if word.startswith("method=")), "run")
    name = f"{method}-{digest(words)}-s{seed}"
    place = (f"seed={seed}", f"out={lab.zoo}", f"name={name}", f"resume={(lab.zoo / name).exists()}")
    shown = (f"trainer.progress={lab.runtime.progress}", "eval.tsne=0")
    entry = sslkit.pretrain(composed([*words, *place, *shown], Config(), lab.conf))
    if entry is None:
        raise UserError("recipes/reproduce.py runs in one process; train with several GPUs by recipes/train.py first")
    return entry


def outcome(mean: Estimate, published: float) -> str:
    """Whether a gain has the sign of the paper's: by its interval, OPEN where this has room for both."""
    if mean.interval is None or mean.interval[0] <= 0 <= mean.interval[1]:
        return OPEN
    return AGREES if (mean.value > 0) == (published > 0) else DISAGREES


def said(gain: Estimate) -> str:
    """A gain in points or in its unit, with its interval."""
    scale, unit = (100, " points") if gain.unit == "fraction" else (1, f" {gain.unit}".rstrip())
    ends = f" ({scale * gain.interval[0]:+.3g} to {scale * gain.interval[1]:+.3g})" if gain.interval else ""
    return f"{scale * gain.value:+.3g}{unit}{ends}"
