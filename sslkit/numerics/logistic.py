"""Logistic regression with an L2 penalty and a free intercept, solved to a guaranteed tolerance.

minimise  1/2 |W|^2 + c * sum_i CE(W x_i + b, y_i)

is scikit-learn's objective, with K rows for two classes as well. The solver is `sslkit.numerics.lbfgs`, on the same
function divided by c N: the penalty there is 1 / (c N).
"""

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import torch
from torch import Tensor

from sslkit.errors import UserError
from sslkit.numerics.lbfgs import Axes, Loss, begin, minimise, principal_axes, sigmoid_loss, softmax_loss
from sslkit.numerics.ties import top_class

BLOCK = 4096  # rows: 64 MB of 2,048 features in float64
STRENGTH = 1.0  # c where none is given, scikit-learn's default of C
# Of (objective - optimum) / objective, far below what moves an accuracy; an end for weak penalties, whose result says
# that it did not converge.
DEFAULT_TOL, DEFAULT_ITER = 1e-6, 2000


@dataclass(frozen=True, eq=False)
class Probe:
    """A fitted linear classifier.

    weight: (K, D) and bias: (K,) float64. classes: (K,) the original labels, in order.
    objective: 1/2 |W|^2 + c * sum CE. gap: upper bound of (objective - optimum) / objective.
    converged: True if gap is at most the tolerance. gradient_norm: Euclidean, of objective / (c N).
    n_iter: L-BFGS steps for this c.
    """

    weight: np.ndarray
    bias: np.ndarray
    classes: np.ndarray
    c: float
    objective: float
    gap: float
    gradient_norm: float
    converged: bool
    n_iter: int

    def scores(self, x: Any) -> np.ndarray:
        """Return logits (N, K) float64. x: (N, D), read in blocks."""
        if np.ndim(x) != 2 or x.shape[1] != self.weight.shape[1]:
            raise UserError(f"this probe takes rows of {self.weight.shape[1]} features, got {np.shape(x)}")
        scores = np.empty((len(x), len(self.bias)))
        for start in range(0, len(x), BLOCK):
            rows = x[start : start + BLOCK]
            rows = np.asarray(rows.detach().double().cpu() if isinstance(rows, Tensor) else rows, dtype=np.float64)
            scores[start : start + BLOCK] = rows @ self.weight.T + self.bias
        return scores

    def predict(self, x: Any) -> np.ndarray:
        """Return the predicted original labels (N,); the first class among scores equal up to rounding."""
        return self.classes[top_class(self.scores(x))]


@dataclass(frozen=True, eq=False)
class Problem:
    """Rows and labels, ready to be fitted with any strength. classes: (K,). centred: shift the biases to mean 0."""

    axes: Axes
    loss: Loss
    classes: np.ndarray
    centred: bool

    def fit(
        self,
        c: float,
        *,
        tol: float = DEFAULT_TOL,
        max_iter: int = DEFAULT_ITER,
        start: Probe | None = None,
        promise: float = 0.0,
    ) -> Probe:
        """Minimise 1/2 |W|^2 + c * loss; see `fit_path`."""
        _check(c=c, tol=tol, max_iter=max_iter)
        n = len(self.axes.x)
        state = begin(self.axes, self.loss, self._first(start))
        optimum = minimise(self.axes, self.loss, state, 1 / (c * n), tol, max_iter, promise)
        weight, bias = (x.cpu().numpy() for x in self.axes.back(state.theta))
        return Probe(
            weight,
            bias - bias.mean() if self.centred else bias,
            self.classes,
            float(c),
            objective=optimum.value * c * n,
            gap=optimum.gap,
            gradient_norm=optimum.gradient_norm,
            converged=optimum.gap <= tol,
            n_iter=optimum.n_iter,
        )

    def with_precision(self, precision: torch.dtype) -> "Problem":
        """Return the same problem, with logits and products of another precision."""
        return replace(self, axes=replace(self.axes, precision=precision))

    def _first(self, start: Probe | None) -> Tensor:
        if start is None:
            return self.axes.moments.new_zeros(len(self.classes), len(self.axes.moments))
        if start.weight.shape != (len(self.classes), len(self.axes.mean)) or list(start.classes) != list(self.classes):
            raise UserError("start is a probe of other classes or of another number of features")
        weight, bias = (torch.from_numpy(x).to(self.axes.mean) for x in (start.weight, start.bias))
        return self.axes.to_theta(weight, bias)


def softmax_problem(x: Tensor, y: Sequence, precision: torch.dtype) -> Problem:
    """Return the problem of one label a row. x: (N, D) float32 or float64, which is overwritten. y: see `fit_logistic`.

    precision: of the logits and products.
    """
    classes, labels = number_labels(y)
    if len(classes) < 2:
        raise UserError(f"a classifier needs two classes, these {len(labels)} labels have {len(classes)}: {classes}")
    loss = softmax_loss(torch.from_numpy(labels).to(x.device))
    return Problem(principal_axes(x, precision), loss, classes, centred=True)  # only differences are determined


def sigmoid_problem(x: Tensor, y: Any, precision: torch.dtype) -> Problem:
    """Return the problem of K binary classifiers: 1/2 |w_k|^2 + c * sum log(1 + exp(-y_ik (w_k x_i + b_k))), summed.

    y: (N, K) of 1, -1, 0 (does not count). Other arguments as in `softmax_problem`.
    Raises UserError for a class without a positive or without a negative row.
    """
    y = np.asarray(y.cpu() if isinstance(y, Tensor) else y)
    for k in range(y.shape[1]):
        if not ((y[:, k] > 0).any() and (y[:, k] < 0).any()):
            have = f"{int((y[:, k] > 0).sum())} with it and {int((y[:, k] < 0).sum())} without"
            raise UserError(f"class number {k} needs rows with it and rows without it, these {len(y)} have {have}")
    loss = sigmoid_loss(torch.from_numpy(y).to(x.device))
    return Problem(principal_axes(x, precision), loss, np.arange(y.shape[1]), centred=False)


def fit_logistic(
    x: Any,
    y: Sequence,
    c: float = STRENGTH,
    *,
    tol: float = DEFAULT_TOL,
    max_iter: int = DEFAULT_ITER,
    start: Probe | None = None,
    device: str = "cpu",
) -> Probe:
    """Minimise 1/2 |W|^2 + c * sum CE.

        probe = evaluation.fit_logistic(x, y, c=1.0)

    x: (N, D) array or tensor of any float type. y: (N,) hashable labels; -1 is an ordinary label; the order of the
    rows does not matter.
    c: weight of the loss, summed over rows, against the penalty. tol: bound of (objective - optimum) / objective.
    start: a probe of the same classes and features, to start from; None: zeros. max_iter: of steps; see `converged`.
    device: "cpu" computes in float64; other devices in float32, with sums over rows in float64.
    For two classes: rows -w/2 and w/2 of scikit-learn's binary w with C = 2 c, at half its objective.
    Raises UserError for NaN, rows of x that are all equal, fewer than two classes, and shapes, c or tol out of range.
    """
    return next(fit_path(x, y, [c], tol=tol, max_iter=max_iter, start=start, device=device))


def fit_path(
    x: Any,
    y: Sequence,
    cs: Iterable[float],
    *,
    tol: float = DEFAULT_TOL,
    max_iter: int = DEFAULT_ITER,
    start: Probe | None = None,
    promise: float = 0.0,
    device: str,
) -> Iterator[Probe]:
    """Run `fit_logistic` for several c, each started from the last: fastest for increasing c.

    promise: also stop if the next step is predicted to lower the objective by less than this share of it; at weak
    penalties proving the optimum takes far longer than approaching it.
    """
    cs = _check_options(cs, tol, max_iter)
    rows = copy_rows(x, _length(y), device)
    exact = torch.float64 if rows.device.type == "cpu" else torch.float32  # slow on most GPUs, and not on Apple's
    return _path(softmax_problem(rows, y, exact), cs, tol, max_iter, promise, start)


def number_labels(y: Sequence) -> tuple[np.ndarray, np.ndarray]:
    """Return the sorted classes (K,) and the class indices (N,) int64.

    y: (N,) hashable; values that cannot be compared are sorted by type and name.
    """
    y = y.cpu().numpy() if isinstance(y, Tensor) else y
    if isinstance(y, np.ndarray) and y.dtype != object:
        classes, labels = np.unique(y, return_inverse=True)
        return classes, labels.astype(np.int64)
    try:
        kinds = sorted(set(y))
    except TypeError:
        kinds = sorted(set(y), key=lambda label: (type(label).__name__, repr(label)))
    index = {label: number for number, label in enumerate(kinds)}
    classes = np.empty(len(kinds), dtype=object)
    classes[:] = kinds
    return classes, np.array([index[label] for label in y], dtype=np.int64)


def copy_rows(x: Any, labels: int, device: str) -> Tensor:
    """Return a copy (N, D) of features on the device, float32 if they have at most that precision, else float64.

    Raises UserError for NaN, rows that are all equal, and a number of rows other than `labels`.
    """
    x = x.detach() if isinstance(x, Tensor) else torch.from_numpy(np.array(x))
    narrow = x.dtype in (torch.float32, torch.float16, torch.bfloat16) or device != "cpu"
    x = x.to(device, torch.float32 if narrow else torch.float64, copy=True)
    if x.dim() != 2 or 0 in x.shape or len(x) != labels:
        raise UserError(f"features must be (N, D) with one label a row, got {tuple(x.shape)} and {labels} labels")
    if not x.isfinite().all():
        row = int((~x.isfinite().all(1)).nonzero()[0])
        raise UserError(f"features are NaN or infinite, the first in row {row}")
    if len(x) > 1 and bool((x == x[0]).all()):
        raise UserError(f"all {len(x)} rows of features are equal: they cannot predict the labels")
    return x


def _path(
    problem: Problem, cs: list[float], tol: float, max_iter: int, promise: float, start: Probe | None
) -> Iterator[Probe]:
    for c in cs:
        start = problem.fit(c, tol=tol, max_iter=max_iter, start=start, promise=promise)
        yield start


def _check_options(cs: Iterable[float], tol: float, max_iter: int) -> list[float]:
    cs = [float(c) for c in cs]
    for c in cs:
        _check(c=c, tol=tol, max_iter=max_iter)
    return cs


def _check(**positive: float) -> None:
    for name, value in positive.items():
        if not (np.isfinite(value) and value > 0):
            raise UserError(f"{name}={value!r} must be a number above 0")


def _length(y: Any) -> int:
    if isinstance(y, str | bytes) or not hasattr(y, "__len__") or getattr(y, "shape", None) == ():
        raise UserError(f"y must be one label for each row of features, not the single label {y!r}")
    return len(y)
