"""The strength of a linear probe's penalty: coarse, then fine, along a path of warm starts."""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import torch

from evaluation.learners.linear_heads import Scaling
from evaluation.learners.linear_parts import Part
from evaluation.results.choice import highest_of, lowest_of
from sslkit.errors import UserError
from sslkit.numerics.logistic import Probe, Problem, sigmoid_problem, softmax_problem
from sslkit.runtime.context import Runtime

STRENGTHS = np.logspace(-5, 6, 45)  # c = 1 / lambda
STRIDE = 4  # of the coarse strengths: a factor of 10
# coarse strengths without a higher metric or a lower loss, after which weaker penalties are left out; with it some 12
# of 45 are tried (recipes/benchmarks/growth)
PATIENCE = 3
SURE = 2.0  # or one with a higher loss and a metric lower by so many standard errors: about 95 %
SEARCH_TOL, PROMISE = 5e-4, 1e-7  # bounds; the objective itself is within some 1e-4: see `logistic.fit_path`
SEARCH_ITER = 200  # of one strength, from a neighbour's solution; too few for the weakest penalties to converge
BLOCK = 4096  # rows scaled at a time


@dataclass(frozen=True)
class Tried:
    """One strength: its probe, and the metric and the loss of the validation rows."""

    probe: Probe
    value: float
    loss: float

    def details(self) -> dict[str, Any]:
        probe = self.probe
        return {"c": probe.c, "value": self.value, "loss": self.loss, "gap": probe.gap, "n_iter": probe.n_iter}


def search(
    learn: Part, judge: Part, scaling: Scaling, metric: str, runtime: Runtime, max_iter: int, strengths: Sequence[float]
) -> Iterator[Tried]:
    """Fit the part `learn` up to 5e-4 of the objective, and yield each strength as it is judged.

    Every STRIDE-th strength, the strongest penalty first, until weaker ones are worse, `has_passed_best`; then those
    between the best one's neighbours. Each starts on the line through two solutions that are known.
    """
    regression = problem(learn, scaling, runtime)
    tries: dict[int, Tried] = {}

    def try_number(number: int) -> Tried:
        how = {"tol": SEARCH_TOL, "max_iter": min(max_iter, SEARCH_ITER), "promise": PROMISE}
        probe = fit(regression, strengths[number], start=_start(tries, number), **how)
        scores = scores_of(probe, judge, scaling)
        tries[number] = Tried(probe, judge.value(scores, metric), judge.loss(scores, metric))
        return tries[number]

    for number in range(0, len(strengths), STRIDE):
        yield try_number(number)
        so_far = tries.values()
        if has_passed_best(
            [attempt.value for attempt in so_far], [attempt.loss for attempt in so_far], len(judge.rows)
        ):
            break
    chosen = list(tries)[best_of(list(tries.values()))]
    for number in range(max(chosen - STRIDE + 1, 0), min(chosen + STRIDE, len(strengths))):
        if number not in tries:
            yield try_number(number)


def best_of(tried: Sequence[Tried]) -> int:
    """Return the number of the best strength: see `best`; equal ones go to the strongest penalty."""
    return best(
        [attempt.value for attempt in tried], lambda k: tried[k].loss, [1 / attempt.probe.c for attempt in tried]
    )


def best(values: Sequence[float], loss: Callable[[int], float], penalty: Sequence[Any]) -> int:
    """Return the index of the highest value; ties go to the lowest loss (NaN is infinite), then to the largest penalty.

    NaN values are ignored. Values are equal up to rounding, see `evaluation.results.choice`.
    """
    if np.isnan(values).all():
        raise UserError("every head of the grid diverged: lower its learning rates, or standardize the features")
    highest = [int(number) for number in highest_of(values)]
    losses = [loss(number) for number in highest]
    return max((highest[at] for at in lowest_of(losses)), key=lambda number: penalty[number])


def problem(part: Part, scaling: Scaling, runtime: Runtime) -> Problem:
    """Return the problem of some rows, in float32."""
    x = np.empty((len(part.rows), part.x.shape[1]), np.float32)
    for start in range(0, len(x), BLOCK):
        x[start : start + BLOCK] = scaling(part.x[part.rows[start : start + BLOCK]])
    kind = softmax_problem if part.y.ndim == 1 else sigmoid_problem
    return kind(torch.from_numpy(x).to(runtime.device), part.y, torch.float32)


def fit(problem: Problem, c: float, *, tol: float, max_iter: int, start: Probe | None, promise: float = 0.0) -> Probe:
    """Fit in float32; on CPUs continue in float64 if rounding ends that before `tol`."""
    probe = problem.fit(c, tol=tol, max_iter=max_iter, start=start, promise=promise)
    left = max_iter - probe.n_iter
    if probe.converged or left < 1 or problem.axes.x.device.type != "cpu":
        return probe
    exact = problem.with_precision(torch.float64)
    more = exact.fit(c, tol=tol, max_iter=left, start=probe, promise=promise)
    return replace(more, n_iter=probe.n_iter + more.n_iter)


def scores_of(probe: Probe, part: Part, scaling: Scaling) -> np.ndarray:
    """Return logits (n, K) float64 of the rows."""
    starts = range(0, len(part.rows), BLOCK)
    return np.concatenate([probe.scores(scaling(part.x[part.rows[start : start + BLOCK]])) for start in starts])


def _start(found: dict[int, Tried], number: int) -> Probe | None:
    """Return a point on the line through two known solutions, by the logarithm of c: those around it, or the last."""
    numbers = sorted(found)
    if len(numbers) < 2:
        return found[numbers[0]].probe if numbers else None
    after = min(max(int(np.searchsorted(numbers, number)), 1), len(numbers) - 1)
    low, high = numbers[after - 1], numbers[after]
    lower, other, share = found[low].probe, found[high].probe, (number - low) / (high - low)
    weight = lower.weight + share * (other.weight - lower.weight)
    return replace(lower, weight=weight, bias=lower.bias + share * (other.bias - lower.bias))


def has_passed_best(values: Sequence[float], losses: Sequence[float], rows: int) -> bool:
    """Return whether the path of weaker and weaker penalties has passed its best.

    Either the last has a higher loss than the best one, and a metric that is lower by SURE standard errors of a share
    of `rows`, or none of the last PATIENCE has a higher metric or a lower loss than those before.
    """
    highest = max(values)
    error = (max(highest * (1 - highest), 0.0) / rows) ** 0.5
    if losses[-1] > min(losses) and values[-1] < highest - SURE * error:
        return True
    before, last = slice(0, -PATIENCE), slice(-PATIENCE, None)
    better = max(values[last]) > max(values[before], default=-np.inf) or min(losses[last]) < min(
        losses[before], default=np.inf
    )
    return not better
