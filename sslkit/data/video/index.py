"""An index of a folder's videos: surveyed once, kept in one .npz file, updated where files change.

A row is valid while the file's stamp is unchanged, see `sslkit.files.stamps`.
"""

import hashlib
import os
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from itertools import islice
from pathlib import Path

import numpy as np

from sslkit.data.path_list import PathList, decode_texts, encode_texts
from sslkit.data.video.reader import UnreadableVideo, VideoFacts, VideoReader
from sslkit.errors import UserError
from sslkit.files.stamps import Stamp, stamp_of, wait_for_tick
from sslkit.files.store import Store, npz_codec
from sslkit.runtime.jobs import cores

FORMAT = 3  # of an index: raised when an older one would be misread, which is then made again
_BAR_FROM = 20  # videos
_SAVE_EVERY = 1000  # surveyed videos: the most that a stopped run loses
_NUMBERS = {  # one number per video
    **dict.fromkeys(Stamp._fields, np.int64),
    "frames": np.int64,
    "fps": np.float64,
    "height": np.int32,
    "width": np.int32,
    "aspect": np.float64,
    "decoded": np.bool_,
}
_TEXTS, _KEYS = ("paths", "reasons"), ("key_ends", "key_pts", "key_numbers")


@dataclass(frozen=True)
class Entry:
    """One file. facts: None if unreadable. reason: why it cannot be read, "" if it can."""

    stamp: Stamp
    facts: VideoFacts | None
    reason: str = ""


@dataclass
class VideoIndex:
    """The entries of N videos as arrays, in the order of `paths`; `row` returns one entry.

    key_ends: (N + 1,) bounds of each video's key frames in key_pts and key_numbers.
    """

    paths: PathList
    reasons: PathList
    numbers: dict[str, np.ndarray]
    key_ends: np.ndarray
    key_pts: np.ndarray = field(repr=False)
    key_numbers: np.ndarray = field(repr=False)

    @classmethod
    def from_entries(cls, entries: dict[str, Entry]) -> "VideoIndex":
        """An index of entries by path."""
        rows = list(entries.values())
        none = np.empty(0, dtype=np.int64)
        keys = [(r.facts.key_pts, r.facts.key_numbers) if r.facts else (none, none) for r in rows]
        numbers = {name: np.array([_number(row, name) for row in rows], dtype=kind) for name, kind in _NUMBERS.items()}
        return cls(
            PathList(list(entries)),
            PathList([row.reason for row in rows]),
            numbers,
            np.cumsum([0, *(len(pts) for pts, _ in keys)], dtype=np.int64),
            np.concatenate([none, *(pts for pts, _ in keys)]),
            np.concatenate([none, *(numbers for _, numbers in keys)]),
        )

    def __len__(self) -> int:
        return len(self.paths)

    def row(self, place: int) -> Entry:
        """One entry. Raises IndexError beyond the last."""
        n = {name: values[place].item() for name, values in self.numbers.items()}
        keys = slice(self.key_ends[place], self.key_ends[place + 1])
        shape = (n["frames"], n["fps"], n["height"], n["width"], n["aspect"], "decoded" if n["decoded"] else "packets")
        facts = VideoFacts(*shape, self.key_pts[keys], self.key_numbers[keys]) if n["frames"] else None
        return Entry(Stamp(*(n[name] for name in Stamp._fields)), facts, self.reasons[place])

    def entries(self) -> dict[str, Entry]:
        return {self.paths[position]: self.row(position) for position in range(len(self))}

    def manifest(self) -> str:
        """sha256 (hex) of path, size, frames, height and width of each video. Without modification times, so that two
        copies of a data set can be compared."""
        digest = hashlib.sha256()
        for position in range(len(self)):
            values = [self.numbers[name][position] for name in ("bytes", "frames", "height", "width")]
            digest.update(f"{self.paths[position]}\0{values}\n".encode(errors="surrogateescape"))
        return digest.hexdigest()


def _number(entry: Entry, name: str) -> int | float | bool:
    if name in Stamp._fields:
        return getattr(entry.stamp, name)
    if entry.facts is None:
        return 0
    return entry.facts.counted == "decoded" if name == "decoded" else getattr(entry.facts, name)


def index_videos(root: Path, paths: Sequence[str], reader: VideoReader, cache: Path | None) -> VideoIndex:
    """The index of these files, in their order; only new or changed files are surveyed.

    paths: relative to `root`. cache: folder of the index files, one for each root and decoder, which also keep the rows
    of other videos of the root; None keeps nothing. One process at a time works on a file, others wait for it.
    Raises UserError when the cache cannot be written, before anything is surveyed, or a file is missing.
    """
    about = f"{FORMAT}\n{reader.name}\n{root.resolve()}"
    store = Store.open(cache, "videos-{}.npz", about, "the index of videos", npz_codec(_arrays, _entries))
    with store.exclusive() as refused:
        entries = store.read() or {}
        changed = _find_changed(root, paths, entries, again=not refused)
        if changed and refused:
            raise refused
        for _ in _survey(root, changed, reader, entries):
            store.write(entries)
    return VideoIndex.from_entries({path: entries[path] for path in paths})


def _find_changed(
    root: Path, paths: Sequence[str], known: dict[str, Entry], again: bool = True
) -> list[tuple[str, Stamp]]:
    """The files whose rows are missing or outdated.

    again: survey an unreadable file again: the obstacle may be gone without a change of the file.
    """
    changed = []
    for path in paths:
        try:
            stamp = stamp_of(os.stat(root / path))
        except OSError as error:
            raise UserError(f"cannot read the video {root / path}: {error.strerror}") from error
        entry = known.get(path)
        if entry is None or entry.stamp != stamp or (again and entry.facts is None):
            changed.append((path, stamp))
    return changed


def _survey(root: Path, files: list[tuple[str, Stamp]], reader: VideoReader, known: dict[str, Entry]) -> Iterator[None]:
    """Put the entries of these files into `known`; yields whenever they should be saved, and at the end."""
    from tqdm import tqdm

    def entry(file: tuple[str, Stamp]) -> tuple[str, Entry]:
        path, stamp = file
        try:
            return path, Entry(stamp, reader.survey(str(root / path)))
        except UnreadableVideo as error:
            return path, Entry(stamp, None, str(error))

    wait_for_tick(np.array([stamp.changed for _, stamp in files], np.int64))
    bar = tqdm(total=len(files), desc="index", unit="video", disable=True if len(files) <= _BAR_FROM else None)
    with bar, ThreadPoolExecutor(cores()) as pool:  # FFmpeg works outside the GIL
        for start in range(0, len(files), _SAVE_EVERY):
            for path, surveyed in pool.map(entry, islice(files, start, start + _SAVE_EVERY)):
                known[path] = surveyed
                bar.update()
            yield


def _arrays(entries: dict[str, Entry]) -> dict[str, np.ndarray]:
    """The entries by path as arrays of a file."""
    index = VideoIndex.from_entries(entries)
    texts = {name: encode_texts(getattr(index, name)) for name in _TEXTS}
    numbers = {f"number_{name}": values for name, values in index.numbers.items()}
    return {**numbers, **texts, **{name: getattr(index, name) for name in _KEYS}}


def _entries(kept: dict[str, np.ndarray]) -> dict[str, Entry]:
    """The entries by path, from the arrays of a file."""
    numbers = {name: kept[f"number_{name}"] for name in _NUMBERS}
    texts = (PathList(decode_texts(kept[name])) for name in _TEXTS)
    return VideoIndex(*texts, numbers, *(kept[name] for name in _KEYS)).entries()
