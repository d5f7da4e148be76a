"""An index of the images in shards: read once from the tar headers, in parallel, and kept in one file.

A shard's rows are valid while its size and its stamp, or the tag of an object store, are unchanged.
"""

import json
import os
from collections import Counter
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np

from sslkit.data.path_list import PathList, decode_texts, encode_texts
from sslkit.data.sources.shard_files import ShardFiles, State
from sslkit.data.sources.tar_samples import Keys, Label, Members
from sslkit.data.sources.tar_scan import scan
from sslkit.errors import UserError
from sslkit.files.stamps import wait_for_tick
from sslkit.files.store import Store, npz_codec
from sslkit.runtime.jobs import cores
from sslkit.terminal import say

FORMAT = 7  # of an index: raised when an older one would be misread, which is then made again
_BAR_FROM = 20  # shards
NO_KEYS = Keys()
_NUMBERS = ("offset", "size", "sample")
_COLUMNS = (*_NUMBERS, "role", "label", "cell")


@dataclass(frozen=True)
class Shard:
    """A shard, and what is to be said of its members, see `Members`."""

    name: str
    state: State
    left_out: Counter[str]
    apart: int
    again: int


@dataclass(frozen=True, eq=False)
class TarIndex:
    """The images of all shards, a row each.

    shard: (N,) int32 the shard of a row. sample: (N,) int64, of the shard. The others as of `Members`.
    """

    shards: list[Shard]
    shard: np.ndarray
    names: PathList
    offset: np.ndarray
    size: np.ndarray
    sample: np.ndarray
    role: np.ndarray
    roles: list[str]
    label: np.ndarray
    labels: list[tuple[Label, ...] | None]
    cell: np.ndarray
    cells: list[tuple[str | None, ...]]

    @classmethod
    def from_members(cls, found: dict[str, Members]) -> "TarIndex":
        members = list(found.values())
        columns = {
            name: np.concatenate([np.empty(0, np.int64), *(getattr(scan, name) for scan in members)])
            for name in _NUMBERS
        }
        shards = [Shard(name, entry.state, entry.left_out, entry.apart, entry.again) for name, entry in found.items()]
        shard = np.repeat(np.arange(len(members), dtype=np.int32), [len(scan.names) for scan in members])
        role, roles = _one_table([(scan.role, scan.roles) for scan in members])
        label, labels = _one_table([(scan.label, scan.labels) for scan in members])
        cell, cells = _one_table([(scan.cell, scan.cells) for scan in members])
        names = PathList.concatenate([scan.names for scan in members])
        tables = {"role": role, "roles": roles, "label": label, "labels": labels, "cell": cell, "cells": cells}
        return cls(shards, shard, names, **tables, **columns)

    def __len__(self) -> int:
        return len(self.shard)

    def rows(self, rows: np.ndarray) -> "TarIndex":
        """The rows (n,) int64, in their order."""
        columns = {name: getattr(self, name)[rows] for name in ("shard", *_COLUMNS)}
        return replace(self, names=self.names.take(rows), **columns)

    @property
    def used(self) -> list[Shard]:
        """The shards with a row."""
        return [self.shards[number] for number in np.unique(self.shard).tolist()]

    def update_digest(self, digest: Any) -> None:
        """Feed what is known of the rows to a hashlib object: names of members, and where their bytes are."""
        digest.update(self.names._ends.tobytes())
        digest.update(self.names._block)
        for column in (np.unique(self.shard, return_inverse=True)[1], self.offset, self.size):
            digest.update(np.ascontiguousarray(column))


def _one_table(columns: Sequence[tuple[np.ndarray, list[Any]]]) -> tuple[np.ndarray, list[Any]]:
    """Places in several tables as places in one, and that table."""
    table: dict[Any, int] = {}
    numbers_of: dict[int, np.ndarray] = {}  # shards that were read before share their tables
    chunks = [np.empty(0, np.int32)]
    for places, values in columns:
        if id(values) not in numbers_of:
            numbers_of[id(values)] = np.array([table.setdefault(value, len(table)) for value in values], np.int32)
        chunks.append(numbers_of[id(values)][places])
    return np.concatenate(chunks), list(table)


def index_shards(files: ShardFiles, shards: Sequence[str], cache: Path | None, keys: Keys = NO_KEYS) -> TarIndex:
    """The index of these shards, in their order; only new or changed ones are read.

    keys: of the .json members. cache: folder of the index files, one for each list of shards; None keeps nothing. One
    process at a time works on a file, others wait for it. A damaged shard is named in a warning, and the images before
    the damage are used.
    Raises UserError when the cache cannot be written, before anything is read, and for a shard that is missing.
    """
    head = [str(FORMAT)] if keys == NO_KEYS else [str(FORMAT), repr(keys)]
    about = "\n".join([*head, *(name if "://" in name else os.path.abspath(name) for name in shards)])
    store = Store.open(cache, "shards-{}.npz", about, "the index of shards", npz_codec(_arrays, _members))
    with store.exclusive() as refused:
        stored = store.read() or {}
        current = _scan(files, shards, keys, stored, refused)
        if any(stored.get(name) is not entry for name, entry in current.items()):
            store.write(current)
    return TarIndex.from_members(current)


def _scan(
    files: ShardFiles, shards: Sequence[str], keys: Keys, known: dict[str, Members], refused: UserError | None
) -> dict[str, Members]:
    """The members of each shard. refused: raised if one has to be read, since the index cannot be written."""
    from tqdm import tqdm

    def members(shard: str) -> Members:
        state = files.state(shard)
        old = known.get(shard)
        if old is not None and old.state == state and state.stamp and (refused or not old.reason):
            return old
        if refused:
            raise refused
        if not files.is_remote:
            wait_for_tick(int(state.stamp.split()[1]))
        return scan(files, shard, state, keys)

    bar = tqdm(total=len(shards), desc="index", unit="shard", disable=True if len(shards) <= _BAR_FROM else None)
    scanned = {}
    with bar, ThreadPoolExecutor(max(cores(), 16 if files.is_remote else 1)) as pool:
        for shard, entry in zip(shards, pool.map(members, shards), strict=True):
            scanned[shard] = entry
            bar.update()
            if entry.reason:
                say.warn(
                    f"the shard {shard} is damaged ({entry.reason}): its first {len(entry.names)} images are used",
                    stacklevel=3,
                )
    return scanned


def _arrays(found: dict[str, Members]) -> dict[str, np.ndarray]:
    """The members of each shard as arrays of a file."""
    index, members = TarIndex.from_members(found), found.values()
    remarks = [
        {"left_out": scan.left_out, "apart": scan.apart, "again": scan.again, "reason": scan.reason} for scan in members
    ]
    return {
        "counts": np.array([len(scan.names) for scan in members], np.int64),
        "bytes": np.array([scan.state.bytes for scan in members], np.int64),
        "stamps": encode_texts(scan.state.stamp for scan in members),
        "tags": encode_texts(scan.state.tag for scan in members),
        "shards": encode_texts(found),
        "names": np.frombuffer(index.names._block, np.uint8),
        "ends": index.names._ends,
        "tables": np.frombuffer(json.dumps([remarks, index.roles, index.labels, index.cells]).encode(), np.uint8),
        **{name: getattr(index, name) for name in _COLUMNS},
    }


def _members(kept: dict[str, np.ndarray]) -> dict[str, Members]:
    """The members of each shard, from the arrays of a file."""
    ends, start, members = kept["ends"], 0, {}
    names = PathList.of_block(kept["names"].tobytes(), ends)
    remarks, roles, labels, cells = json.loads(kept["tables"].tobytes())
    labels = [some if some is None else tuple(Label(*fields) for fields in some) for some in labels]
    cells = list(map(tuple, cells))
    states = map(State, kept["bytes"].tolist(), decode_texts(kept["stamps"]), decode_texts(kept["tags"]))
    for name, state, count, more in zip(
        decode_texts(kept["shards"]), states, kept["counts"].tolist(), remarks, strict=True
    ):
        stop = start + count
        columns = {column: kept[column][start:stop] for column in _COLUMNS}
        more["left_out"] = Counter(more["left_out"])
        tables = {"roles": roles, "labels": labels, "cells": cells}
        members[name] = Members(state, names.part(start, stop), **columns, **tables, **more)
        start = stop
    return members
