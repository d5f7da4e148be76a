"""Studies that train networks: rows of words for recipes/train.py, each evaluated by the same protocols."""

import hashlib
import json
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any

import sslkit
from evaluation import datasets
from evaluation.datasets import Reading, open_split
from evaluation.judging.run import evaluate
from evaluation.results.result import Result
from evaluation.results.statistics import over_seeds
from evaluation.studies.claims import Cell, Claim, Numbers, Summary, by_row, evaluate_claims
from evaluation.studies.drawing import draw_panels
from evaluation.studies.study import Lab, Study
from evaluation.tasks.action.protocols import action
from evaluation.tasks.detection.datasets import sources
from sslkit.errors import RunFailed, UserError
from sslkit.terminal import say

AGAIN = "the same command"


@dataclass(frozen=True)
class Column:
    """A column of a table: a protocol's value, or with `other` one of its other numbers.

    card: in small the number of this name that every run measures at its end, in place of the protocol's.
    data: of the protocol at each scale, where not the experiment's; at a scale for which neither has data the column
    is not measured. options: of the protocol. small: those at the scale small, where they are others.
    """

    protocol: str
    other: str = ""
    card: str = ""
    unit: str = "fraction"
    data: Mapping[str, str] = field(default_factory=dict)
    options: Mapping[str, Any] = field(default_factory=dict)
    small: Mapping[str, Any] = field(default_factory=dict)

    def options_at(self, scale: str) -> dict[str, Any]:
        """The options at a scale."""
        return dict(self.small if scale == "small" and self.small else self.options)

    def value(self, results: Sequence[Result]) -> float:
        """The number among a protocol's results, of which the first has the main one."""
        named = [{result.metric: result.estimate} | result.others for result in results]
        return next(
            estimates[self.other or results[0].metric]
            for estimates in named
            if (self.other or results[0].metric) in estimates
        ).value


PROBE = Column("linear", card="probe")
PAPERS_WEIGHTS = "method.dsa.balance=null"  # nu and upsilon as they are


@dataclass(frozen=True)
class Row:
    """A network: words for recipes/train.py at each scale, and the paper's numbers by column.

    ROOT in a word is the folder of the published sets. Without words a row has the paper's numbers only.
    """

    small: tuple[str, ...] = ()
    paper: tuple[str, ...] = ()
    published: Mapping[str, float] = field(default_factory=dict)


@dataclass(frozen=True, kw_only=True)
class Training(Study):
    """Networks x seeds, evaluated on one data set or on those of the columns.

    rows, columns: by their names in the table. judged_on: data of the evaluation at each scale, ROOT as in `Row`.
    claims: the paper's findings that the rows can show. seeds: of the training. makes: folders below root that
    scale=small reads, and the command that makes each.
    """

    rows: Mapping[str, Row]
    columns: Mapping[str, Column]
    judged_on: Mapping[str, str]
    claims: tuple[Claim, ...]
    seeds: tuple[int, ...] = (0, 1, 2)
    makes: Mapping[str, str] = field(default_factory=dict)

    def jobs(self, lab: Lab) -> dict[str, Callable[[], Numbers]]:
        if lab.scale == "paper":
            check_data(self.needs, lab.root)
        else:
            check_folders(self.makes, lab.root)
        return {
            f"{name} | {seed}": partial(self._measure, name, seed, lab)
            for seed in self.seeds
            for name, row in self.rows.items()
            if getattr(row, lab.scale)
        }

    def _measure(self, name: str, seed: int, lab: Lab) -> Numbers:
        return self.numbers(train_entry(getattr(self.rows[name], lab.scale), seed, lab), name, seed, lab)

    def numbers(self, entry: sslkit.ZooEntry, name: str, seed: int, lab: Lab) -> Numbers:
        """The numbers of a trained network by column. name, seed: of the row and the training."""
        return measure_columns(entry, self.columns, self.judged_on, lab)

    def summarize(self, by_job: Mapping[str, Numbers]) -> Summary:
        rows = {name: self._cells(row, by_row(by_job, name)) for name, row in self.rows.items()}
        rows = {name: cells for name, cells in rows.items() if any(cell != Cell() for cell in cells.values())}
        published = {name: row.published for name, row in self.rows.items()}
        units = {name: column.unit for name, column in self.columns.items()}
        measured = {column for numbers in by_job.values() for column in numbers}
        claims = [claim for claim in self.claims if not by_job or claim.column in measured]
        return Summary(rows, *evaluate_claims(claims, by_job, published, units))

    def _cells(self, row: Row, seeds: Mapping[int, Numbers]) -> dict[str, Cell]:
        cells = {}
        for name, column in self.columns.items():
            values = [numbers[name] for numbers in seeds.values() if name in numbers]
            measured = over_seeds(values, unit=column.unit) if values else None
            cells[name] = Cell(measured, row.published.get(name))
        return cells

    def draw(self, by_job: Mapping[str, Numbers], path: Path, title: str) -> None:
        measured = {column for numbers in by_job.values() for column in numbers}
        rows = self.summarize(by_job).rows.items()
        draw_panels(
            {row: {name: cell for name, cell in cells.items() if name in measured} for row, cells in rows}, path, title
        )


def measure_columns(
    entry: sslkit.ZooEntry, columns: Mapping[str, Column], judged_on: Mapping[str, str], lab: Lab
) -> Numbers:
    """The numbers of the columns that are measured at this scale; what several ask for is evaluated once."""
    numbers: dict[str, float] = {}
    answers: dict[str, list[Result]] = {}
    for name, column in columns.items():
        if column.card and lab.scale == "small":
            numbers[name] = entry.card["after"][column.card]
        elif data := {**judged_on, **column.data}.get(lab.scale):
            question = (data.replace("ROOT", str(lab.root)), column.protocol, column.options_at(lab.scale))
            key = digest(question)
            if key not in answers:
                answers[key] = evaluate_protocol(entry, *question, lab)
            numbers[name] = column.value(answers[key])
    return numbers


def evaluate_protocol(
    entry: sslkit.ZooEntry, data: str, protocol: str, options: Mapping[str, Any], lab: Lab
) -> list[Result]:
    """The results of one protocol; its features are cached for the next."""
    runtime = lab.runtime
    how = {"device": runtime.device, "workers": runtime.workers, "cache": runtime.cache}
    asked = {protocol: dict(options)}
    return evaluate(entry, data, [protocol], options=asked, root=lab.root, progress=runtime.progress, **how)


def digest(words: Any) -> str:
    """8 hexadecimal digits of settings."""
    return hashlib.sha256(json.dumps(words, sort_keys=True).encode()).hexdigest()[:8]


def train_entry(words: tuple[str, ...], seed: int, lab: Lab) -> sslkit.ZooEntry:
    """Train, resume or open the entry of these words and this seed; experiments with the same words share it.

    DSA has the paper's weights.
    """
    words = tuple(word.replace("ROOT", str(lab.root)) for word in words)
    method = next((word.partition("=")[2] for word in words if word.startswith("method=")), "run")
    name = f"{method}-{digest(words)}-s{seed}"
    destination = (
        f"seed={seed}",
        f"out={lab.zoo}",
        f"name={name}",
        f"cache={lab.runtime.cache or 'null'}",
        f"resume={(lab.zoo / name).exists()}",
    )
    quiet = (f"progress={lab.runtime.progress}", "eval.tsne=0")
    published = (PAPERS_WEIGHTS,) if "+dsa" in method else ()
    with _name_the_same_command():
        entry = lab.train([*words, *published, *destination, *quiet])
    if entry is None:
        raise UserError("recipes/reproduce.py runs in one process; train with several GPUs by recipes/train.py first")
    return entry


@contextmanager
def _name_the_same_command() -> Iterator[None]:
    """Name reproduce.py's way to continue a stopped run, which is the same command: it has no setting `resume`."""
    try:
        yield
    except KeyboardInterrupt as stop:
        raise KeyboardInterrupt(str(stop).replace(say.CALL, AGAIN)) from stop
    except RunFailed as error:
        raise RunFailed(error.lines[0].replace(say.CALL, AGAIN), error.lines[1:]) from error


def check_data(names: Sequence[str], root: Path) -> None:
    """Raises UserError if a published set is not on the disk: what it is, where it comes from, how large."""
    for name in names:
        if name in action.datasets.names():
            action.datasets.open_films(name, "train", Reading(root=root))
        elif name in sources.NAMES and name not in datasets.names():
            sources.open_boxes(name, "train", root=root, masks=False)
        else:
            open_split(name, "train", root=root)


def check_folders(makes: Mapping[str, str], root: Path) -> None:
    """Raises UserError if a folder that scale=small reads is not there, with the command that makes it."""
    for folder, command in makes.items():
        if not (root / folder).is_dir():
            raise UserError(f"{root / folder} is not there; make it by: {command.replace('ROOT', str(root))}")
