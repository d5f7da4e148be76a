"""Shards behind URLs, identified by their content."""

import hashlib
import secrets
from array import array
from collections.abc import Sequence
from pathlib import Path

import numpy as np

from sslkit.data.file_contents import STAMP, FileContents
from sslkit.data.path_list import PathList
from sslkit.data.sources.shard_files import ShardFiles, State
from sslkit.errors import UserError, first_line

_CHUNK = 2**22  # bytes of a shard that are asked for at once: few requests to a store, little that is read in vain


class StoredContents(FileContents):
    """The shards `start` + each of `paths`. An object store's tag stands for the content; others are read for it."""

    def __init__(
        self, files: ShardFiles, start: str, paths: PathList, states: Sequence[State], cache: str | Path | None
    ) -> None:
        super().__init__(Path(start), paths, cache)
        self.files, self.start, self.states = files, start, states
        self._tags = {f"{start}{paths[row]}".encode(): state.tag for row, state in enumerate(states)}

    @property
    def _start(self) -> bytes:
        return self.start.encode()

    def _read_stamps(self) -> np.ndarray:
        numbers = array("q")
        for state in self.states:
            # Where the server says nothing but the size, no two states are the same.
            text = state.stamp.encode() or secrets.token_bytes()
            numbers.extend((int.from_bytes(hashlib.sha256(text).digest()[:7], "big"), 0, 0, state.bytes))
        return np.frombuffer(numbers, np.dtype(STAMP))

    def _content_of(self, path: bytes) -> bytes:
        if tag := self._tags[path]:
            return hashlib.sha256(tag.encode()).digest()[:16]
        digest = hashlib.sha256()
        try:
            with self.files.stream(path.decode()) as stream:
                while chunk := stream.read(_CHUNK):
                    digest.update(chunk)
        except Exception as error:  # each file system of fsspec raises its own
            raise UserError(f"cannot read the shard {path.decode()}: {first_line(error)}") from error
        return digest.digest()[:16]
