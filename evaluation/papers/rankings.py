"""Experiments that rank models: metrics as rows, data sets as columns, the agreement with fine-tuning as numbers."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any

from evaluation.datasets import Reading
from evaluation.papers.claims import Claim, judged
from evaluation.papers.drawing import rows_of_columns
from evaluation.papers.experiment import Cell, Experiment, Lab, Numbers, Shown
from evaluation.papers.training import trained
from evaluation.ranking import published
from evaluation.ranking.agreement import agreement
from evaluation.ranking.benchmark import Benchmark, open_benchmark, with_one_label
from evaluation.ranking.ground_truth import GroundTruth, ground_truth
from evaluation.ranking.rank import rank
from evaluation.results.statistics import Estimate, over_seeds
from sslkit.terminal import say

TRUTH, MEAN = "fine-tuning", "mean"
# The zoo of scale=small: two epochs each on the Fashion-MNIST in the package, and its two networks as initialised.
SMALL = ("simclr", "moco", "byol", "simsiam", "barlow_twins", "vicreg", "swav", "w_mse", "mae", "supervised")
UNTRAINED = ("random:narrow_resnet", "random:narrow_vit")
TUNED = {"lr": (3e-2, 1e-2, 3e-3), "steps": 100, "seeds": (0, 1), "max_images": 500}
TUNED["mirror"] = False  # as measured: digits are among the tasks


@dataclass(frozen=True, kw_only=True)
class Ranked(Experiment):
    """Metrics over a zoo, on several data sets.

    metrics: of `evaluation.metrics()` with their options, by their names in the table. benchmark: of
    `evaluation.published`, for scale=paper. tasks: data sets of scale=small. published: the paper's weighted tau by
    metric and data set. measure: of `evaluation.agreement`, between scores and accuracies.
    """

    metrics: Mapping[str, str]
    benchmark: str
    claims: tuple[Claim, ...]
    tasks: tuple[str, ...] = ("digits", "clipart", "fashion_mnist_few")
    published: Mapping[str, Mapping[str, float]] = field(default_factory=dict)
    measure: str = "weighted tau (Vigna)"

    def jobs(self, lab: Lab) -> dict[str, Callable[[], Numbers]]:
        if lab.scale == "small":
            return {task: partial(self._small, task, lab) for task in self.tasks}
        opened = open_benchmark(self.benchmark, checkpoints=lab.root / "checkpoints", root=lab.root)
        return {task: partial(self._paper, task, opened, lab) for task in opened.datasets}

    def _small(self, task: str, lab: Lab) -> Numbers:
        zoo = small_zoo(lab)
        return self._scores(zoo, task, small_truth(zoo, task, lab).truth[task], lab, max_images=TUNED["max_images"])

    def _paper(self, task: str, opened: Benchmark, lab: Lab) -> Numbers:
        truth = published.truth(self.benchmark)[task]
        zoo = {model: opened.zoo[model] for model in truth}
        images, said = with_one_label(Reading(root=lab.root).open(task, "train"))
        if said:
            say.line(f"note      {said}")
        return self._scores(zoo, images, truth, lab, max_images=None, root=lab.root)

    def _scores(self, zoo: Mapping[str, Any], task: Any, truth: Mapping[str, float], lab: Lab, **how: Any) -> Numbers:
        ranking = rank(zoo, task, list(self.metrics.values()), bootstrap=0, cache=lab.runtime.cache, **how)
        numbers = {f"{TRUTH} | {model}": truth[model] for model in ranking.models}
        for place, name in enumerate(self.metrics):
            scores = ranking.scores[:, place]
            numbers |= {f"{name} | {model}": score for model, score in zip(ranking.models, scores, strict=True)}
        return numbers

    def shown(self, found: Mapping[str, Numbers]) -> Shown:
        rows = {name: self._cells(name, found) for name in self.metrics}
        taus = {
            f"{name} | {place}": {MEAN: cells[task].measured.value}
            for name, cells in rows.items()
            for place, task in enumerate(found)
        }
        return Shown(rows, *judged(self.claims, taus, self._published(), {MEAN: ""}, over="data sets"))

    def _cells(self, name: str, found: Mapping[str, Numbers]) -> dict[str, Cell]:
        told = self._published().get(name, {})
        measured = {task: self._agreement(name, numbers) for task, numbers in found.items()}
        mean = over_seeds([one.value for one in measured.values()], unit="")
        return {key: Cell(one, told.get(key)) for key, one in {**measured, MEAN: mean}.items()}

    def _agreement(self, name: str, numbers: Numbers) -> Estimate:
        """With its 95 % interval over other models (bootstrap)."""
        (one,) = agreement(*pairs(name, numbers), measures=[self.measure])
        return Estimate(one.value, one.interval, "bootstrap over models", one.n, "")

    def _published(self) -> dict[str, dict[str, float]]:
        return {name: {**row, MEAN: sum(row.values()) / len(row)} for name, row in self.published.items()}

    def draw(self, found: Mapping[str, Numbers], path: Path, title: str) -> None:
        rows_of_columns(self.shown(found).rows, path, title)


def small_zoo(lab: Lab) -> dict[str, str]:
    """Train or open the zoo of scale=small: names and models."""
    words = {name: (f"method={name}", f"experiment={name}", "epochs=2") for name in SMALL}
    entries = {name: str(trained(words[name], 0, lab).folder) for name in SMALL}
    return entries | {name: f"{name}(image_size=32)" for name in UNTRAINED}


def small_truth(zoo: Mapping[str, str], task: str, lab: Lab) -> GroundTruth:
    """Fine-tune or read the models of the zoo of scale=small on a task."""
    runtime = lab.runtime
    return ground_truth(
        zoo, task, out=lab.zoo.with_name("truth"), device=runtime.device, progress=runtime.progress, **TUNED
    )


def pairs(name: str, numbers: Numbers) -> tuple[list[float], list[float]]:
    """Accuracies after fine-tuning and scores, model by model."""
    models = [key.partition(" | ")[2] for key in numbers if key.startswith(f"{TRUTH} | ")]
    return [numbers[f"{TRUTH} | {model}"] for model in models], [numbers[f"{name} | {model}"] for model in models]
