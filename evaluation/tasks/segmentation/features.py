"""The patches of images: their features by a frozen network, and the shares of the classes in them."""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor
from torch.utils.data import DataLoader

from evaluation.results.statistics import generator
from evaluation.tasks.segmentation.label_maps import IGNORED, LabelMaps
from sslkit.data.likeness import hash_pixels
from sslkit.data.pixel_digest import digest_of_pixels
from sslkit.errors import UserError
from sslkit.files.store import key_of
from sslkit.models.model import Model
from sslkit.models.places import Look, Whole, grid_of, place_features, prepare
from sslkit.runtime.context import Runtime
from sslkit.runtime.device import device_of
from sslkit.runtime.distributed import rank
from sslkit.runtime.kept_arrays import load_or_compute_rows
from sslkit.terminal.say import printable

ONCE = Look()
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
    model: Model, images: LabelMaps, what: str, runtime: Runtime, look: Look = ONCE
) -> Iterator[tuple[int, np.ndarray, Tensor, Tensor]]:
    """Yield pixel digest, likeness (4,), features (F, h, w) on the device, and label map (H, W) of each image.

    look: of its scales there is one. A progress bar shows how far it is. Raises UserError for features that are not
    finite.
    """
    prepared = _Prepared(images, partial(prepare, model=model))
    for batch in _read_batches(prepared, what, runtime):
        maps = _maps(model, [pixels for pixels, *_ in batch], look)
        for features, (_, classes, digest, likeness) in zip(maps, batch, strict=True):
            yield digest, likeness, features, classes


def each_picture(images: LabelMaps, what: str, runtime: Runtime) -> Iterator[tuple[int, np.ndarray, Tensor, Tensor]]:
    """Yield pixel digest, likeness (4,), pixels (3, H, W) uint8 and label map (H, W) of each image."""
    for batch in _read_batches(_Prepared(images, torch.as_tensor), what, runtime):
        for picture, classes, digest, likeness in batch:
            yield digest, likeness, picture, classes


def _read_batches(prepared: "_Prepared", what: str, runtime: Runtime) -> Iterator[list[Any]]:
    """Yield BATCH images at a time, with a progress bar."""
    from tqdm import tqdm

    loader = DataLoader(
        prepared,
        BATCH,
        num_workers=0 if runtime.workers == "auto" else runtime.workers,
        collate_fn=list,
        generator=torch.Generator().manual_seed(0),  # otherwise it draws from the global one
    )
    hidden = None if runtime.progress and rank() == 0 else True  # None: only on a terminal
    yield from tqdm(loader, desc=printable(what, keep=""), unit="batch", disable=hidden, leave=False)


def _maps(model: Model, pixels: Sequence[Tensor], look: Look) -> Tensor:
    """(B, F, h, w) of normalised squares (C, S, S). Raises UserError for features that are not finite."""
    with torch.inference_mode():
        maps = place_features(model.backbone, torch.stack([*pixels]).to(model.device), look.blocks)
    if not maps.isfinite().all():
        raise UserError(f"{model.name} returns features that are not finite: the model may have diverged")
    return maps


@dataclass(frozen=True, eq=False)
class _Prepared(torch.utils.data.Dataset):
    """Images as `prepare` leaves them with their label maps, pixel digests and hashes."""

    images: LabelMaps
    prepare: Callable[[Tensor], Tensor]

    def __len__(self) -> int:
        return len(self.images)

    def __getitem__(self, row: int) -> tuple[Tensor, Tensor, int, np.ndarray]:
        image, classes = self.images[row]
        pixels = image.permute(1, 2, 0).numpy()
        return self.prepare(image), classes, digest_of_pixels(pixels), hash_pixels(pixels)


def patches_of(model: Model, images: LabelMaps, most: int, runtime: Runtime, look: Look = ONCE) -> Patches:
    """The patches of all images; of each image as many at random that there are at most `most`.

    Of several scales an image gives one window at each, at random. They are kept in the cache, and a stopped run goes
    on there. Patches without a pixel that counts are left out. Raises UserError if none is left.
    """
    grid = grid_of(model)
    quota = min(max(most // (len(images) * max(len(look.scales), 1)), 1), grid[0] * grid[1])
    path = path_of(runtime, "train", model, images, look, quota, runtime.seed)
    about = {"what": "the patches", "unit": BATCH}
    columns = load_or_compute_rows(path, len(images), partial(_draw, model, images, quota, runtime, look), **about)
    row_of = {digest: row for row, digest in reversed([*enumerate(columns["digest"].tolist())])}
    number = np.array([row_of[digest] for digest in columns["digest"].tolist()])
    rows = np.nonzero(columns["weight"] > 0)
    if not len(rows[0]):
        raise UserError(f"{images.name} ({images.split}): no pixel has a class")
    drawn = (columns[name][rows] for name in ("x", "share", "weight"))
    return Patches(*drawn, number[rows[0]], columns["digest"][rows[0]], columns["likeness"][rows[0]])


def path_of(runtime: Runtime, part: str, model: Model, images: LabelMaps, *about: object) -> Path | None:
    """Return the file of the cache for what depends on a model, its input, images and more; None without a cache."""
    if runtime.cache is None:
        return None
    key = key_of(model.digest, model.image_size, model.mean, model.std, model.resizing, images.digest, *about)
    return Path(runtime.cache) / f"segments-{part}-{key}.npz"


def _draw(
    model: Model, images: LabelMaps, quota: int, runtime: Runtime, look: Look, parts: Sequence[Sequence[int]]
) -> Iterator[dict[str, np.ndarray]]:
    """Yield the patches of the images in each part, `quota` of each view; those that are no patch have the weight 0."""
    model.backbone.to(device_of(runtime.device)).eval()
    some = images.take(np.concatenate([np.asarray(chunk) for chunk in parts]))
    views = zip(some.ids, _each_view(model, some, look, runtime), strict=True)
    for chunk in parts:
        rows = [_draw_places(*next(views), len(images.classes), quota, runtime.seed) for _ in chunk]
        yield {name: np.stack([row[name] for row in rows]) for name in rows[0]}


def _draw_places(
    name: str,
    seen: tuple[int, np.ndarray, Sequence[tuple[Tensor, Tensor]]],
    count: int,
    quota: int,
    seed: int,
) -> dict[str, np.ndarray]:
    """Return features, shares and weights of `quota` places of each view of an image, with its digests."""
    draw, (digest, likeness, views) = generator(seed, f"patches of {name}"), seen
    parts: list[tuple[np.ndarray, ...]] = []
    for features, classes in views:
        share, weight = class_shares(classes, count, tuple(features.shape[-2:]))
        order = draw.permutation(len(weight))
        rows = np.sort(order[np.argsort(weight[order] == 0, kind="stable")][:quota])  # those that count first
        parts.append((features.flatten(1).T.cpu().numpy()[rows], share[rows], weight[rows]))
    columns = dict(zip(("x", "share", "weight"), map(np.concatenate, zip(*parts, strict=True)), strict=True))
    return {**columns, "digest": np.int64(digest), "likeness": likeness}


def _each_view(
    model: Model, images: LabelMaps, look: Look, runtime: Runtime
) -> Iterator[tuple[int, np.ndarray, list[tuple[Tensor, Tensor]]]]:
    """Yield pixel digest, likeness, and of each view of an image its features and label map.

    It is the whole image, or a window at each scale, drawn by seed and name.
    """
    if not look.scales:
        for digest, likeness, features, classes in each_map(model, images, "patches", runtime, look):
            yield digest, likeness, [(features, classes)]
        return
    grid = grid_of(model)
    for name, (digest, likeness, picture, classes) in zip(
        images.ids, each_picture(images, "patches", runtime), strict=True
    ):
        draw, windows, labels = generator(runtime.seed, f"windows of {name}"), [], []
        for scale in look.scales:
            whole = Whole.of(scale, grid, model.image_size)
            first = [int(draw.integers(most - few + 1)) for most, few in zip(whole.places, grid, strict=True)]
            windows.append(whole.cut(prepare(picture, model, whole.size), first))
            labels.append(classes[tuple(map(_part, first, grid, whole.places, classes.shape))])
        yield digest, likeness, [*zip(_maps(model, windows, look), labels, strict=True)]


def _part(first: int, count: int, places: int, pixels: int) -> slice:
    """The pixels of `count` places from the first, of an axis of so many places and pixels."""
    start = min(round(first * pixels / places), pixels - 1)
    return slice(start, max(round((first + count) * pixels / places), start + 1))
