"""Read the material of the page from the disk: damaged files are listed, the rest is shown."""

import csv
import datetime
import json
import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from evaluation.ranking.choice.layers import FILE
from evaluation.ranking.ranking import Ranking
from evaluation.report.commands import first_training
from evaluation.report.options import RANKINGS
from evaluation.results import store
from evaluation.results.result import Result
from sslkit import zoo as zoos
from sslkit.errors import UserError
from sslkit.files.reading import regular
from sslkit.zoo.entry import CARD, WEIGHTS, ZooEntry
from sslkit.zoo.table import rows
from sslkit.zoo.weights import sha256

STARTED = "config.yaml"  # in the folder of a run from its start; the logs of a set of members do not have it


@dataclass(frozen=True)
class Weights:
    """parameters: trained numbers, without the statistics of batch normalisation. digest: sha256 of the file."""

    parameters: int
    bytes: int
    digest: str


@dataclass(frozen=True)
class Member:
    """A model on the disk. card: {} for a model outside the zoo. curves: rows of metrics.csv."""

    name: str
    folder: Path
    card: dict[str, Any] = field(default_factory=dict)
    weights: Weights | None = None
    curves: list[dict[str, float]] = field(default_factory=list)
    results: list[Result] = field(default_factory=list)


@dataclass(frozen=True)
class Ranked:
    """A ranking and its path. date: of the ranking, or of its file if it has none. command: that repeats it."""

    ranking: Ranking
    path: Path
    date: str
    command: str = ""


@dataclass
class Material:
    """All material of the page. problems: a line for each input that could not be read.

    rankings: those that hold an entry of this zoo; elsewhere: the others, which are left out.
    """

    zoo: Path
    members: list[Member] = field(default_factory=list)
    outside: list[Member] = field(default_factory=list)
    rankings: list[Ranked] = field(default_factory=list)
    elsewhere: list[Ranked] = field(default_factory=list)
    study: Any = None
    study_path: Path | None = None
    problems: list[str] = field(default_factory=list)

    @property
    def names(self) -> set[str]:
        """The names of the zoo's entries."""
        return {member.name for member in self.members}

    @property
    def with_results(self) -> list[Member]:
        """The members with results of evaluate.py."""
        return [member for member in (*self.members, *self.outside) if member.results]


def read_all(zoo: Path, rankings: Iterable[Path], outside: Path, study: Path | None) -> Material:
    """Read the zoo, the rankings, the results of other models and the study.

    Raises UserError for a zoo that is not a folder of entries or has none, for places of rankings, but RANKINGS, that
    are missing or damaged, and for a study that cannot be read.
    """
    if (zoo / CARD).is_file():
        raise UserError(f"{zoo} is one entry: give its parent folder, zoo={zoo.parent}")
    entries = zoos.open(zoo)
    material = Material(zoo, study=None if study is None else read_json(study), study_path=study)
    material.problems += [f"{folder}, left out: {reason}" for folder, reason in sorted(entries.damaged.items())]
    material.problems += [
        f"{folder} has no {CARD}: its run has not ended (resume it with the same command and resume=true)"
        for folder in _folders(zoo)
        if not (folder / CARD).is_file() and (folder / STARTED).is_file()
    ]
    for entry, row in zip(sorted(entries, key=lambda entry: entry.folder.name), rows(entries), strict=True):
        material.members.append(_member(entry, row["M params"], material.problems))
    material.members.sort(key=lambda member: _natural(member.name))
    for folder in _folders(outside):
        if (folder / store.RESULTS).is_file():
            results = _results(folder, material.problems)
            material.outside.append(Member(results[0].model if results else folder.name, folder, results=results))
    if not (material.members or material.outside or study):
        why = f" ({material.problems[0]})" if material.problems else ""
        raise UserError(f"{zoo} has no finished entry{why}: train one, {first_training(zoo)}")
    _read_rankings(material, list(rankings))
    return material


def _read_rankings(material: Material, places: Sequence[Path]) -> None:
    """Add the rankings, and a problem for each damaged file of a folder.

    Raises UserError for a damaged file that is one of the places itself, and for places without any other.
    """
    damaged: list[UserError] = []
    for path in _files(places):
        try:
            ranking = Ranking.from_json(path)
            written = datetime.datetime.fromtimestamp(path.stat().st_mtime, datetime.UTC).isoformat(timespec="seconds")
            ranked = Ranked(ranking, path, str(ranking.made.get("date") or written))
            of_this_zoo = material.names & set(ranking.models)
            (material.rankings if of_this_zoo else material.elsewhere).append(ranked)
        except UserError as error:
            if path in places:
                raise
            damaged.append(error)
    if damaged and list(places) != [Path(RANKINGS)] and not (material.rankings or material.elsewhere):
        raise damaged[0]
    material.problems += map(str, damaged)


def read_json(path: Path) -> Any:
    """Read a JSON file. Raises UserError with the file and the reason."""
    try:
        return json.loads(regular(path).read_text(encoding="utf-8"))
    except (OSError, ValueError, RecursionError) as error:
        reason = error.strerror if isinstance(error, OSError) else error
        raise UserError(f"{path} cannot be read as JSON: {reason}") from error


def _natural(name: str) -> list[tuple[int, str]]:
    """Return a sort key by which s2 comes before s10."""
    return [(int(token), "") if token.isdecimal() else (-1, token) for token in re.split(r"(\d+)", name)]


def _folders(parent: Path) -> list[Path]:
    if not parent.is_dir():
        return []
    return sorted(path for path in parent.iterdir() if path.is_dir() and not path.name.startswith("."))


def _files(places: Iterable[Path]) -> list[Path]:
    files: list[Path] = []
    for source in places:
        if not source.exists() and source != Path(RANKINGS):
            raise UserError(
                f"there is no ranking {source}: give an output folder of recipes/rank.py, or one of its JSON files"
            )
        files += sorted(source.rglob("*.json")) if source.is_dir() else [source] if source.exists() else []
    return [path for path in dict.fromkeys(files) if not _is_of_layers(path)]


def _is_of_layers(path: Path) -> bool:
    """Return True for the file of layers that rank.py writes beside a ranking."""
    return path.name.endswith(FILE) and path.with_name(path.name.removesuffix(FILE) + ".json").exists()


def _member(entry: ZooEntry, millions: float | None, problems: list[str]) -> Member:
    """Read a member. millions: of parameters, None for weights that cannot be read."""
    folder, path, weights = entry.folder, entry.folder / WEIGHTS, None
    if millions is None:
        problems.append(f"{path} cannot be read as safetensors: the entry cannot be loaded")
    else:
        weights = Weights(round(1e6 * millions), path.stat().st_size, sha256(path))
    curves = _curves(folder / "metrics.csv", problems)
    return Member(folder.name, folder, entry.card, weights, curves, _results(folder, problems))


def _curves(path: Path, problems: list[str]) -> list[dict[str, float]]:
    """Return the rows of a run's metrics, without empty cells."""
    try:
        with regular(path).open(newline="") as file:
            return [{key: float(text) for key, text in row.items() if key and text} for row in csv.DictReader(file)]
    except FileNotFoundError:
        return []
    except (OSError, ValueError, TypeError, csv.Error) as error:
        problems.append(f"{path} cannot be read as the metrics of a run: {error}")
        return []


def _results(folder: Path, problems: list[str]) -> list[Result]:
    try:
        return store.read(folder)
    except UserError as error:
        problems.append(f"results of {folder.name}, which cannot be compared in pairs: {error}")
    try:
        return store.read(folder, outcomes=False)
    except UserError:
        return []
