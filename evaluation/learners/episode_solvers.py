"""The classifiers of few-shot episodes, for many episodes at once, from the Gram matrices of their images.

Each is linear in the features x: the scores of a query are sum_i <x, x_i> A_i + b over the support images i.
A is (E, n, K) for E episodes of n support images and K classes, b is (E, 1, K).
"""

from dataclasses import dataclass

import torch
from torch import Tensor

from sslkit.numerics.ties import search_error

CLASSIFIERS = ("logistic", "ridge", "nearest_centroid")
# Of the residual in float64, far below what moves a label; the end of an episode that does not converge, which is
# told; most steps need no look.
TOLERANCE, MAX_STEPS, CHECK_EVERY = 1e-8, 5000, 5
CHUNK = 2_000_000  # numbers gathered at a time: chunks that fit in the cache are twice as fast as large ones


@dataclass(frozen=True)
class Solved:
    """labels: {classifier: (E, queries) int64, the predicted way of each query}. residual: (E,) of the logistic
    regression, see `logistic`. steps: maximum over the chunks of episodes."""

    labels: dict[str, Tensor]
    residual: Tensor
    steps: int

    @property
    def has_converged(self) -> Tensor:
        """(E,) bool."""
        return self.residual <= TOLERANCE


def solve_episodes(x: Tensor, rows: Tensor, k_shot: int, c: float) -> Solved:
    """Run every classifier on every episode, in float64 except the inner products, which have the type of x.

    Of scores that are equal up to rounding, the first way is chosen.
    x: (N, D), float32 for rows of length 1, float64 for rows that may be long.
    rows: (E, way, shot + query) int64, of x; the first k_shot of each way are its support.
    c: weight of the loss against the squared weights, as scikit-learn's C. Memory beyond x: about 50 MB.
    """
    episodes, n_way, _ = rows.shape
    images = torch.cat([rows[:, :, :k_shot].flatten(1), rows[:, :, k_shot:].flatten(1)], dim=1)
    target = torch.eye(n_way, dtype=torch.float64, device=x.device).repeat_interleave(k_shot, 0)
    chunk = max(1, CHUNK // (images.shape[1] * x.shape[1]))
    solved = [_solve_chunk(x[images[e : e + chunk]], target, c) for e in range(0, episodes, chunk)]
    return Solved(
        {name: torch.cat([chunk.labels[name] for chunk in solved]) for name in CLASSIFIERS},
        torch.cat([chunk.residual for chunk in solved]),
        max(chunk.steps for chunk in solved),
    )


def _solve_chunk(x: Tensor, target: Tensor, c: float) -> Solved:
    """Solve a chunk. x: (E, support + query, D). In float32, episodes with near ties are solved again in float64."""
    n, width = len(target), x.shape[-1]
    products = (x @ x[:, :n].mT).double()
    gram, cross = products[:, :n], products[:, n:]
    a, b, residual, steps = logistic(gram, target, c)
    machines = {"logistic": (a, b), "ridge": ridge(gram, target, c), "nearest_centroid": nearest_centroid(gram, target)}
    error = search_error(width) if x.dtype is torch.float32 else (width + 4) * 2.0**-52
    rounding = 4 * error * products.abs().amax((1, 2))
    best = {name: _best(cross @ a + b, a, rounding) for name, (a, b) in machines.items()}
    labels = {name: tied.int().argmax(-1) for name, tied in best.items()}
    doubtful = torch.stack([(tied.sum(-1) > 1).any(-1) for tied in best.values()]).any(0)
    if x.dtype is torch.float32 and doubtful.any():
        exact = _solve_chunk(x[doubtful].double(), target, c)
        residual[doubtful], steps = exact.residual, max(steps, exact.steps)
        for name, values in exact.labels.items():
            labels[name][doubtful] = values
    return Solved(labels, residual, steps)


def _best(scores: Tensor, a: Tensor, rounding: Tensor) -> Tensor:
    """Return (E, queries, K) bool: the highest of scores (E, queries, K), with all that equal it up to rounding.

    Scores are sums of inner products with A (E, n, K), each with an error of `rounding` (E,). The errors have either
    sign, so that the squares of the errors add up.
    """
    bound = rounding * a.square().sum(1).amax(-1).sqrt().clamp_min(1)
    return scores >= scores.amax(-1, keepdim=True) - bound[:, None, None]


def logistic(
    gram: Tensor, target: Tensor, c: float, tolerance: float = TOLERANCE, max_steps: int = MAX_STEPS
) -> tuple[Tensor, Tensor, Tensor, int]:
    """Multinomial logistic regression: min over W, b of |W|^2 / 2 + c sum_i CE(W'x_i + b, y_i), W = sum_i x_i A_i'.

    gram: (E, n, n) inner products of the support. target: (n, K) one-hot. b is free, as in scikit-learn.
    At the optimum A = c (target - p). Each step minimises the quadratic bound with curvature 1/2 in the scores
    (Boehning 1992), with Nesterov's momentum, reset when it points uphill (O'Donoghue and Candes 2015).
    Returns A, b, the residual max |A / c - (target - p)| of each episode (in units of probability; solved when all
    are below `tolerance`), and the steps taken.
    """
    t = 2 / c
    inverse = invert_bordered(gram, t)
    # The scores are r - t A with A = inverse @ r, so r alone carries the state; its step is -t times the residual.
    r = previous = gram.new_zeros(*gram.shape[:2], target.shape[1])
    pace = gram.new_ones(len(gram), 1, 1)
    for step in range(max_steps + 1):
        a = inverse @ r
        residual = a / c - (target - torch.softmax(r - t * a, -1))
        if step == max_steps or (step % CHECK_EVERY == 0 and residual.abs().max() <= tolerance):
            break
        following = r - 2 * residual
        moved = following - previous
        pace = torch.where((residual * moved).sum((1, 2), keepdim=True) > 0, 1.0, pace)
        next_pace = (1 + (1 + 4 * pace**2).sqrt()) / 2
        r, previous, pace = following + (pace - 1) / next_pace * moved, following, next_pace
    b = (r - t * a - gram @ a).mean(1, keepdim=True)
    return a, b, residual.abs().amax((1, 2)), step


def ridge(gram: Tensor, target: Tensor, c: float) -> tuple[Tensor, Tensor]:
    """Least squares on one-hot targets: min |W|^2 / 2 + c/2 sum_i |W'x_i + b - target_i|^2, b free. Returns A, b."""
    a = invert_bordered(gram, 1 / c) @ target
    return a, (target - a / c - gram @ a).mean(1, keepdim=True)


def nearest_centroid(gram: Tensor, target: Tensor) -> tuple[Tensor, Tensor]:
    """Nearest class mean (Snell et al. 2017): scores <x, mu> - |mu|^2 / 2. Returns A, b."""
    a = (target / target.sum(0)).expand(len(gram), -1, -1)
    return a, -(a * (gram @ a)).sum(1, keepdim=True) / 2


def invert_bordered(gram: Tensor, shift: float) -> Tensor:
    """Return H (E, n, n) such that A = H R solves (gram + shift I) A + 1 b = R under 1'A = 0: b is eliminated."""
    identity = torch.eye(gram.shape[-1], dtype=gram.dtype, device=gram.device)
    inverse = torch.cholesky_inverse(torch.linalg.cholesky(gram + shift * identity))
    sums = inverse.sum(-1, keepdim=True)
    return inverse - sums @ sums.mT / sums.sum(-2, keepdim=True)
