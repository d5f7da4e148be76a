"""Models that are ranked, or followed through their fine-tuning: a zoo that is trained, or a published benchmark's."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any, TypeVar

import numpy as np
import torch
from torch import nn

from evaluation.datasets import Reading
from evaluation.datasets.base import Split
from evaluation.ranking.inputs.benchmark import Benchmark, open_benchmark
from evaluation.ranking.truth import published
from evaluation.ranking.truth.ground_truth import GroundTruth, ground_truth, open_splits
from evaluation.studies.study import Lab
from evaluation.studies.training import train_entry
from evaluation.tuning.classifier import Setting, predict, train_classifier
from evaluation.tuning.pixels import Pixels
from evaluation.tuning.task import Task, open_task
from sslkit.models.model import Model
from sslkit.runtime.device import device_of

T = TypeVar("T")
# The zoo of scale=small: two epochs each on the Fashion-MNIST in the package, and its two networks as initialised.
SMALL = ("simclr", "moco", "byol", "simsiam", "barlow_twins", "vicreg", "swav", "w_mse", "mae", "supervised")
UNTRAINED = ("random:narrow_resnet", "random:narrow_vit")
TUNED = {"lr": (3e-2, 1e-2, 3e-3), "steps": 100, "seeds": (0, 1), "max_images": 500}
TUNED["mirror"] = False  # as measured: digits are among the tasks
TASKS = ("digits", "clipart", "fashion_mnist_few")
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
        return predict(self.net.backbone, self.task.model, self.parts[split], precision="float32").numpy()

    def labels(self, split: str) -> np.ndarray:
        return getattr(self.task, split).y

    def accuracy(self) -> float:
        """The head's, on the test images."""
        guessed = predict(self.net, self.task.model, self.parts["test"], precision="float32").argmax(1).numpy()
        return float(np.mean(guessed == self.labels("test")))


def follow(
    model: Model,
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
    measured: dict[int, T] = {}

    def watch(step: int, net: nn.Sequential) -> None:
        if step in steps.values():
            measured[step] = measure(Stage(net.eval(), task, parts))
            net.train()

    rows = task.rows()
    pixels, y = Pixels(task.train.crops, rows, device), torch.from_numpy(task.train.y[rows])
    how = {"classes": len(task.classes), "progress": lab.runtime.progress, "checkpoint": None}
    net = train_classifier(model, pixels, y, setting, watch=watch, **how)
    watch(setting.steps, net)
    return {share: measured[step] for share, step in steps.items()}


@dataclass(frozen=True)
class Subjects:
    """The models of a scale: those of SMALL and UNTRAINED, or of a published benchmark (`evaluation.published`)."""

    benchmark: str
    lab: Lab
    truths: dict[str, GroundTruth] = field(default_factory=dict)  # of tasks, once each is asked for

    @property
    def is_small(self) -> bool:
        return self.lab.scale == "small"

    @cached_property
    def zoo(self) -> Mapping[str, Any]:
        """Arguments of `load_member` by name; at scale=small the models are trained or opened.

        Raises UserError if a checkpoint of the benchmark is missing.
        """
        if not self.is_small:
            return self._files.zoo
        words = {name: (f"method={name}", f"experiment={name}", "epochs=2") for name in SMALL}
        entries = {name: str(train_entry(words[name], 0, self.lab).folder) for name in SMALL}
        return entries | {name: f"{name}(image_size=32)" for name in UNTRAINED}

    def tasks(self, small: Sequence[str]) -> Sequence[str]:
        """Names of data sets: these, or the benchmark's."""
        return small if self.is_small else self._files.datasets

    @cached_property
    def _files(self) -> Benchmark:
        root = self.lab.root
        return open_benchmark(self.benchmark, checkpoints=root / "checkpoints", root=root, download=False)

    def names(self, task: str) -> Sequence[str]:
        """The models, of the small zoo those that are trained."""
        return SMALL if self.is_small else list(published.truth(self.benchmark)[task])

    def small_truth(self, task: str) -> GroundTruth:
        """Fine-tune or read the models of the zoo of scale=small on a task."""
        if task not in self.truths:
            how = {"device": self.lab.runtime.device, "progress": self.lab.runtime.progress}
            self.truths[task] = ground_truth(self.zoo, task, out=self.lab.zoo.with_name("truth"), **how, **TUNED)
        return self.truths[task]

    def truth(self, task: str) -> Mapping[str, float]:
        """Accuracies after fine-tuning by model: measured, or published."""
        return self.small_truth(task).truth[task] if self.is_small else published.truth(self.benchmark)[task]

    def splits(self, task: str) -> Mapping[str, Split]:
        most = (TUNED["max_images"], 1000) if self.is_small else (None, None)
        return open_splits(task, Reading(root=self.lab.root), *most)

    def settings(self, task: str) -> dict[str, Setting]:
        """How each trained model is tuned: as its ground truth chose in small, PAPER for all at the paper's scale."""
        if not self.is_small:
            return dict.fromkeys(self.zoo, PAPER)
        truth = self.small_truth(task)
        fixed = {name: truth.settings[name] for name in ("steps", "batch_size", "mirror", "precision")}
        fixed["crop"] = tuple(truth.settings["crop"])
        chosen = {model: truth.results[task][model]["chosen"] for model in SMALL}
        varied = ("lr", "weight_decay", "optimizer")
        return {
            model: Setting(**{name: options[name] for name in varied}, **fixed) for model, options in chosen.items()
        }


def percent(share: float) -> str:
    return f"{100 * share:g} % of the steps"
