"""PED's reference: the mean and std of each model's features on other images than the task's.

reference = open_reference("imagenet", root="data")
mean, std = reference.statistics_of(name, model, reading, runtime)       # raises UserError where there is none
"""

import json
import zipfile
import zlib
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np

from evaluation.datasets import AS_USUAL, Reading, note_of, splits_of
from evaluation.datasets.base import Split
from evaluation.features.extraction import features_of
from evaluation.features.zoo_members import Members
from sslkit.errors import UserError, first_line
from sslkit.files.reading import regular
from sslkit.files.writing import write_whole
from sslkit.models.model import Model
from sslkit.runtime.context import Runtime
from sslkit.terminal.say import and_more

CARD, TASK = "card", "task"
FILES = (".npz", ".json")
Statistics = tuple[np.ndarray, np.ndarray]


@dataclass(frozen=True, eq=False)
class Reference:
    """The reference of every model. asked: the word. split: of a data set. table: of a file, {model: mean and std}.

    A table whose only model is "" is of any model. found: {model: what its features depend on, and their
    statistics on the data set}.
    """

    asked: str
    split: Split | None = None
    table: Mapping[str, Statistics] = field(default_factory=dict)
    found: dict[str, tuple[tuple[Any, ...], Statistics]] = field(default_factory=dict, repr=False)

    def statistics_of(self, name: str, model: Model, reading: Reading, runtime: Runtime) -> Statistics | None:
        """Return mean (D,) and std (D,) of a model's features; None for the task's own.

        Raises UserError for a model that the file lacks, and for statistics of another number of features.
        """
        if self.asked == TASK:
            return None
        if self.asked == CARD:
            stored = model.entry.card.get("features") if model.entry else None
            return (stored["mean"], stored["std"]) if stored and "mean" in stored else None
        if self.split is not None:
            read = (reading.resize, reading.interpolation, *reading.values.values(), runtime.precision)
            key = (model.digest, model.image_size, model.mean, model.std, *read)
            if name not in self.found or self.found[name][0] != key:
                x = features_of(model, self.split, reading, runtime).x
                self.found[name] = key, (np.mean(x, 0, dtype=np.float64), np.std(x, 0, dtype=np.float64))
            return self.found[name][1]
        return self._of_file(name, model.width)

    def _of_file(self, name: str, width: int) -> Statistics:
        if name not in self.table and "" not in self.table:
            raise UserError(
                f"reference={self.asked} has no statistics of this model, only of {and_more(list(self.table))}"
            )
        mean, std = self.table.get(name, self.table.get(""))
        if len(mean) != width:
            raise UserError(f"reference={self.asked} has {len(mean)} means, this model {width} features")
        return mean, std

    def notes(self) -> tuple[str, ...]:
        """Return the note of a ranking; none of the card's statistics, whose absence is said by model."""
        return () if self.asked in (CARD, TASK) else (f"PED: mean and std of {self}",)

    def __str__(self) -> str:
        if self.split is None:
            return self.asked
        return f"{len(self.split):,} images of {self.split.name} ({self.split.split})"


def open_reference(asked: Any, reading: Reading = AS_USUAL) -> Reference:
    """Open a reference before anything is computed.

    asked: "card": of the model's training images, from the card of its entry, else of the task. "task": of the task's
        own images. A file .npz of `mean` and `std`, or of `NAME/mean` and `NAME/std` for each model, or a .json
        {"mean": [...], "std": [...]} or {NAME: {...}}. A data set: its test images (of ImageNet the 50,000 of the
        published statistics), or all if it has none.
    Raises UserError for a file that cannot be read and for an unknown data set.
    """
    if isinstance(asked, Reference):
        return asked
    if asked in (CARD, TASK):
        return Reference(asked)
    if isinstance(asked, Split):
        return Reference(asked.name, asked)
    text = str(asked)
    if Path(text).suffix in FILES and (table := _table(Path(text))) is not None:
        return Reference(text, table=table)
    how = reading.cache, reading.columns
    parts = ("all",) if note_of(text, *how) else splits_of(text, *how)
    split = "test" if "test" in parts else parts[0]
    return Reference(text, reading.open(text, split, needs_labels=False))


def write_reference(reference: Reference, models: Members[Any], path: Path) -> Path | None:
    """Write the statistics that were computed from a data set, for `reference=PATH`; None if there are none."""
    computed = {name: reference.found[name][1] for name in models if name in reference.found}
    if not computed:
        return None
    arrays = {
        f"{name}/{statistic}": value
        for name, pair in computed.items()
        for statistic, value in zip(PARTS, pair, strict=True)
    }
    with write_whole(path) as partial, partial.open("wb") as file:
        np.savez(file, **arrays)
    return path


PARTS = ("mean", "std")
DAMAGED = (zipfile.BadZipFile, zlib.error)


def _table(path: Path) -> dict[str, Statistics] | None:
    """Read a file of means and stds; None for an .npz of images. Raises UserError."""
    try:
        table = _of_npz(path) if path.suffix == ".npz" else _of_json(path)
    except (OSError, ValueError, EOFError, KeyError, TypeError, AttributeError, RecursionError, *DAMAGED) as error:
        raise UserError(f"reference={path} cannot be read as means and stds: {first_line(error)}") from error
    if table == {}:
        raise UserError(f"reference={path} has no means and stds")
    for name, (mean, std) in (table or {}).items():
        whose = f" of {name}" if name else ""
        if mean.ndim != 1 or mean.shape != std.shape or not np.isfinite([mean, std]).all() or (std < 0).any():
            raise UserError(f"reference={path}: mean and std{whose} must be (D,) finite numbers, std not below 0")
    return table


def _of_npz(path: Path) -> dict[str, Statistics] | None:
    with np.load(regular(path), allow_pickle=False) as file:
        ends = [key for key in file.files if key.rpartition("/")[2] == PARTS[0]]
        if not ends:
            return None
        return {
            key.rpartition("/")[0]: (_numbers(file[key]), _numbers(file[key.removesuffix(PARTS[0]) + PARTS[1]]))
            for key in ends
        }


def _of_json(path: Path) -> dict[str, Statistics]:
    content = json.loads(regular(path).read_text(encoding="utf-8"))
    content = {"": content} if PARTS[0] in content else content
    return {name: (_numbers(pair[PARTS[0]]), _numbers(pair[PARTS[1]])) for name, pair in content.items()}


def _numbers(values: Any) -> np.ndarray:
    array = np.asarray(values)
    if array.dtype.kind not in "fiu":
        raise ValueError(f"{array.dtype} is no kind of real number")
    return array.astype(np.float64)
