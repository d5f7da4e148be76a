"""Sources of a Python program that are no names: lists of folders or of image files, arrays and tensors."""

import os
from collections.abc import Sequence
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
from PIL import Image
from torch.utils.data import Dataset

from sslkit.data.images import Images, is_array, join_paths
from sslkit.data.sources.hf import is_table
from sslkit.data.sources.own_arrays import NAME, Arrays
from sslkit.data.sources.own_dataset import PREFIX
from sslkit.errors import UserError

_NO_IMAGES = frozenset((".txt", ".csv", ".tsv", ".jsonl", ".npz", ".tar", ".zip"))  # files that name or hold images


class Files(Dataset):
    """Image files as a data set; sslkit reads them as those of a folder. paths: of all, in their order."""

    def __init__(self, paths: Sequence[str | Path]) -> None:
        self.paths = [os.path.abspath(os.path.expanduser(path)) for path in paths]
        twice = next((path for path, other in pairwise(sorted(self.paths)) if path == other), None)
        if twice:
            raise UserError(f"data= names {twice} twice: give each file once")

    def __len__(self) -> int:
        return len(self.paths)

    def __getitem__(self, row: int) -> Image.Image:
        return Image.open(self.paths[row])


class Table(Dataset):
    """A split of a Hugging Face data set as a data set of torch; its images are read as those of `hf:`."""

    def __init__(self, table: Any) -> None:
        if not hasattr(table, "features") or not hasattr(table, "__len__") or isinstance(table, dict):
            raise UserError(
                f"data is a {type(table).__name__} of Hugging Face: give one split, loaded whole: data['train']"
            )
        self.table = table

    def __str__(self) -> str:
        return "table"

    def __len__(self) -> int:
        return len(self.table)

    def __getitem__(self, row: int) -> dict[str, Any]:
        return self.table[row]


def as_source(source: Any, *, channels_last: bool | None = None) -> Any:
    """A source that is no name in the form in which it is opened; anything else unchanged.

    An array or tensor, or a pair of one and its labels, becomes `Arrays`; a split of a Hugging Face data set
    `Table`; a list of image files `Files`; a list of folders the text `A,B`.
    channels_last: of an array: its shape is (N, H, W, C); None: told by the shape.
    Raises UserError for another list, and for `channels_last` of what is no array.
    """
    if is_array(source):
        return Arrays(source, channels_last=channels_last)
    if _is_pair(source):
        return Arrays(*source, channels_last=channels_last)
    if channels_last is not None:
        raise UserError(f"channels_last={channels_last} is for an array or a tensor, and data is none")
    if is_table(source):
        return Table(source)
    if isinstance(source, (list, tuple)) and len(source) == 2 and is_table(source[0]):
        raise UserError("a column of labels is named by columns={'label': NAME}, beside the data set")
    return Files(source) if _are_files(source) else join_paths(source)


def is_several(source: Any) -> bool:
    """Return whether a list names several sources: it is no array or table with its labels and no image files."""
    return isinstance(source, (list, tuple)) and not _is_pair(source) and not _are_files(source)


def _is_pair(source: Any) -> bool:
    return isinstance(source, (list, tuple)) and len(source) == 2 and is_array(source[0]) and np.ndim(source[1]) < 3


def _are_files(source: Any) -> bool:
    """Return whether a list names image files. Raises UserError if it names folders or lists, too."""
    if not isinstance(source, (list, tuple)):
        return False
    paths = [Path(entry).expanduser() if isinstance(entry, (str, Path)) else None for entry in source]
    are = [path is not None and path.suffix.lower() not in _NO_IMAGES and path.is_file() for path in paths]
    if any(are) and not all(are):
        first, other = source[are.index(True)], source[are.index(False)]
        raise UserError(
            f"data is a list of files, such as {first!s:.200}, and of others, such as {other!s:.200}: give files or "
            "folders alone"
        )
    return any(are)


def name_of(own: Dataset) -> str:
    """The name of an object in the settings of a run; that of images which can be opened again is their source."""
    if isinstance(own, Images):
        return f"{PREFIX}{own.name}" if own.source is None else str(own.source)
    return f"{PREFIX}{NAME if isinstance(own, Arrays) else type(own).__name__}"
