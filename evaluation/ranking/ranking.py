"""A ranking: scores of many models by some metrics on one task, their ranks, ties and intervals."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, fields
from pathlib import Path
from typing import Any

import numpy as np

from evaluation.ranking.consensus import Consensus, Null
from evaluation.ranking.file import read_ranking, write_ranking
from evaluation.ranking.inputs.source_marks import letters
from evaluation.ranking.scoring import parse
from evaluation.ranking.table import table as as_table
from evaluation.ranking.truth.agreement import Agreement
from evaluation.results.choice import level_scores
from sslkit.decision import RAW, Decision
from sslkit.errors import UserError
from sslkit.numerics.ties import average_ranks
from sslkit.numerics.wilson import Z95

# Redrawn images understate the spread over new ones, by a third where a metric fits itself to the images (LEEP, kNN,
# SFDA, concept variation). The least of 1, 1.25, 1.5, 1.75, 2 with which 14 metrics all held 92 % of their expectations
# on 100 and on 300 images; on 30 some hold 67 %.
WIDENED = 2
FEWEST = 100  # images: with 30 an interval held 67 % (above)


@dataclass(frozen=True, eq=False)
class Ranking:
    """M models by K metrics on one task.

    data: the task; n: its images. models: M names. metrics: K names.
    scores: (M, K), nan if the model lacks an input or the metric rejects its features (see notes).
    intervals: (M, K, 2) 95 % over images, nan if there is none: for fewer than FEWEST images.
    ranks: (M, K) 1 is best, equal scores share the mean. rank_intervals: (M, K, 2) 95 % over images.
    tied: (M, K) bool: not distinguishable from the metric's best model on these images.
    consensus: one order from the metrics that score every model that any metric scores, with probabilities.
    seconds, memory: (M, K) cost of each score; shared work counts for the first metric. bytes, nan if unknown.
    nulls: what the model to take must be above, and raw pixels, which fine-tuning may pass.
    notes: on models and metrics. truth: (M,) accuracies, or None; agreement: {metric: numbers} with it.
    left_out: name -> reason, for members of the zoo that are not ranked.
    sources: model -> kind, classes, data of its source head, where a metric reads it; ranks by such a metric are within
        a group, see `evaluation.ranking.inputs.source_marks`.
    details: {metric: {model: diagnostics}}.
    costs: M multiply-adds of an image, nan for given features; () where they were not recorded.
    made: date, seed, bootstrap, device, the requested split and sizes, versions.
    """

    data: str
    n: int
    models: tuple[str, ...]
    metrics: tuple[str, ...]
    scores: np.ndarray
    intervals: np.ndarray
    ranks: np.ndarray
    rank_intervals: np.ndarray
    tied: np.ndarray
    consensus: Consensus
    seconds: np.ndarray
    memory: np.ndarray
    nulls: tuple[Null, ...] = ()
    notes: tuple[str, ...] = ()
    truth: np.ndarray | None = None
    agreement: Mapping[str, Sequence[Agreement]] = field(default_factory=dict)
    details: Mapping[str, Mapping[str, Any]] = field(default_factory=dict, repr=False)
    made: Mapping[str, Any] = field(default_factory=dict, repr=False)
    left_out: Mapping[str, str] = field(default_factory=dict)
    sources: Mapping[str, Mapping[str, Any]] = field(default_factory=dict, repr=False)
    costs: tuple[float, ...] = ()

    @property
    def order(self) -> list[str]:
        """Return the models in the order of `Consensus.order`: by expected regret, then by P(best)."""
        return [self.models[m] for m in self.consensus.order()]

    @property
    def best(self) -> str:
        """Return the first model of the order. Raises UserError if no metric scores every model."""
        if not self.consensus.first():
            raise UserError(f"{self.data}: no metric scores every model, so none is first: {'; '.join(self.notes)}")
        return self.order[0]

    @property
    def decision(self) -> Decision | None:
        """Which model to take; None if no metric scores every model."""
        if not self.consensus.first():
            return None
        nulls = [null for null in self.nulls if null.candidate.name != RAW]
        return self.consensus.decision(self.models, nulls, self.costs)

    @property
    def explanation(self) -> list[str]:
        """Return lines on how the probabilities come about, and on the neighbours that kNN has here."""
        lines = [self.consensus.explanation] if self.consensus.explanation else []
        about = "images of this ranking; evaluate.py's knn has held-out test images"
        for metric, models in self.details.items():
            if metric in self.metrics and metric.partition("(")[0] == "knn" and models:
                k = next(iter(models.values()))["k"]
                lines.append(f"{metric}: leave-one-out {k}-NN on the {self.n:,} {about}.")
        return [*lines, *self._frozen()]

    def _frozen(self) -> list[str]:
        """A line where raw pixels are as good as the first model's features; fine-tuning may go beyond both."""
        raw = next((null for null in self.nulls if null.candidate.name == RAW), None)
        first = self.decision and self.models.index(self.decision.first.name)
        if raw is None or first is None or raw.differences[first].is_above:
            return []
        by_pixels = f"kNN of raw pixels has {raw.candidate.fact} here"
        return [f"{by_pixels}, and that of {self.models[first]} is not above it: of use only if it is fine-tuned."]

    def mark(self, m: int, k: int) -> str:
        """Return the letter of the source head behind a score, "" if all have the same or the metric reads none."""
        mark = letters(self.sources).get(self.models[m], "")
        return mark if mark and reads_source(self.metrics[k]) else ""

    def order_by(self, k: int) -> np.ndarray:
        """Return the models (n,) with a score by metric k, best first; of groups ranked apart the first ones first."""
        scored = np.flatnonzero(~np.isnan(self.scores[:, k]))
        return scored[np.lexsort((-self.scores[scored, k], self.ranks[scored, k]))]

    def ends(self, models: np.ndarray, k: int) -> np.ndarray:
        """Return the ends (n, 2) of the intervals of metric k, the score itself if there is none."""
        ends = self.intervals[models, k]
        return np.where(np.isnan(ends), self.scores[models, k][:, None], ends)

    def table(self, style: str = "text") -> str:
        """The ranking as text, its notes below. style: "text" or "markdown", see `evaluation.ranking.table.table`."""
        return as_table(self, style)

    def to_json(self, path: str | Path) -> Path:
        """Write the ranking atomically and return its path."""
        return write_ranking({**vars(self), "order": self.order}, Path(path))

    @classmethod
    def from_json(cls, path: str | Path) -> "Ranking":
        """Read a file of `to_json`. Raises UserError for an invalid file."""
        return cls(**read_ranking(Path(path), {field.name for field in fields(cls)}))


def reads_source(metric: str) -> bool:
    """Return whether a metric reads the source head; False for one that this version does not know."""
    try:
        return "source_probs" in parse(metric).needs
    except UserError:
        return False


def ranks_of(scores: np.ndarray) -> np.ndarray:
    """Return ranks (..., M), 1 for the highest, values equal up to rounding at their mean rank; nan stays nan."""
    ranks = np.full(scores.shape, np.nan)
    for row in np.ndindex(scores.shape[:-1]):
        has_score = ~np.isnan(scores[row])
        ranks[row][has_score] = average_ranks(-level_scores(scores[row][has_score]))
    return ranks


def intervals(scores: np.ndarray, redrawn: np.ndarray, n: int) -> tuple[np.ndarray, np.ndarray]:
    """Return 95 % intervals (M, 2) of the scores and of the ranks of n images, from redrawn scores (B, M).

    scores: (M,). The redrawn ones are put WIDENED times as far apart; that of a score is 1.96 standard deviations to
    each side, that of a rank is of percentiles. nan for fewer than two redrawn scores or FEWEST images.
    """
    if len(redrawn) < 2 or n < FEWEST:
        return np.full((len(scores), 2), np.nan), np.full((len(scores), 2), np.nan)
    apart = WIDENED * (redrawn - redrawn.mean(0))
    half = Z95 * apart.std(0, ddof=1)
    ranks = np.percentile(ranks_of(scores + apart), [2.5, 97.5], axis=0).T
    return np.stack([scores - half, scores + half], 1), ranks


def ties_with_best(scores: np.ndarray, redrawn: np.ndarray) -> np.ndarray:
    """Return (M,) bool: the difference to the best model is within 1.96 standard deviations of its redrawn values.

    With fewer than 2 redrawn scores only scores equal up to rounding are tied. A model without a score (nan) is not
    tied.
    """
    if np.isnan(scores).all():
        return np.zeros(len(scores), dtype=bool)
    best = int(np.nanargmax(scores))
    even = level_scores(scores)
    equal = even == even[best]
    behind = scores[best] - scores
    if len(redrawn) < 2:
        return equal
    spread = (redrawn[:, [best]] - redrawn).std(0, ddof=1)
    return equal | (behind <= 1.96 * spread)
