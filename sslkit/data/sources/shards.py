"""Images in tar files, as WebDataset writes them, and in .zip files, on a local disk or behind an fsspec URL."""

import hashlib
import io
import os
import re
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np

from sslkit.data.columns import Columns
from sslkit.data.decode.opening import Picture, open_picture
from sslkit.data.decode.unreadable import UnreadableImage
from sslkit.data.decoded_images import DecodedImages
from sslkit.data.file_contents import FileContents
from sslkit.data.images import Identity, ImageOptions, check_split
from sslkit.data.path_list import PathList
from sslkit.data.sources import shard_files
from sslkit.data.sources.file_lists import METADATA
from sslkit.data.sources.sample_images import is_image_of_sample, kinds_of
from sslkit.data.sources.shard_columns import (
    filter_index,
    groups_of,
    keys_of,
    labels_by_columns,
    line_of_other_splits,
    split_by_columns,
)
from sslkit.data.sources.shard_contents import StoredContents
from sslkit.data.sources.shard_files import ShardFiles
from sslkit.data.sources.shard_labels import first_folders, labels_of
from sslkit.data.sources.split_words import SPLIT_OF_WORD, resolve_split, split_of, usual
from sslkit.data.sources.tar_index import TarIndex, index_shards
from sslkit.data.sources.walk import kinds
from sslkit.errors import UserError
from sslkit.terminal import say
from sslkit.terminal.say import counted

PREFIX = "shards:"


class ShardImages(DecodedImages):
    """The images of all shards, in the order of the shards and of their members; a row is read by its offset."""

    def __init__(self, files: ShardFiles, index: TarIndex, identity: Identity, options: ImageOptions) -> None:
        self.files = files
        self.index = index
        super().__init__(identity, options)

    def __len__(self) -> int:
        return len(self.index)

    def path(self, row: int) -> str:
        """`SHARD/MEMBER`, or `SHARD/MEMBER#2` if an image before it has the same name."""
        return f"{self._shard(row)}/{self.index.names[row]}"

    def image_name(self, row: int) -> str:
        """The `path`, its shard without the folder that all shards share: no two images have the same."""
        return self.path(row)[self._length_of_start :]

    def _shard(self, row: int) -> str:
        return self.index.shards[self.index.shard[row]].name

    @cached_property
    def _length_of_start(self) -> int:
        """Length of the path of the folder that all shards are below, with its slash."""
        return _length_of_folder([shard.name for shard in self.index.shards])

    def _take(self, rows: np.ndarray) -> None:
        self.index = self.index.rows(rows)

    def content(self, row: int) -> bytes:
        """The encoded image. Raises OSError."""
        return self.files.read_bytes(self._shard(row), int(self.index.offset[row]), int(self.index.size[row]))

    def content_size(self, row: int) -> int:
        """Bytes of `content`."""
        return int(self.index.size[row])

    def names(self) -> PathList:
        return self.index.names

    def stamps_digest(self) -> str:
        digest = hashlib.sha256(self._contents.stamps_digest().encode())
        self.index.update_digest(digest)
        return digest.hexdigest()

    def _open(self, row: int) -> Picture:
        try:
            content = self.content(row)
        except OSError as error:
            raise UnreadableImage(f"{type(error).__name__}: {error}") from error
        return open_picture(io.BytesIO(content), self.opening)

    def _update_listing(self, digest: Any) -> None:
        self.index.update_digest(digest)
        self._contents.update_listing(digest)

    def _update_digest(self, digest: Any) -> None:
        self.index.update_digest(digest)
        self._contents.update_content(digest)

    @property
    def _contents(self) -> FileContents:
        """The shards that are used."""
        used, start = self.index.used, self.index.shards[0].name[: self._length_of_start]
        paths = PathList([shard.name[self._length_of_start :] for shard in used])
        if self.files.is_remote:
            return StoredContents(self.files, start, paths, [shard.state for shard in used], self.options.cache)
        return FileContents(Path(start), paths, self.options.cache)


def splits_of_shards(source: str, cache: str | Path | None, columns: Columns) -> tuple[str, ...]:
    """cache, columns: as of `open_shards`; only shards whose names tell no split are read."""
    files, shards = shard_files.find(source.removeprefix(PREFIX))
    if columns.split is None and columns.where is None and (names := _by_split(shards)):
        return tuple(names)
    where = name_of_shards(source)
    index = index_shards(files, shards, None if cache is None else Path(cache), keys_of(columns, where))
    index = filter_index(index, columns, where)
    index = index.rows(np.flatnonzero(is_image_of_sample(index)))
    return _divide(index, shards, _by_split(shards), columns, where)[0]


def _divide(
    index: TarIndex, shards: Sequence[str], by_name: Mapping[str, Sequence[str]], columns: Columns, where: str
) -> tuple[tuple[str, ...], np.ndarray, str]:
    """The splits, that of each row, (N,) str and "" for none, and a line on them, "" for none."""
    if columns.split is not None:
        return *split_by_columns(index, columns, where), ""
    if not by_name:
        return _inside(index)
    split = _of_name(shards, by_name)[index.shard]
    return tuple(name for name in by_name if columns.where is None or (split == name).any()), split, ""


def open_shards(source: str, options: ImageOptions) -> ShardImages:
    """The images of one split of `shards:PATTERN`; PATTERN is as of `shard_files.find`.

    A row is a sample with an image, as WebDataset groups members: adjacent ones whose names are the same up to the
    first dot of their last part. A dot before a number belongs to the name (`img.01.jpg`). Of several images in a
    sample one is read, see `sample_images.is_image_of_sample`. Images are known by their extension, or without a known
    one by how they begin. Links are followed within the shard, and archives in one file behind each other all read.
    Members of a .zip are read in the order of their names, of which those that are encrypted, or of more than
    `zip_archives.MOST` bytes, are left out. Hidden members are left out; a warning counts, by kind, what is left out.
    Splits: shards whose name, or folder below that of all shards, has a word of `split_words` belong to it, if there
    are some of train and of another. If no shard has such a word, the first folders of the members below those that all
    share are the splits in the same way, with a warning, which counts what is beside them; otherwise all are "train". A
    single held-out one is "test", as of a folder.
    Labels: from the kind of file that labels most images. `.cls`: a whole number, -1 for none; several for several
    classes, with spaces or commas between them (an empty file is none of them); or a name, if there are no numbers.
    `.json`: a number, a name or a list of them under a key of `tar_labels.KEYS`. `.txt`: a whole number, if all are.
    Without any, the folders of the members' names, below those that all share, if there are at least two and no image
    is beside them. The classes of all splits are numbered together.
    options.columns: keys of the .json members, or patterns of the members' names, in the place of these rules; a filter
    compares keys.
    options.cache: folder of the index, see `tar_index.index_shards`.
    Raises UserError for a pattern without shards, shards without images, and what cannot be reached.
    """
    files, shards = shard_files.find(source.removeprefix(PREFIX))
    columns, where = options.columns, name_of_shards(source)
    by_name = _by_split(shards) if columns.split is None else {}
    if by_name:
        check_split(source, resolve_split(options.split, by_name), tuple(by_name))
    cache = None if options.cache is None else Path(options.cache)
    index = filter_index(index_shards(files, shards, cache, keys_of(columns, where)), columns, where)
    chosen = is_image_of_sample(index)
    splits, split, line = _divide(index, shards, by_name, columns, where)
    wanted = resolve_split(options.split, splits)
    check_split(source, wanted, splits)
    others = kinds_of(index, np.flatnonzero(~chosen & (split == wanted)))
    used = by_name.get(wanted, shards)
    left_out = _left_out(index, used)
    if not (chosen & (split == wanted)).any():
        raise UserError(_nothing(source, used, left_out + others))
    if not (in_split := chosen & (split != "")).all():
        index, split = index.rows(np.flatnonzero(in_split)), split[in_split]
    rows = np.flatnonzero(split == wanted)
    labels, unused = labels_by_columns(index, split, wanted, columns, where), Counter()
    if labels is None:
        labels, unused = labels_of(index, split, wanted, where)
    groups = groups_of(index, split, splits, wanted, columns, where)
    other = line_of_other_splits(index, split, columns, where)
    for remark in filter(
        None, (line, other, _of_no_split(shards, wanted), *_remarks(index, rows, others, left_out + unused, used))
    ):
        say.warn(f"{where}: {remark}", stacklevel=3)
    identity = Identity(where, source, splits, **labels, groups=groups)
    return ShardImages(files, index.rows(rows) if len(rows) < len(index) else index, identity, options)


def _by_split(shards: list[str]) -> dict[str, list[str]]:
    """The shards of each split by their names; {} if none is called like a split, and for a single one."""
    by_word = _by_word(shards)
    if by_word.keys() == {""} or len(shards) == 1:
        return {}
    by_word["train"] = sorted([*by_word.get("train", []), *by_word.pop("", [])])
    return usual({split: names for split, names in by_word.items() if names}) or {"train": shards}


def _by_word(shards: Sequence[str]) -> dict[str, list[str]]:
    """The shards by the split that a word of their names tells, "" for none."""
    by_word: dict[str, list[str]] = {}
    shared = _length_of_folder(shards)
    for name in shards:
        words = re.findall(r"[a-z]+", name[shared:].lower())
        split = next((SPLIT_OF_WORD[word] for word in reversed(words) if word in SPLIT_OF_WORD), "")
        by_word.setdefault(split, []).append(name)
    return by_word


def _of_no_split(shards: Sequence[str], wanted: str) -> str:
    """A line on shards that are learned from beside those that are called train; "" without such."""
    by_word = _by_word(shards)
    if wanted != "train" or not {"", "train"} <= by_word.keys():
        return ""
    name = by_word[""][0][_length_of_folder(shards) :]
    number = counted(len(by_word[""]), "shard")
    remark = f"{number} whose names tell no split, such as {name}, are learned from beside those called train"
    return f"{remark}; to hold them out call them test or val, or name the others alone"


def _inside(index: TarIndex) -> tuple[tuple[str, ...], np.ndarray, str]:
    """The splits by the members' first folders, that of each row, (N,) str and "" for none, and a line on them."""
    tops = first_folders(list(index.names.iter_bytes()))[0] if len(index) else []
    tops_of: dict[str, list[bytes]] = {}
    for top in sorted(set(tops)):
        tops_of.setdefault(split_of(os.fsdecode(top)) or "", []).append(top)
    if not (splits := usual(tops_of)):
        return ("train",), np.full(len(index), "train"), ""
    of_top = {top: split for split, some in splits.items() for top in some}
    split = np.array([of_top.get(top, "") for top in tops])
    folders = " and ".join(f"{os.fsdecode(top)}/" for top in of_top)
    line = f"{folders} in its members' names are its splits"
    if beside := int((split == "").sum()):
        line += f"; left out {counted(beside, 'image')} beside them, such as {index.names[int(np.argmax(split == ''))]}"
    return tuple(splits), split, line


def _length_of_folder(shards: Sequence[str]) -> int:
    """Length of the path of the folder that all shards are in or below, with its slash."""
    return os.path.commonprefix(shards).rfind("/") + 1  # noqa: RUF071  (commonpath changes URLs)


def _of_name(shards: Sequence[str], by_split: Mapping[str, Sequence[str]]) -> np.ndarray:
    """(S,) str, the split of each shard; "" for none."""
    of_name = {name: split for split, names in by_split.items() for name in names}
    return np.array([of_name.get(name, "") for name in shards])


def _nothing(source: str, shards: Sequence[str], left_out: Counter[str]) -> str:
    """The message of shards without an image."""
    there = f"; left out {counted(left_out.total(), 'other member')}: {kinds(left_out)}" if left_out else ""
    return f"{source}: there is no image in {counted(len(shards), 'shard')}, such as {shards[0]}{there}"


def _left_out(index: TarIndex, shards: Sequence[str]) -> Counter[str]:
    """The number of members of some shards that are neither images nor labels, by kind."""
    inside = set(shards)
    return sum((shard.left_out for shard in index.shards if shard.name in inside), Counter())


def _remarks(
    index: TarIndex, rows: np.ndarray, others: Counter[str], left_out: Counter[str], shards: Sequence[str]
) -> Iterator[str]:
    """Lines on what was left out, or is not as WebDataset writes it. others: images beside these `rows`."""
    if others:
        yield f"samples with several images: read {kinds(kinds_of(index, rows))}; left out {kinds(others)}"
    if left_out:
        number = counted(left_out.total(), "other member")
        yield f"{counted(len(rows), 'image')}; left out {number}: {kinds(left_out)}"
    if table := next((name for name in METADATA if left_out[name]), ""):
        yield f"{table} in it is not read: unpack it, and data=FOLDER takes the labels and splits of its table"
    inside = set(shards)
    used = [shard for shard in index.shards if shard.name in inside]
    if apart := sum(shard.apart for shard in used):
        remark = "stand apart from their images (an unsorted tar) and are matched by name"
        yield f"{counted(apart, 'label')} {remark}"
    if again := sum(shard.again for shard in used):
        remark = "with the name of an earlier one in the shard; each is a row of its own, as NAME#2"
        yield f"{counted(again, 'image')} {remark}"


def name_of_shards(source: str) -> str:
    """A name for tables: the last part of the pattern that is more than a split, without braces, stars and ending."""
    for piece in reversed(source.removeprefix(PREFIX).split("://")[-1].split("/")):
        name = re.sub(r"[{*?].*", "", piece).removesuffix(".tar").removesuffix(".zip").strip("-_.")
        if name and not set(re.findall(r"[a-z]+", name.lower())) <= set(SPLIT_OF_WORD):
            return name
    return "shards"
