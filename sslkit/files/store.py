"""Files that are computed once and kept: one process makes a file whole, and all others read it.

    store = Store.of(cache, "shards-{}.npz", about, "the index of shards", INDEX)
    with store.exclusive() as refused:
        if (index := store.read()) is None:
            ...

The key in a file's name is a digest of all that its content depends on. A file that is damaged counts as missing.
"""

import hashlib
from collections.abc import Callable, Collection, Mapping
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass, field
from pathlib import Path
from typing import Generic, TypeVar

import numpy as np

from sslkit.errors import UserError, first_line
from sslkit.files.writing import exclusive, write_whole
from sslkit.terminal import say

Value = TypeVar("Value")


def key_of(*about: object) -> str:
    """A name of 32 hexadecimal digits for values; arrays count with their shape, type and content."""
    digest = hashlib.sha256()
    for value in about:
        if isinstance(value, np.ndarray):
            digest.update(f"{value.shape}{value.dtype}".encode())
            for start in range(0, len(value), 4096):
                digest.update(np.ascontiguousarray(value[start : start + 4096]))
        else:
            digest.update(f"{value}\n".encode())
    return digest.hexdigest()[:32]


@dataclass(frozen=True)
class Codec(Generic[Value]):
    """How a value stands in a file. read: raises any Exception for a damaged file.

    write: into a new file; None for what is written in blocks, see `sslkit.files.blocks`.
    """

    read: Callable[[Path], Value]
    write: Callable[[Path, Value], None] | None = None


def npz_codec(
    pack: Callable[[Value], Mapping[str, np.ndarray]],
    unpack: Callable[[dict[str, np.ndarray]], Value],
    *,
    compressed: bool = True,
    names: Collection[str] = (),
) -> Codec[Value]:
    """Return the codec of an .npz file. pack: the arrays of a value by name; unpack: the value of these arrays.

    names: of the arrays that are read; by default all.
    """

    def read(path: Path) -> Value:
        with np.load(path, allow_pickle=False) as arrays:
            return unpack({name: arrays[name] for name in names or arrays.files})

    def write(path: Path, value: Value) -> None:
        with path.open("wb") as file:  # of a path numpy changes the name
            (np.savez_compressed if compressed else np.savez)(file, **pack(value))

    return Codec(read, write)


@dataclass
class Store(Generic[Value]):
    """One value in one file. path: None keeps nothing. what: the value is, for messages, as "the index of shards"."""

    path: Path | None
    what: str
    codec: Codec[Value]
    _is_told: bool = field(default=False, repr=False)

    @classmethod
    def open(cls, cache: str | Path | None, name: str, about: str, what: str, codec: Codec[Value]) -> "Store[Value]":
        """Return the store of a file in a folder. name: with {} for a digest of `about`, all that the value depends on.

        cache: the folder; None keeps nothing.
        """
        key = hashlib.sha256(about.encode(errors="surrogateescape")).hexdigest()[:32]
        return cls(None if cache is None else Path(cache) / name.format(key), what, codec)

    def read(self) -> Value | None:
        """The value; None if there is no file, and for a damaged one, which a warning names once."""
        if self.path is None or not self.path.exists():
            return None
        try:
            return self.codec.read(self.path)
        except Exception as error:  # zip, zlib and numpy raise their own classes; another archive lacks arrays
            if not self._is_told:
                say.warn(f"{self.path} is damaged ({first_line(error)}): making {self.what} again", stacklevel=3)
            self._is_told = True
            return None

    def write(self, value: Value) -> None:
        """Write the file, whole or not at all. Raises UserError if it cannot be written."""
        if self.path is not None:
            with write_whole(self.path) as partial:
                self.codec.write(partial, value)

    def exclusive(self) -> AbstractContextManager[UserError | None]:
        """Let one process at a time make the file, see `sslkit.files.writing.exclusive`."""
        return nullcontext() if self.path is None else exclusive(self.path, self.what)
