"""Pixels of many batches: kept on the device as uint8 if they fit, else read again for every batch."""

from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np
import torch
from torch import Tensor
from torch.utils.data import Dataset

from sslkit.data.images import Images
from sslkit.data.loader import load_batches, plain_errors, workers_for
from sslkit.errors import UserError
from sslkit.files.blocks import Parts

READ = 256  # images read at a time
CPU_BYTES = 2**31  # maximum size of one set of images in memory, per process: a round number that a laptop has
GPU_SHARE = 0.25  # of the free memory: the rest is the network's and its activations'


class Pool(Dataset):
    """Several sets of images of one shape, with consecutive row numbers."""

    def __init__(self, parts: Sequence[Images]) -> None:
        shapes = {(images.channels, images.image_size) for images in parts}
        if len(shapes) > 1:
            raise UserError(f"the splits have images of different (channels, size): {sorted(shapes)}")
        self.parts = list(parts)
        self.channels, self.image_size = shapes.pop()
        self.starts = np.cumsum([0, *map(len, parts)])
        self.decodes = any(images.decodes for images in parts)

    def __len__(self) -> int:
        return int(self.starts[-1])

    def __getitems__(self, rows: list[int]) -> dict[str, Any]:
        """images: (n, C, S, S) uint8. aspect: (n,) width / height, see `Images.__getitems__`."""
        rows = np.asarray(rows)
        which = np.searchsorted(self.starts, rows, side="right") - 1
        images = torch.empty(len(rows), self.channels, self.image_size, self.image_size, dtype=torch.uint8)
        aspect = torch.empty(len(rows))
        for number in np.unique(which):
            at = np.flatnonzero(which == number)
            batch = self.parts[number].__getitems__((rows[at] - self.starts[number]).tolist())
            if batch["bad"]:  # replaced by a neighbour, with a wrong label
                raise UserError(f"{batch['bad'][0]} cannot be read: repair it, or leave it out of the data")
            images[at], aspect[at] = batch["images"], batch["aspect"]
        return {"images": images, "aspect": aspect}


class Pixels:
    """Rows of a pool, gathered repeatedly in any order.

    pool: the images. rows: (n,) int64, the selected rows; batches use indices into `rows`.
    device: of the batches. resident: keep the pixels there; None: if they fit, see the constants.
    """

    def __init__(self, pool: Pool, rows: np.ndarray, device: torch.device, resident: bool | None = None) -> None:
        self.pool, self.rows, self.device = pool, np.asarray(rows), device
        size = len(self.rows) * pool.channels * pool.image_size**2
        self.resident = size <= self._room() if resident is None else resident
        self.images: Tensor | None = None
        self.aspect: Tensor | None = None

    def batches(self, places: Tensor) -> Iterator[tuple[Tensor, Tensor]]:
        """Yield images (B, C, S, S) uint8 on the device and their aspects (B,) on the CPU, for each row of `places`.

        places: (batches, B) int64 on the CPU, indices into `rows`.
        """
        if not self.resident:
            yield from self._read_batches(places)
            return
        self.keep()
        for at, on_device in zip(places, places.to(self.device), strict=True):
            yield self.images[on_device], self.aspect[at]

    def keep(self) -> None:
        """Read all resident pixels, once; other pixels are not read.

        Raises UserError for a file that cannot be read.
        """
        if self.resident and self.images is None:
            self._keep()

    def _keep(self) -> None:
        shape = (self.pool.channels, self.pool.image_size, self.pool.image_size)
        self.images = torch.empty(len(self.rows), *shape, dtype=torch.uint8, device=self.device)
        self.aspect = torch.empty(len(self.rows))
        parts = torch.arange(len(self.rows)).split(READ)
        for rows, (images, aspect) in zip(parts, self._read_batches(parts), strict=True):
            self.images[rows[0] : rows[-1] + 1], self.aspect[rows] = images, aspect

    def _read_batches(self, places: Sequence[Tensor]) -> Iterator[tuple[Tensor, Tensor]]:
        """places: of each batch (B,) int64, indices into `rows`."""
        rows, device = Parts(len(places), lambda part: self.rows[places[part].numpy()]), self.device.type
        count = min(workers_for(self.pool, "auto", 1, device), len(places))
        loader = load_batches(self.pool, rows, count, device=device, seed=0)
        for batch in plain_errors(loader):
            yield batch["images"].to(self.device, non_blocking=True), batch["aspect"]

    def _room(self) -> float:
        cuda = self.device.type == "cuda"
        return GPU_SHARE * torch.cuda.mem_get_info(self.device)[0] if cuda else CPU_BYTES
