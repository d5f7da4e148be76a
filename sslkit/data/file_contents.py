"""Files of data, identified by their content.

Copying, unpacking or checking out the same bytes gives files other times, and changes no identity here. A file is read
for its digest once: a cache remembers it while the file's stamp is unchanged, see `sslkit.files.stamps`.
"""

import hashlib
import os
import re
import stat
import threading
import time
from array import array
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from functools import cached_property
from itertools import islice
from pathlib import Path
from typing import Any

import numpy as np

from sslkit.data.expected_contents import Expected
from sslkit.data.path_list import PathList
from sslkit.errors import UserError
from sslkit.files.stamps import Stamp, stamp_of, wait_for_tick
from sslkit.files.store import Codec, Store, npz_codec
from sslkit.runtime.jobs import cores

STAMP = [(name, "<i8") for name in Stamp._fields]
_ROW = np.dtype([("name", "<u8"), *STAMP, ("content", "S16")])
_CHUNK = 2**20  # bytes of a file that are read at once: memory, and few calls
_LARGE = 2**16  # bytes of a file from which threads help: hashing less costs no more than handing it over
_AT_ONCE = 1000  # files between two steps of the bar
_SAVE_EVERY = 60  # seconds of reading: the most that a stopped run loses


def _hexadecimal(path: Path) -> str:
    text = path.read_text()
    if not re.fullmatch("[0-9a-f]{64}", text):
        raise ValueError("it is no sha256")
    return text


_ROWS = npz_codec(lambda rows: {"files": rows}, lambda arrays: arrays["files"], compressed=False)
_TEXT = Codec(_hexadecimal, Path.write_text)


class FileContents:
    """The files `paths` below `root`.

    cache: folder of the file that remembers digests; None reads every file anew.
    expected: what a manifest says of the contents, which are compared when they are known.
    Copies of one object share what was found. Safe in threads.
    """

    def __init__(self, root: Path, paths: PathList, cache: str | Path | None, expected: Expected | None = None) -> None:
        self.root = root
        self.paths = paths
        self.cache = cache
        self.expected = expected
        self._lock = threading.RLock()
        self._stamps: np.ndarray | None = None
        self._content: bytes | None = None

    def __getstate__(self) -> dict[str, Any]:
        return {name: getattr(self, name) for name in ("root", "paths", "cache", "expected")}

    def __setstate__(self, state: dict[str, Any]) -> None:
        self.__init__(**state)

    def take(self, rows: np.ndarray) -> "FileContents":
        """Some of the files (n,) int64, in their order."""
        expected = self.expected and self.expected.take(rows)
        return FileContents(self.root, self.paths.take(rows), self.cache, expected)

    def update_listing(self, digest: Any) -> None:
        """Feed names and sizes to a hashlib object. Raises UserError for a file that has gone."""
        digest.update(self.paths._ends.tobytes())
        digest.update(self.paths._block)
        digest.update(np.ascontiguousarray(self.stamps()["bytes"]))

    def update_content(self, digest: Any) -> None:
        """Feed names, sizes and content to a hashlib object; of a file that cannot be read its name and size.

        Reads files that the cache does not know, with a bar if that takes long. Raises UserError for a file that has
        gone.
        """
        self.update_listing(digest)
        digest.update(self.contents())

    def contents(self) -> bytes:
        """16 bytes of the sha256 of each file, one after the other; see `update_content`.

        Raises UserError if a manifest says otherwise.
        """
        with self._lock:
            if self._content is None:
                contents = self._read_contents()["content"]
                if self.expected is not None:
                    self.expected.check(contents, self.paths)
                self._content = contents.tobytes()
            return self._content

    def check_known(self) -> None:
        """Compare what is known without reading with what is expected. Raises UserError if they differ."""
        if self.expected is not None and len(stored := self._load_rows()):
            self.expected.check(self._recall(stored)[0]["content"], self.paths)

    def stamps(self) -> np.ndarray:
        """(N,) of `Stamp` as fields, asked for once."""
        with self._lock:
            if self._stamps is None:
                self._stamps = self._read_stamps()
            return self._stamps

    def stamps_digest(self) -> str:
        """sha256 (hex) of the names and stamps: a changed file has another one. Raises UserError for one that has gone.

        Waits a moment for files that were changed just now, see `stamps.wait_for_tick`.
        """
        wait_for_tick(self.stamps()["changed"])
        digest = hashlib.sha256(os.fsencode(self.root.resolve()))
        self.update_listing(digest)
        digest.update(self.stamps().tobytes())
        return digest.hexdigest()

    @property
    def _start(self) -> bytes:
        return os.path.join(os.fsencode(self.root), b"")

    def _read_stamps(self) -> np.ndarray:
        start, numbers = self._start, array("q")
        for path in self.paths.iter_bytes():
            try:
                numbers.extend(stamp_of(os.stat(start + path)))
            except FileNotFoundError as error:
                raise _gone(start + path) from error
            except OSError as error:
                raise UserError(f"cannot read {os.fsdecode(start + path)}: {error.strerror}; remove it") from error
        return np.frombuffer(numbers, np.dtype(STAMP))

    def _recall(self, stored: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """(N,) of _ROW, with the content that is stored under the file's stamp, and (N,) bool: whether it is."""
        rows = np.zeros(len(self.paths), _ROW)
        rows[list(Stamp._fields)] = self.stamps()
        rows["name"] = np.fromiter(map(_name, self.paths.iter_bytes()), "<u8", len(rows))
        position = np.minimum(np.searchsorted(stored["name"], rows["name"]), max(0, len(stored) - 1))
        old = np.zeros(len(rows), bool)
        if len(stored):
            old = np.logical_and.reduce([stored[name][position] == rows[name] for name in ("name", *Stamp._fields)])
            rows["content"][old] = stored["content"][position[old]]
        return rows, old

    def _read_contents(self) -> np.ndarray:
        """(N,) of _ROW, with the content: remembered, or read now and remembered."""
        rows, old = self._recall(self._load_rows())
        new = np.flatnonzero(~old)
        wait_for_tick(rows["changed"][new])
        saved = time.monotonic()
        for row, content in self._digests(new, rows["bytes"][new]):
            rows["content"][row] = content
            if time.monotonic() > saved + _SAVE_EVERY:
                self._remember(rows)
                saved = time.monotonic()
        if len(new):
            self._remember(rows)
        return rows

    def _digests(self, wanted: np.ndarray, sizes: np.ndarray) -> Iterator[tuple[int, bytes]]:
        """(row, content) of some rows. Hashing frees the GIL, so that several threads help with large files."""
        from tqdm import tqdm

        start = self._start
        ends, block = self.paths._ends, self.paths._block
        paths = (start + block[ends[row] : ends[row + 1]] for row in wanted.tolist())
        threads = min(cores(), 8) if len(sizes) and sizes.mean() > _LARGE else 1
        bar = tqdm(total=len(wanted), desc="content", unit="file", delay=2, disable=bar_is_off())
        with bar, ThreadPoolExecutor(threads) as pool:
            for first in range(0, len(wanted), _AT_ONCE):
                rows, those = wanted[first : first + _AT_ONCE].tolist(), islice(paths, _AT_ONCE)
                apply = pool.map if threads > 1 else map
                yield from zip(rows, apply(self._content_of, those), strict=True)
                bar.update(len(rows))

    def _content_of(self, path: bytes) -> bytes:
        """What is kept of a file's content. Shards behind URLs have another."""
        return _digest(path)

    @cached_property
    def _store(self) -> Store[np.ndarray]:
        """Rows of _ROW, sorted by name."""
        return Store.open(self.cache, "contents-{}.npz", str(self.root.resolve()), "the contents of files", _ROWS)

    def _load_rows(self) -> np.ndarray:
        """Rows of _ROW, sorted by name; none if the file is missing or damaged."""
        stored = self._store.read()
        return np.empty(0, _ROW) if stored is None else stored

    def _remember(self, rows: np.ndarray) -> None:
        """Add the rows whose content was read to the file; a folder that cannot be written forgets them."""
        with suppress(UserError), self._store.exclusive() as refused:
            if refused:
                return
            is_read, stored = rows["content"] != b"", self._load_rows()
            read = rows if is_read.all() else rows[is_read]
            others = stored[~np.isin(stored["name"], read["name"])]
            both = np.concatenate([read, others]) if len(others) else read
            self._store.write(both[np.argsort(both["name"])])


def remember_digest(cache: str | Path | None, about: str, compute: Callable[[], str]) -> str:
    """Return the sha256 (hex) that compute() returns, or returned before for the same `about`, kept in `cache`."""
    store = Store.open(cache, "content-{}.txt", about, "a digest of content", _TEXT)
    if (stored := store.read()) is not None:
        return stored
    digest = compute()
    with suppress(UserError):
        store.write(digest)
    return digest


def bar_is_off() -> bool | None:
    """The argument `disable` of a bar: none beside another thread's; None: where there is no terminal."""
    return None if threading.current_thread() is threading.main_thread() else True


def _name(path: bytes) -> int:
    return int.from_bytes(hashlib.blake2b(path, digest_size=8).digest(), "little")


def _gone(path: bytes) -> UserError:
    return UserError(f"{os.fsdecode(path)} has gone, or is a link to nothing: put it back, or remove it")


def _digest(path: bytes) -> bytes:
    """16 bytes of the sha256 of a file; none of one that is no file or cannot be read: it is skipped as data, too.

    Raises UserError for one that has gone.
    """
    try:
        descriptor = os.open(path, os.O_RDONLY | getattr(os, "O_NONBLOCK", 0) | getattr(os, "O_BINARY", 0))
    except FileNotFoundError as error:
        raise _gone(path) from error
    except OSError:
        return b""
    digest = hashlib.sha256()
    try:
        if not stat.S_ISREG(os.fstat(descriptor).st_mode):
            return b""
        while chunk := os.read(descriptor, _CHUNK):
            digest.update(chunk)
    except OSError:
        return b""
    finally:
        os.close(descriptor)
    return digest.digest()[:16]
