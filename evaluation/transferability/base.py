"""What a metric may see of a model on a task, and what it gives back."""

import hashlib
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Any

import torch
from torch import Tensor

from evaluation.transferability._scatter import ClassMoments, Scatter, compacted
from sslkit.errors import UserError

# PED's warning, which a ranking says once of a model and not of each metric.
NO_REFERENCE = "no reference=(mean, std) of the model's own training images: these features' own were taken"
BLOCK = 2**21  # numbers made float64 at a time: 16 MB; from 32 MB on, each block is fresh pages, half as fast


@dataclass(frozen=True)
class Score:
    """What a metric says of one model on one task.

    value: higher is better; nan where it exists only over a zoo (then `parts` has what it is made of).
    diagnostics: numbers worth seeing (steps, shrinkage, iterations, rank). warnings: what to know before trusting it.
    terms: (N,) float64 values, one an image, whose mean is the score, if it is such a mean: what a bootstrap resamples.
    parts: by name, for metrics with an `over_zoo`.
    """

    value: float
    diagnostics: Mapping[str, Any] = field(default_factory=dict)
    warnings: tuple[str, ...] = ()
    terms: Tensor | None = None
    parts: Mapping[str, float] = field(default_factory=dict)


@dataclass(frozen=True, eq=False)
class Sample:
    """One model's features of one labelled task. Nothing in it is ever written to.

    x: (N, D) of any float type, on the CPU (possibly memory-mapped) or a GPU; None where a metric needs none.
    y: (N,) int64 labels 0 to C - 1, each of which occurs; None if the labels are no classes.
    targets: (N, K) float64 the labels as numbers, for regression and several labels an image; None if they are names.
    classes: C names. source_probs: (N, S) float64, rows sum to 1: the source classifier's. reference: (D,) mean and
    std of the same model's features on what it was trained on. model: the network, for its size.
    shift: (C, D) float64 that is added to each row of a class, or None. origin: the sample without it, whose sums
    are this one's but for the means.
    dim: D before `compact`. ones: (D,) what the vector of ones is after it. diagonal: (D,) the total scatter after it,
    whose axes are the principal ones. largest: the largest magnitude in x; None where it is not known.
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
        """(N,) int64. Raises UserError where the labels are not one class an image."""
        if self.y is None:
            raise UserError(
                "this metric takes one class label an image, not fractions or several labels: for these there are "
                "logme (targets='regression') and parc"
            )
        return self.y

    @property
    def device(self) -> torch.device:
        return next(part for part in (self.x, self.y, self.targets) if part is not None).device

    def blocks(self) -> Iterator[tuple[slice, Tensor]]:
        """(rows, (b, D) float64) over all rows, so that no (N, D) in float64 is ever made."""
        step = max(BLOCK // self.x.shape[1], 1)
        for start in range(0, len(self), step):
            rows = slice(start, start + step)
            block = self.x[rows].to(torch.float64, copy=True)
            if self.shift is not None:
                block += self.shift[self.labels[rows]]
            yield rows, block

    @property
    def features(self) -> Tensor:
        """(N, D) float64, a copy: for metrics that need all rows at once."""
        return torch.cat([block for _, block in self.blocks()])

    @cached_property
    def moments(self) -> ClassMoments:
        """Counts, means and variances of the classes (of all rows as one class, where there are no labels)."""
        return ClassMoments.of(self) if self.origin is None else self.origin.moments.moved(self.shift)

    @cached_property
    def scatter(self) -> Scatter:
        """Within-class and total scatter (D, D), with the latter's eigenvectors when they are asked for."""
        return Scatter.of(self) if self.origin is None else self.origin.scatter.moved(self.shift)

    def once(self, name: str, make: Callable[[], Any]) -> Any:
        """What some metrics share: made by the first that asks, kept with the sample."""
        kept = vars(self).setdefault("_kept", {})
        if name not in kept:
            kept[name] = make()
        return kept[name]

    @cached_property
    def compact(self) -> "Sample":
        """The same rows in a basis of at most N dimensions: itself if D <= N.

        All distances and inner products stay; `dim` and `ones` keep what a metric may want of the D dimensions.
        """
        if self.x.shape[1] <= len(self) or self.dim != self.x.shape[1]:
            return self
        x, ones, diagonal = compacted(self)
        return replace(self, x=x, shift=None, origin=None, ones=ones, diagonal=diagonal, reference=None)

    def moved(self, shift: Tensor) -> "Sample":
        """The sample with each class moved rigidly. shift: (C, D)."""
        if self.origin is not None:
            return self.origin.moved(self.shift + shift)
        if self.shift is not None:  # a part of a moved sample
            return replace(self, shift=None).moved(self.shift + shift)
        largest = None if self.largest is None else self.largest + float(shift.abs().max())
        return replace(self, shift=shift, origin=self, diagonal=None, largest=largest)

    def take(self, rows: Tensor) -> "Sample":
        """Some rows, (n,) int64; classes that none of them has are dropped."""
        y, classes, shift = None, (), None
        if self.y is not None:
            present, y = torch.unique(self.y[rows], return_inverse=True)
            classes = tuple(self.classes[k] for k in present.tolist())
            shift = None if self.shift is None else self.shift[present]
        parts = {name: getattr(self, name) for name in ("x", "targets", "source_probs")}
        picked = {name: None if part is None else part[rows] for name, part in parts.items()}
        return replace(self, y=y, classes=classes, shift=shift, origin=None, diagonal=None, **picked)

    def generator(self, purpose: str) -> torch.Generator:
        """A generator of its own, on the CPU, for one purpose."""
        digest = hashlib.sha256(f"{self.seed} {purpose}".encode()).digest()
        return torch.Generator().manual_seed(int.from_bytes(digest[:7], "big"))
