"""Scores of defects: AUROC of images, AUPRO of pixels, and the distances that both are of.

AUROC has the interval of DeLong et al. (1988, Biometrics 44:837). AUPRO is the area below the overlap with each defect
over the false-positive rate of pixels (Bergmann et al. 2020, arXiv 1911.02357).
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np

from evaluation.results.statistics import Estimate, clopper_pearson, over_groups, over_pseudo_values, t_quantile
from sslkit.numerics.neighbours import BLOCK
from sslkit.terminal.say import counted

LIMIT = 0.3  # false-positive rate up to which overlaps count, that of MVTec AD's papers


def nearest_distance(query: np.ndarray, bank: np.ndarray) -> np.ndarray:
    """Return (M,) 1 - cosine of each row with the most similar one of the bank, exact, by faiss in blocks.

    query, bank: (M, D), (N, D) float32, also memory-mapped: of each a block is in memory. A row of zeros has the cosine
    0 with all.
    """
    import faiss

    size = max(1, BLOCK // bank.shape[1])
    most = np.full(len(query), -1.0, np.float32)
    for first in range(0, len(bank), size):
        rows = _unit(bank[first : first + size])
        for start in range(0, len(query), size):
            some = slice(start, start + size)
            cosine = faiss.knn(_unit(query[some]), rows, 1, metric=faiss.METRIC_INNER_PRODUCT)[0][:, 0]
            most[some] = np.maximum(most[some], cosine)
    return np.clip(1 - most, 0, 2)


def _unit(x: np.ndarray) -> np.ndarray:
    x = np.ascontiguousarray(x, np.float32)
    return x / np.maximum(np.linalg.norm(x, axis=1, keepdims=True), np.finfo(np.float32).tiny)


def auroc(score: np.ndarray, is_defect: np.ndarray, groups: np.ndarray | None = None) -> tuple[Estimate, np.ndarray]:
    """Return the share of pairs in which the defect has the higher score, ties half, and (N,) that of each image.

    score: (N,). is_defect: (N,) bool, some of both. groups: (N,) of images that belong together, over which the
    interval is then (Obuchowski 1997, Biometrics 53:567). The values by image have the mean of all, and vary as it
    does. The interval is symmetric in the logit, so that it stays below 1; of images that are all told apart it is that
    of a share of as many as the smaller kind has.
    """
    places = np.unique(score, return_inverse=True)[1]
    by_image = np.empty(len(score))
    for kind in (True, False):
        others = np.bincount(places[is_defect != kind], minlength=places.max() + 1)
        below = np.cumsum(others) - others / 2
        share = below[places[is_defect == kind]] / others.sum()
        by_image[is_defect == kind] = share if kind else 1 - share
    value = float(by_image[is_defect].mean())
    sizes = np.where(is_defect, is_defect.sum(), (~is_defect).sum())
    by_image = value + (by_image - value) * len(score) / sizes
    over, n = over_groups(groups), len(score)
    member = np.arange(n) if over is None else np.unique(groups, return_inverse=True)[1]
    fewest = min(len(np.unique(member[is_defect == kind])) for kind in (True, False))
    apart = np.bincount(member, by_image - value)
    corrected = 1 if over is None else len(apart) / (len(apart) - 1)
    error = float(np.square(apart).sum() * corrected) ** 0.5 / n
    if not 0 < value < 1 or error == 0:
        kind = f"{over or 'images'} that are all told apart: Clopper-Pearson on {fewest}"
        return Estimate(value, clopper_pearson(value, fewest), kind, n), by_image
    middle, half = math.log(value / (1 - value)), t_quantile(0.975, max(fewest - 1, 1)) * error / (value * (1 - value))
    low, high = (1 / (1 + math.exp(-min(max(middle + side * half, -700), 700))) for side in (-1, 1))
    return Estimate(value, (low, high), f"DeLong over {over or 'images'}", n), by_image


@dataclass(frozen=True)
class Regions:
    """Connected defects. image: (R,) the image of each. area: (R,) its area below the overlap, as a share of LIMIT."""

    image: np.ndarray
    area: np.ndarray

    def estimate(self, groups: np.ndarray | None = None) -> Estimate:
        """Return AUPRO with its interval over images with defects, or their groups; none for a single one.

        groups: (N,) of all images.
        """
        alone = over_groups(groups) is None
        what, unit = ("image", self.image) if alone else ("group", groups[self.image])
        value, count = float(self.area.mean()), len(np.unique(unit))
        if count < 2:
            return Estimate(value, None, f"no interval, defects in one {what}", len(self.area))
        estimate = over_pseudo_values(self.area, f"{counted(count, what)} with defects", unit)
        return replace(estimate, n=len(self.area))


def aupro(scores: Sequence[np.ndarray], masks: Sequence[np.ndarray], limit: float = LIMIT) -> Regions:
    """Return the connected defects of all images with their areas, whose mean is AUPRO.

    scores: (h, w) of each image. masks: (h, w) bool, True where defective; pixels at a corner are connected. All other
    pixels, those of images without defects too, are the false positives. The curve is joined by straight lines from the
    origin, and ends at the limit. Raises ValueError without a defect or without another pixel.
    """
    from scipy.ndimage import label

    image, region, inside, outside, count = [], [], [], [], 0
    for number, (score, mask) in enumerate(zip(scores, masks, strict=True)):
        numbered, regions = label(mask, np.ones((3, 3)))
        image += [number] * regions
        region.append(numbered[mask] - 1 + count)
        inside.append(score[mask])
        outside.append(score[~mask])
        count += regions
    region, inside, outside = map(np.concatenate, (region, inside, outside))
    if not count or not len(outside):
        raise ValueError("AUPRO needs defective pixels and others")
    levels = np.unique(np.concatenate([inside, outside]))[::-1]
    rate = 1 - np.searchsorted(np.sort(outside), levels, side="left") / len(outside)  # at least each level
    weight = _weights(rate, limit)
    left = np.cumsum(weight[::-1])[::-1]  # of a pixel that counts from a level on
    level = len(levels) - 1 - np.searchsorted(levels[::-1], inside)
    return Regions(np.array(image), np.bincount(region, left[level]) / np.bincount(region))


def _weights(rate: np.ndarray, limit: float) -> np.ndarray:
    """Return (L,) weights of the points of a curve over rising rates, whose sum with the points is its mean to a limit.

    The first stretch begins at the origin.
    """
    width = np.diff(rate, prepend=0.0)
    inside = np.clip(limit - (rate - width), 0, width)  # of each stretch, up to the limit
    share = np.divide(inside, width, out=np.zeros_like(width), where=width > 0)
    weights = inside * share / 2
    weights[:-1] += (inside * (1 - share / 2))[1:]
    return weights / limit
