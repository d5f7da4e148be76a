"""An index of the images in shards: read once from the tar headers, in parallel, and kept in one file.

A shard's rows are valid while its size and its modification time, or tag, are unchanged.
"""

import hashlib
import os
import tarfile
import warnings
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace
from itertools import pairwise
from pathlib import Path
from typing import IO, Any

import numpy as np

from sslkit.data.decode import EXTENSIONS
from sslkit.data.label_lists import LabelLists
from sslkit.data.path_list import PathList
from sslkit.data.shard_files import ShardFiles, State, compressed
from sslkit.errors import UserError, first_line
from sslkit.files import exclusive, write_whole
from sslkit.plurals import counted

FORMAT = 3
_LABEL_BYTES = 2**16  # of a .cls file; a longer one is no list of numbers
_SHOWN = 20  # bytes of a wrong one
_BAR_FROM = 20  # shards
_END = bytes(tarfile.BLOCKSIZE)
_PACKED = (b"\x1f\x8b", b"BZh", b"\xfd7zXZ", b"\x28\xb5\x2f\xfd")  # how gzip, bzip2, xz and zstd files begin
_NUMBERS = {"offset": np.int64, "size": np.int64}


@dataclass(frozen=True)
class Members:
    """The images of one shard, in its order.

    labels: the whole numbers in the .cls of each; None without one, and for one of anything else.
    reason: why the rest of the shard cannot be read; "" if it was read whole.
    wrong: number of .cls members of anything else. wrong_one: the first of these, and its content.
    """

    state: State
    names: list[str]
    offset: list[int]
    size: list[int]
    labels: list[list[int] | None]
    reason: str = ""
    wrong: int = 0
    wrong_one: str = ""


@dataclass(frozen=True, eq=False)
class TarIndex:
    """The images of all shards, a row each.

    shards: their names. shard: (N,) int32 the shard of a row. offset, size: (N,) int64 bytes. labels: of its .cls
    file. names: of the members. states: of the shards.
    """

    shards: list[str]
    states: list[State]
    shard: np.ndarray
    offset: np.ndarray
    size: np.ndarray
    labels: LabelLists
    names: PathList

    @classmethod
    def of(cls, found: dict[str, Members]) -> "TarIndex":
        members = list(found.values())
        counts = [len(one.names) for one in members]
        columns = {
            name: np.concatenate([np.empty(0, kind), *(np.array(getattr(one, name), kind) for one in members)])
            for name, kind in _NUMBERS.items()
        }
        shard = np.repeat(np.arange(len(members), dtype=np.int32), counts)
        names = PathList([name for one in members for name in one.names])
        labels = LabelLists.of([label for one in members for label in one.labels])
        return cls(list(found), [one.state for one in members], shard, names=names, labels=labels, **columns)

    def __len__(self) -> int:
        return len(self.shard)

    def rows(self, rows: np.ndarray) -> "TarIndex":
        """The rows (n,) int64, in their order."""
        columns = {name: getattr(self, name)[rows] for name in ("shard", *_NUMBERS)}
        names = PathList([self.names[row] for row in rows])
        return replace(self, names=names, labels=self.labels.rows(rows), **columns)

    @property
    def used(self) -> list[int]:
        """The places in `shards` of those with a row."""
        return np.unique(self.shard).tolist()

    def update_digest(self, digest: Any) -> None:
        """Feed what is known of the rows to a hashlib object: names of members, and where their bytes are."""
        digest.update(self.names._ends.tobytes())
        digest.update(self.names._block)
        for column in (np.unique(self.shard, return_inverse=True)[1], self.offset, self.size):
            digest.update(np.ascontiguousarray(column))


def index_shards(files: ShardFiles, shards: Sequence[str], cache: Path | None) -> TarIndex:
    """The index of these shards, in their order; only new or changed ones are read.

    cache: folder of the index files, one for each list of shards; None keeps nothing. One process at a time works on a
    file, others wait for it. A damaged shard is named in a warning, and the images before the damage are used.
    Raises UserError when the cache cannot be written, before anything is read, and for a shard that is missing.
    """
    if cache is None:
        return TarIndex.of(_scanned(files, shards, {}, None))
    key = hashlib.sha256("\n".join([str(FORMAT), *map(_absolute, shards)]).encode(errors="surrogateescape")).hexdigest()
    file = cache / f"shards-{key[:32]}.npz"
    with exclusive(file, "the index of shards") as refused:
        known = _read(file)
        found = _scanned(files, shards, known, refused)
        if any(known.get(name) is not one for name, one in found.items()):
            _write(file, found)
    return TarIndex.of(found)


def _absolute(shard: str) -> str:
    return shard if "://" in shard else os.path.abspath(shard)


def _scanned(
    files: ShardFiles, shards: Sequence[str], known: dict[str, Members], refused: UserError | None
) -> dict[str, Members]:
    """The members of each shard. refused: raised if one has to be read, since the index cannot be written."""
    from tqdm import tqdm

    def members(shard: str) -> Members:
        state = files.state(shard)
        old = known.get(shard)
        if old is not None and old.state == state and (refused or not old.reason):
            return old
        if refused:
            raise refused
        return _scan(files, shard, state)

    cores = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
    bar = tqdm(total=len(shards), desc="index", unit="shard", disable=True if len(shards) <= _BAR_FROM else None)
    found = {}
    with bar, ThreadPoolExecutor(max(cores, 16 if files.is_remote else 1)) as pool:
        for shard, one in zip(shards, pool.map(members, shards), strict=True):
            found[shard] = one
            bar.update()
            if one.reason:
                warnings.warn(
                    f"the shard {shard} is damaged ({one.reason}): its first {len(one.names)} images are used",
                    stacklevel=3,
                )
    _warn_of_wrong_labels(found)
    return found


def _warn_of_wrong_labels(found: dict[str, Members]) -> None:
    wrong = {shard: one for shard, one in found.items() if one.wrong}
    if wrong:
        shard, first = next(iter(wrong.items()))
        number = counted(sum(one.wrong for one in wrong.values()), ".cls file")
        warnings.warn(
            f"no whole number from 0 on in {number}, such as {first.wrong_one} in {shard}: their images have no label",
            stacklevel=4,
        )


def _scan(files: ShardFiles, shard: str, state: State) -> Members:
    """Read the headers of a shard: its images, and the labels of the samples of the same name."""
    images: list[tuple[str, int, int]] = []
    labels: dict[str, list[int] | None] = {}
    reason, wrong = "", []
    try:
        with files.stream(shard) as stream, _opened(stream, shard) as tar:
            for member in tar:
                if not member.isreg() or os.path.basename(member.name).startswith("."):
                    continue
                sample, extension = _split(member.name)
                if member.offset_data + member.size > state.bytes > 0:
                    raise tarfile.ReadError(f"it ends within {member.name}")
                if extension.rpartition(".")[2] in EXTENSIONS:
                    images.append((member.name, member.offset_data, member.size))
                elif extension == "cls":
                    text = tar.extractfile(member).read(_LABEL_BYTES + 1)
                    labels[sample] = _numbers(text)
                    if labels[sample] is None and text.strip() != b"-1":  # which stands for no label
                        wrong.append(f"{member.name} ({text[:_SHOWN].decode(errors='replace').strip()!r})")
                tar.members.clear()  # it would keep every header
            stream.seek(tar.offset)
            if stream.read(len(_END)) != _END:  # tarfile ends without a word at a header that is cut or damaged
                raise tarfile.ReadError(f"there is no header and no end mark at byte {tar.offset}")
    except UserError:
        raise
    except Exception as error:  # tarfile, and each file system of fsspec, raise their own
        reason = first_line(error) or type(error).__name__
    names, offset, size = (list(column) for column in zip(*images, strict=True)) if images else ([], [], [])
    of_each = [labels.get(_split(name)[0]) for name in names]
    return Members(state, names, offset, size, of_each, reason, len(wrong), wrong[0] if wrong else "")


def _opened(stream: IO[bytes], shard: str) -> tarfile.TarFile:
    """Raises UserError for a compressed file, tarfile.TarError for what is no tar file."""
    start = stream.read(max(map(len, _PACKED)))
    if start.startswith(_PACKED):
        raise compressed(shard)
    stream.seek(0)
    return tarfile.open(fileobj=stream, mode="r:")


def _split(name: str) -> tuple[str, str]:
    """The sample of a member and its extension in small letters: the name up to the first dot of its last part."""
    folder, _, last = name.rpartition("/")
    sample, _, extension = last.partition(".")
    return f"{folder}/{sample}", extension.lower()


def _numbers(text: bytes) -> list[int] | None:
    """The class numbers of a .cls file, between spaces or commas, each once and sorted; None for anything else."""
    if len(text) > _LABEL_BYTES:
        return None
    try:
        found = sorted({int(word) for word in text.replace(b",", b" ").split()})
    except ValueError:
        return None
    return found if not found or 0 <= found[0] <= found[-1] < 2**63 else None  # -1 stands for no label


def _write(file: Path, found: dict[str, Members]) -> None:
    index = TarIndex.of(found)
    about = {
        "counts": np.array([len(one.names) for one in found.values()], np.int64),
        "bytes": np.array([one.state.bytes for one in found.values()], np.int64),
        "changed": _packed([one.state.changed for one in found.values()]),
        "reasons": _packed([one.reason for one in found.values()]),
        "shards": _packed(list(found)),
        "names": np.frombuffer(index.names._block, np.uint8),
        "ends": index.names._ends,
        "labels": index.labels.numbers,
        "label_counts": index.labels.counts,
        "wrong": np.array([one.wrong for one in found.values()], np.int64),
        "wrong_ones": _packed([one.wrong_one for one in found.values()]),
    }
    with write_whole(file) as partial, partial.open("wb") as opened:
        np.savez_compressed(opened, **about, **{name: getattr(index, name) for name in _NUMBERS})


def _packed(texts: list[str]) -> np.ndarray:
    return np.array([os.fsencode(text) for text in texts], dtype=np.bytes_)


def _read(file: Path) -> dict[str, Members]:
    if not file.is_file():
        return {}
    try:
        with np.load(file, allow_pickle=False) as arrays:
            return _unpacked({name: arrays[name] for name in arrays.files})
    except Exception as error:  # zip, zlib and numpy raise their own classes; another archive lacks arrays
        warnings.warn(f"{file} is damaged ({first_line(error)}); the shards are indexed again", stacklevel=3)
        return {}


def _unpacked(kept: dict[str, np.ndarray]) -> dict[str, Members]:
    found, ends, block, start = {}, kept["ends"], kept["names"].tobytes(), 0
    labels = LabelLists(kept["labels"], kept["label_counts"]).lists()
    for place, count in enumerate(kept["counts"].tolist()):
        part = slice(start, start + count)
        bounds = ends[start : start + count + 1].tolist()
        names = [os.fsdecode(block[a:b]) for a, b in pairwise(bounds)]
        state = State(int(kept["bytes"][place]), os.fsdecode(kept["changed"][place]))
        columns = {name: kept[name][part] for name in _NUMBERS}
        about = {"reason": os.fsdecode(kept["reasons"][place]), "wrong": int(kept["wrong"][place])}
        found[os.fsdecode(kept["shards"][place])] = Members(
            state, names, **columns, labels=labels[part], **about, wrong_one=os.fsdecode(kept["wrong_ones"][place])
        )
        start += count
    return found
