"""PED: another metric, after overlapping classes are pushed apart as by fine-tuning."""

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Annotated, Any, Literal

import numpy as np
import torch
from torch import Tensor

from evaluation.results.choice import level_scores
from evaluation.transferability import sfda
from evaluation.transferability._scatter import EPS
from evaluation.transferability.base import NO_REFERENCE, Sample, Score, check_scale
from sslkit.errors import UserError
from sslkit.numerics.ties import average_ranks
from sslkit.options.ranges import NotNegative
from sslkit.options.settings import Limits

MOST_STEPS = {"code": 6, "paper": 5}
BOTH = (0.3, 0.6)  # of lam="both"; the paper takes the better radius of each data set, which needs the truth
CONSTANT = 1e-3  # times the median std: reference columns below it are ignored, in the place of the authors' least std


@dataclass(frozen=True, eq=False)
class Trajectory:
    """The movement of the classes.

    shift: (C, D) from start to end. energies: the potential energy before the first step and after each.
    changes: L1 of each step's moves over that of the first, including the rejected one of rule "code".
    """

    shift: Tensor
    energies: tuple[float, ...]
    changes: tuple[float, ...]

    @property
    def steps(self) -> int:
        return len(self.energies) - 1


def overlaps(means: Tensor, radii: Tensor) -> tuple[Tensor, Tensor]:
    """Return o_ij = max(r_i + r_j - d_ij, 0) (C, C) of balls, and 1 / d_ij; both 0 for i = j and coincident centres.

    Squared distances are differences, with an error of 4 D eps of the largest centroid's squared length: closer
    centres count as coincident, and overlaps within the resulting error of d as 0.
    """
    squares = means.square().sum(1)
    distances = (squares[:, None] + squares - 2 * means @ means.T).clamp_min_(0)
    rounding = 4 * means.shape[1] * EPS * squares.max()
    apart = distances > rounding
    apart.fill_diagonal_(False)
    distances.sqrt_()
    nothing = torch.zeros_like(distances)
    overlap = torch.where(apart, radii[:, None] + radii - distances, nothing)
    overlap = torch.where(overlap * distances > rounding / 2, overlap, nothing)
    return overlap, torch.where(apart, 1 / distances, nothing)


def energy(overlap: Tensor, k: float) -> float:
    """Return sum_i sum_{j != i} k/2 o_ij^2 (eq. 7)."""
    return k / 2 * float(overlap.square().sum())


def move(means: Tensor, overlap: Tensor, inverse: Tensor, dt: float, k: float) -> Tensor:
    """Return one step (C, D): sum_j min(dt^2/2 k o_ij, o_ij) (c_i - c_j) / d_ij (eq. 4 to 6, unit masses)."""
    pull = overlap * min(dt * dt / 2 * k, 1.0) * inverse
    return pull.sum(1, keepdim=True) * means - pull @ means


def displacements(
    means: Tensor,
    radii: Tensor,
    *,
    dt: float = 0.1,
    k: float = 1.0,
    exit_ratio: float = 0.5,
    rule: str = "code",
    max_steps: int | None = None,
) -> Trajectory:
    """Move balls of centres (C, D) and radii (C,) apart, while the moves (L1) of a step exceed `exit_ratio` times
    the first step's. Rule "code" drops the step that fails this, rule "paper" keeps it; both stop there.

    max_steps: None for 6 ("code") or 5 ("paper").
    """
    means = means - means.mean(0)
    moved = torch.zeros_like(means)
    most = MOST_STEPS[rule] if max_steps is None else max_steps
    overlap, inverse = overlaps(means, radii)
    energies, changes, first = [energy(overlap, k)], [], 0.0
    while len(energies) <= most and energies[-1] > 0:
        step = move(means, overlap, inverse, dt, k)
        change = float(step.abs().sum())
        first = first or change
        changes.append(change / first if first else 0.0)
        goes_on = changes[-1] > exit_ratio
        if not goes_on and rule == "code":
            break
        means, moved = means + step, moved + step
        overlap, inverse = overlaps(means, radii)
        energies.append(energy(overlap, k))
        if not goes_on:
            break
    return Trajectory(moved, tuple(energies), tuple(changes))


@dataclass(frozen=True, eq=False)
class Units:
    """The space in which classes move: features as (x - mean) / std of the reference.

    std, kept: (D,); kept is bool, of the columns that are not constant in the reference. normalised: False for std 1.
    """

    std: Tensor
    used: Tensor
    warnings: tuple[str, ...] = ()
    normalised: bool = True

    @classmethod
    def of(cls, sample: Sample, normalise: bool = True) -> "Units":
        """Return the units of the sample's reference, or else of its features. (Moves do not depend on the mean.)

        normalise: False for the features as they are.
        """
        warnings = ()
        if not normalise:
            std = sample.moments.means.new_ones(sample.moments.means.shape[1])
            return cls(std, std > 0, normalised=False)
        if sample.reference is None:
            warnings = (NO_REFERENCE,)
            std = sample.moments.column_variances.sqrt()
        else:
            std = sample.reference[1].to(sample.device, torch.float64)
        varies = std[std > 0]  # more than half of the columns may be dead
        used = std > CONSTANT * (varies.median() if len(varies) else 0.0)
        if not used.any():
            whose = "these features" if sample.reference is None else "the reference"
            raise UserError(f"the std of {whose} is 0 in each column: PED needs features that vary")
        return cls(std, used, warnings)

    def balls(self, sample: Sample, lam: float) -> tuple[Tensor, Tensor]:
        """Return centres (C, k) and radii (C,) = lam ||sigma_c||_2, over the kept columns."""
        std, moments = self.std[self.used], sample.moments
        variances = moments.variances[:, self.used] / std.square()
        return moments.means[:, self.used] / std, lam * variances.sum(1).sqrt()

    def back(self, moved: Tensor) -> Tensor:
        """Convert moves (C, k) to the features' own units (C, D)."""
        shift = torch.zeros(len(moved), len(self.std), dtype=moved.dtype, device=moved.device)
        shift[:, self.used] = moved * self.std[self.used]
        return shift


def moves(sample: Sample, *, lam: float = 0.6, normalise: bool = True, **options: Any) -> tuple[Sample, Trajectory]:
    """Return the sample after its classes have moved, and their trajectory. options: of `displacements`."""
    units = Units.of(sample, normalise)
    path = displacements(*units.balls(sample, lam), **options)
    return _after(sample, units, path, lam, options), path


def _score_moved(sample: Sample, inner: Callable[[Sample], Score], units: Units, lam: float, options: Mapping) -> Score:
    path = displacements(*units.balls(sample, lam), **options)
    after = inner(_after(sample, units, path, lam, options))
    diagnostics = {
        **after.diagnostics,
        "steps": path.steps,
        "potential_energy": path.energies,
        "change_ratios": path.changes,
        "masked_columns": int((~units.used).sum()),
    }
    return replace(after, diagnostics=diagnostics, warnings=(*units.warnings, *after.warnings))


def _after(sample: Sample, units: Units, path: Trajectory, lam: float, options: Mapping) -> Sample:
    """Return the moved sample, shared by all following metrics with its sums and eigenvectors."""
    if not path.steps:
        return sample
    name = f"ped {lam} {units.normalised} {sorted(options.items())}"
    moved = sample.once(name, lambda: sample.move(units.back(path.shift)))
    check_scale(moved)  # a large lam moves far
    return moved


def over_zoo(parts: Sequence[Mapping[str, float]]) -> list[float]:
    """Return minus each model's mean rank over the lam (1 is best, ties at their mean rank), from the `parts`."""
    ranks = [average_ranks(-level_scores([scores[f"lam={lam}"] for scores in parts])) for lam in BOTH]
    return (-np.mean(ranks, 0)).tolist()


def score(
    sample: Sample,
    inner: Callable[[Sample], Score] = sfda.score,
    *,
    lam: NotNegative | Literal["both"] = 0.6,
    dt: NotNegative = 0.1,
    k: NotNegative = 1.0,
    exit_ratio: NotNegative = 0.5,
    rule: Literal["code", "paper"] = "code",
    max_steps: Annotated[int, Limits(least=0)] | None = None,
    normalise: bool = True,
) -> Score:
    """SFDA after PED, the authors' default; `ped+NAME` is another metric after PED.

    Each class is a ball about its mean c_i, of radius r_i = lam ||sigma_i||_2, in features normalised by the
    mean and std of the reference. Balls that overlap by o_ij = max(r_i + r_j - |c_i - c_j|, 0) push each other apart:
    c_i += sum_j min(dt^2/2 k o_ij, o_ij) (c_i - c_j) / |c_i - c_j|, and their images move with them.

    lam: 0.6, or "both", which scores with 0.3 and 0.6 and ranks a zoo by the mean of both ranks (the paper uses the
        better one for each data set, which needs the truth). dt, k: the time step and the elasticity. exit_ratio: stop
        once a step's moves are at most this share of the first's. rule: "code" tests first and drops the step that
        fails, at most 6 steps; "paper" moves, then tests, at most 5. max_steps: None for these.
    normalise: False moves the features as they are, without a reference (the paper's Figure 9).
    PED's diagnostics are added to those of `inner`, the metric that follows.
    Range: of the metric that follows (SFDA: 0 to 1). Higher is better. Cost: O(N D + steps C^2 D), and the metric's.
    Source: Li et al., Exploring Model Transferability through the Lens of Potential Energy, ICCV 2023, Alg. 1, and its
        code for the test.
    Not for: models without their own reference statistics; SFDA scores already near 1, which PED increases further;
    features that differ in scale, by which SFDA (not the moves) changes: take another metric behind it.
    """
    sample.labels  # noqa: B018  (raises if the labels are not classes)
    options = {"dt": dt, "k": k, "exit_ratio": exit_ratio, "rule": rule, "max_steps": max_steps}
    units = Units.of(sample, normalise)
    if lam != "both":
        return _score_moved(sample, inner, units, lam, options)
    scores = {f"lam={radius}": _score_moved(sample, inner, units, radius, options) for radius in BOTH}
    parts = {name: after.value for name, after in scores.items()}
    if any(map(math.isnan, parts.values())):
        raise UserError("ped(lam=both) needs a metric that scores each model by itself, not one over a zoo")
    warnings = dict.fromkeys(warning for after in scores.values() for warning in after.warnings)
    diagnostics = {f"{key} ({name})": v for name, after in scores.items() for key, v in after.diagnostics.items()}
    return Score(math.nan, diagnostics, tuple(warnings), parts=parts)


wrapped = score  # as `ped+NAME`: the metric NAME in the place of SFDA
