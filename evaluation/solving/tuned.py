"""Fine-tuning under the budget: a few learning rates for a short time, the best one for longer, then on all images.

The head starts at zero. Starting it at the probe (Kumar et al. 2022, arXiv 2202.10054) was tried and is worse here: a
probe of standardised features has large weights on features that hardly vary, and the first steps break the network.
"""

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from torch import nn

from evaluation.learners.cross_fit import folds_of
from evaluation.solving.probes import TUNED, Judged
from evaluation.solving.session import Session
from evaluation.tuning.classifier import Setting, predict
from evaluation.tuning.estimate import seconds_of_step
from evaluation.tuning.outcomes import estimate_of
from evaluation.tuning.pixels import Pixels
from evaluation.tuning.task import open_task
from evaluation.tuning.trials import Runner, Trial, key
from sslkit.backbones.base import Backbone
from sslkit.models.model import Model

RATES = (3e-4, 1e-3)  # of AdamW, around its usual one; a short run of a whole network needs the higher
DECAY = 0.01  # PyTorch's for AdamW
BATCH = 32  # images of a step: enough for batch statistics, and many steps in a short budget
CROP = (0.8, 1.0)  # share of the image in a crop: what a label is about may be a small part of it, and cut off
LONGER = 2  # times the steps of the short runs, of the best rate and of the final run
FEWEST = 30  # steps of the short runs: with fewer, rates are not told apart
# Shares of the image's side: a convolutional network is tuned on smaller images where fewer than ENOUGH steps of a
# short run fit. The second is the ratio of Touvron et al. 2019 (arXiv 1906.06423, FixRes): 160 instead of 224 pixels.
SIDES, ENOUGH = (5 / 7, 4 / 7), 100
STRIDE, LEAST_SIDE = 32, 96  # pixels: the stride of usual networks; with less than three by three places few are left
MOST_EPOCHS = 20  # over the images: beyond it small data sets gain nothing more


@dataclass(frozen=True)
class Plan:
    """steps: of a short run for each rate; the best rate gets about LONGER times as many, and so does the final run.

    seconds: of all runs. seconds_of_step: as measured. most: steps of a longer run. image_size: of the tuned network.
    """

    steps: int
    seconds: float
    seconds_of_step: float
    most: int
    image_size: int

    def longer(self, spent: float) -> int:
        """Steps of a longer run by what the short ones took: two such runs fit into the rest of the seconds.

        A step that is measured once may be far off on a machine that is shared.
        """
        each = spent / (len(RATES) * self.steps)
        return min(max(int((self.seconds - spent) / 2 / each), self.steps), self.most)


def make_plan(session: Session, model: Model, seconds: float) -> Plan | None:
    """The runs that fit into some seconds, by measured steps; None where too few steps do."""
    most = max(FEWEST, MOST_EPOCHS * len(session.problem.development) // (LONGER * BATCH))

    def measure() -> dict[str, Any]:
        for size in sizes_of(model):
            each = seconds_of_step(at_size(model, size), BATCH)
            steps = min(int(seconds / each / (len(RATES) + 2 * LONGER)), most)
            if steps >= min(ENOUGH, most):
                break
        return {"each": each, "steps": steps, "image_size": size, "allowed": seconds}

    record = session.once(session.key("plan", model), measure)
    if record["steps"] < FEWEST:
        return None
    return Plan(record["steps"], record["allowed"], record["each"], LONGER * most, record["image_size"])


def sizes_of(model: Model) -> list[int]:
    """The sides of images that a network is tuned at, in pixels, its own first; others are multiples of STRIDE."""
    if not model.backbone.convolutional or model.image_size <= LEAST_SIDE:
        return [model.image_size]
    smaller = [round(side * model.image_size / STRIDE) * STRIDE for side in SIDES]
    return [model.image_size, *(size for size in smaller if LEAST_SIDE <= size < model.image_size)]


def at_size(model: Model, image_size: int) -> Model:
    """The same network for images of another size."""
    if image_size == model.image_size:
        return model
    net, recipe = model.net, model.backbone.recipe
    backbone = Backbone(net, recipe, image_size=image_size, in_chans=model.in_chans, item=model.item)
    return replace(model, backbone=backbone.eval(), resizing=replace(model.resizing, image_size=image_size))


@dataclass(frozen=True, eq=False)
class Tuning:
    """The runs of one network. learned, judged: rows of the known images, the first fold and the others."""

    session: Session
    frozen: Judged
    runner: Runner
    plan: Plan
    learned: np.ndarray
    judged: np.ndarray

    @classmethod
    def open(cls, session: Session, frozen: Judged, plan: Plan) -> "Tuning":
        labelled = session.problem.development
        model = at_size(frozen.model, plan.image_size)
        splits = {"train": labelled, "test": session.problem.held_back}
        task = open_task(model, splits, session.reading, takes_numbers=True)
        first = folds_of(labelled.y, labelled.ids, labelled.groups, session.runtime.seed) == 0
        runner = Runner(task, session.records, replace(session.runtime, device=session.device, workers=1))
        return cls(session, frozen, runner, plan, np.flatnonzero(~first), np.flatnonzero(first))

    @property
    def announcement(self) -> str:
        steps, rates = self.plan.steps, ", ".join(f"{lr:g}" for lr in RATES)
        return (
            f"tune       {self.frozen.name}: {steps} steps at each of {rates}, about {LONGER * steps} at the best, and "
            f"again on all images; a step of {BATCH} images of {self.plan.image_size} pixels takes "
            f"{self.plan.seconds_of_step:.2g} s"
        )

    def judge(self) -> Judged | None:
        """Tune with each rate, the best for longer, and judge that; None if all diverge.

        Its value is that of the frozen network in all folds, and what tuning gains on the images of the first.
        """
        runs = [self._run(self._setting(lr, self.plan.steps)) for lr in RATES]
        sound = [run for run in runs if not run["diverged"]]
        if not sound:
            return None
        best = min(sound, key=lambda run: run["loss"])  # of few images it is less noisy than the accuracy
        steps = self.plan.longer(sum(run["seconds"] for run in runs))
        last = self._run(self._setting(best["lr"], steps))
        if last["diverged"]:
            return None
        chosen = min((best, last), key=lambda run: run["loss"])
        seconds = sum(run["seconds"] for run in (*runs, last))
        return self._make_judged(chosen, seconds)

    def final(self, judged: Judged) -> tuple[nn.Module, nn.Linear, np.ndarray]:
        """Tune on all known images; return the network, its head, and logits of the held-back images.

        The weights stay beside the records, so that the same call does not tune again.
        """
        setting, task = self._setting(judged.setting["lr"], judged.setting["steps"]), self.runner.task
        net = self.runner.network(Trial("test", setting, task.rows(), keep=True)).to(self.session.device)
        pixels = Pixels(task.test.centres, np.arange(len(task.test)), self.session.device)
        return net.backbone, net.head, predict(net, task.model, pixels, setting.precision).numpy()

    def _setting(self, lr: float, steps: int) -> Setting:
        how = {"weight_decay": DECAY, "batch_size": BATCH, "optimizer": "adamw", "crop": CROP}
        return Setting(lr=lr, steps=steps, seed=self.session.runtime.seed, mirror=self.runner.task.mirror, **how)

    def _run(self, setting: Setting) -> dict[str, Any]:
        """The record of one run on the images of the other folds, judged on the first."""
        trial = Trial("select", setting, self.learned, self.judged)
        is_recorded = self.session.records.find(key(self.runner.task, trial)) is not None
        (run,) = self.runner.run([trial], self.frozen.name)
        if is_recorded:
            self.session.budget.before += run["seconds"]
        return run

    def _make_judged(self, run: Mapping[str, Any], seconds: float) -> Judged:
        frozen = self.frozen
        gain = run["value"] - frozen.estimate_on(self.judged).value
        setting = {
            "lr": run["lr"],
            "steps": run["steps"],
            "image_size": self.plan.image_size,
            "gain": gain,
            "loss": run["loss"],
            "loss_of_probe": frozen.loss_on(self.judged),
        }
        return replace(
            frozen,
            how=TUNED,
            model=self.runner.task.model,
            scores=None,
            estimate=estimate_of(run),
            value=frozen.value + gain,
            seconds=seconds,
            setting={**frozen.setting, **setting, "beta": run["beta"]},
        )
