"""Rounds of fine-tuning: several models with equal steps on equal images, of which the better half goes on."""

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from evaluation.datasets import Split
from evaluation.features.models import LoadedModel
from evaluation.results.statistics import ROUNDING, generator
from evaluation.tuning.classifier import Setting
from evaluation.tuning.outcomes import best, unpacked
from evaluation.tuning.task import open_task
from evaluation.tuning.trials import Trial, open_runner
from sslkit.errors import UserError

DRAWS = 2000  # of held-out images and seeds


@dataclass(frozen=True, eq=False)
class Arm:
    """A model in a round, with its learning rates. lrs: those tuned, best first.

    values: (S,) accuracy on the held-out images with the best rate, by seed; without any if every rate diverged.
    right: (S, N) bool, the correct of them; None for several labels per image. seconds, steps: spent on all rates.
    """

    model: str
    lrs: tuple[float, ...]
    values: np.ndarray
    right: np.ndarray | None
    seconds: float
    steps: int

    @property
    def value(self) -> float:
        """Mean accuracy over the seeds; -inf if every rate diverged."""
        return float(self.values.mean()) if len(self.values) else -math.inf


@dataclass(frozen=True, eq=False)
class Round:
    """Models tuned with equal steps on equal images. arms: best first. kept: how many go on. seeds: of each run."""

    arms: tuple[Arm, ...]
    steps: int
    kept: int
    seeds: tuple[int, ...]

    @property
    def dropped(self) -> tuple[Arm, ...]:
        return self.arms[self.kept :]


def tuned(
    models: Mapping[str, LoadedModel],
    splits: Mapping[str, Split],
    settings: Sequence[Setting],
    seeds: Sequence[int],
    sure: float,
    place: Mapping[str, Any],
    say: Callable[[str], None],
) -> tuple[Round, ...]:
    """Tune the models in rounds until one is left, or one is the best with probability `sure`.

    splits: "train" to tune on, "test" to compare on. settings: of the last round, one for each rate.
    place: options of `open_runner`. Raises UserError if every model diverges.
    """
    alive = {name: tuple(setting.lr for setting in settings) for name in models}
    rounds: list[Round] = []
    count = rounds_of(len(models))
    for left in reversed(range(count)):  # rounds after this one
        steps, now = settings[0].steps // 2**left, tuple(seeds if left == 0 else seeds[:1])
        told = f"{len(alive)} models, {sum(map(len, alive.values()))} rates, {len(now)} seeds, {steps} steps each"
        say(f"round {count - left} of {count}: {told}")
        arms = []
        for name, rates in alive.items():
            own = [replace(settings[0], lr=lr, steps=steps) for lr in rates]
            arms.append(_arm(name, models[name], splits, own, now, place))
        arms.sort(key=lambda arm: -arm.value)  # equal ones stay in the order of the round before
        sound = sum(arm.value > -math.inf for arm in arms)
        if not sound:
            raise UserError(f"{splits['train'].name}: every learning rate of every model diverged; give lower ones")
        kept = min((len(arms) + 1) // 2, sound)
        rounds.append(Round(tuple(arms), steps, 1 if left == 0 else kept, now))
        if kept == 1 or (sure <= probability(rounds) < math.inf and sure < 1):
            rounds[-1] = replace(rounds[-1], kept=1)
            break
        alive = {arm.model: arm.lrs[: 1 if left == 1 else (len(arm.lrs) + 1) // 2] for arm in arms[:kept]}
    return tuple(rounds)


def rounds_of(models: int) -> int:
    """Return the number of halvings until one model is left."""
    return max(math.ceil(math.log2(models)), 1)


def probability(rounds: Sequence[Round], draws: int = DRAWS, seed: int = 0) -> float:
    """Return the probability that the winner beats every other model, each compared in its last round.

    By a bootstrap of held-out images, the same for all models, and of seeds where there are several. A draw in which
    another model is equal counts a half. nan if the correct images are not known.
    """
    winner = rounds[-1].arms[0].model
    if any(arm.right is None for one in rounds for arm in one.arms if len(arm.values)):
        return math.nan
    rng = generator(seed, "successive halving")
    n = rounds[-1].arms[0].right.shape[1]
    counts = rng.multinomial(n, np.full(n, 1 / n), size=draws)
    margin = np.full(draws, np.inf)
    for one in rounds:
        drawn = {arm.model: _redrawn(arm.right, counts, rng) for arm in one.arms if len(arm.values)}
        for other in one.arms if one is rounds[-1] else one.dropped:
            if other.model != winner and other.model in drawn:
                margin = np.minimum(margin, drawn[winner] - drawn[other.model])
    return float((margin > ROUNDING).mean() + 0.5 * (np.abs(margin) <= ROUNDING).mean())


def _redrawn(right: np.ndarray, counts: np.ndarray, rng: np.random.Generator) -> np.ndarray:
    """Return accuracies (B,) on redrawn images, means over redrawn seeds. right: (S, N). counts: (B, N)."""
    seeds = rng.multinomial(len(right), np.full(len(right), 1 / len(right)), size=len(counts)) / len(right)
    return (counts @ right.T / right.shape[1] * seeds).sum(1)


def _arm(
    name: str,
    model: LoadedModel,
    splits: Mapping[str, Split],
    settings: Sequence[Setting],
    seeds: Sequence[int],
    place: Mapping[str, Any],
) -> Arm:
    """Tune one model with every setting and seed."""
    task = open_task(model, splits)
    rows = task.rows(np.ones(len(task.train), bool))
    trials = [Trial("halving", replace(setting, seed=seed), rows) for setting in settings for seed in seeds]
    with open_runner(task, name="halving", **place) as runner:
        records = runner.run(trials, f"{name}, {settings[0].steps} steps")
    seconds, steps = sum(record["seconds"] for record in records), sum(trial.setting.steps for trial in trials)
    of_rate = [records[start : start + len(seeds)] for start in range(0, len(records), len(seeds))]
    sound = [own for own in of_rate if not any(record["diverged"] for record in own)]
    if not sound:
        return Arm(name, (), np.zeros(0), None, seconds, steps)
    ordered = []
    left = list(sound)
    while left:
        ordered.append(left.pop(best([own[0] for own in left], name)))
    values = np.array([record["value"] for record in ordered[0]])
    known = all(record["right"] is not None for record in ordered[0])
    right = np.stack([unpacked(record["right"], len(task.test)) for record in ordered[0]]) if known else None
    return Arm(name, tuple(own[0]["lr"] for own in ordered), values, right, seconds, steps)
