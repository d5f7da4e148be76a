"""Images in tar files, as WebDataset writes them, on a local disk or behind an fsspec URL."""

import io
import os
import re
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np
from PIL import Image

from sslkit.data import shard_files
from sslkit.data.decode import UnreadableImage, open_image
from sslkit.data.decoded import DecodedImages
from sslkit.data.file_contents import FileContents
from sslkit.data.images import Identity, ImageOptions, check_split
from sslkit.data.path_list import PathList
from sslkit.data.shard_files import ShardFiles
from sslkit.data.tar_index import TarIndex, index_shards
from sslkit.errors import UserError
from sslkit.plurals import counted

PREFIX = "shards:"
_SPLITS = {
    word: split
    for split, words in {"train": ("train",), "val": ("val", "valid", "validation"), "test": ("test",)}.items()
    for word in words
}


class ShardImages(DecodedImages):
    """The images of all shards, in the order of the shards and of their members; a row is read by its offset."""

    def __init__(self, files: ShardFiles, index: TarIndex, identity: Identity, options: ImageOptions) -> None:
        self.files = files
        self.index = index
        super().__init__(identity, options)

    def __len__(self) -> int:
        return len(self.index)

    def path(self, row: int) -> str:
        """`SHARD/MEMBER`."""
        return f"{self.index.shards[self.index.shard[row]]}/{self.index.names[row]}"

    def image_name(self, row: int) -> str:
        """`SHARD/MEMBER`, the shard without the folder that all shards share."""
        return self.path(row)[self._shared :]

    @cached_property
    def _shared(self) -> int:
        """Length of the path of the folder that all shards are below, with its slash."""
        return os.path.commonprefix(self.index.shards).rfind("/") + 1  # noqa: RUF071  (commonpath changes URLs)

    def _take(self, rows: np.ndarray) -> None:
        self.index = self.index.rows(rows)

    def content(self, row: int) -> bytes:
        """The encoded image. Raises OSError."""
        shard = self.index.shards[self.index.shard[row]]
        return self.files.read(shard, int(self.index.offset[row]), int(self.index.size[row]))

    def content_size(self, row: int) -> int:
        """Bytes of `content`."""
        return int(self.index.size[row])

    def _open(self, row: int) -> Image.Image:
        try:
            content = self.content(row)
        except OSError as error:
            raise UnreadableImage(f"{type(error).__name__}: {error}") from error
        return open_image(io.BytesIO(content))

    def _update_listing(self, digest: Any) -> None:
        self.index.update_digest(digest)
        if self._contents is None:
            for place in self.index.used:
                state = self.index.states[place]
                digest.update(f"{self.index.shards[place][self._shared :]}\0{state.bytes} {state.changed}\n".encode())
        else:
            self._contents.update_listing(digest)

    def _update_digest(self, digest: Any) -> None:
        self._update_listing(digest)
        if self._contents is not None:
            self._contents.update_content(digest)

    @property
    def _contents(self) -> FileContents | None:
        """The shards that are used; None behind a URL, where a tag stands for the content."""
        if self.files.is_remote:
            return None
        shards = [self.index.shards[place][self._shared :] for place in self.index.used]
        return FileContents(Path(self.index.shards[0][: self._shared]), PathList(shards), self.options.cache)


def splits_of_shards(source: str) -> tuple[str, ...]:
    return tuple(_by_split(shard_files.find(source.removeprefix(PREFIX))[1]))


def open_shards(source: str, options: ImageOptions) -> ShardImages:
    """The images of one split of `shards:PATTERN`; PATTERN is as of `shard_files.find`.

    A row is an image; its sample is its name up to the first dot, as in WebDataset. Other members are left out.
    Splits: shards whose name, or folder, has the word train, val (valid, validation) or test belong to it, if there
    are some of train and of another; otherwise all are "train". A single held-out one is "test", as of a folder.
    Labels: the whole number in the sample's .cls, -1 for none; several for several classes, with spaces or commas
    between them (an empty file is none of them). Without any, the top-level folder of the members' names, if there are
    at least two and no image is beside them. The classes of all splits are numbered together.
    options.cache: folder of the index, see `tar_index.index_shards`.
    Raises UserError for a pattern without shards, shards without images, and what cannot be reached.
    """
    files, shards = shard_files.find(source.removeprefix(PREFIX))
    by_split = _by_split(shards)
    wanted = "test" if options.split == "val" and "val" not in by_split else options.split
    check_split(source, wanted, tuple(by_split))
    index = index_shards(files, shards, None if options.cache is None else Path(options.cache))
    wanted_shards = set(by_split[wanted])
    inside = {place for place, name in enumerate(shards) if name in wanted_shards}
    rows = np.flatnonzero(np.isin(index.shard, list(inside)))
    if not len(rows):
        raise UserError(
            f"{source}: there is no image in {counted(len(inside), 'shard')}, such as {by_split[wanted][0]}"
        )
    identity = Identity(name_of_shards(source), source, tuple(by_split), **_labels(index, rows))
    return ShardImages(files, index.rows(rows) if len(rows) < len(index) else index, identity, options)


def _by_split(shards: list[str]) -> dict[str, list[str]]:
    found: dict[str, list[str]] = {}
    for name in shards:
        words = re.findall(r"[a-z]+", "/".join(name.lower().split("/")[-2:]))
        split = next((_SPLITS[word] for word in reversed(words) if word in _SPLITS), "train")
        found.setdefault(split, []).append(name)
    held_out = [split for split in ("val", "test") if split in found]
    if "train" not in found or not held_out:
        return {"train": shards}
    names = ("test",) if len(held_out) == 1 else held_out
    return {"train": found["train"], **{name: found[split] for name, split in zip(names, held_out, strict=True)}}


def _labels(index: TarIndex, rows: np.ndarray) -> dict[str, Any]:
    """Return labels (n,) int64 or multi_labels (n, K) int8 of some rows, and classes; {} without labels."""
    if len(index.labels.numbers):
        numbers = np.unique(index.labels.numbers)
        if index.labels.are_several:
            multi_labels = index.labels.rows(rows).indicator(numbers)
            return {"multi_labels": multi_labels, "classes": list(map(str, numbers.tolist()))}
        cls = index.labels.single()
        labels = np.where(index.labels.counts == 1, np.searchsorted(numbers, cls), -1)
        return {"labels": labels[rows], "classes": _names(numbers, cls, index)}
    folders = _top_folders(index)
    if folders is None or len(np.unique(folders)) < 2:
        return {}
    classes, labels = np.unique(folders, return_inverse=True)
    return {"labels": labels[rows], "classes": classes.tolist()}


def _names(numbers: np.ndarray, cls: np.ndarray, index: TarIndex) -> list[str]:
    """The classes of these numbers: the folders of the members if each has one of its own, otherwise the numbers."""
    folders = _top_folders(index)
    if folders is not None and (index.labels.counts == 1).all():
        pairs = np.unique(np.stack([folders, cls.astype(str)]), axis=1)
        if len(numbers) == len(np.unique(folders)) == pairs.shape[1]:
            return [str(folders[np.argmax(cls == number)]) for number in numbers]
    return list(map(str, numbers.tolist()))


def _top_folders(index: TarIndex) -> np.ndarray | None:
    """(N,) the first folder in each member's name; None if one has none."""
    tops = [index.names[row].partition("/") for row in range(len(index))]
    return np.array([top for top, slash, _ in tops]) if all(slash for _, slash, _ in tops) else None


def name_of_shards(source: str) -> str:
    """A name for tables: the last part of the pattern that is more than a split, without braces, stars and ending."""
    for part in reversed(source.removeprefix(PREFIX).split("://")[-1].split("/")):
        name = re.sub(r"[{*?].*", "", part).removesuffix(".tar").strip("-_.")
        if name and not set(re.findall(r"[a-z]+", name.lower())) <= set(_SPLITS):
            return name
    return "shards"
