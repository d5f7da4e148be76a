"""Differences between results: paired tests on the same images or episodes, with detectable differences."""

import dataclasses
import itertools
import json
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from evaluation.results.class_means import class_weights, difference_per_class, means_by_class, never_vary
from evaluation.results.numbers import R2
from evaluation.results.over_groups import difference_over_groups
from evaluation.results.p_values import holm, mcnemar, sign_flip
from evaluation.results.power import detectable_classes, detectable_mean, detectable_share
from evaluation.results.result import Result
from evaluation.results.statistics import bootstrap_mean, generator, over_groups
from sslkit.decision import LEVEL
from sslkit.errors import UserError
from sslkit.numerics.paired import ROUNDING
from sslkit.runtime.context import Computing
from sslkit.terminal.say import counted

FEW = 5  # pairs, below which there is no interval: the t of four differences is wider than any of interest
FLIPS = 19_999  # draws of the randomisation test: its smallest p is 1 / 20,000


@dataclass(frozen=True)
class Comparison:
    """Comparison of result a with result b on the same rows.

    a, b: the models. metric: of both. difference: value of a minus value of b. interval: 95 %, by pairs; None for too
        few pairs, or pairs of episodes or seeds that do not vary.
    test: its name. p: two-sided. p_adjusted: after Holm over `pairs` comparisons, None for one that stands alone. n:
        images or episodes. leaky: a or b was chosen on test data.
    detectable: the smallest true difference that the test would have found in 80 % of such samples at p < 0.05, given
    how much the two differed here; None where no difference would be, or nothing varied.
    """

    a: str
    b: str
    metric: str
    difference: float
    interval: tuple[float, float] | None
    p: float
    test: str
    n: int
    detectable: float | None
    p_adjusted: float | None = None
    leaky: bool = False
    pairs: int = 1

    @property
    def decisive_p(self) -> float:
        """The p that decides: after adjustment if there was one."""
        return self.p if self.p_adjusted is None else self.p_adjusted

    @property
    def reverse(self) -> "Comparison":
        """The comparison of b with a."""
        ends = None if self.interval is None else (-self.interval[1], -self.interval[0])
        return dataclasses.replace(self, a=self.b, b=self.a, difference=-self.difference, interval=ends)

    @property
    def verdict(self) -> str:
        """Return one sentence, the better model first. Better means p < 0.05, after adjustment if there was one."""
        if self.difference < 0:
            return self.reverse.verdict
        p = self.decisive_p
        name = "p" if self.p_adjusted is None else f"Holm-adjusted p ({counted(self.pairs, 'pair')})"
        note = "; one of the two was chosen on test data, or trained on it" if self.leaky else ""
        if self.interval is None:
            return self._without_interval(f"{self.test} {name} {_p(p)}", p) + note
        low, high = self.interval
        if p < LEVEL:
            size = f"{100 * self.difference:.1f} points ({100 * low:.1f} to {100 * high:.1f})"
            return f"{self.a} is better than {self.b} by {size}, {self.test} {name} {_p(p)}{note}"
        missed = "no difference" if self.detectable is None else f"differences under {100 * self.detectable:.1f} points"
        could = "could have been seen" if self.detectable is None else "would likely be missed"
        seen = f"{100 * self.difference:.1f} points, {100 * low:.1f} to {100 * high:.1f}, {self.test} {name} {_p(p)}"
        return f"no difference seen between {self.a} and {self.b} ({seen}); {missed} {could}{note}"

    def _without_interval(self, test: str, p: float) -> str:
        why = f"{self.n} pairs are too few" if self.n < FEW else f"the {self.n} pairs all differ by the same"
        points = f"{100 * self.difference:.1f} points (no interval: {why})"
        if p < LEVEL:
            return f"{self.a} is better than {self.b} by {points}, {test}"
        if self.difference > ROUNDING and self.n < FEW:
            return f"{self.a} is ahead of {self.b} by {points}, which may be chance: {test}"
        return f"no difference seen between {self.a} and {self.b}: {points}, {test}"

    def to_json(self) -> str:
        """Return one line, including the verdict."""
        return json.dumps({**dataclasses.asdict(self), "verdict": self.verdict})


def compare(
    a: Result, b: Result, *, labels: np.ndarray | None = None, paired: bool = False, seed: int = Computing.seed
) -> Comparison:
    """Test two results of the same images, or of the same episodes.

        difference = evaluation.compare(evaluation.knn(train, test), evaluation.linear_probe(train, test))
        difference.difference, difference.p

    a, b: results of protocols; the difference is a minus b. seed: of the bootstrap.
    Right and wrong images: McNemar's exact test; difference and interval by the paired bootstrap. Episodes: the paired
    t test and its interval, which cover other episodes from the same pool of images, not other images; for fewer than
    5 pairs, or pairs that all differ by the same amount, the exact sign-flip test and no interval.
    Images of groups, such as patients: Student's t interval over groups, and the test that swaps the two models'
    answers at random in whole groups.
    Numbers: the paired t test over images, or groups as above.
    labels: (N,) of the test images, needed for mean_per_class only: the test then swaps the two models' answers at
        random within the classes, and the bootstrap draws within the classes.
    paired: asserts that row i of both is the same image, for results of plain arrays (their images have no names).
        Not allowed for episodes and seeds, which need one table.
    Raises UserError for results without outcomes, of other metrics, or of other rows.
    """
    _check(a, b)
    _check_rows(a, b, paired)
    if a.metric == R2 and over_groups(a.groups):
        weights = np.full(len(a.outcomes), 1 / len(a.outcomes))
        tested = difference_over_groups(weights * (a.outcomes - b.outcomes), weights, a.groups, seed, most=np.inf)
    elif over_groups(a.groups):
        tested = _groups(a, b, labels, seed)
    elif a.outcomes.dtype != bool:
        tested = _episodes(a.outcomes, b.outcomes)
    elif a.metric == "mean_per_class":
        tested = _classes(a, b, labels, seed)
    else:
        tested = _images(a.outcomes, b.outcomes, seed)
    return Comparison(*_names(a, b), a.metric, n=len(a.outcomes), leaky=a.leaky or b.leaky, **tested)


def compare_all(
    results: Sequence[Result], *, labels: np.ndarray | None = None, paired: bool = False, seed: int = Computing.seed
) -> list[Comparison]:
    """Compare every pair, with p adjusted for their number by Holm.

    results: at least two. labels, paired, seed, and errors: as in `compare`.
    Returns a Comparison for each pair, in the order of `itertools.combinations`.
    """
    if len(results) < 2:
        raise UserError(f"compare_all needs at least 2 results, got {len(results)}")
    pairs = itertools.combinations(results, 2)
    return adjust([compare(a, b, labels=labels, paired=paired, seed=seed) for a, b in pairs])


def adjust(comparisons: Sequence[Comparison]) -> list[Comparison]:
    """Return the comparisons with p adjusted for their number by Holm; one that stands alone as it is."""
    count = len(comparisons)
    if count < 2:
        return list(comparisons)
    adjusted = holm([comparison.p for comparison in comparisons])
    return [
        dataclasses.replace(comparison, p_adjusted=float(p), pairs=count)
        for comparison, p in zip(comparisons, adjusted, strict=True)
    ]


def randomisation(difference: np.ndarray, y: np.ndarray, *, seed: int) -> float:
    """Return the two-sided p of no difference in mean-per-class accuracy, by randomly swapping the models' answers.

    difference: (N,) of -1, 0, 1. y: (N,) labels. In a class where m images differ, the sum under the null hypothesis
    is 2 Binomial(m, 1/2) - m.
    """
    rng = generator(seed, "randomisation")
    drawn, seen = np.zeros(FLIPS), 0.0
    for label in np.unique(y):
        of_class = difference[y == label]
        differ = int(np.abs(of_class).sum())
        drawn += (2 * rng.binomial(differ, 0.5, FLIPS) - differ) / len(of_class)
        seen += of_class.sum() / len(of_class)
    as_large = np.abs(drawn) >= abs(seen) - 1e-9
    return float((1 + as_large.sum()) / (1 + FLIPS))


def _images(a: np.ndarray, b: np.ndarray, seed: int) -> dict:
    difference = a.astype(int) - b.astype(int)
    estimate = bootstrap_mean(difference, seed=seed)
    return {
        "difference": estimate.value,
        "interval": estimate.interval if np.ptp(difference) else never_vary(estimate.value, len(difference)),
        "p": mcnemar(a, b),
        "test": "McNemar",
        "detectable": detectable_share(float(np.abs(difference).mean()), len(difference)),
    }


def _groups(a: Result, b: Result, labels: np.ndarray | None, seed: int) -> dict:
    by_class = a.metric == "mean_per_class"
    weights = class_weights(_check_labels(a, b, labels)) if by_class else np.full(len(a.outcomes), 1 / len(a.outcomes))
    return difference_over_groups(weights * (a.outcomes.astype(float) - b.outcomes), weights, a.groups, seed)


def _check_labels(a: Result, b: Result, labels: np.ndarray | None) -> np.ndarray:
    """Return the labels, numbered. Raises UserError for other ones than those of the results."""
    if labels is None:
        raise UserError("mean_per_class weighs each image by its class: give labels=test.y of the test images")
    if np.shape(labels) != a.outcomes.shape:
        shape = np.shape(labels)
        raise UserError(f"labels must be one for each of the {len(a.outcomes)} images, not of shape {shape}")
    y = np.unique(labels, return_inverse=True)[1]
    for result in (a, b):
        _check_value(result, y)
    return y


def _classes(a: Result, b: Result, labels: np.ndarray | None, seed: int) -> dict:
    y = _check_labels(a, b, labels)
    difference = a.outcomes.astype(int) - b.outcomes.astype(int)
    mean, interval = difference_per_class(difference, y)
    return {
        "difference": mean,
        "interval": interval,
        "p": randomisation(difference, y, seed=seed) if difference.any() else 1.0,
        "test": "randomisation",
        "detectable": detectable_classes(difference, y),
    }


def _episodes(a: np.ndarray, b: np.ndarray) -> dict:
    from scipy.stats import ttest_1samp

    difference = np.asarray(a, dtype=float) - np.asarray(b, dtype=float)
    mean = float(difference.mean())
    if len(difference) < FEW or np.ptp(difference) < ROUNDING:
        p = sign_flip(difference)
        return {"difference": mean, "interval": None, "p": p, "test": "sign-flip", "detectable": None}
    test = ttest_1samp(difference, 0.0)
    low, high = test.confidence_interval(0.95)
    return {
        "difference": mean,
        "interval": (float(low), float(high)),
        "p": float(test.pvalue),
        "test": "paired t",
        "detectable": detectable_mean(difference),
    }


def _check(a: Result, b: Result) -> None:
    for result in (a, b):
        if result.outcomes is None:
            raise UserError(
                f"{_name(result)} has no outcomes to pair (right or wrong by image, or accuracy by episode): use the "
                "result that the protocol returned, or evaluation.store.read(folder); map11 and crowding have none"
            )
    if a.metric != b.metric:
        raise UserError(f"{_name(a)} measures {a.metric} and {_name(b)} {b.metric}: compare one metric at a time")
    if (a.unit, b.unit) != ("fraction", "fraction"):
        raise UserError(f"compare tests accuracies; {_name(a)} is in {a.unit} and {_name(b)} in {b.unit}")
    if len(a.outcomes) != len(b.outcomes) or (a.outcomes.dtype == bool) != (b.outcomes.dtype == bool):
        raise UserError(f"cannot pair {_rows(a)} with {_rows(b)}: measure both on the same images or episodes")
    if len(a.outcomes) < 2:
        raise UserError(f"{_name(a)} has one outcome only; a test needs at least two")
    if a.outcomes.dtype != bool or a.metric != "mean_per_class":
        for result in (a, b):
            _check_value(result, np.zeros(len(a.outcomes), int))


def _check_rows(a: Result, b: Result, paired: bool) -> None:
    """Check that row i is the same in both. Raises UserError."""
    if a.paired_on and a.paired_on == b.paired_on:
        return
    if a.outcomes.dtype != bool:
        raise UserError(
            f"cannot pair {_rows(a)} with {_rows(b)}: their episodes (or seeds) were drawn separately, so they are "
            "not pairs. Give both models one table= (evaluation.draw_episodes), or the same split and seeds"
        )
    if not paired:
        raise UserError(
            f"cannot pair {_rows(a)} with {_rows(b)}: they are not known to be the same rows in the same order. "
            "Measure both on one split or episode table. Features of evaluation.extract have image names, plain "
            "arrays do not: for those give paired=True if row i is the same image in both"
        )


def _check_value(result: Result, y: np.ndarray) -> None:
    """Check that the value is the mean of the outcomes; otherwise the test would be about other data."""
    mean = float(np.mean(means_by_class(result.outcomes, y)))
    if not np.isclose(mean, result.value, rtol=0, atol=1e-5):
        what = "per-class mean with these labels" if y.any() else "mean"
        raise UserError(
            f"{_name(result)} has {result.metric} {result.value:.4f}, but the {what} of its outcomes is {mean:.4f}: "
            "the outcomes (or labels) belong to another result"
        )


def _names(a: Result, b: Result) -> tuple[str, str]:
    """Return two distinct names: by model, else protocol, else recipe, else position."""
    if a.model != b.model and a.model and b.model:
        return a.model, b.model
    if a.protocol != b.protocol:
        return _name(a), _name(b)
    first, second = (a.recipe, b.recipe) if a.recipe != b.recipe else ("first", "second")
    return f"{_name(a)} ({first})", f"{_name(b)} ({second})"


def _name(result: Result) -> str:
    return f"{result.model or 'a model'} {result.protocol}".strip()


def _rows(result: Result) -> str:
    kind = "images" if result.outcomes.dtype == bool else "outcomes"
    on = f"rows {result.paired_on[:12]}" if result.paired_on else "rows without a digest"
    return f"{_name(result)} ({len(result.outcomes):,} {kind} of {result.data or 'unnamed data'}, {on})"


def _p(p: float) -> str:
    return "< 0.001" if p < 0.001 else f"= {p:.3f}" if p < 0.1 else f"= {p:.2f}"
