"""The mean and the variance of the features of a zoo on one data set."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import partial

import numpy as np

from evaluation.features.extraction import extract
from evaluation.features.zoo_members import load_member
from evaluation.results.statistics import Estimate, over_seeds
from evaluation.studies.claims import AGREES, OPEN, Cell, Numbers, Summary
from evaluation.studies.study import Lab, Study
from evaluation.studies.subjects import UNTRAINED, Subjects

COLUMNS = ("mean", "variance")


@dataclass(frozen=True, kw_only=True)
class Moments(Study):
    """For each model the mean of its features, and their variance about the mean of each dimension.

    data: at each scale. Intervals are over the images.
    """

    benchmark: str
    data: Mapping[str, str]

    def jobs(self, lab: Lab) -> dict[str, Callable[[], Numbers]]:
        subjects = Subjects(self.benchmark, lab)
        models = [*subjects.names(self.data[lab.scale]), *(UNTRAINED if subjects.is_small else ())]
        return {model: partial(self._measure, model, subjects) for model in models}

    def _measure(self, model: str, subjects: Subjects) -> Numbers:
        runtime, split = subjects.lab.runtime, subjects.splits(self.data[subjects.lab.scale])["train"]
        how = {"cache": runtime.cache, "device": runtime.device, "progress": runtime.progress}
        return moments(np.asarray(extract(load_member(subjects.zoo[model]), split, **how).x, np.float64))

    def summarize(self, by_job: Mapping[str, Numbers]) -> Summary:
        rows = {model: {name: Cell(_estimate(numbers, name)) for name in COLUMNS} for model, numbers in by_job.items()}
        told = {name: _apart({model: cells[name].measured for model, cells in rows.items()}) for name in COLUMNS}
        sentences = "; ".join(f"{name} from {sentence}" for name, (_, sentence) in told.items())
        outcome = AGREES if all(apart for apart, _ in told.values()) else OPEN
        return Summary(rows, outcome, f"the models differ in both: {outcome}, {sentences}")


def moments(x: np.ndarray) -> Numbers:
    """Mean and variance of features (N, D), each over the dimensions and with the ends of its interval."""
    by_image = {"mean": x.mean(1), "variance": np.square(x - x.mean(0)).mean(1)}
    numbers = {}
    for name, values in by_image.items():
        estimate = over_seeds(values, unit="")
        numbers |= {name: estimate.value, f"{name}, low": estimate.interval[0], f"{name}, high": estimate.interval[1]}
    return numbers


def _estimate(numbers: Numbers, name: str) -> Estimate:
    return Estimate(numbers[name], (numbers[f"{name}, low"], numbers[f"{name}, high"]), "t over images", unit="")


def _apart(models: Mapping[str, Estimate]) -> tuple[bool, str]:
    """True if the intervals of the least and the greatest number are apart, and a sentence with both."""
    low, high = min(models, key=lambda name: models[name].value), max(models, key=lambda name: models[name].value)
    apart = models[low].interval[1] < models[high].interval[0]
    return apart, f"{models[low].value:.3g} ({low}) to {models[high].value:.3g} ({high})"
