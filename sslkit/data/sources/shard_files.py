"""Tar and .zip files named by a pattern, on a local disk or behind an fsspec URL, and read at an offset."""

import math
import os
import re
from collections import OrderedDict
from collections.abc import Iterable
from dataclasses import dataclass, field
from functools import partial
from glob import glob
from itertools import product
from pathlib import Path
from typing import IO, Any

from sslkit.data.sources.zip_archives import ENDING, is_zip, unpack
from sslkit.errors import UserError, first_line
from sslkit.files.reading import regular
from sslkit.files.stamps import stamp_of

_OPEN_AT_ONCE = 64  # local files that a process keeps open: systems often allow a thousand for all of it
_BRACES = re.compile(r"\{([^{}]*)\}")
_RANGE = re.compile(r"(\d{1,100})\.\.(\d{1,100})")
_MOST = 1_000_000  # names of a pattern; the largest sets of today have some 250,000 shards
_COMPRESSED = (".tar.gz", ".tgz", ".tar.bz2", ".tbz2", ".tar.xz", ".txz", ".tar.zst")
_TAGS = ("ETag", "etag", "md5", "md5Hash", "Content-MD5", "sha")  # what the file systems of fsspec know
_TIMES = ("mtime", "LastModified", "last_modified", "Last-Modified", "created")
_KINDS = (".tar", *_COMPRESSED)  # of the files that a folder is searched for


@dataclass(frozen=True)
class State:
    """What is known of a shard without reading it. bytes: its size.

    stamp: text that is another one if the shard has changed, see `sslkit.files.stamps`; "" if there is none.
    tag: that of an object store, which stands for the content; "" for a file, and for a server that gives times alone.
    """

    bytes: int
    stamp: str
    tag: str = ""


@dataclass
class ShardFiles:
    """The files of a pattern. is_remote: names are URLs, read with fsspec. Picklable; processes open files anew."""

    is_remote: bool
    _open: "OrderedDict[str, int]" = field(default_factory=OrderedDict, repr=False)
    _system: Any = field(default=None, repr=False)
    _process: int = 0

    def __getstate__(self) -> dict[str, Any]:
        return {"is_remote": self.is_remote, "_open": OrderedDict(), "_system": None, "_process": 0}

    def read_bytes(self, shard: str, offset: int, size: int) -> bytes:
        """`size` bytes from `offset` on, in a .zip those of the member there. Raises OSError, also for fewer."""
        some = partial(self._some, shard)
        content = unpack(some, offset, size) if is_zip(shard) else some(offset, size)
        if len(content) != size:
            raise OSError(f"{shard} ends at byte {offset + len(content)}: it is shorter than when it was indexed")
        return content

    def _some(self, shard: str, offset: int, size: int) -> bytes:
        if self.is_remote:
            return self._remote(shard).cat_file(_path(shard, self._remote(shard)), start=offset, end=offset + size)
        return os.pread(self._descriptor(shard), size, offset)

    def stream(self, shard: str) -> IO[bytes]:
        """The file, to be read from its start with seeks. Raises OSError."""
        if self.is_remote:
            return self._remote(shard).open(_path(shard, self._remote(shard)), "rb", block_size=2**16)
        return open(shard, "rb")

    def state(self, shard: str) -> State:
        """Raises UserError if the file is missing or cannot be reached."""
        try:
            if not self.is_remote:
                stamp = stamp_of(os.stat(regular(shard)))
                return State(stamp.bytes, stamp.text)
            about = self._remote(shard).info(_path(shard, self._remote(shard)))
        except Exception as error:  # each file system of fsspec raises its own
            raise UserError(f"cannot reach the shard {shard}: {type(error).__name__}: {first_line(error)}") from error
        tag, when = (next((str(about[key]) for key in keys if about.get(key)), "") for keys in (_TAGS, _TIMES))
        return State(int(about["size"] or 0), tag or when, tag)

    def _descriptor(self, shard: str) -> int:
        if self._process != os.getpid():  # after a fork: the parent may close its own
            self._open, self._process = OrderedDict(), os.getpid()
        if shard not in self._open:
            if len(self._open) >= _OPEN_AT_ONCE:
                os.close(self._open.popitem(last=False)[1])
            self._open[shard] = os.open(shard, os.O_RDONLY | getattr(os, "O_CLOEXEC", 0))
        self._open.move_to_end(shard)
        return self._open[shard]

    def _remote(self, shard: str) -> Any:
        if self._system is None or self._process != os.getpid():  # its threads do not survive a fork
            import fsspec

            self._system, self._process = fsspec.core.url_to_fs(shard, skip_instance_cache=True)[0], os.getpid()
        return self._system


def find(pattern: str) -> tuple[ShardFiles, list[str]]:
    """The files that a pattern names, sorted, and how to read them.

    pattern: a path or an fsspec URL (s3://, gs://, http://, ...) with {a,b}, {000..123}, * and ?, of tar files, or of
        .zip files (each named, behind a URL); or a folder, for the tar files in it and in its sub-folders.
    Raises UserError if there are none or more than a million, if one is missing or compressed (in a folder too, where
    it would be left out), and for a URL that cannot be reached.
    """
    remote = "://" in pattern
    files = ShardFiles(remote)
    spelled = expand(pattern)
    try:
        names = sorted(set(_list(spelled, files) if remote else _local(spelled)))
    except (OSError, RuntimeError) as error:  # a name that is too long; an unknown user
        reason = getattr(error, "strerror", None) or error
        raise UserError(f"cannot look for the shards {pattern[:200]}: {reason}") from error
    if not names:
        raise UserError(f"there are no shards {pattern}: give tar files, such as shards:FOLDER/train-{{000..099}}.tar")
    for name in names:
        if name.lower().endswith(_COMPRESSED):
            raise compression_error(name)
    return files, names


def compression_error(shard: str) -> UserError:
    return UserError(f"the shard {shard} is compressed, so that no image in it can be read alone: unpack it to .tar")


def expand(pattern: str) -> Iterable[str]:
    """Every spelling of the braces: {a,b} its parts, {08..11} the numbers with as many digits.

    Raises UserError, before any is spelled, for more than a million.
    """
    parts = _BRACES.split(pattern)
    count = math.prod(max(1, _count(inside)) for inside in parts[1::2])
    if count > _MOST:
        shown = f"{count:,}" if count <= 10**18 else "more than 10^18"
        raise UserError(f"{pattern[:200]} names {shown} shards, and at most {_MOST:,} are read: mend its braces")
    choices = [[piece] if number % 2 == 0 else _choices(piece) for number, piece in enumerate(parts)]
    return ("".join(chosen) for chosen in product(*choices))


def _count(inside: str) -> int:
    match = _RANGE.fullmatch(inside)
    return int(match[2]) - int(match[1]) + 1 if match else inside.count(",") + 1


def _choices(inside: str) -> list[str]:
    match = _RANGE.fullmatch(inside)
    if not match:
        return inside.split(",")
    first, last = match.groups()
    return [f"{number:0{len(first)}}" for number in range(int(first), int(last) + 1)]


def _local(spelled: Iterable[str]) -> Iterable[str]:
    for pattern in spelled:
        path = Path(pattern).expanduser()
        if path.is_dir():
            yield from (str(file) for file in path.rglob("*") if _is_shard(file.name) and not file.is_dir())
        elif path.is_file():
            yield str(path)
        elif paths := glob(str(path), recursive=True):
            yield from paths
        elif not any(letter in pattern for letter in "*?["):
            raise UserError(f"there is no shard {path}")


def _is_shard(name: str) -> bool:
    """Return whether a file in a folder is taken: not ._a.tar, which macOS leaves beside a.tar."""
    return name.lower().endswith(_KINDS) and name[0] != "."


def _list(spelled: Iterable[str], files: ShardFiles) -> Iterable[str]:
    for pattern in spelled:
        if pattern.lower().endswith((*_KINDS, ENDING)) and not any(letter in pattern for letter in "*?"):
            yield pattern  # asked for its size later
            continue
        system = _system(pattern, files)
        try:
            path = _path(pattern, system)
            paths = system.find(path) if system.isdir(path) else system.glob(path)
        except Exception as error:  # each file system of fsspec raises its own
            raise UserError(f"cannot list the shards {pattern}: {type(error).__name__}: {first_line(error)}") from error
        if paths or any(letter in pattern for letter in "*?"):
            yield from (system.unstrip_protocol(name) for name in paths if _is_shard(name.rpartition("/")[2]))
        else:
            yield pattern  # a file with another ending, or nothing: a server that cannot list files says so later


def _system(url: str, files: ShardFiles) -> Any:
    try:
        return files._remote(url)
    except Exception as error:  # an unknown protocol, or one whose package is missing
        raise UserError(f"cannot open shards {url}: {first_line(error)}") from error


def _path(url: str, system: Any) -> str:
    return system._strip_protocol(url)
