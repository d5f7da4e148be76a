"""Networks followed through their fine-tuning: what is measured of them after shares of the steps."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, TypeVar

import numpy as np
import torch
from torch import nn

from evaluation.datasets import Reading
from evaluation.datasets.base import Split
from evaluation.features.checks import device_of
from evaluation.features.models import LoadedModel
from evaluation.papers.experiment import Lab
from evaluation.papers.rankings import TUNED, UNTRAINED, small_truth, small_zoo
from evaluation.ranking.benchmark import open_benchmark
from evaluation.ranking.ground_truth import opened_splits
from evaluation.tuning.classifier import Setting, predict, train_classifier
from evaluation.tuning.pixels import Pixels
from evaluation.tuning.task import Task, open_task

T = TypeVar("T")
# Of scale=paper; the steps are those of PED's appendix C, which names no rate for one run.
PAPER = Setting(lr=1e-2, weight_decay=1e-4, steps=5000)


@dataclass(frozen=True, eq=False)
class Stage:
    """A network after some of its steps. net: backbone and head, in eval mode. parts: centre crops of each split."""

    net: nn.Sequential
    task: Task
    parts: Mapping[str, Pixels]

    def features(self, split: str) -> np.ndarray:
        """(N, D) of "train" or "test"."""
        return predict(self.net.backbone, self.task.model, self.parts[split]).numpy()

    def labels(self, split: str) -> np.ndarray:
        return getattr(self.task, split).y

    def accuracy(self) -> float:
        """The head's, on the test images."""
        guessed = predict(self.net, self.task.model, self.parts["test"]).argmax(1).numpy()
        return float(np.mean(guessed == self.labels("test")))


def follow(
    model: LoadedModel,
    splits: Mapping[str, Split],
    setting: Setting,
    shares: Sequence[float],
    measure: Callable[[Stage], T],
    lab: Lab,
) -> dict[float, T]:
    """Fine-tune a copy of a network, and measure it after each of these shares of the steps, in one run.

    splits: "train" and "test". shares: 0 is the network before the first step, 1 after the last.
    """
    task, device = open_task(model, splits), device_of(lab.runtime.device)
    parts = {name: Pixels(getattr(task, name).centres, np.arange(len(splits[name])), device) for name in splits}
    steps = {share: round(share * setting.steps) for share in shares}
    found: dict[int, T] = {}

    def watch(step: int, net: nn.Sequential) -> None:
        if step in steps.values():
            found[step] = measure(Stage(net.eval(), task, parts))
            net.train()

    rows = task.rows()
    pixels, y = Pixels(task.train.crops, rows, device), torch.from_numpy(task.train.y[rows])
    how = {"classes": len(task.classes), "progress": lab.runtime.progress}
    net = train_classifier(model, pixels, y, setting, watch=watch, **how)
    watch(setting.steps, net)
    return {share: found[step] for share, step in steps.items()}


@dataclass(frozen=True)
class Subjects:
    """Models, a task and how each is tuned. models: arguments of `load_member` by name. truth: accuracies by model."""

    models: Mapping[str, Any]
    splits: Mapping[str, Split]
    settings: Mapping[str, Setting]
    truth: Mapping[str, float]


def small_subjects(task: str, lab: Lab) -> Subjects:
    """The trained models of scale=small on a task, each with the setting that its ground truth chose."""
    zoo = small_zoo(lab)
    found = small_truth(zoo, task, lab)
    zoo = {name: one for name, one in zoo.items() if name not in UNTRAINED}
    results = {name: found.results[task][name] for name in zoo}
    fixed = {name: found.settings[name] for name in ("steps", "batch_size", "mirror", "precision")}
    fixed["crop"] = tuple(found.settings["crop"])
    settings = {
        name: Setting(**{key: record["chosen"][key] for key in ("lr", "weight_decay", "optimizer")}, **fixed)
        for name, record in results.items()
    }
    splits = opened_splits(task, Reading(), TUNED["max_images"], 1000)
    truth = {name: record["value"] for name, record in results.items()}
    return Subjects(zoo, splits, settings, truth)


def paper_subjects(benchmark: str, task: str, truth: Mapping[str, float], lab: Lab) -> Subjects:
    """The models of a published benchmark on one of its tasks, all with the setting PAPER."""
    zoo = open_benchmark(benchmark, checkpoints=lab.root / "checkpoints", root=lab.root).zoo
    splits = opened_splits(task, Reading(root=lab.root), None, None)
    return Subjects(zoo, splits, dict.fromkeys(zoo, PAPER), truth)


def percent(share: float) -> str:
    return f"{100 * share:g} % of the steps"
