"""Clean images that are read again and again: decoded once, then kept in memory or in a file."""

import errno
import shutil
import tempfile
from collections.abc import Iterator
from dataclasses import dataclass
from math import prod
from pathlib import Path
from typing import Any

import numpy as np
import torch

from sslkit.data.images import Images
from sslkit.data.loader import batches_in_order
from sslkit.files.blocks import reserve
from sslkit.terminal import say

# bytes of a run's kept images in memory, a round number that a laptop has; what does not fit goes to a file
IN_MEMORY = 2**30
_SHARE = 2  # a file takes at most 1 / _SHARE of the free space: checkpoints need the rest


@dataclass
class Room:
    """Space for arrays: in memory up to a limit, beyond it in files of a folder.

    The files have no name, so that their space is free again when the process ends, however it ends.
    """

    folder: Path
    memory: int = IN_MEMORY
    _warned: bool = False

    def array(self, shape: tuple[int, ...]) -> np.ndarray | None:
        """An uninitialised uint8 array; None, with one warning, if it fits neither in memory nor on the disk."""
        size = prod(shape)
        if size <= self.memory:
            self.memory -= size
            return np.empty(shape, np.uint8)
        try:
            return self._on_disk(shape, size)
        except OSError as error:
            if not self._warned:
                say.warning(
                    f"no room in {self.folder} to keep {size / 1e9:.1f} GB of decoded images "
                    f"({error.strerror or error}): they are decoded again at every evaluation"
                )
            self._warned = True
            return None

    def _on_disk(self, shape: tuple[int, ...], size: int) -> np.ndarray:
        self.folder.mkdir(parents=True, exist_ok=True)
        free = shutil.disk_usage(self.folder).free
        if size > free // _SHARE:
            raise OSError(errno.ENOSPC, f"{free / 1e9:.1f} GB are free, and checkpoints need some of them")
        with tempfile.TemporaryFile(dir=self.folder) as file:
            reserve(file, size)
            return np.memmap(file, np.uint8, "r+", shape=shape)


class CachedImages:
    """Some rows of a source of clean images. What is decoded is kept from the first reading on.

    room: where it is kept; None, and images that are in memory already, are read again each time.
    unreadable: paths of those read so far that could not be.
    """

    def __init__(self, images: Images, rows: np.ndarray, *, room: Room | None = None) -> None:
        self.images = images
        self.rows = rows
        self._room = room if images.decodes else None
        self._pixels: np.ndarray | None = None
        self._index = np.empty(len(rows), np.int64)
        self._label = np.empty(len(rows), np.int64)
        self._whole = False
        self.unreadable: set[str] = set()

    def batches(self, size: int) -> Iterator[tuple[list[int], dict[str, Any]]]:
        """(requested rows, batch) in order, `size` rows at a time.

        batch: images, index and label as of `Images.__getitems__`, the same in every reading.
        """
        return self._again(size) if self._whole else self._decode_and_keep(size)

    def _decode_and_keep(self, size: int) -> Iterator[tuple[list[int], dict[str, Any]]]:
        start = 0
        for asked, batch in batches_in_order(self.images, self.rows, size):
            span = slice(start, start + len(asked))
            start = span.stop
            self.unreadable.update(batch["bad"])
            if self._room is not None and self._pixels is None:
                self._pixels = self._room.array((len(self.rows), *batch["images"].shape[1:]))
                self._room = None  # asked once
            if self._pixels is not None:
                self._pixels[span] = batch["images"].numpy()
                self._index[span], self._label[span] = batch["index"].numpy(), batch["label"].numpy()
            yield asked, {name: batch[name] for name in ("images", "index", "label")}
        self._whole = self._pixels is not None and start == len(self.rows)

    def _again(self, size: int) -> Iterator[tuple[list[int], dict[str, Any]]]:
        for start in range(0, len(self.rows), size):
            span = slice(start, start + size)
            arrays = {"images": self._pixels[span], "index": self._index[span], "label": self._label[span]}
            # copied: the caller may write into a batch
            yield self.rows[span].tolist(), {name: torch.from_numpy(array.copy()) for name, array in arrays.items()}
