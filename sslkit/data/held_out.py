"""Held-out part of a training split, for selection: drawn by a hash of the names, the same share of each class."""

import hashlib
from collections.abc import Callable, Sequence

import numpy as np
import torch
from torch import Tensor

from sslkit.runtime.context import Computing


def held_out(
    y: np.ndarray,
    ids: Sequence[str],
    share: float = 0.2,
    seed: int = Computing.seed,
    fold: int = 0,
    groups: np.ndarray | None = None,
) -> np.ndarray:
    """Return the held-out mask (N,) bool: about `share` of each class, at least one image, never all of them.

    y: (N,) int64 labels; for (N, K), and numbers (N,) float64, the share is of all images. ids: (N,) unique names.
    groups: (N,) of images that stay together: a group has name and class of its first by name; None: each is one.
    fold: 0 for the first such share, 1 for the next, and so on: they have no image in common.
    Classes of one image stay whole. The draw depends on the seed and the names, not on the order of the rows: adding
    a file moves at most one other per class.
    """
    if groups is not None:
        names = np.asarray(ids)
        order = np.argsort(names, kind="stable")
        _, first, member = np.unique(np.asarray(groups)[order], return_index=True, return_inverse=True)
        mask = np.empty(len(names), bool)
        mask[order] = held_out(y[order][first], names[order][first], share, seed, fold)[member]
        return mask
    keys = draw_keys(ids, seed)
    labels = y if y.ndim == 1 and y.dtype.kind != "f" else np.zeros(len(y), np.int64)

    def before(fold: int) -> np.ndarray:
        return first_of_each(labels, keys, lambda n: fold * min(max(round(share * n), 1), n - 1))

    return before(fold + 1) & ~before(fold)


def first_of_each(y: np.ndarray, keys: np.ndarray, count: Callable[[int], int]) -> np.ndarray:
    """Return the mask (N,) bool of the first `count(n)` images of each class of n, in the order of the keys (N,)."""
    chosen = np.zeros(len(y), bool)
    for label in np.unique(y):
        rows = np.flatnonzero(y == label)
        chosen[rows[np.argsort(keys[rows], kind="stable")[: count(len(rows))]]] = True
    return chosen


def draw_keys(ids: Sequence[str], seed: int, purpose: str = "held out") -> np.ndarray:
    """Return sort keys (N,) bytes that order the images at random by (seed, purpose, name)."""
    start = f"{purpose} {seed} ".encode()
    names = (str(name).encode(errors="surrogateescape") for name in ids)  # a file's name may be no text
    return np.array([hashlib.sha256(start + name).digest() for name in names], dtype="S32")


def first_and_member(groups: Tensor | None, n: int) -> tuple[Tensor, Tensor]:
    """Return the first row (G,) of each group, ascending, and the group (N,) of each row; None: each row is one."""
    if groups is None:
        return torch.arange(n), torch.arange(n)
    _, first, member = np.unique(groups.cpu().numpy(), return_index=True, return_inverse=True)
    order = np.argsort(first)
    return torch.from_numpy(first[order]), torch.from_numpy(np.argsort(order)[member])


def draw_folds(y: Tensor, folds: int, generator: torch.Generator, groups: Tensor | None = None) -> Tensor:
    """Return the fold (N,) of each row: rows of a class go to the folds in turn, in random order.

    groups: (N,) of rows that stay together, by the class of the first; None: each row is one.
    """
    first, member = first_and_member(groups, len(y))
    labels = y.cpu()[first]
    drawn = torch.randperm(len(labels), generator=generator)
    dealt = drawn[labels[drawn].argsort(stable=True)]
    fold = torch.empty_like(labels)
    fold[dealt] = torch.arange(len(labels)) % folds
    return fold[member].to(y.device)
