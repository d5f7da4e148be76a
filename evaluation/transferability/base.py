"""A transferability metric: how it is found, its input and its output."""

import hashlib
import importlib
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from functools import cached_property
from numbers import Integral
from types import ModuleType
from typing import Any

import torch
from torch import Tensor

from evaluation.transferability._scatter import EPS, ClassMoments, Scatter, add_upper_gram, mean_rounding, mirror_upper
from sslkit import lazy
from sslkit.errors import UserError, nearest
from sslkit.options import own_code
from sslkit.options.settings import MOST_SEED

# PED's warning, which a ranking shows once per model and not per metric.
NO_REFERENCE = "no reference=(mean, std) of the model's own training images: these features' own were taken"
BLOCK = 2**21  # numbers converted to float64 at a time: 16 MB; from 32 MB on, new pages make each block half as fast
DOUBLE = torch.finfo(torch.float64)
SMALLEST = (DOUBLE.tiny / DOUBLE.eps) ** 0.25  # its fourth power keeps full precision
_given: dict[str, ModuleType] = {}  # metrics from outside that this process was given, by their names


def names() -> tuple[str, ...]:
    """Return the names of all metrics."""
    return lazy.members(__package__)


def find(name: str, *, given: bool = False) -> ModuleType:
    """Return the module of a metric, `package.module:score` from outside too. Raises UserError for an unknown name.

    given: a user names it now. Otherwise only code is found that was given before: a file of results runs none.
    """
    if ":" in name:
        return _own_module(name, given)
    if name not in names():
        raise UserError(f"there is no transferability metric {name!r}: {nearest(name, names())}")
    return importlib.import_module(f"{__package__}.{name}")


def _own_module(name: str, given: bool) -> ModuleType:
    if given:
        module = own_code.module(name, "package.module:score")
        if name.rpartition(":")[2] != "score" or not callable(module.score):
            raise UserError(f"{name!r} is no metric: write package.module:score, the function that gives its score")
        _given[name] = module
    if name not in _given:
        raise UserError(f"metric {name!r} is code of your own, which this process was not given")
    return _given[name]


def check_seed(seed: int) -> int:
    """Return the seed. Raises UserError if it is not an integer from 0 to 2**32 - 1, which all generators take."""
    if not isinstance(seed, Integral) or isinstance(seed, bool) or not 0 <= seed <= MOST_SEED:
        raise UserError(f"seed={seed!r} must be a whole number from 0 to {MOST_SEED}")
    return int(seed)


def wrappers() -> tuple[str, ...]:
    """Return the metrics that can be written before a `+`."""
    return tuple(name for name in names() if hasattr(find(name), "wrapped"))


class TooFewImages(UserError):
    """An option is in range, but these images are too few for it."""


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
    untrained: (N, E) features of the same network with random weights.
    boxes: (N, 4) float64 of the object in its whole image, see `Split`; nan for rows of no object.
    groups: (N,) int64, equal for images of one object, which judge no other of it; None: each image is one.
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
    untrained: Tensor | None = None
    boxes: Tensor | None = None
    groups: Tensor | None = None
    seed: int = 0
    shift: Tensor | None = None
    origin: "Sample | None" = None
    dim: int = 0
    ones: Tensor | None = None
    diagonal: Tensor | None = None
    largest: float | None = None

    def __len__(self) -> int:
        return len(next(array for array in (self.x, self.y, self.targets) if array is not None))

    def given(self, need: str) -> Any:
        """Return an input by its name in NEEDS of a metric; None if it is missing."""
        return self.x if need == "features" else getattr(self, need)

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
    def labels_or_one(self) -> tuple[Tensor, int]:
        """Labels (N,) and C; if the labels are not classes, all rows are one class."""
        if self.y is not None:
            return self.y, self.n_classes
        return torch.zeros(len(self), dtype=torch.int64, device=self.device), 1

    @property
    def device(self) -> torch.device:
        return next(array for array in (self.x, self.y, self.targets) if array is not None).device

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
        """Counts, means and variances of the classes, or of all rows as one class; O(N D).

        In two passes over the blocks: variances are about the means, so a large offset costs no digits.
        """
        if self.origin is not None:
            return self.origin.moments.move(self.shift)
        y, c = self.labels_or_one
        counts = torch.bincount(y, minlength=c).double()
        means = torch.zeros(c, self.x.shape[1], dtype=torch.float64, device=self.device)
        squares = torch.zeros_like(means)
        for rows, x in self.blocks():
            means.index_add_(0, y[rows], x)
        means /= counts[:, None]
        for rows, x in self.blocks():
            squares.index_add_(0, y[rows], x.sub_(means[y[rows]]).square_())
        return ClassMoments(counts, means, squares / counts[:, None]).settle()

    @cached_property
    def scatter(self) -> Scatter:
        """Within-class and total scatter (D, D), with the latter's eigenvectors on demand; one pass of O(N D^2)."""
        if self.origin is not None:
            return self.origin.scatter.move(self.shift)
        y, _ = self.labels_or_one
        moments, d = self.moments, self.x.shape[1]
        within = torch.zeros(d, d, dtype=torch.float64, device=self.device)
        for rows, x in self.blocks():
            add_upper_gram(within, x.sub_(moments.means[y[rows]]))
        within = mirror_upper(within)
        still = (moments.variances == 0).all(0)  # in every class: the rest is rounding of the means
        if still.any():
            within[still] = 0
            within[:, still] = 0
        return Scatter(moments, within, self.diagonal)

    def once(self, name: str, make: Callable[[], Any]) -> Any:
        """Return a value shared by several metrics: made on the first call, cached with the sample."""
        values = vars(self).setdefault("_kept", {})
        if name not in values:
            values[name] = make()
        return values[name]

    @cached_property
    def compact(self) -> "Sample":
        """Return the same rows in a basis of at most N dimensions: itself if D <= N.

        All distances and inner products stay; `dim` and `ones` keep information about the D dimensions.
        """
        if self.x.shape[1] <= len(self) or self.dim != self.x.shape[1]:
            return self
        x, ones, diagonal = _compress(self.features)
        return replace(self, x=x, shift=None, origin=None, ones=ones, diagonal=diagonal, reference=None)

    def principal_coordinates(self, dims: int) -> Tensor:
        """Return the centred rows (N, dims) float64 on the `dims` axes of largest variance, the largest first."""
        rows = self.compact
        mean = rows.scatter.moments.mean
        axes = rows.scatter.eigenbasis.leading(dims).flip(1)
        return torch.cat([(x - mean) @ axes for _, x in rows.blocks()])

    def move(self, shift: Tensor) -> "Sample":
        """Return the sample with each class shifted rigidly. shift: (C, D)."""
        if self.origin is not None:
            return self.origin.move(self.shift + shift)
        if self.shift is not None:  # a part of a moved sample
            return replace(self, shift=None).move(self.shift + shift)
        largest = None if self.largest is None else self.largest + float(shift.abs().max())
        return replace(self, shift=shift, origin=self, diagonal=None, largest=largest)

    def take(self, rows: Tensor) -> "Sample":
        """Select rows (n,) int64; classes that do not occur in them are dropped."""
        y, classes, shift = None, (), None
        if self.y is not None:
            present, y = torch.unique(self.y[rows], return_inverse=True)
            classes = tuple(self.classes[k] for k in present.tolist())
            shift = None if self.shift is None else self.shift[present]
        parts = {name: getattr(self, name) for name in ("x", "targets", "source_probs", "untrained", "boxes", "groups")}
        picked = {name: None if array is None else array[rows] for name, array in parts.items()}
        return replace(self, y=y, classes=classes, shift=shift, origin=None, diagonal=None, **picked)

    def generator(self, purpose: str) -> torch.Generator:
        """Return a CPU generator for one purpose, independent of other purposes."""
        digest = hashlib.sha256(f"{self.seed} {purpose}".encode()).digest()
        return torch.Generator().manual_seed(int.from_bytes(digest[:7], "big"))


def check_scale(sample: Sample) -> None:
    """Raise UserError if fourth moments of the features are out of float64's range."""
    largest = sample.largest
    if not largest:  # unknown, or all zeros
        return
    if not largest <= DOUBLE.max**0.25 / sample.x.numel() ** 0.5:
        raise UserError(
            f"features are as large as {largest:.3g}: sums of their squares overflow float64; divide all of them"
        )
    if largest < SMALLEST:
        raise UserError(f"features are at most {largest:.3g}: their squares underflow float64; multiply all of them")


def _compress(x: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    """Return rows (N, r), r <= N, and (1, ..., 1) on the rows' principal axes, and the total scatter (r,) along each.

    x: (N, D), centred in place. From its N x N Gram; the mean gets its own direction, with scatter 0.
    """
    n = len(x)
    mean = (x - x[0]).mean(0) + x[0]  # exact for constant columns
    x -= mean
    values, vectors = torch.linalg.eigh(x @ x.T)
    noise = n * float(mean_rounding(mean, n).square().sum())
    is_above_noise = values > max(float(values[-1]) * n * EPS, noise)
    values = values[is_above_noise]
    lengths, u = values.sqrt(), vectors[:, is_above_noise]
    inside = torch.stack([mean, torch.ones_like(mean)], 1)
    inside = (u / lengths).T @ (x @ inside)  # (r, 2): Q'm and Q'1, as Q = X'U / lengths
    rest = (mean @ mean - inside[:, 0] @ inside[:, 0]).clamp_min(0).sqrt()  # of the mean, outside the rows' span
    precision = (max(x.shape) * EPS) ** 0.5 * mean.norm()  # precision of a root of a difference of squares
    ones = (mean.sum() - inside[:, 1] @ inside[:, 0]) / rest if rest > precision else rest * 0
    rows = torch.cat([u * lengths + inside[:, 0], rest.expand(len(x), 1)], 1)
    return rows, torch.cat([inside[:, 1], ones[None]]), torch.cat([values, values.new_zeros(1)])
