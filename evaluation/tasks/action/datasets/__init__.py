"""Labelled video data sets. Each file here is a published data set of the file's name.

films = evaluation.tasks.action.datasets.open_films("ucf101", "train", fold=1)
films = evaluation.tasks.action.datasets.open_films("kinetics400:/big/k400", "test")
films = evaluation.tasks.action.datasets.open_films("video:path/to/folder", "test")
"""

import dataclasses
import importlib
from pathlib import Path
from typing import Any

from evaluation.datasets import AS_USUAL, Reading
from evaluation.tasks.action.datasets._own import FOLDER, open_own
from evaluation.tasks.action.datasets.base import Entry, Films
from sslkit.data.sources.column_values import refuse
from sslkit.errors import UserError
from sslkit.options import members

__all__ = ["Entry", "Films", "find", "folds_by_name", "folds_of", "names", "open_films"]


def names() -> tuple[str, ...]:
    """The name of every published data set."""
    return members.names(__name__)


def find(name: str) -> Entry:
    """The published data set of a given name. Raises UserError for an unknown one, with the nearest."""
    if name not in names():
        raise UserError(f"there is no video data set {name!r}: {members.nearest(name, names())}")
    return dataclasses.replace(importlib.import_module(f"{__name__}.{name}").ENTRY, name=name)


def folds_of(source: Any) -> tuple[int, ...]:
    """The official splits of a source: 1, 2, 3 of UCF101 and HMDB51; only 1 if there is one.

    Raises UserError for an unknown source.
    """
    return folds_by_name(_name(source))


def folds_by_name(name: str) -> tuple[int, ...]:
    """The official splits of a published data set; only 1 for any other name."""
    return find(name).folds if name in names() else (1,)


def open_films(source: str, split: str, reading: Reading = AS_USUAL, *, fold: int = 1) -> Films:
    """List the videos and labels of one split. Nothing is downloaded or decoded.

    source: a published data set, `NAME` or `NAME:ROOT` (see `names`), or `video:FOLDER`, which has a folder for each
        split ("train"; "test" or "val") and in it one for each class; or several folders, a list, or a pattern.
    split: "train" or "test"; the test split of Kinetics-400 is its validation list, whose labels are public.
    reading: its root, the folder that contains NAME, and its counts, the reaction to numbers of videos or classes other
        than the published ones. fold: number of the official split (`folds_of`).
    Raises UserError for an unknown source, split or fold, and for missing files, with their number, the first names
    and their source.
    """
    name = _name(source)
    if name == FOLDER:
        return open_own(source, split, reading.columns)
    refuse(reading.columns, name, "is published with its own splits and labels")
    return find(name).open(Path(source.partition(":")[2] or reading.root).expanduser(), split, fold, reading.counts)


def _name(source: Any) -> str:
    text = source if isinstance(source, str) else type(source).__name__
    name, _, rest = text.partition(":")
    choices = (*names(), FOLDER)
    if not isinstance(source, str) or name not in choices or (name == FOLDER and not rest):
        known_as = f"video:{text}" if isinstance(source, str) and Path(text).is_dir() else "video:FOLDER"
        raise UserError(f"{text!r} is not a video data set: for action, data is {known_as} or {_or(names())}")
    return name


def _or(words: tuple[str, ...]) -> str:
    return f"{', '.join(words[:-1])} or {words[-1]}"
