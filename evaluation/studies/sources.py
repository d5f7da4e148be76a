"""LEEP's figure 4: the choice among source models by LEEP, NCE, the H-score and the accuracy on the source."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import partial
from pathlib import Path

from scipy import stats

import sslkit
from evaluation.datasets import Reading
from evaluation.ranking.truth.ground_truth import open_splits
from evaluation.results.statistics import Estimate
from evaluation.studies.claims import AGREES, DISAGREES, OPEN, Cell, Numbers, Summary, outcome
from evaluation.studies.drawing import draw_scatter
from evaluation.studies.study import Lab, Study
from evaluation.studies.subjects import Stage, follow
from evaluation.studies.subsets import PENALTY, SCORES, Source, score_subset
from evaluation.tuning.classifier import Setting
from sslkit.numerics.logistic import fit_logistic

ON_SOURCE = "accuracy on the source"
MEASURES = ("head only", "all weights")


@dataclass(frozen=True, kw_only=True)
class Sources(Study):
    """Source models, each scored on one target and tuned on it: the head alone, and all weights.

    sources: words for recipes/train.py at each scale, by name, of supervised runs. target, tuned: at each scale.
    images: most training images.
    """

    sources: Mapping[str, Mapping[str, tuple[str, ...]]]
    target: Mapping[str, str]
    tuned: Mapping[str, Setting]
    images: int = 500

    def jobs(self, lab: Lab) -> dict[str, Callable[[], Numbers]]:
        return {name: partial(self._measure, words, lab) for name, words in self.sources[lab.scale].items()}

    def _measure(self, words: tuple[str, ...], lab: Lab) -> Numbers:
        source = Source(words, self.target[lab.scale], lab)
        splits = open_splits(source.target, Reading(root=lab.root), self.images, None)
        train, test = (source.features_of(split) for split in (splits["train"], splits["test"]))
        probs = source.probabilities(train.x)
        head = fit_logistic(train.x, train.y, PENALTY)
        tuned = follow(sslkit.load(source.entry), splits, self.tuned[lab.scale], (1,), Stage.accuracy, lab)[1]
        scores = {name: score_subset(metric, train, probs) for name, metric in SCORES.items()}
        on_source = {ON_SOURCE: source.entry.card["after"]["probe"]}
        return {**scores, **on_source, MEASURES[0]: float((head.predict(test.x) == test.y).mean()), MEASURES[1]: tuned}

    def summarize(self, by_job: Mapping[str, Numbers]) -> Summary:
        rows = {
            name: {measure: Cell(_correlation(name, measure, by_job)) for measure in MEASURES}
            for name in (*SCORES, ON_SOURCE)
        }
        told = {measure: outcome(rows["LEEP"][measure].measured, 1) for measure in MEASURES}
        worst = next((verdict for verdict in (DISAGREES, OPEN) if verdict in told.values()), AGREES)
        verdicts = ", ".join(f"{verdict} ({measure})" for measure, verdict in told.items())
        return Summary(rows, worst, f"the accuracy rises with LEEP: {verdicts}, over {len(by_job)} source models")

    def draw(self, by_job: Mapping[str, Numbers], path: Path, title: str) -> None:
        scores = {name: [numbers[name] for numbers in by_job.values()] for name in (*SCORES, ON_SOURCE)}
        measured = {measure: [numbers[measure] for numbers in by_job.values()] for measure in MEASURES}
        draw_scatter(scores, measured, path, title, "source models")


def _correlation(name: str, measure: str, by_job: Mapping[str, Numbers]) -> Estimate:
    """Pearson's r of a score with an accuracy, over the source models."""
    pairs = [(numbers[name], numbers[measure]) for numbers in by_job.values()]
    r = stats.pearsonr(*zip(*pairs, strict=True))
    interval = tuple(map(float, r.confidence_interval(0.95))) if len(pairs) > 3 else None
    return Estimate(float(r.statistic), interval, "Fisher's z", len(pairs), "")
