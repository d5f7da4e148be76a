"""The input and the output of a transferability metric."""

import hashlib
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Any

import torch
from torch import Tensor

from evaluation.transferability._scatter import ClassMoments, Scatter, compacted
from sslkit.errors import UserError

# PED's warning, which a ranking shows once per model and not per metric.
NO_REFERENCE = "no reference=(mean, std) of the model's own training images: these features' own were taken"
BLOCK = 2**21  # numbers converted to float64 at a time: 16 MB; from 32 MB on, new pages make each block half as fast


@dataclass(frozen=True)
class Score:
    """The score of one model on one task by one metric.

    value: higher is better; nan if it exists only over a zoo (computed from `parts`).
    diagnostics: steps, shrinkage, iterations, rank, ... warnings: limits of the score.
    terms: (N,) float64 values, one per image, whose mean is the score, if it is such a mean; for the bootstrap.
    parts: by name, for metrics with an `over_zoo`.
    """

    value: float
    diagnostics: Mapping[str, Any] = field(default_factory=dict)
    warnings: tuple[str, ...] = ()
    terms: Tensor | None = None
    parts: Mapping[str, float] = field(default_factory=dict)


@dataclass(frozen=True, eq=False)
class Sample:
    """One model's features of one labelled task. Read-only.

    x: (N, D) of any float type, on the CPU (possibly memory-mapped) or a GPU; None if the metric needs none.
    y: (N,) int64 labels 0 to C - 1, each of which occurs; None if the labels are not classes.
    targets: (N, K) float64 the labels as numbers, for regression and several labels per image; None for names.
    classes: C names. source_probs: (N, S) float64 of the source classifier, rows sum to 1. reference: (D,) mean and
    std of the same model's features on its training images. model: the network, for its size.
    shift: (C, D) float64 added to the rows of each class, or None. origin: the sample without the shift, which has the
    same sums except the means.
    dim: D before `compact`. ones: (D,) the vector of ones after it. diagonal: (D,) the total scatter after it, along
    the principal axes. largest: the largest magnitude in x; None if unknown.
    """

    x: Tensor | None
    y: Tensor | None
    targets: Tensor | None = None
    classes: tuple[str, ...] = ()
    source_probs: Tensor | None = None
    reference: tuple[Tensor, Tensor] | None = None
    model: Any = None
    seed: int = 0
    shift: Tensor | None = None
    origin: "Sample | None" = None
    dim: int = 0
    ones: Tensor | None = None
    diagonal: Tensor | None = None
    largest: float | None = None

    def __len__(self) -> int:
        return len(next(part for part in (self.x, self.y, self.targets) if part is not None))

    @property
    def n_classes(self) -> int:
        return len(self.classes)

    @property
    def labels(self) -> Tensor:
        """Class labels (N,) int64. Raises UserError if the labels are not one class per image."""
        if self.y is None:
            raise UserError(
                "this metric takes one class label per image; for fractions or several labels use "
                "logme (targets='regression') or parc"
            )
        return self.y

    @property
    def device(self) -> torch.device:
        return next(part for part in (self.x, self.y, self.targets) if part is not None).device

    def blocks(self) -> Iterator[tuple[slice, Tensor]]:
        """Yield (rows, (b, D) float64) over all rows, without a float64 copy of (N, D)."""
        step = max(BLOCK // self.x.shape[1], 1)
        for start in range(0, len(self), step):
            rows = slice(start, start + step)
            block = self.x[rows].to(torch.float64, copy=True)
            if self.shift is not None:
                block += self.shift[self.labels[rows]]
            yield rows, block

    @property
    def features(self) -> Tensor:
        """Return a float64 copy (N, D), for metrics that need all rows at once."""
        return torch.cat([block for _, block in self.blocks()])

    @cached_property
    def moments(self) -> ClassMoments:
        """Counts, means and variances of the classes (of all rows as one class without labels)."""
        return ClassMoments.of(self) if self.origin is None else self.origin.moments.moved(self.shift)

    @cached_property
    def scatter(self) -> Scatter:
        """Within-class and total scatter (D, D), with the latter's eigenvectors on demand."""
        return Scatter.of(self) if self.origin is None else self.origin.scatter.moved(self.shift)

    def once(self, name: str, make: Callable[[], Any]) -> Any:
        """Return a value shared by several metrics: made on the first call, cached with the sample."""
        kept = vars(self).setdefault("_kept", {})
        if name not in kept:
            kept[name] = make()
        return kept[name]

    @cached_property
    def compact(self) -> "Sample":
        """Return the same rows in a basis of at most N dimensions: itself if D <= N.

        All distances and inner products stay; `dim` and `ones` keep information about the D dimensions.
        """
        if self.x.shape[1] <= len(self) or self.dim != self.x.shape[1]:
            return self
        x, ones, diagonal = compacted(self)
        return replace(self, x=x, shift=None, origin=None, ones=ones, diagonal=diagonal, reference=None)

    def moved(self, shift: Tensor) -> "Sample":
        """Return the sample with each class shifted rigidly. shift: (C, D)."""
        if self.origin is not None:
            return self.origin.moved(self.shift + shift)
        if self.shift is not None:  # a part of a moved sample
            return replace(self, shift=None).moved(self.shift + shift)
        largest = None if self.largest is None else self.largest + float(shift.abs().max())
        return replace(self, shift=shift, origin=self, diagonal=None, largest=largest)

    def take(self, rows: Tensor) -> "Sample":
        """Select rows (n,) int64; classes that do not occur in them are dropped."""
        y, classes, shift = None, (), None
        if self.y is not None:
            present, y = torch.unique(self.y[rows], return_inverse=True)
            classes = tuple(self.classes[k] for k in present.tolist())
            shift = None if self.shift is None else self.shift[present]
        parts = {name: getattr(self, name) for name in ("x", "targets", "source_probs")}
        picked = {name: None if part is None else part[rows] for name, part in parts.items()}
        return replace(self, y=y, classes=classes, shift=shift, origin=None, diagonal=None, **picked)

    def generator(self, purpose: str) -> torch.Generator:
        """Return a CPU generator for one purpose, independent of other purposes."""
        digest = hashlib.sha256(f"{self.seed} {purpose}".encode()).digest()
        return torch.Generator().manual_seed(int.from_bytes(digest[:7], "big"))
