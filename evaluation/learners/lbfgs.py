"""L-BFGS for L2-penalised linear classifiers: a diagonal first matrix, and line searches without matrix products.

f(theta) = 1/N sum_i loss(theta x_i, y_i) + lambda/2 |W|^2, theta = (W, b), x_i in principal axes with a last entry 1.

In these axes the Hessian of the softmax loss is at most 1/2 diag(mean of x^2) for every class (Böhning 1992). With the
1/2 replaced by the mean of the class's p (1 - p) this is the first matrix of the two-loop recursion (Nocedal and
Wright 2006, algorithm 7.4). The logits are linear in the step, so a search along it costs O(N K), and an iteration two
products.
"""

from collections import deque
from collections.abc import Callable
from dataclasses import dataclass

import torch
from torch import Tensor

MEMORY = 10  # curvature pairs
SLOPE = 0.9  # a search ends when |slope| is below this share of the first one
SEARCHES = 40
ROUNDING = 1e-10  # apparent increase of f that a step may have

Loss = Callable[[Tensor], tuple[float, Tensor]]


@dataclass(frozen=True)
class Axes:
    """Features in their principal axes, where X^T X / N is diagonal.

    x: (N, r + 1), r = min(N, D), the last column 1. moments: (r + 1,) the mean square of each column, float64.
    mean: (D,) and basis: (D, r), float64, map back.
    """

    x: Tensor
    moments: Tensor
    mean: Tensor
    basis: Tensor

    def turned(self, weight: Tensor, bias: Tensor) -> Tensor:
        """Return theta (K, r + 1) of the classifier weight (K, D), bias (K,)."""
        return torch.cat([weight @ self.basis, (bias + weight @ self.mean)[:, None]], 1)

    def back(self, theta: Tensor) -> tuple[Tensor, Tensor]:
        """Return weight (K, D) and bias (K,) of theta."""
        weight = theta[:, :-1] @ self.basis.T
        return weight, theta[:, -1] - weight @ self.mean


def principal_axes(x: Tensor) -> Axes:
    """Centre features (N, D) and rotate them into their principal axes; for N < D the zero axes are left out.

    x: float64; on other devices than the CPU the rotated features are float32.
    """
    mean = x.mean(0)
    x = x - mean
    span = torch.linalg.qr(x.T).Q if len(x) < x.shape[1] else None
    inner = x if span is None else x @ span
    vectors = torch.linalg.eigh(inner.T @ inner).eigenvectors
    turned = torch.cat([inner @ vectors, x.new_ones(len(x), 1)], 1)
    moments = turned.square().mean(0)
    turned = turned if x.device.type == "cpu" else turned.float()
    return Axes(turned, moments, mean, vectors if span is None else span @ vectors)


def softmax_loss(y: Tensor) -> Loss:
    """Cross-entropy of logits (K, N) with labels y: (N,) int64: its mean, and the residual softmax - one-hot (K, N)."""
    columns = torch.arange(len(y), device=y.device)

    def loss(logits: Tensor) -> tuple[float, Tensor]:
        top = logits.amax(0)
        p = (logits - top).exp_()
        total = p.sum(0)
        mean = (total.log().add_(top).sum() - logits[y, columns].sum()).item() / len(y)
        p.div_(total)[y, columns] -= 1
        return mean, p

    return loss


def sigmoid_loss(y: Tensor) -> Loss:
    """Binary cross-entropy of logits (K, N) with y: (N, K) of 1, -1, 0 (does not count), summed over K, mean over N."""
    sign = y.T.double().contiguous()
    counts = sign.abs()

    def loss(logits: Tensor) -> tuple[float, Tensor]:
        margin = sign * logits
        value = (torch.nn.functional.softplus(-margin) * counts).sum().item() / len(y)
        return value, -sign * torch.sigmoid(-margin)

    return loss


@dataclass
class State:
    """A point, reused along a path of penalties. theta: (K, r + 1). logits, residual: (K, N)."""

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
    logits = _logits(axes, theta)
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
    state.logits = _logits(axes, state.theta)
    state.loss, state.residual = loss(state.logits)
    pairs: deque = deque(maxlen=MEMORY)
    gradient = _gradient(axes, state, weights)
    for n_iter in range(max_iter + 1):
        value = _value(state, weights)
        gap = _bound(gradient, state.theta, penalty) / value
        if gap <= tol or n_iter == max_iter:
            break
        direction = -_two_loop(gradient, pairs, _curvature(state, axes) + weights)
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


def _logits(axes: Axes, theta: Tensor) -> Tensor:
    return (theta.to(axes.x.dtype) @ axes.x.T).double()


def _gradient(axes: Axes, state: State, weights: Tensor) -> Tensor:
    products = state.residual.to(axes.x.dtype) @ axes.x
    return products.double() / len(axes.x) + weights * state.theta


def _value(state: State, weights: Tensor) -> float:
    return state.loss + (weights * state.theta.square()).sum().item() / 2


def _bound(gradient: Tensor, theta: Tensor, penalty: float) -> float:
    intercept = gradient[:, -1].norm() * theta[:, -1].norm().clamp_min(1)
    return (gradient[:, :-1].square().sum() / (2 * penalty) + intercept).item()


def _curvature(state: State, axes: Axes) -> Tensor:
    """Return the loss's curvature (K, r + 1) for each class and axis, with p (1 - p) replaced by its mean."""
    size = state.residual.abs()  # 1 - p of the true class, p of the others
    return (size - size.square()).mean(1, keepdim=True).clamp_min(1e-12) * axes.moments


def _two_loop(gradient: Tensor, pairs: deque, diagonal: Tensor) -> Tensor:
    """Return inverse Hessian times gradient. diagonal: (K, r + 1) of the first matrix, scaled by the last pair."""
    q, kept = gradient.clone(), []
    for step, change in reversed(pairs):
        rho = 1 / (step * change).sum()
        alpha = rho * (step * q).sum()
        q -= alpha * change
        kept.append((step, change, rho, alpha))
    q /= diagonal
    if kept:
        _, change, rho, _ = kept[0]
        q /= rho * (change.square() / diagonal).sum()
    for step, change, rho, alpha in reversed(kept):
        q += (alpha - rho * (change * q).sum()) * step
    return q


def _search(axes: Axes, loss: Loss, state: State, direction: Tensor, weights: Tensor) -> Tensor | None:
    """Search along the direction for a small slope (approximate Wolfe conditions of Hager and Zhang 2005).

    f is convex, so its slope increases: the interval with slope 0 is found by growth and narrowed by secants.
    Returns the step, None if the slope is lost in rounding.
    """
    along, n = _logits(axes, direction), len(axes.x)
    linear = (weights * direction * state.theta).sum().item()
    quadratic = (weights * direction.square()).sum().item()
    start, value = (state.residual * along).sum().item() / n + linear, _value(state, weights)
    (low, low_slope), high, t = (0.0, start), None, 1.0
    for _ in range(SEARCHES if start < 0 else 0):
        logits = torch.add(state.logits, along, alpha=t)
        reached, residual = loss(logits)
        slope = (residual * along).sum().item() / n + linear + t * quadratic
        moved = State(state.theta + t * direction, logits, reached, residual)
        if slope < SLOPE * start:
            low, low_slope = t, slope
        elif slope > -SLOPE * start or _value(moved, weights) > value * (1 + ROUNDING) + ROUNDING:
            high = (t, slope)
        else:
            vars(state).update(vars(moved))
            return t * direction
        t = _grown(t, slope, start) if high is None else _secant(low, low_slope, *high)
    return None


def _grown(t: float, slope: float, start: float) -> float:
    """Return a longer step, by linear extrapolation of the slope to 0: 2 to 10 times as long."""
    reach = t * start / (start - slope) if slope > start else 10 * t
    return min(max(reach, 2 * t), 10 * t)


def _secant(low: float, low_slope: float, high: float, high_slope: float) -> float:
    """Return the step at which the linearly interpolated slope is 0, not too near to either end."""
    margin = (high - low) / 10
    zero = low + (high - low) * low_slope / (low_slope - high_slope) if high_slope > low_slope else low
    return min(max(zero, low + margin), high - margin)
