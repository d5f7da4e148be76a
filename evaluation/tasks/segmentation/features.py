"""The patches of images: their features by a frozen network, and the shares of the classes in them."""

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor
from torch.utils.data import DataLoader

from evaluation.results.statistics import generator
from evaluation.tasks.segmentation.label_maps import IGNORED, LabelMaps
from sslkit.data.likeness import hash_pixels
from sslkit.data.pixel_digest import digest_of_pixels
from sslkit.errors import UserError
from sslkit.models.model import Model
from sslkit.models.segmenter import place_features, prepare
from sslkit.runtime.context import Runtime
from sslkit.runtime.device import device_of
from sslkit.runtime.distributed import rank
from sslkit.terminal.say import printable

BATCH = 16  # images whose maps are computed at a time: memory of a map, not of a vector, for each


@dataclass(frozen=True, eq=False)
class Patches:
    """P patches of some images.

    x: (P, F) float32 features. share: (P, K) float32, of each class in the pixels that count; rows sum to 1.
    weight: (P,) float32, share of the pixels that count, above 0. image: (P,) int64 row of the image, of
    copies that of the first. digest: (P,) int64 of the image's pixels, likeness: (P, 4) int64, see `data.likeness`.
    """

    x: np.ndarray
    share: np.ndarray
    weight: np.ndarray
    image: np.ndarray
    digest: np.ndarray
    likeness: np.ndarray

    def take(self, rows: np.ndarray) -> "Patches":
        """A subset, in the order given. rows: (n,) int64 or (P,) bool."""
        return Patches(*(column[rows] for column in vars(self).values()))


def class_shares(classes: Tensor, count: int, grid: tuple[int, int]) -> tuple[np.ndarray, np.ndarray]:
    """Shares (h w, K) of the classes in the cells of a grid, and the share (h w,) of pixels that count.

    classes: (H, W) uint8. A pixel belongs to the cell of its centre.
    """
    rows, columns = (
        ((np.arange(n) + 0.5) * cells / n).astype(np.int64) for n, cells in zip(classes.shape, grid, strict=True)
    )
    cell = rows[:, None] * grid[1] + columns
    values, cells = classes.numpy(), grid[0] * grid[1]
    counted = values != IGNORED
    table = np.bincount(cell[counted] * count + values[counted], minlength=cells * count).reshape(cells, count)
    total, pixels = table.sum(1), np.bincount(cell.ravel(), minlength=cells)
    share = table / np.maximum(total, 1)[:, None]
    return share.astype(np.float32), (total / np.maximum(pixels, 1)).astype(np.float32)


def each_map(
    model: Model, images: LabelMaps, what: str, runtime: Runtime
) -> Iterator[tuple[int, np.ndarray, Tensor, Tensor]]:
    """Yield pixel digest, likeness (4,), features (F, h, w) on the device, and label map (H, W) of each image.

    A progress bar shows how far it is.

    Raises UserError for features that are not finite.
    """
    from tqdm import tqdm

    device, workers = device_of(runtime.device), runtime.workers
    model.backbone.to(device).eval()
    loader = DataLoader(
        _Prepared(images, model),
        BATCH,
        num_workers=0 if workers == "auto" else workers,
        collate_fn=list,
        generator=torch.Generator().manual_seed(0),  # otherwise it draws from the global one
    )
    hidden = None if runtime.progress and rank() == 0 else True  # None: only on a terminal
    for batch in tqdm(loader, desc=printable(what, keep=""), unit="batch", disable=hidden, leave=False):
        with torch.inference_mode():
            maps = place_features(model.backbone, torch.stack([pixels for pixels, *_ in batch]).to(device))
        if not maps.isfinite().all():
            raise UserError(f"{model.name} returns features that are not finite: the model may have diverged")
        for features, (_, classes, digest, likeness) in zip(maps, batch, strict=True):
            yield digest, likeness, features, classes


@dataclass(frozen=True, eq=False)
class _Prepared(torch.utils.data.Dataset):
    """Normalised images with their label maps, pixel digests and hashes."""

    images: LabelMaps
    model: Model

    def __len__(self) -> int:
        return len(self.images)

    def __getitem__(self, row: int) -> tuple[Tensor, Tensor, int, np.ndarray]:
        image, classes = self.images[row]
        pixels = image.permute(1, 2, 0).numpy()
        return prepare(image, self.model), classes, digest_of_pixels(pixels), hash_pixels(pixels)


def patches_of(model: Model, images: LabelMaps, most: int, runtime: Runtime) -> Patches:
    """The patches of all images; of each image as many at random that there are at most `most`.

    Patches without a pixel that counts are left out. Raises UserError if none is left.
    """
    quota = max(most // len(images), 1)
    draw = generator(runtime.seed, "patches")
    chunks: list[Patches] = []
    row_of: dict[int, int] = {}
    for row, (digest, likeness, features, classes) in enumerate(each_map(model, images, "patches", runtime)):
        share, weight = class_shares(classes, len(images.classes), tuple(features.shape[-2:]))
        rows = np.flatnonzero(weight > 0)
        if len(rows) > quota:
            rows = np.sort(draw.choice(rows, quota, replace=False))
        x = features.flatten(1).T.cpu().numpy()
        numbers = (np.full(len(rows), number) for number in (row_of.setdefault(digest, row), digest))
        chunks.append(Patches(x[rows], share[rows], weight[rows], *numbers, np.tile(likeness, (len(rows), 1))))
    patches = Patches(*(np.concatenate([getattr(chunk, name) for chunk in chunks]) for name in vars(chunks[0])))
    if not len(patches.x):
        raise UserError(f"{images.name} ({images.split}): no pixel has a class")
    return patches
