"""What does a linear layer on frozen features of augmented views reach, by SGD as papers report it?

- simclr90: Chen et al. 2020 (arXiv 2002.05709) as lightly runs it: lr 0.1, cosine, 90 epochs
- moco100: He et al. 2020 (arXiv 1911.05722): lr 30, divided by 10 at epochs 60 and 80 of 100
- vissl28: Goyal et al. 2019 (arXiv 1905.01235): batch normalisation before the layer, lr 0.01, weight decay 5e-4,
  divided by 10 at epochs 8, 16 and 24 of 28

All with crops of 8 to 100 % of the area and flips, momentum 0.9, rates for batches of 256, tested after the last epoch.
"""

import time
from collections.abc import Callable, Iterator
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from evaluation.datasets import Reading
from evaluation.datasets._readable import readable
from evaluation.datasets.base import Split
from evaluation.features.extraction import LOADED
from evaluation.protocols.base import Subject, among
from evaluation.results import unseen
from evaluation.results.class_means import mean_per_class
from evaluation.results.measures import measure, right_by_largest
from evaluation.results.result import Result, rows_digest
from evaluation.results.statistics import generator
from evaluation.tuning.checkpoint import Checkpoint
from evaluation.tuning.classifier import Setting, predict, training_batches, training_loss
from evaluation.tuning.loop import Diverged, Training, dropout_seed, fit
from evaluation.tuning.optimizers import make_optimizer
from evaluation.tuning.pixels import Pixels
from evaluation.tuning.processes import process_group
from evaluation.tuning.recorded import checkpoint_of
from evaluation.tuning.task import Task, open_task
from evaluation.tuning.trials import of_model
from sslkit.errors import UserError
from sslkit.models.loading import Loading
from sslkit.models.model import Model
from sslkit.numerics.schedules import cosine
from sslkit.options.members import nearest
from sslkit.options.settings import MOST, setting
from sslkit.runtime.callers import public
from sslkit.runtime.context import PRECISIONS, Runtime
from sslkit.runtime.device import autocast


@dataclass(frozen=True)
class Recipe:
    """A schedule for the layer.

    lr: at the start, for a batch of 256. epochs: published number. weight_decay: added to the gradient.
    milestones: epochs, of the published number, at which the rate is divided by 10; none: a cosine to 0.
    norm: whether features are batch-normalised first (with trained scale and shift).
    """

    lr: float
    epochs: int
    weight_decay: float = 0.0
    milestones: tuple[int, ...] = ()
    norm: bool = False

    def factor(self, done: float) -> float:
        """Return the factor of the learning rate after this share of the epochs."""
        if not self.milestones:
            return cosine(done, 1)
        return 0.1 ** sum(done * self.epochs >= milestone - 1e-9 for milestone in self.milestones)


RECIPES = {
    "simclr90": Recipe(lr=0.1, epochs=90),
    "moco100": Recipe(lr=30.0, epochs=100, milestones=(60, 80)),
    "vissl28": Recipe(lr=0.01, epochs=28, weight_decay=5e-4, milestones=(8, 16, 24), norm=True),
}


@dataclass(frozen=True, kw_only=True)
class Options:
    recipe: str = setting("simclr90", "simclr90, moco100 or vissl28", choices=tuple(RECIPES))
    epochs: int | None = setting(
        None,
        "another number than the recipe's, its schedule in proportion; the result's recipe then says so",
        least=1,
        most=MOST,
    )
    batch_size: int = setting(256, "images of a step; the rate is scaled by batch_size / 256", least=2, most=MOST)
    precision: str = setting("float32", "of the backbone: float32, or bfloat16 autocast", choices=PRECISIONS)


@public(*LOADED, "mirror", "seed", "out", "device", "progress")
def linear_on_views(
    model: Any,
    train: Split,
    test: Split,
    options: Options,
    *,
    val: Split | None = None,
    loading: Loading,
    reading: Reading,
    runtime: Runtime,
) -> Result:
    """The test set's metric of a linear layer that saw augmented views of the training images, after the last epoch.

    model: see `sslkit.load`; its weights and running statistics stay as they are. train, test: open splits.
    val: a further split to learn from. The recipes are those of the module. The seed is that of the layer's start, the
    order and the views. Below `out` is a checkpoint, from which the same call goes on after a stop; it is deleted at
    the end. Under torchrun all processes share every batch. Nothing is chosen, so no images are held out.
    Raises UserError for unknown options, labels that do not fit (see `evaluation.tuning.task.open_task`), and a
    learning rate that makes the loss infinite.
    """
    splits = {"train": train, "test": test} | ({} if val is None else {"val": val})
    return _on_views(loading.load(model), splits, options, runtime, reading)


def _on_views(model: Model, given: dict[str, Split], options: Options, runtime: Runtime, reading: Reading) -> Result:
    """Train and test the layer; see `linear_on_views`."""
    start = time.perf_counter()
    chosen = _chosen(options.recipe, options.epochs)
    task, epochs = open_task(model, given, reading), options.epochs or chosen.epochs
    size = min(options.batch_size, len(task.train))
    count = epochs * (len(task.train) // max(size, 1))
    how = {"batch_size": options.batch_size, "precision": options.precision, "seed": int(runtime.seed)}
    how["mirror"] = task.mirror
    setting = Setting(chosen.lr * size / 256, steps=count, **how)
    with process_group(runtime) as runtime:
        checkpoint = _checkpoint(runtime.out, task, chosen, setting)
        try:
            scores = _scores(task, chosen, setting, checkpoint, runtime)
        except Diverged as error:
            raise UserError(
                f"{options.recipe} with lr {setting.lr:g} on {task.model.name}: {error}; take another recipe"
            ) from error
        checkpoint.remove()
    name = options.recipe if epochs == chosen.epochs else f"{options.recipe}, {epochs} of {chosen.epochs} epochs"
    return _result(task, scores, name, setting, time.perf_counter() - start, runtime)


def open(subject: Subject, options: Options) -> Subject:
    """Check the labels before anything is computed. Raises UserError."""
    subject.check_train_and_test("linear_aug", several=True)
    _splits(subject)
    return subject


def run(opened: Subject, options: Options, runtime: Runtime) -> list[Result]:
    """On views of the training images; see `linear_on_views`."""
    return [_on_views(opened.model, _splits(opened), options, runtime, opened.reading)]


def beside(result: Result) -> tuple[str, ...]:
    """The area under the precision-recall curve, beside 11 points of it."""
    return among(result, "map")


def _splits(subject: Subject) -> dict[str, Split]:
    """Return the splits without images that cannot be read, looked at once for all models."""
    train, *val = subject.learns_from
    names = {"train": train, "test": subject.test_split} | ({"val": val[0]} if val else {})
    return subject.once("readable", lambda: {use: readable(subject.open_split(name)) for use, name in names.items()})


def _chosen(recipe: str, epochs: int | None) -> Recipe:
    if recipe not in RECIPES:
        raise UserError(f"there is no recipe {recipe!r}: {nearest(str(recipe), RECIPES)}")
    if epochs is not None and (isinstance(epochs, bool) or not isinstance(epochs, int) or epochs < 1):
        raise UserError(f"epochs={epochs!r} must be a whole number from 1")
    return RECIPES[recipe]


def _checkpoint(out: str | Path | None, task: Task, recipe: Recipe, setting: Setting) -> Checkpoint:
    rows = [rows_digest(split.ids, split.y) for split in (task.train, task.test)]
    key = {**of_model(task.model), "images": task.digest, "rows": rows, **asdict(recipe), **asdict(setting)}
    return Checkpoint() if out is None else checkpoint_of(Path(out) / "linear_aug", key)


def _scores(task: Task, recipe: Recipe, setting: Setting, checkpoint: Checkpoint, runtime: Runtime) -> Tensor:
    """(M, K) float32 scores of the test images, after the layer has been trained."""
    device = runtime.device
    backbone = task.model.backbone.to(device).eval()
    head = _head(recipe, task.model.width, len(task.classes), setting.seed).to(device)
    rows = task.rows()
    y = torch.from_numpy(task.train.y[rows]).to(device)
    pixels = Pixels(task.train.crops, rows, device)
    training = layer_training(
        backbone, head, lambda first: training_batches(task.model, pixels, setting, first), y, recipe, setting
    )
    fit(training, checkpoint=checkpoint, progress=runtime.progress and "linear layer")
    whole = nn.Sequential(backbone, head).eval()
    tested = Pixels(task.test.centres, np.arange(len(task.test)), device)
    return predict(whole, task.model, tested, setting.precision)


def layer_training(
    backbone: nn.Module,
    head: nn.Module,
    views: Callable[[int], Iterator[tuple[Tensor, Tensor]]],
    y: Tensor,
    recipe: Recipe,
    setting: Setting,
) -> Training:
    """Return the training of `head` on the features of a backbone in eval mode, for setting.steps batches.

    views: first step -> normalised images (B, C, S, S) and the indices (B,) of their labels in y: (n,) int64, or
        (n, K). The head is computed in float32, the backbone in setting.precision.
    """

    def loss(layer: nn.Module, batch: tuple[Tensor, Tensor], step: int) -> Tensor:
        images, places = batch
        with torch.no_grad(), autocast(setting.precision, y.device):
            features = backbone(images)
        return training_loss(layer(features.float()), y[places])

    group = {"params": list(head.parameters()), "lr": setting.lr, "weight_decay": recipe.weight_decay}
    return Training(
        head.train(),
        make_optimizer("sgd", [group], nesterov=False),
        steps=setting.steps,
        rate=lambda step: recipe.factor(step / setting.steps),
        batches=views,
        loss=loss,
        seed_at=lambda step: dropout_seed(setting.seed, step),
    )


def _head(recipe: Recipe, width: int, classes: int, seed: int) -> nn.Module:
    """A linear layer with weights from N(0, 0.01^2) and intercepts of 0, behind batch normalisation if asked for."""
    layer = nn.utils.skip_init(nn.Linear, width, classes)
    start = generator(seed, "linear layer").normal(0, 0.01, (classes, width))
    with torch.no_grad():
        layer.weight.copy_(torch.from_numpy(start))
        layer.bias.zero_()
    return nn.Sequential(nn.BatchNorm1d(width), layer) if recipe.norm else layer


def _result(task: Task, scores: Tensor, name: str, setting: Setting, seconds: float, runtime: Runtime) -> Result:
    scored, y, groups = scores.numpy(), task.test.y, task.test.groups
    estimate, others, right = measure(scored, y, task.metric, groups)
    others |= unseen.beside(
        task.in_train, lambda rows: measure(scored[rows], y[rows], task.metric, unseen.take(groups, rows))[0]
    )
    if task.metric == "top1":
        others["mean_per_class"] = mean_per_class(right, y, groups)
    return Result.from_estimate(
        estimate,
        protocol="linear_aug",
        recipe=f"{name}, on augmented views",
        metric=task.metric,
        model=task.model.name,
        data=task.name,
        others=others,
        seeds=[setting.seed],
        digests={"model": task.model.digest, "images": task.digest},
        leaky=unseen.is_leaky(task.in_train),
        seconds=seconds,
        details={
            **unseen.details(task.in_train, task.near_in_train),
            "lr": setting.lr,
            "batch_size": setting.batch_size,
            "steps": setting.steps,
            "crop": list(setting.crop),
            "mirror": setting.mirror,
            "precision": setting.precision,
            "device": runtime.device.type,
        },
        outcomes=right,
        groups=None if right is None else groups,
        largest=None if right is None else right_by_largest(y),
        paired_on="" if right is None else rows_digest(task.test.ids, y),
    )
