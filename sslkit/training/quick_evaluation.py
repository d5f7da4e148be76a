"""The quick evaluation of a run's backbone: kNN and a probe on clean images, and what shows that training harms it."""

from collections.abc import Callable, Mapping

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor, nn

from sslkit.composition.method import Method
from sslkit.data.cached_images import CachedImages
from sslkit.data.copies import line_across
from sslkit.data.likeness import hash_images
from sslkit.data.pixel_digest import digests_of_arrays
from sslkit.errors import RunFailed, UserError
from sslkit.numerics import diagnostics
from sslkit.numerics.accuracy import knn_hits, probe_accuracy, probe_hits
from sslkit.numerics.paired import Paired, pair
from sslkit.numerics.wilson import independent_rows, wilson
from sslkit.training.data import Data, too_few

Hits = dict[str, np.ndarray]  # of each measure, which images are right
BATCH = 256  # images, of the features, see `Item.rows_at_once`
DRAWS = 20  # of one image of each class: the mean of them has a standard error of about a point
SIDE = 16  # pixels of a side as features: 768 in colour, as many as a network has
MOST_ZERO = 0.01  # share of images without features: a few images of one colour may have none in a healthy network


class Probe(nn.Module):
    """A linear classifier trained during the run, on detached features of clean images, with its own optimiser.

    It keeps its weights between evaluations, so a few steps are enough to follow the backbone.
    """

    def __init__(self, width: int, classes: int) -> None:
        super().__init__()
        self.linear = nn.Linear(width, classes)
        nn.init.zeros_(self.linear.weight)
        nn.init.zeros_(self.linear.bias)
        # Large, as features are standardised: a hundred steps follow the network; only the curve of a run rests on it.
        self.optimizer = torch.optim.Adam(self.linear.parameters(), lr=0.03)

    def learn(self, x: Tensor, y: Tensor, steps: int = 100) -> None:
        """Train for `steps` full-batch steps. x: (N, F) standardised features, y: (N,) classes."""
        with torch.enable_grad(), torch.autocast(x.device.type, enabled=False):
            for _ in range(steps):
                self.optimizer.zero_grad()
                F.cross_entropy(self.linear(x), y).backward()
                self.optimizer.step()

    @torch.no_grad()
    def accuracy(self, x: Tensor, y: Tensor) -> float:
        return (self.linear(x).argmax(1) == y).float().mean().item()


def collapse(rank: float, std: float, n: int, dim: int) -> str | None:
    """The reason why the embedding counts as collapsed, or None."""
    if std < 0.1:
        return (
            f"all images land on nearly one point (spread {std:.3f}, healthy is near 1). "
            "Lower optimizer.lr, raise the batch size, or check the views"
        )
    if rank < max(2.0, 0.02 * min(n, dim)):
        return (
            f"the {dim} dimensions hold only {rank:.1f} directions (RankMe over {n} images). "
            "Lower optimizer.lr, or add a term that spreads them: +koleo"
        )
    return None


def of_largest_class(images: CachedImages) -> float:
    """The share of the largest class: the accuracy of always answering it."""
    return float(np.bincount(images.images.labels[images.rows]).max() / len(images.rows))


def of_start(judged: Mapping[str, float], data: Data, k: int) -> str:
    """The line on the first weights, before they are trained. judged: by `evaluate`."""
    if not judged:
        return f"too few of the labelled {data.unit} can be read: this run is not evaluated"
    return (
        f"before    {k}-NN {100 * judged['knn']:.1f} %  quick probe {100 * judged['probe']:.1f} %  on {judged['n']:,} "
        f"{'held-out ' if data.held_out else ''}{data.unit}, where the largest class has "
        f"{100 * of_largest_class(data.query):.1f} %"
    )


def of_views(found: np.ndarray) -> str:
    """The line on the first weights, of images without labels. found: (N,) bool, see `measure_views`."""
    return f"before    the other view of {100 * found.mean():.1f} % of {len(found):,} images is found among all"


def harm(knn: float, n: int, gain: Paired | None, largest: float) -> list[str]:
    """What an accuracy is below, beyond its interval: the start, the largest class. knn: of n images, by neighbours.

    gain: its difference to the start.
    """
    is_worse = gain is not None and gain.high < 0
    worse = [f"{100 * (knn - gain.mean):.1f} % before training"] if is_worse else []
    always = f"{100 * largest:.1f} % by always answering the largest class"
    return [*worse, *([always] if largest > wilson(knn, n)[1] else [])]


def zeros(*parts: Tensor) -> str | None:
    """The number of images whose features (N, F) are all zero, in words; None for at most `MOST_ZERO` of them."""
    n, dead = sum(map(len, parts)), sum(int((~x.any(1)).sum()) for x in parts)
    return f"the features of {dead:,} of {n:,} images are zero" if dead > MOST_ZERO * n else None


def evaluate(method: Method, data: Data, k: int) -> tuple[dict[str, float], Hits]:
    """kNN, the quick probe and crowding of the current backbone, and `hits`; both empty without labels, or if too few
    can be read.
    """
    if data.bank is None:
        return {}, {}
    bank, query = (features(method, subset) for subset in (data.bank, data.query))
    if too_few(bank[1].numpy(), query[1].numpy()):
        return {}, {}
    right = hits(bank, query, k)
    crowded = diagnostics.crowding(*query)
    more = {"inter": crowded.inter, "intra": crowded.intra, "n": len(query[0]), **count_units(data.query)}
    more |= {"largest": of_largest_class(data.query), "few": few_accuracy(*bank, *query)}
    return {**shares(right), **more}, right


def evaluate_pixels(data: Data, k: int) -> dict[str, float]:
    """The accuracies of `evaluate` by the pixels themselves, which a network must be above; empty as there."""
    if data.bank is None:
        return {}
    bank, query = (embed_all(subset, shrink) for subset in (data.bank, data.query))
    return {} if too_few(bank[1].numpy(), query[1].numpy()) else accuracies(bank, query, k)


def accuracies(bank: tuple[Tensor, Tensor], query: tuple[Tensor, Tensor], k: int) -> dict[str, float]:
    """kNN, the quick probe, and the probe of one label a class, of features (N, D) with labels (N,)."""
    return {**shares(hits(bank, query, k)), "few": few_accuracy(*bank, *query)}


def hits(bank: tuple[Tensor, Tensor], query: tuple[Tensor, Tensor], k: int) -> Hits:
    """Which queries kNN and the quick probe get right, {"knn": (M,) bool, "probe": (M,) bool}."""
    return {"knn": knn_hits(*bank, *query, k=k), "probe": probe_hits(*bank, *query)}


def shares(right: Hits) -> dict[str, float]:
    return {name: float(of_images.mean()) for name, of_images in right.items()}


def usefulness(right: Hits) -> np.ndarray:
    """What weights are compared by, (N,) of each image from 0 to 1: the mean of `hits`."""
    return np.mean([of_images.astype(float) for of_images in right.values()], 0)


def gains(after: Hits, before: Hits, judged: CachedImages | None) -> dict[str, Paired]:
    """The differences to the start on the same images, by measure; none of images of which not the same can be read.

    judged: the images, for their groups; None: they have none.
    """
    groups = None if judged is None or judged.images.groups is None else judged.images.groups[judged.rows]
    same = {name for name in after if name in before and len(after[name]) == len(before[name])}
    readable = {name for name in same if groups is None or len(groups) == len(after[name])}
    differences = {name: pair(after[name], before[name], groups) for name in after if name in readable}
    return {name: difference for name, difference in differences.items() if difference is not None}


def line_of_near(data: Data) -> str:
    """The line on held-out images with a near-copy among those that kNN and the probe learn from; "" for none.

    By the pixels of the clean squares, as the network gets them; not of videos.
    """
    if data.bank is None or data.train.item.axes:
        return ""
    sides = (_identify(subset) for subset in (data.bank, data.query))
    what = f"held-out {data.unit}" if data.held_out else f"{data.unit} of the quick evaluation"
    return line_across(*sides, what, data.train.options.columns, data.train.source, is_given=data.held_out)


def _identify(clean: CachedImages) -> tuple[np.ndarray, np.ndarray]:
    """Digests (N,) and hashes (N, 4) of the squares."""
    squares = (batch["images"].numpy() for _, batch in clean.batches(BATCH))
    digests, hashes = zip(*((digests_of_arrays(some), hash_images(some)) for some in squares), strict=True)
    return np.concatenate(digests), np.concatenate(hashes)


def few_accuracy(bank: Tensor, bank_y: Tensor, query: Tensor, query_y: Tensor) -> float:
    """The mean accuracy of probes that learn one image of each class, over `DRAWS` draws of these.

    bank: (N, D), bank_y: (N,), query: (M, D), query_y: (M,).
    """
    draws = np.random.default_rng(0)
    rows = [np.flatnonzero(bank_y.numpy() == label) for label in np.unique(bank_y.numpy())]
    drawn = (np.array([draws.choice(of_class) for of_class in rows]) for _ in range(DRAWS))
    return float(np.mean([probe_accuracy(bank[some], bank_y[some], query, query_y) for some in drawn]))


def shrink(pixels: Tensor) -> Tensor:
    """Rows of items, uint8 (N, ..., S, S) -> (N, F) in [0, 1]: at most `SIDE` x `SIDE` pixels of each channel."""
    planes = pixels.flatten(1, -3).float() / 255
    side = min(SIDE, planes.shape[-1])
    return F.interpolate(planes, size=(side, side), mode="bilinear", antialias=True).flatten(1)


def count_units(judged: CachedImages) -> dict[str, int]:
    """Of images in groups, such as patients, the number that the intervals are over; {} for others."""
    groups = judged.images.groups
    return {} if groups is None else {"units": independent_rows(groups[judged.rows])}


@torch.no_grad()
def features(method: Method, clean: CachedImages) -> tuple[Tensor, Tensor]:
    """Backbone features of clean images, in eval mode: (x: (N, F) float32 on the CPU, y: (N,) int64, -1 unlabelled).

    clean: of a row with several items, as clips of a video, the features are the mean over them.
    Unreadable images are left out, so N may be smaller than the number of rows.
    """
    device = next(method.parameters()).device
    training = method.training
    method.eval()
    x, y = embed_all(clean, lambda pixels: _embed(method, pixels.to(device, non_blocking=True).float() / 255))
    method.train(training)
    if not x.isfinite().all():
        raise RunFailed("the backbone's features are not finite")
    return x, y


def embed_all(clean: CachedImages, embed: Callable[[Tensor], Tensor]) -> tuple[Tensor, Tensor]:
    """(x: (N, F) float32 on the CPU, y: (N,)) of the images that can be read. embed: of pixels, uint8."""
    images, x, y = clean.images, [], []
    for asked, batch in clean.batches(images.item.rows_at_once(BATCH)):
        # An unreadable image was replaced by its neighbour, which may be of the other split: leave it out.
        intact = np.flatnonzero(batch["index"].numpy() == asked)
        if len(intact):
            x.append(embed(batch["images"][intact]).float().cpu())
            y.append(batch["label"][intact])
    if not x:
        raise UserError(f"none of {len(clean.rows)} images of {images.name} can be read")
    return torch.cat(x), torch.cat(y)


def _embed(method: Method, pixels: Tensor) -> Tensor:
    """Rows of items, in [0, 1] -> (N, F), the mean over the items of a row."""
    items = pixels.reshape(-1, *method.backbone.input_shape(pixels.shape[-1]))
    return method.backbone(method.normalize_pixels(items)).unflatten(0, (len(pixels), -1)).mean(1)
