"""Revisited Oxford and Paris (Radenovic et al. 2018, arXiv 1803.11285): images, queries, and which answers count.

Published is a folder with gnd_NAME.pkl, a pickle of `imlist`, `qimlist` and `gnd`, and the JPEG files in jpg/. Of each
query `gnd` has bbx, the box that is the query, and easy, hard and junk: numbers of images in `imlist`.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
from PIL import Image
from torch.utils.data import Dataset

from evaluation.datasets import Reading
from evaluation.datasets.base import Split
from sslkit.data.sources.column_values import refuse
from sslkit.errors import UserError

LISTS = "gnd_*.pkl"
FOLDERS, SUFFIXES = ("jpg", "images", ""), (".jpg", ".jpeg", ".png")
KINDS = ("easy", "hard", "junk")
COUNTED = {  # of each protocol: the kinds that are answers, and those that do not count
    "easy": (("easy",), ("junk", "hard")),
    "medium": (("easy", "hard"), ("junk",)),
    "hard": (("hard",), ("junk", "easy")),
}


@dataclass(frozen=True, eq=False)
class Revisited:
    """The images that are searched, the queries, and the rows of the images of each kind for each query.

    kinds: {easy, hard, junk: Q arrays of rows}.
    """

    images: Split
    queries: Split
    kinds: Mapping[str, Sequence[np.ndarray]]

    def answers(self, protocol: str, query: int) -> tuple[np.ndarray, np.ndarray]:
        """Return the rows that are answers in a protocol of COUNTED, and those that do not count."""
        right, left_out = (np.concatenate([self.kinds[kind][query] for kind in kinds]) for kinds in COUNTED[protocol])
        return right, left_out


def find_lists(data: Any) -> Path | None:
    """Return the file of queries in a folder that is published so; None for other data. Raises UserError for two."""
    files = sorted(Path(data).expanduser().glob(LISTS)) if isinstance(data, (str, Path)) else []
    if len(files) > 1:
        raise UserError(f"{data} has {len(files)} lists of queries, {', '.join(f.name for f in files)}: keep one")
    return files[0] if files else None


def open_revisited(file: Path, reading: Reading) -> Revisited:
    """Open the images and the queries that a file lists. Raises UserError for another file, and missing images."""
    refuse(reading.columns, str(file), "has its own queries and answers")
    names, queries, truth = _read(file)
    paths = _locate(file.parent, [*names, *queries])
    searched = paths[: len(names)]
    parts = QueryParts(paths[len(names) :], [entry["bbx"] for entry in truth])
    images, query_split = (
        replace(reading.open(source, "all", needs_labels=False), name=file.parent.name)
        for source in (list(map(str, searched)), parts)
    )
    row_of = {Path(name).name: row for row, name in enumerate(images.ids)}
    rows = np.array([row_of[path.name] for path in searched])  # they are opened in the order of their names
    return Revisited(images, query_split, {kind: [rows[entry[kind]] for entry in truth] for kind in KINDS})


def _read(file: Path) -> tuple[list[str], list[str], list[dict[str, Any]]]:
    """Return the names of images and queries, and for each query its box and the numbers of its images by kind."""
    from sslkit.data.published._plain_pickle import load_plain  # imports NumPy's parts, which --help does without

    content = load_plain(file)
    try:
        names, queries, truth = (list(content[key]) for key in ("imlist", "qimlist", "gnd"))
        entries = [
            {"bbx": np.asarray(entry["bbx"], float).reshape(4)}
            | {kind: np.asarray(entry[kind], np.int64).ravel() for kind in KINDS}
            for entry in truth
        ]
    except (KeyError, TypeError, ValueError) as error:
        raise UserError(f"{file} is not written as published, imlist, qimlist and gnd: {error!r}") from error
    if len(queries) != len(entries) or not queries:
        raise UserError(f"{file} has {len(queries)} queries, and facts of {len(entries)}")
    numbers = np.concatenate([entry[kind] for entry in entries for kind in KINDS])
    if len(numbers) and not 0 <= numbers.min() <= numbers.max() < len(names):
        raise UserError(f"{file} names image {numbers.max()} of {len(names)}")
    return names, queries, entries


def _locate(folder: Path, names: Sequence[str]) -> list[Path]:
    """Return the files of the names, given without suffix. Raises UserError where some are missing."""
    for inner in FOLDERS:
        for suffix in SUFFIXES:
            if (folder / inner / f"{names[0]}{suffix}").is_file():
                paths = [folder / inner / f"{name}{suffix}" for name in names]
                if missing := [path for path in paths if not path.is_file()]:
                    raise UserError(f"{len(missing)} of {len(paths)} listed images are missing, first {missing[0]}")
                return paths
    raise UserError(f"{folder} lists images that are missing: {folder / FOLDERS[0] / names[0]}{SUFFIXES[0]}")


class QueryParts(Dataset):
    """The part of each query's image that its box holds."""

    def __init__(self, paths: Sequence[Path], boxes: Sequence[np.ndarray]) -> None:
        self.paths, self.boxes = paths, boxes

    def __len__(self) -> int:
        return len(self.paths)

    def __getitem__(self, row: int) -> tuple[Image.Image]:
        with Image.open(self.paths[row]) as image:
            return (image.convert("RGB").crop(tuple(map(float, self.boxes[row]))),)
