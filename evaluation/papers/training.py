"""Experiments that train networks: rows of words for recipes/train.py, each evaluated by the same protocols."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any

from sslkit.cli.command import composed

import sslkit
from evaluation.datasets import open_split
from evaluation.judging.run import evaluate
from evaluation.papers.claims import Claim, judged
from evaluation.papers.drawing import rows_of_columns
from evaluation.papers.experiment import Cell, Experiment, Lab, Numbers, Shown
from evaluation.papers.names import by_row, digest
from evaluation.results.result import Result
from evaluation.results.statistics import over_seeds
from sslkit.errors import UserError
from sslkit.training.config import Config


@dataclass(frozen=True)
class Column:
    """A column of a table: a protocol's value, or with `other` one of its other numbers.

    card: in small the number of this name that every run measures at its end, in place of the protocol's.
    """

    protocol: str
    other: str = ""
    card: str = ""
    unit: str = "fraction"

    def value(self, result: Result) -> float:
        return (result.others[self.other] if self.other else result.estimate).value


@dataclass(frozen=True)
class Row:
    """A network: words for recipes/train.py at each scale, and the paper's numbers by column.

    ROOT in a word is the folder of the published sets.
    """

    small: tuple[str, ...]
    paper: tuple[str, ...] = ()
    published: Mapping[str, float] = field(default_factory=dict)


@dataclass(frozen=True, kw_only=True)
class Training(Experiment):
    """Networks x seeds, evaluated on one data set.

    rows, columns: by their names in the table. judged_on: data of the evaluation at each scale. options: of the
    protocols. claims: the paper's findings that the rows can show. seeds: of the training.
    """

    rows: Mapping[str, Row]
    columns: Mapping[str, Column]
    judged_on: Mapping[str, str]
    claims: tuple[Claim, ...]
    options: Mapping[str, Mapping[str, Any]] = field(default_factory=dict)
    seeds: tuple[int, ...] = (0, 1, 2)

    def jobs(self, lab: Lab) -> dict[str, Callable[[], Numbers]]:
        if lab.scale == "paper":
            check_data(self.needs, lab.root)
        return {
            f"{name} | {seed}": partial(self._measure, row, seed, lab)
            for seed in self.seeds
            for name, row in self.rows.items()
            if lab.scale == "small" or row.paper
        }

    def _measure(self, row: Row, seed: int, lab: Lab) -> Numbers:
        entry = trained(getattr(row, lab.scale), seed, lab)
        own = {name: column.card for name, column in self.columns.items() if column.card and lab.scale == "small"}
        numbers = {name: entry.card["after"][key] for name, key in own.items()}
        asked = {name: column for name, column in self.columns.items() if name not in own}
        of = self._evaluated(entry, sorted({column.protocol for column in asked.values()}), lab) if asked else {}
        return numbers | {name: column.value(of[column.protocol]) for name, column in asked.items()}

    def _evaluated(self, entry: sslkit.ZooEntry, protocols: list[str], lab: Lab) -> dict[str, Result]:
        runtime, options = lab.runtime, {name: self.options[name] for name in protocols if name in self.options}
        how = {"device": runtime.device, "workers": runtime.workers, "cache": runtime.cache}
        data = self.judged_on[lab.scale]
        results = evaluate(entry, data, protocols, options=options, root=lab.root, progress=runtime.progress, **how)
        return {result.protocol: result for result in results}

    def shown(self, found: Mapping[str, Numbers]) -> Shown:
        rows = {name: self._cells(row, by_row(found, name)) for name, row in self.rows.items()}
        published = {name: row.published for name, row in self.rows.items()}
        units = {name: column.unit for name, column in self.columns.items()}
        return Shown(rows, *judged(self.claims, found, published, units))

    def _cells(self, row: Row, seeds: Mapping[int, Numbers]) -> dict[str, Cell]:
        cells = {}
        for name, column in self.columns.items():
            values = [numbers[name] for numbers in seeds.values()]
            measured = over_seeds(values, unit=column.unit) if values else None
            cells[name] = Cell(measured, row.published.get(name))
        return cells

    def draw(self, found: Mapping[str, Numbers], path: Path, title: str) -> None:
        rows_of_columns(self.shown(found).rows, path, title)


def trained(words: tuple[str, ...], seed: int, lab: Lab) -> sslkit.ZooEntry:
    """Train, resume or open the entry of these words and this seed; experiments with the same words share it."""
    words = tuple(word.replace("ROOT", str(lab.root)) for word in words)
    method = next((word.partition("=")[2] for word in words if word.startswith("method=")), "run")
    name = f"{method}-{digest(words)}-s{seed}"
    place = (f"seed={seed}", f"out={lab.zoo}", f"name={name}", f"resume={(lab.zoo / name).exists()}")
    shown = (f"trainer.progress={lab.runtime.progress}", "eval.tsne=0")
    entry = sslkit.pretrain(composed([*words, *place, *shown], Config(), lab.conf))
    if entry is None:
        raise UserError("recipes/reproduce.py runs in one process; train with several GPUs by recipes/train.py first")
    return entry


def check_data(names: Sequence[str], root: Path) -> None:
    """Raises UserError if a published set is not on the disk: what it is, where it comes from, how large."""
    for name in names:
        open_split(name, "train", root=root)
