"""What a run without labels has learned: how often the other view of an image is found among those of all images."""

import numpy as np
import torch
from torch import Tensor

from sslkit.composition.method import Method
from sslkit.data.cached_images import CachedImages
from sslkit.data.views.augmentation import augment, view_generator
from sslkit.data.views.recipe import PAIR
from sslkit.errors import RunFailed
from sslkit.numerics.view_retrieval import FEWEST, MOST, compare_views, find_other_views
from sslkit.training.data import Data
from sslkit.training.quick_evaluation import BATCH, Hits, shrink


def measure_views(method: Method, data: Data) -> tuple[dict[str, dict[str, float]], Hits]:
    """{"network": ..., "pixels": ...} with each the numbers of `compare_views`, and which images the network finds.

    Of training images without labels, the same ones and the same views at every call; twice {} for others, for videos,
    and for fewer than 20 images that can be read.
    """
    if data.bank is not None or data.train.item.axes:
        return {}, {}
    rows = np.unique(np.linspace(0, len(data.train) - 1, min(len(data.train), MOST)).astype(int))
    views = _views(CachedImages(data.train.clean(data.image_size), rows), data.image_size)
    if len(views[0]) < FEWEST:
        return {}, {}
    embeds = {"network": lambda some: _embed(method, some), "pixels": lambda some: shrink((255 * some).to(torch.uint8))}
    of_both = {
        name: [torch.cat([embed(some) for some in of_all.split(BATCH)]) for of_all in views]
        for name, embed in embeds.items()
    }
    numbers = {name: compare_views(*embedded) for name, embedded in of_both.items()}
    return numbers, {"found": find_other_views(*of_both["network"]).numpy()}


def _views(clean: CachedImages, size: int) -> tuple[Tensor, Tensor]:
    """Two views (N, C, S, S) of the images that can be read."""
    recipe, parts = PAIR.at(size), []
    for step, (asked, batch) in enumerate(clean.batches(BATCH)):
        drawn = augment(batch["images"], recipe, size, view_generator(0, 0, step))
        is_intact = torch.from_numpy(batch["index"].numpy() == asked)
        parts.append(tuple(view[is_intact] for view in drawn))
    first, second = zip(*parts, strict=True)
    return torch.cat(first), torch.cat(second)


@torch.no_grad()
def _embed(method: Method, views: Tensor) -> Tensor:
    device, training = next(method.parameters()).device, method.training
    method.eval()
    x = method.backbone(method.normalize_pixels(views.to(device))).float().cpu()
    method.train(training)
    if not x.isfinite().all():
        raise RunFailed("the backbone's features are not finite")
    return x
