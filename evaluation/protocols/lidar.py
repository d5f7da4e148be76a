"""Without labels: do views of an image lie together, and images apart? LiDAR, an effective rank, and alignment.

Source: Thilak et al. 2023, arXiv 2312.04000. Groups are q augmented views of each image, not parts of a queue.
Also alignment (Wang & Isola 2020, arXiv 2005.10242): the distance between the views of one image.
"""

import time
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor

from evaluation.datasets import LABELLED, MEASURED, Reading, Split
from evaluation.features.extraction import LOADED
from evaluation.protocols.base import Subject, among
from evaluation.results.result import Result
from evaluation.results.statistics import Estimate, bootstrap_mean, jackknife
from sslkit.data.held_out import draw_keys
from sslkit.data.images import Images
from sslkit.data.loader import batches_in_order
from sslkit.data.views.augmentation import augment, view_generator
from sslkit.data.views.recipe import SIMCLR, ViewRecipe
from sslkit.errors import UserError
from sslkit.models.loading import Loading
from sslkit.models.model import Model
from sslkit.numerics import diagnostics
from sslkit.options.settings import setting
from sslkit.runtime.callers import public
from sslkit.runtime.context import Runtime
from sslkit.runtime.device import device_of

BATCH = 32  # images whose views are drawn together; changing it changes the draws of a seed
BLOCKS = 10  # of images, for the jackknife: ten give a standard error within a quarter
SPLIT = "split of the data whose images are measured; all, where none has a label and none is set apart"


@dataclass(frozen=True, kw_only=True)
class Options:
    q: int = setting(10, "augmented views of each image", least=2, most=1000)
    n_images: int = setting(1000, "largest number of images, drawn by seed and name", least=2 * BLOCKS)
    split: str = setting(MEASURED, SPLIT)
    view: Mapping | None = setting(None, "changes of SimCLR's view, such as {scale:[0.8,1],jitter:0}; null: none")

    @property
    def recipe(self) -> ViewRecipe:
        """The distribution of the q views, as defined for 224 pixels. Raises UserError for changes out of range."""
        changes = {
            name: tuple(value) if isinstance(value, list) else value for name, value in (self.view or {}).items()
        }
        return ViewRecipe(SIMCLR.replace(**changes).views[:1] * self.q)


@dataclass(frozen=True, eq=False)
class ViewFeatures:
    """Features of augmented views.

    x: (n * q, D) float32, the q views of an image in consecutive rows. groups: (n * q,) int64 index of the image.
    ids, rows: (n,) names of the images, and their rows in the split. unreadable: names of drawn images that could not
    be read.
    """

    x: np.ndarray
    groups: np.ndarray
    ids: np.ndarray
    rows: np.ndarray
    unreadable: list[str]


@public(*LOADED, *LABELLED, "seed", "device")
def lidar(model: Any, data: Any, *, options: Options, loading: Loading, reading: Reading, runtime: Runtime) -> Result:
    """LiDAR of a backbone on one split, an effective rank between 1 and the width; alignment in `others`.

    model: see `sslkit.load`. data: any source, also without labels; an opened `Split` is taken as it is.
    Raises UserError as `view_features` does. LiDAR is at most n_images - 1 and grows with q: only compare models at
    equal q, n_images and kind of view. If n_images is at most the number of features, it limits the rank, which is
    noted in `recipe`: on 60 clip-art images a random network had a higher rank than a pretrained one.
    Intervals: the jackknife over 10 blocks of images, and the bootstrap over images for alignment.
    """
    loaded = loading.load(model)
    split = data if isinstance(data, Split) else Subject(loaded, data, reading).open_unlabelled(options.split)
    return measure(loaded, split, options, runtime)


def measure(model: Model, split: Split, options: Options, runtime: Runtime) -> Result:
    """LiDAR and alignment of a loaded model; see `lidar`."""
    start = time.perf_counter()
    views = view_features(model, split, options.recipe, options.n_images, runtime)
    x, n = torch.from_numpy(views.x).double().unflatten(0, (-1, options.q)), len(views.ids)
    aligned = bootstrap_mean(alignment_by_image(x).numpy(), seed=runtime.seed, unit="squared distance")
    view = {
        name: list(value) if isinstance(value, tuple) else value
        for name, value in vars(options.recipe.views[0]).items()
    }
    details = {"q": options.q, "images": n, "width": x.shape[2], "view": view, "unreadable": views.unreadable}
    return Result.from_estimate(
        estimate_lidar(x),
        protocol="lidar",
        recipe=_recipe(options.q, n, model.width),
        metric="lidar",
        model=model.name,
        data=split.name,
        others={"alignment": aligned},
        seeds=[runtime.seed],
        digests={"model": model.digest, "images": split.digest},
        seconds=time.perf_counter() - start,
        details=details,
    )


@torch.inference_mode()
def view_features(
    model: Model, split: Split, recipe: ViewRecipe, n_images: int, runtime: Runtime, *, size: int | None = None
) -> ViewFeatures:
    """Extract features of the q augmented views of a recipe, of some images of a split.

    The images are drawn by (seed, name), at most n_images. The views are drawn at `size` pixels, None: the model's
    own (`ViewRecipe.at`), and scaled to those. The network is moved to the runtime's device.
    Raises UserError for fewer than 20 images, and features that are not finite.
    """
    q, size = len(recipe.views), size or model.image_size
    if min(n_images, len(split)) < 2 * BLOCKS:
        raise UserError(f"views of at least {2 * BLOCKS} images are needed, got {min(n_images, len(split))}")
    rows = np.argsort(draw_keys(split.ids, runtime.seed, "views"), kind="stable")[:n_images]
    forward, images = _forward(model, runtime), _whole_images(split, model, size)
    parts = [(mask, forward(views)) for mask, views in _views(images, rows, recipe.at(size), size, runtime.seed)]
    x = np.concatenate([features for _, features in parts])
    readable = np.concatenate([mask for mask, _ in parts])
    if not np.isfinite(x).all():
        raise UserError(f"{model.name} returns features that are not finite: the model may have diverged")
    unreadable = [str(name) for name in split.ids[rows[~readable]]]
    rows = rows[readable]
    return ViewFeatures(x, np.repeat(np.arange(len(rows)), q), split.ids[rows], rows, unreadable)


def alignment_by_image(x: Tensor) -> Tensor:
    """(n,) mean squared distance between two l2-normalised views of an image, over all its pairs.

    x: (n, q, D). For unit rows it is 2 q / (q - 1) (1 - |their mean|^2).
    """
    q = x.shape[1]
    z = diagnostics.unit_rows(x)
    return 2 * q / (q - 1) * (z.square().sum(2).mean(1) - z.mean(1).square().sum(1))


def _recipe(q: int, n: int, width: int) -> str:
    limited = f", too few for {width} features: the rank is limited by the images" if n <= width else ""
    return f"{q} views of each of {n} images{limited}"


def estimate_lidar(x: Tensor) -> Estimate:
    """Return LiDAR of views (n, q, D) with its interval, the jackknife over 10 blocks of images."""
    n = len(x)
    without = [_lidar(x[~mask]) for mask in _blocks(n)]
    return jackknife(_lidar(x), without, kind="jackknife over images", n=n, unit="rank")


def _lidar(x: Tensor) -> float:
    n, q, _ = x.shape
    return diagnostics.lidar(x.flatten(0, 1), torch.arange(n).repeat_interleave(q))


def _blocks(n: int) -> Iterator[np.ndarray]:
    for block in np.array_split(np.arange(n), BLOCKS):
        yield np.isin(np.arange(n), block)


def _whole_images(split: Split, model: Model, size: int) -> Images:
    """Images to crop views of a size from: arrays unchanged, files decoded somewhat larger than the views."""
    native = split.images.native_size
    size = max(native) if native is not None else round(size * 8 / 7)
    return model.with_scale(split.images, image_size=size, channels=model.in_chans, fit="squash")


def _views(
    images: Images, rows: np.ndarray, recipe: ViewRecipe, size: int, seed: int
) -> Iterator[tuple[np.ndarray, Tensor]]:
    """Yield per batch: readable rows, (B,) bool, and their views (kept * q, C, S, S)."""
    for step, (asked, batch) in enumerate(batches_in_order(images, rows, BATCH)):
        readable = batch["index"].numpy() == asked  # unreadable images are replaced by a neighbour
        draws = view_generator(seed, 0, step)
        views = augment(batch["images"], recipe, size, draws, aspect=batch["aspect"])
        yield readable, torch.stack(list(views), 1)[torch.from_numpy(readable)].flatten(0, 1)


def _forward(model: Model, runtime: Runtime) -> Callable[[Tensor], np.ndarray]:
    device = device_of(runtime.device)
    backbone = model.backbone.to(device)
    mean, std = (torch.tensor(value, device=device).view(-1, 1, 1) for value in (model.mean, model.std))

    def forward(views: Tensor) -> np.ndarray:
        views = views.to(device)
        if views.shape[-1] != model.image_size:
            sides = (model.image_size, model.image_size)
            views = F.interpolate(views, size=sides, mode="bilinear", antialias=True)
        return backbone((views - mean) / std).float().cpu().numpy()

    return forward


def check_count(split: Split, protocol: str) -> None:
    """Check the number of images before views are drawn. Raises UserError."""
    if len(split) < 2 * BLOCKS:
        raise UserError(f"{protocol} needs at least {2 * BLOCKS} images, {split.name} ({split.split}) has {len(split)}")


def open(subject: Subject, options: Options) -> Subject:
    """Check the views and the number of images before feature extraction. Raises UserError."""
    options.recipe.at(subject.model.image_size)
    check_count(subject.open_unlabelled(subject.require_split(options.split)), "lidar")
    return subject


def run(opened: Subject, options: Options, runtime: Runtime) -> list[Result]:
    """Measure views of the images; unreadable images are left out and reported; see `lidar`."""
    split = opened.open_unlabelled(options.split)
    if not opened.reading.mirrors(split):
        options = replace(options, view={**(options.view or {}), "flip": 0.0})
    return [measure(opened.model, split, options, runtime)]


def beside(result: Result) -> tuple[str, ...]:
    """The alignment, the distance between the views of one image."""
    return among(result, "alignment")
