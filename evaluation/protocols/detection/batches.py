"""What a detector learns from, step by step: which images, mirrored or not, is a function of (seed, step, rank)."""

from collections.abc import Iterator
from typing import Any

import numpy as np
import torch
from torch import Tensor
from torch.utils.data import DataLoader, Dataset, Sampler

from evaluation.protocols.detection.body import as_input
from evaluation.protocols.detection.boxes import Boxes, Target, for_training
from evaluation.tuning.seeds import seed_of
from sslkit.data.loader import EpochSampler, plain_errors
from sslkit.errors import UserError

KEPT = ("boxes", "labels", "masks")  # of a target, for torchvision


class StepBatches(Sampler[list[int]]):
    """The rows of this rank's images in every step from `first` to `last`, epoch after epoch.

    Images of one rank and step are all upright or all lying, as in detectron2: batch norm, which is tuned, sees less of
    the zeros that fill smaller images up. Only what is left over of both kinds at an epoch's end is mixed. Images that
    do not fill the epoch's last batch are left out of it, others in each epoch.
    upright: (N,) bool, images that are higher than wide. batch_size: of all ranks together.
    Raises UserError where the images do not fill a batch, or the ranks cannot share it evenly.
    """

    def __init__(
        self, upright: np.ndarray, batch_size: int, seed: int, first: int, last: int, rank: int, world: int
    ) -> None:
        if len(upright) < batch_size:
            raise UserError(
                f"batch_size={batch_size}, but only {len(upright)} training images have an object: lower batch_size"
            )
        if batch_size % world:
            raise UserError(f"batch_size={batch_size} must be a multiple of the number of processes, {world}")
        self.sampler = EpochSampler(len(upright), seed)
        self.upright, self.share, self.per_epoch = upright, batch_size // world, len(upright) // batch_size
        self.first, self.last, self.rank, self.world = first, last, rank, world

    def __len__(self) -> int:
        return self.last - self.first

    def __iter__(self) -> Iterator[list[int]]:
        used = self.per_epoch * self.world * self.share  # the others, by chance, are left out of this epoch
        for epoch in range(self.first // self.per_epoch, -(-self.last // self.per_epoch)):
            self.sampler.set_epoch(epoch)
            parts = grouped(self.sampler.permutation().numpy()[:used], self.upright, self.share)
            before = epoch * self.per_epoch
            for step in range(max(self.first - before, 0), min(self.last - before, self.per_epoch)):
                yield parts[step * self.world + self.rank].tolist()


def grouped(rows: np.ndarray, upright: np.ndarray, share: int) -> list[np.ndarray]:
    """All rows in groups of `share`, of one kind each, in the order in which walking through `rows` fills them.

    rows: (N,) in any order, N a multiple of share. upright: (any,) bool, by row. What is left over of both kinds makes
    one mixed group at the end.
    """
    kinds = [rows[upright[rows] == kind] for kind in (False, True)]
    full = [part for kind in kinds for part in np.split(kind, list(range(share, len(kind) + 1, share)))[:-1]]
    place = {row: number for number, row in enumerate(rows.tolist())}
    full.sort(key=lambda part: place[int(part[-1])])
    rest = np.concatenate([kind[len(kind) - len(kind) % share :] for kind in kinds])
    return [*full, rest] if len(rest) else full


class Mirrored(Dataset):
    """Images with what is learned of them; an index is (row, whether the image is mirrored)."""

    def __init__(self, data: Boxes, in_chans: int) -> None:
        self.data, self.in_chans = data, in_chans

    def __len__(self) -> int:
        return len(self.data)

    def __getitem__(self, index: tuple[int, bool]) -> tuple[Tensor, Target]:
        row, flip = index
        image, target = self.data[row]
        target = for_training(target, *image.shape[-2:])
        image = as_input(image, self.in_chans)
        return mirrored(image, target) if flip else (image, target)


class _WithFlips(Sampler[list[tuple[int, bool]]]):
    def __init__(self, batches: StepBatches, seed: int, rank: int) -> None:
        self.batches, self.seed, self.rank = batches, seed, rank

    def __len__(self) -> int:
        return len(self.batches)

    def __iter__(self) -> Iterator[list[tuple[int, bool]]]:
        for step, rows in enumerate(self.batches, self.batches.first):
            generator = torch.Generator().manual_seed(seed_of("mirror", self.seed, step, self.rank))
            flips = torch.rand(len(rows), generator=generator) < 0.5
            yield list(zip(rows, flips.tolist(), strict=True))


def mirrored(image: Tensor, target: Target) -> tuple[Tensor, Target]:
    """Left and right exchanged, in the image (C, H, W), its boxes and its masks."""
    width = image.shape[-1]
    x0, y0, x1, y1 = target["boxes"].unbind(1)
    changed = {"boxes": torch.stack([width - x1, y0, width - x0, y1], 1)}
    if "masks" in target:
        changed["masks"] = target["masks"].flip(-1)
    return image.flip(-1), {**target, **changed}


def training_batches(
    data: Boxes,
    in_chans: int,
    device: torch.device,
    *,
    batch_size: int,
    seed: int,
    first: int,
    last: int,
    rank: int = 0,
    world: int = 1,
    workers: int = 0,
) -> Iterator[tuple[list[Tensor], list[dict[str, Tensor]]]]:
    """Images (in_chans, H, W) in [0, 1] and targets of the steps from `first` to `last`, on the device.

    data: see `Boxes.to_learn_from`. batch_size: of all ranks together. workers: processes that read images.
    """
    upright = data.sizes[:, 0] > data.sizes[:, 1]
    batches = StepBatches(upright, batch_size, seed, first, last, rank, world)
    loader = DataLoader(
        Mirrored(data, in_chans),
        batch_sampler=_WithFlips(batches, seed, rank),
        num_workers=workers,
        collate_fn=_as_lists,
        pin_memory=device.type == "cuda",
        multiprocessing_context="spawn" if workers else None,
        generator=torch.Generator().manual_seed(seed_of("workers", seed, rank)),
    )
    for images, targets in plain_errors(loader):
        there = [image.to(device, non_blocking=True) for image in images]
        own = [{k: target[k].to(device, non_blocking=True) for k in KEPT if k in target} for target in targets]
        yield there, own


def _as_lists(rows: list[tuple[Tensor, Target]]) -> tuple[list[Tensor], list[dict[str, Any]]]:
    return [image for image, _ in rows], [{k: t[k] for k in KEPT if k in t} for _, t in rows]
