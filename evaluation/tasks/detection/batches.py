"""Training batches of a detector; images and mirroring of each step are a function of (seed, step, rank)."""

from collections.abc import Iterator
from typing import Any

import numpy as np
import torch
from torch import Tensor
from torch.utils.data import DataLoader, Dataset, Sampler

from evaluation.tasks.detection.datasets.boxes import Boxes, Target, for_training
from sslkit.data.loader import order_of, plain_errors
from sslkit.errors import UserError
from sslkit.models.detectors.body import as_input
from sslkit.runtime.context import Runtime
from sslkit.runtime.device import seed_of

KEPT = ("boxes", "labels", "masks")  # keys of a target that torchvision needs


class StepBatches(Sampler[list[int]]):
    """Yield the rows of this rank's images for every step from `first` to `last`, epoch by epoch.

    Images of one rank and step are all portrait or all landscape, as in detectron2: this reduces the zero padding in
    the statistics of batch norm, which is trained. Only the remainders of both at the end of an epoch are mixed. An
    incomplete last batch of an epoch is dropped; the dropped images differ by epoch.
    upright: (N,) bool, images that are taller than wide. batch_size: of all ranks together.
    Raises UserError if there are fewer images than batch_size, or the number of ranks does not divide it.
    """

    def __init__(
        self, upright: np.ndarray, batch_size: int, seed: int, first: int, last: int, rank: int, world: int
    ) -> None:
        if len(upright) < batch_size:
            raise UserError(
                f"batch_size={batch_size} must be at most {len(upright)}, the number of training images with an object"
            )
        if batch_size % world:
            raise UserError(f"batch_size={batch_size} must be a multiple of the number of processes, {world}")
        self.upright, self.share, self.per_epoch = upright, batch_size // world, len(upright) // batch_size
        self.seed, self.first, self.last, self.rank, self.world = seed, first, last, rank, world

    def __len__(self) -> int:
        return self.last - self.first

    def __iter__(self) -> Iterator[list[int]]:
        used = self.per_epoch * self.world * self.share  # a random remainder is dropped in this epoch
        for epoch in range(self.first // self.per_epoch, -(-self.last // self.per_epoch)):
            rows = order_of(len(self.upright), self.seed, epoch).numpy()[:used]
            parts = group_by_shape(rows, self.upright, self.share)
            before = epoch * self.per_epoch
            for step in range(max(self.first - before, 0), min(self.last - before, self.per_epoch)):
                yield parts[step * self.world + self.rank].tolist()


def group_by_shape(rows: np.ndarray, upright: np.ndarray, share: int) -> np.ndarray:
    """Split rows into groups (N / share, share) of one orientation each, ordered by the place of their last row.

    rows: (N,) in any order, N a multiple of share. upright: (any,) bool, by row. The remainders of both orientations
    form one mixed group at the end.
    """
    kinds = [np.flatnonzero(upright[rows] == kind) for kind in (False, True)]
    full = np.concatenate([kind[: len(kind) - len(kind) % share].reshape(-1, share) for kind in kinds])
    rest = np.concatenate([kind[len(kind) - len(kind) % share :] for kind in kinds])
    places = np.concatenate([full[np.argsort(full[:, -1])], rest.reshape(-1, share)])
    return rows[places]


class Mirrored(Dataset):
    """Images with their training targets; an index is (row, mirrored: bool)."""

    def __init__(self, data: Boxes, in_chans: int) -> None:
        self.data, self.in_chans = data, in_chans

    def __len__(self) -> int:
        return len(self.data)

    def __getitem__(self, index: tuple[int, bool]) -> tuple[Tensor, Target]:
        row, flip = index
        image, target = self.data[row]
        target = for_training(target, *image.shape[-2:])
        image = as_input(image, self.in_chans)
        return mirror_image(image, target) if flip else (image, target)


class _WithFlips(Sampler[list[tuple[int, bool]]]):
    def __init__(self, batches: StepBatches, seed: int, rank: int, mirror: bool) -> None:
        self.batches, self.seed, self.rank = batches, seed, rank
        self.share = 0.5 if mirror else 0.0

    def __len__(self) -> int:
        return len(self.batches)

    def __iter__(self) -> Iterator[list[tuple[int, bool]]]:
        for step, rows in enumerate(self.batches, self.batches.first):
            generator = torch.Generator().manual_seed(seed_of("mirror", self.seed, step, self.rank))
            flips = torch.rand(len(rows), generator=generator) < self.share
            yield list(zip(rows, flips.tolist(), strict=True))


def readers(runtime: Runtime) -> int:
    """Return the number of processes that read images: none where it is not asked for."""
    return 0 if runtime.workers == "auto" else runtime.workers


def mirror_image(image: Tensor, target: Target) -> tuple[Tensor, Target]:
    """Flip the image (C, H, W), its boxes and its masks horizontally."""
    width = image.shape[-1]
    x0, y0, x1, y1 = target["boxes"].unbind(1)
    changed = {"boxes": torch.stack([width - x1, y0, width - x0, y1], 1)}
    if "masks" in target:
        changed["masks"] = target["masks"].flip(-1)
    return image.flip(-1), {**target, **changed}


def training_batches(
    data: Boxes,
    in_chans: int,
    runtime: Runtime,
    *,
    batch_size: int,
    seed: int,
    first: int,
    last: int,
    mirror: bool = True,
    rank: int = 0,
    world: int = 1,
) -> Iterator[tuple[list[Tensor], list[dict[str, Tensor]]]]:
    """Yield images (in_chans, H, W) in [0, 1] and targets of the steps from `first` to `last`, on the device.

    data: see `Boxes.to_learn_from`. batch_size: of all ranks together. seed: of this purpose.
    mirror: half of the images.
    """
    device, workers = runtime.device, readers(runtime)
    upright = data.sizes[:, 0] > data.sizes[:, 1]
    batches = StepBatches(upright, batch_size, seed, first, last, rank, world)
    loader = DataLoader(
        Mirrored(data, in_chans),
        batch_sampler=_WithFlips(batches, seed, rank, mirror),
        num_workers=workers,
        collate_fn=_as_lists,
        pin_memory=device.type == "cuda",
        multiprocessing_context="spawn" if workers else None,
        generator=torch.Generator().manual_seed(seed_of("workers", seed, rank)),
    )
    for images, targets in plain_errors(loader):
        on_device = [image.to(device, non_blocking=True) for image in images]
        moved = [{k: target[k].to(device, non_blocking=True) for k in KEPT if k in target} for target in targets]
        yield on_device, moved


def _as_lists(rows: list[tuple[Tensor, Target]]) -> tuple[list[Tensor], list[dict[str, Any]]]:
    return [image for image, _ in rows], [{k: t[k] for k in KEPT if k in t} for _, t in rows]
