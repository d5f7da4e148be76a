"""Images in tar files, as WebDataset writes them, on a local disk or behind an fsspec URL."""

import copy
import io
import re
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
from PIL import Image

from sslkit.data import shard_files
from sslkit.data.decode import UnreadableImage, open_image
from sslkit.data.decoded import DecodedImages
from sslkit.data.images import Identity, ImageOptions, check_split
from sslkit.data.shard_files import ShardFiles
from sslkit.data.tar_index import NO_LABEL, TarIndex, index_shards
from sslkit.errors import UserError

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

    def part(self, rows: np.ndarray, split: str) -> "ShardImages":
        """The images of some rows (n,) int64, in their order, as a split of this name; labels keep their numbers."""
        other = copy.copy(self)
        other.__dict__.pop("digest", None)
        other.source, other.splits, other.split = None, (split,), split
        other.options = replace(self.options, split=split)
        other.labels = None if self.labels is None else self.labels[rows]
        other.index, other._unreadable = self.index.rows(rows), set()
        return other

    def _open(self, row: int) -> Image.Image:
        shard = self.index.shards[self.index.shard[row]]
        try:
            content = self.files.read(shard, int(self.index.offset[row]), int(self.index.size[row]))
        except OSError as error:
            raise UnreadableImage(f"{type(error).__name__}: {error}") from error
        return open_image(io.BytesIO(content))

    def _update_digest(self, digest: Any) -> None:
        self.index.update_digest(digest)


def splits_of_shards(source: str) -> tuple[str, ...]:
    return tuple(_by_split(shard_files.find(source.removeprefix(PREFIX))[1]))


def open_shards(source: str, options: ImageOptions) -> ShardImages:
    """The images of one split of `shards:PATTERN`; PATTERN is as of `shard_files.find`.

    A row is an image; its sample is its name up to the first dot, as in WebDataset. Other members are left out.
    Splits: shards whose name, or folder, has the word train, val (valid, validation) or test belong to it, if there
    are some of train and of another; otherwise all are "train". A single held-out one is "test", as of a folder.
    Labels: the whole number in the sample's .cls; otherwise the top-level folder of the members' names, if there are
    at least two and no image is beside them. The classes of all splits are numbered together.
    options.cache: folder of the index, see `tar_index.index_shards`.
    Raises UserError for a pattern without shards, shards without images, and what cannot be reached.
    """
    files, shards = shard_files.find(source.removeprefix(PREFIX))
    by_split = _by_split(shards)
    wanted = "test" if options.split == "val" and "val" not in by_split else options.split
    check_split(source, wanted, tuple(by_split))
    index = index_shards(files, shards, None if options.cache is None else Path(options.cache))
    labels, classes = _labels(index)
    wanted_shards = set(by_split[wanted])
    inside = {place for place, name in enumerate(shards) if name in wanted_shards}
    rows = np.flatnonzero(np.isin(index.shard, list(inside)))
    if not len(rows):
        raise UserError(f"{source}: there is no image in {len(inside)} shards, such as {by_split[wanted][0]}")
    name = _named(source)
    identity = Identity(name, source, tuple(by_split), None if labels is None else labels[rows], classes)
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


def _labels(index: TarIndex) -> tuple[np.ndarray | None, list[str] | None]:
    """(N,) int64 labels, -1 for a row without one, and the names of the classes; (None, None) without labels."""
    given = index.cls != NO_LABEL
    tops = [index.names[row].partition("/") for row in range(len(index))]
    folders = np.array([top for top, slash, _ in tops]) if all(slash for _, slash, _ in tops) else None
    if given.any():
        numbers = np.unique(index.cls[given])
        names = list(map(str, numbers.tolist()))
        if folders is not None and given.all():
            pairs = np.unique(np.stack([folders, index.cls.astype(str)]), axis=1)
            if len(numbers) == len(np.unique(folders)) == pairs.shape[1]:  # one folder for each number
                names = [str(folders[np.argmax(index.cls == number)]) for number in numbers]
        return np.where(given, np.searchsorted(numbers, index.cls), -1), names
    if folders is None or len(np.unique(folders)) < 2:
        return None, None
    classes, labels = np.unique(folders, return_inverse=True)
    return labels, classes.tolist()


def _named(source: str) -> str:
    """A name for tables: the pattern's last part, without braces, stars and ending."""
    last = source.rstrip("/").rpartition("/")[2].removeprefix(PREFIX)
    name = re.sub(r"[{*?].*", "", last).removesuffix(".tar").rstrip("-_.")
    return name or "shards"
