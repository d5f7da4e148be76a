"""L-BFGS for L2-penalised linear classifiers: a diagonal first matrix, and line searches without matrix products.

f(theta) = 1/N sum_i loss(theta x_i, y_i) + lambda/2 |W|^2, theta = (W, b), x_i in principal axes with a last entry 1.

In these axes the Hessian of the softmax loss is at most 1/2 diag(mean of x^2) for every class (Böhning 1992). With the
1/2 replaced by the mean of the class's p (1 - p) this is the first matrix of the two-loop recursion (Nocedal and
Wright 2006, algorithm 7.4). The logits are linear in the step, so a search along it costs O(N K), and an iteration two
products. theta and all sums over rows are float64, whatever the precision of the rows.
"""

from collections import deque
from collections.abc import Callable, Iterator
from dataclasses import dataclass

import torch
from torch import Tensor
from torch.nn.functional import log_softmax, softplus

MEMORY = 10  # curvature pairs, the usual number (scipy's default)
SLOPE = 0.9  # a search ends when |slope| is below this share of the first one: the usual one of quasi-Newton methods
SEARCHES = 40  # trials of a line search: growth and secants need a handful, and after so many the slope is rounding
ROUNDING = 1e-10  # apparent increase of f that a step may have
BLOCK = 4096  # rows at a time: their sums are added in float64

Loss = Callable[[Tensor], tuple[float, Tensor]]


@dataclass(frozen=True)
class Axes:
    """Features in their principal axes, where X^T X / N is diagonal.

    x: (N, r), r = min(N, D). moments: (r + 1,) the mean square of each column and of a column of ones, float64.
    mean: (D,) and basis: (D, r), float64, map back. precision: of the logits and of products with x.
    """

    x: Tensor
    moments: Tensor
    mean: Tensor
    basis: Tensor
    precision: torch.dtype

    def to_theta(self, weight: Tensor, bias: Tensor) -> Tensor:
        """Return theta (K, r + 1) of the classifier weight (K, D), bias (K,)."""
        return torch.cat([weight @ self.basis, (bias + weight @ self.mean)[:, None]], 1)

    def back(self, theta: Tensor) -> tuple[Tensor, Tensor]:
        """Return weight (K, D) and bias (K,) of theta."""
        weight = theta[:, :-1] @ self.basis.T
        return weight, theta[:, -1] - weight @ self.mean

    def logits(self, theta: Tensor) -> Tensor:
        """Return the logits (N, K) of theta (K, r + 1)."""
        weight, bias = theta[:, :-1].T.to(self.precision), theta[:, -1].to(self.precision)
        out = torch.empty(len(self.x), len(theta), dtype=self.precision, device=self.x.device)
        for rows in _blocks(self.x):
            torch.addmm(bias, self.x[rows].to(self.precision), weight, out=out[rows])
        return out

    def mean_products(self, residual: Tensor) -> Tensor:
        """Return the mean (K, r + 1) over the rows of residual (N, K) times (x, 1)."""
        products = self.moments.new_zeros(residual.shape[1], len(self.moments))
        ones = residual.new_ones(BLOCK)
        for rows in _blocks(self.x):
            products[:, :-1] += residual[rows].T @ self.x[rows].to(self.precision)
            products[:, -1] += residual[rows].T @ ones[: len(residual[rows])]
        return products / len(self.x)


def principal_axes(x: Tensor, precision: torch.dtype = torch.float64) -> Axes:
    """Centre features (N, D) and rotate them into their principal axes; for N < D the zero axes are left out.

    x: float32 or float64; it is overwritten, and remains in memory as the rotated features.
    """
    mean = sum(x[rows].sum(0, dtype=torch.float64) for rows in _blocks(x)) / len(x)
    for rows in _blocks(x):
        x[rows] = (x[rows] - mean).to(x)
    if len(x) < x.shape[1]:
        span = torch.linalg.qr(x.T.double()).Q
        x = (x.double() @ span).to(x)
    gram = sum(block.T @ block for rows in _blocks(x) for block in (x[rows].double(),))
    vectors = torch.linalg.eigh(gram).eigenvectors
    moments = vectors.new_ones(len(vectors) + 1)
    moments[:-1] = 0
    for rows in _blocks(x):
        x[rows] = (x[rows].double() @ vectors).to(x)
        moments[:-1] += x[rows].double().square().sum(0) / len(x)
    return Axes(x, moments, mean, vectors if len(vectors) == len(mean) else span @ vectors, precision)


def softmax_loss(y: Tensor) -> Loss:
    """Cross-entropy of logits (N, K) with labels y: (N,) int64: its mean, and the residual softmax - one-hot (N, K)."""
    rows = torch.arange(len(y), device=y.device)

    def loss(logits: Tensor) -> tuple[float, Tensor]:
        residual = log_softmax(logits, 1)
        mean = -residual[rows, y].sum(dtype=torch.float64).item() / len(y)
        residual.exp_()[rows, y] -= 1
        return mean, residual

    return loss


def sigmoid_loss(y: Tensor) -> Loss:
    """Binary cross-entropy of logits (N, K) with y: (N, K) of 1, -1, 0 (does not count), summed over K, mean over N."""

    def loss(logits: Tensor) -> tuple[float, Tensor]:
        margin = y * logits
        value = _product(softplus(-margin), y.abs().to(margin)) / len(y)
        return value, torch.sigmoid(margin.neg_()).mul_(-y)

    return loss


def _product(a: Tensor, b: Tensor) -> float:
    """Return the sum of products of (N, K), over blocks of rows in float64."""
    return sum(torch.dot(a[rows].flatten(), b[rows].flatten()).double() for rows in _blocks(a)).item()


def _blocks(x: Tensor) -> Iterator[slice]:
    return (slice(start, start + BLOCK) for start in range(0, len(x), BLOCK))


@dataclass
class State:
    """A point, reused along a path of penalties. theta: (K, r + 1). logits, residual: (N, K)."""

    theta: Tensor
    logits: Tensor
    loss: float
    residual: Tensor


@dataclass(frozen=True)
class Minimum:
    """value: f. gap: a bound on (f - optimum) / f. gradient_norm: Euclidean, of f. n_iter: steps made."""

    value: float
    gap: float
    gradient_norm: float
    n_iter: int


def begin(axes: Axes, loss: Loss, theta: Tensor) -> State:
    """Return the state at theta."""
    logits = axes.logits(theta)
    return State(theta, logits, *loss(logits))


def minimise(
    axes: Axes, loss: Loss, state: State, penalty: float, tol: float, max_iter: int, promise: float = 0.0
) -> Minimum:
    """Move `state` to the minimum of f: until gap <= tol, for max_iter steps, or as far as rounding allows.

    penalty: lambda. promise: also stop if the next step is predicted to lower f by less than this share of it.
    The gap is bounded by |dW|^2 / (2 lambda), as f is lambda-strongly convex in W, plus |db| max(1, |b|) for the
    intercept, (dW, db) being the gradient.
    """
    weights = torch.full_like(axes.moments, penalty)
    weights[-1] = 0
    pairs: deque = deque(maxlen=MEMORY)
    gradient = _gradient(axes, state, weights)
    for n_iter in range(max_iter + 1):
        value = _value(state, weights)
        intercept = gradient[:, -1].norm() * state.theta[:, -1].norm().clamp_min(1)
        gap = (gradient[:, :-1].square().sum() / (2 * penalty) + intercept).item() / value
        if gap <= tol or n_iter == max_iter:
            break
        if n_iter & (n_iter - 1) == 0:  # 0, 1, 2, 4, 8, ...
            diagonal = _curvature(state, axes) + weights
        direction = -_two_loop(gradient, pairs, diagonal)
        if -(gradient * direction).sum().item() / 2 < promise * value:
            break
        step = _search(axes, loss, state, direction, weights)
        if step is None:
            break
        new = _gradient(axes, state, weights)
        if (step * (new - gradient)).sum() > 0:
            pairs.append((step, new - gradient))
        gradient = new
    return Minimum(value, gap, gradient.norm().item(), n_iter)


def _gradient(axes: Axes, state: State, weights: Tensor) -> Tensor:
    return axes.mean_products(state.residual) + weights * state.theta


def _value(state: State, weights: Tensor) -> float:
    return state.loss + (weights * state.theta.square()).sum().item() / 2


def _curvature(state: State, axes: Axes) -> Tensor:
    """Return the loss's curvature (K, r + 1) for each class and axis, with p (1 - p) replaced by its mean."""
    sizes = (state.residual[rows].abs() for rows in _blocks(state.residual))  # 1 - p of the true class, p of others
    mean = sum((size - size.square()).sum(0, dtype=torch.float64) for size in sizes) / len(state.residual)
    return mean.clamp_min(1e-12)[:, None] * axes.moments


def _two_loop(gradient: Tensor, pairs: deque, diagonal: Tensor) -> Tensor:
    """Return inverse Hessian times gradient. diagonal: (K, r + 1) of the first matrix, scaled by the last pair."""
    q, steps = gradient.clone(), []
    for step, change in reversed(pairs):
        rho = 1 / (step * change).sum()
        alpha = rho * (step * q).sum()
        q -= alpha * change
        steps.append((step, change, rho, alpha))
    q /= diagonal
    if steps:
        _, change, rho, _ = steps[0]
        q /= rho * (change.square() / diagonal).sum()
    for step, change, rho, alpha in reversed(steps):
        q += (alpha - rho * (change * q).sum()) * step
    return q


def _search(axes: Axes, loss: Loss, state: State, direction: Tensor, weights: Tensor) -> Tensor | None:
    """Search along the direction for a small slope (approximate Wolfe conditions of Hager and Zhang 2005).

    f is convex, so its slope increases: the interval with slope 0 is found by growth and narrowed by secants.
    Returns the step, None if the slope is lost in rounding.
    """
    along, n = axes.logits(direction), len(axes.x)
    linear = (weights * direction * state.theta).sum().item()
    quadratic = (weights * direction.square()).sum().item()
    start, value = _product(state.residual, along) / n + linear, _value(state, weights)
    (low, low_slope), high, t = (0.0, start), None, 1.0
    del state.residual  # it is as large as the logits, and no longer needed
    for _ in range(SEARCHES if start < 0 else 0):
        moved = None  # frees the arrays of the last trial
        moved = _step(state, loss, t, direction, along)
        slope = _product(moved.residual, along) / n + linear + t * quadratic
        if slope < SLOPE * start:
            low, low_slope = t, slope
        elif slope > -SLOPE * start or _value(moved, weights) > value * (1 + ROUNDING) + ROUNDING:
            high = (t, slope)
        else:
            vars(state).update(vars(moved))
            return t * direction
        t = _grown(t, slope, start) if high is None else _secant(low, low_slope, *high)
    return None


def _step(state: State, loss: Loss, t: float, direction: Tensor, along: Tensor) -> State:
    logits = torch.add(state.logits, along, alpha=t)
    return State(state.theta + t * direction, logits, *loss(logits))


def _grown(t: float, slope: float, start: float) -> float:
    """Return a longer step, by linear extrapolation of the slope to 0: 2 to 10 times as long."""
    reach = t * start / (start - slope) if slope > start else 10 * t
    return min(max(reach, 2 * t), 10 * t)


def _secant(low: float, low_slope: float, high: float, high_slope: float) -> float:
    """Return the step at which the linearly interpolated slope is 0, not too near to either end."""
    margin = (high - low) / 10
    zero = low + (high - low) * low_slope / (low_slope - high_slope) if high_slope > low_slope else low
    return min(max(zero, low + margin), high - margin)
