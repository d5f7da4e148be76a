"""Labelled subsets for semi-supervised evaluation: the rule of SimCLR, drawn by hashes of the image names."""

import hashlib
import math
from bisect import bisect_right
from collections.abc import Iterable, Sequence

import numpy as np

from sslkit.data.held_out import draw_keys
from sslkit.errors import UserError
from sslkit.runtime.context import Computing


def label_subset(
    y: np.ndarray, ids: Sequence[str], classes: Sequence[str], fraction: float, seed: int = Computing.seed
) -> np.ndarray:
    """Return the rows (n,) int64, ascending, that keep their labels; n = floor(fraction * N).

    y: (N,) int64 labels; rows of -1 are not counted and never drawn. ids: (N,) unique names. classes: their names.
    fraction: in (0, 1].
    Each class contributes the same number of images, plus one where n does not divide evenly: not in proportion to its
    size (Chen et al. 2020, SimCLR; their 1 % of ImageNet is 12 or 13 per class). A smaller class contributes all its
    images and the others share the rest equally, so n is kept.
    The draw depends only on (seed, class names, image names), not on the order of the rows; the rows of a smaller
    fraction are a subset of those of a larger one.
    Raises UserError for a fraction that leaves a class without a label, or several labels per image.
    """
    y = np.asarray(y)
    if y.ndim != 1:
        raise UserError("a subset of the labels needs one label an image, these have several")
    if not 0 < fraction <= 1:
        raise UserError(f"fraction={fraction} must lie in (0, 1]: 0.01 is 1 %")
    ids = np.asarray(ids)
    present = np.unique(y[y >= 0])
    members = [np.flatnonzero(y == label) for label in present]
    names = [str(classes[label]) for label in present]
    counts = shares([len(rows) for rows in members], fraction, names, seed)
    chosen = [
        rows[np.argsort(draw_keys(ids[rows], seed, f"label subset of {name}"), kind="stable")[:count]]
        for rows, name, count in zip(members, names, counts, strict=True)
    ]
    return np.sort(np.concatenate(chosen))


def shares(sizes: Sequence[int], fraction: float, names: Sequence[str], seed: int = Computing.seed) -> np.ndarray:
    """Return the number of images (K,) of each class: a common level, plus the remainder one by one in random order.

    sizes: (K,) images of each class. names: (K,) of the classes.
    """
    sizes = np.asarray(sizes, dtype=np.int64)
    total = math.floor(round(fraction * int(sizes.sum()), 6))  # 0.29 * 100 is 28.999...
    if total < len(sizes) or not len(sizes):
        raise UserError(
            f"{fraction:.4g} of {sizes.sum()} labelled images is {total}, fewer than one for each of {len(sizes)} "
            f"classes; a fraction of {len(sizes) / max(int(sizes.sum()), 1):.2g} gives one"
        )
    level = bisect_right(range(sizes.max() + 1), total, key=lambda level: np.minimum(sizes, level).sum()) - 1
    counts = np.minimum(sizes, level)
    order = np.argsort(draw_keys(names, seed, "classes with one label more"), kind="stable")
    above = order[sizes[order] > level]
    counts[above[: total - counts.sum()]] += 1
    return counts


def list_digest(names: Iterable[str]) -> str:
    """Return the sha256 (hex) of a list of names, independent of their order."""
    return hashlib.sha256("\n".join(sorted(map(str, names))).encode()).hexdigest()
