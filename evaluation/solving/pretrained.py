"""New networks for the problem: pretrained on its images without labels, in a share of the budget."""

from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import torch

from evaluation.features.extraction import features_of
from evaluation.solving.probes import Judged
from evaluation.solving.session import Session
from sslkit.data.loader import evenly
from sslkit.decision import Continuing
from sslkit.errors import UserError
from sslkit.files.writing import name_of
from sslkit.models.loading import load
from sslkit.models.model import Model
from sslkit.numerics.diagnostics import uniformity
from sslkit.options.members import classes
from sslkit.terminal.say import counted, lasting, only_warnings
from sslkit.training.estimate import seconds_of_epoch
from sslkit.training.pretrain import pretrain
from sslkit.zoo.entry import CARD, ZooEntry

SHARE = 0.25  # of what is left of the budget, for all new networks together
FEWEST_NEW, FEWEST_ON = 10, 2  # epochs below which a new network, or one that goes on from weights, learns too little
MOST = 200  # epochs: beyond it small data sets gain little
BATCH = 128  # images of a step, as by default; fewer where there are fewer
SMALL = 64  # pixels, up to which the networks are narrow ones that a CPU trains in minutes
MOST_COMPARED = 1000  # images, whose pairs tell how far apart features lie
LEAST = 256  # images: with fewer there is nothing to learn without labels


@dataclass(frozen=True)
class Newcomer:
    """A network to train. method: of `sslkit.pretrain`. start: to go on from; None: random weights.

    size: side of its images in pixels; None: as `sslkit.pretrain` chooses.
    """

    method: str
    start: Judged | None = None
    size: int | None = None

    @property
    def name(self) -> str:
        here = f"{self.method} here{f' at {self.size} px' if self.size else ''}"
        return f"{self.start.name}, {here}" if self.start else here

    @property
    def fewest(self) -> int:
        return FEWEST_ON if self.start else FEWEST_NEW

    @property
    def settings(self) -> dict[str, Any]:
        """The settings of `sslkit.pretrain` for this start and size."""
        if self.start is None:
            return {"image_size": self.size} if self.size else {}
        model = self.start.model
        word = str(model.entry.folder) if model.entry else self.start.name
        size = {"data.channels": model.in_chans, "image_size": model.image_size}
        return {"init": word, **size}


def check_methods(methods: list[str]) -> None:
    """Raises UserError for an unknown method, and for one that learns from labels: they would leak into the choice."""
    for method in methods:
        if classes(method)["objective"].needs_labels:
            raise UserError(f"methods={method} learns from labels, by which the networks are chosen: leave it out")


def newcomers(methods: list[str], best: Judged | None) -> list[Newcomer]:
    """The networks to train: each method from random weights, and the first one on from the best ready-made weights."""
    on = [Newcomer(methods[0], best)] if methods and best is not None else []
    return [*map(Newcomer, methods), *on]


def advise(session: Session, newcomer: Newcomer) -> Continuing:
    """Return whether to go on from its start, by what that makes of the known images."""
    model, learned = newcomer.start.model, session.problem.development

    def work() -> dict[str, float]:
        x = features_of(model, learned, session.reading, session.runtime).x
        return {"uniformity": uniformity(torch.from_numpy(np.array(x[evenly(len(x), MOST_COMPARED)])))}

    record = session.once(session.key("uniformity", model), work)
    return Continuing(record["uniformity"], model.backbone.is_vit, len(session.problem.pretrainable))


def train(session: Session, newcomer: Newcomer, seconds: float) -> tuple[Newcomer, Model] | None:
    """Train a network for at most some seconds, a smaller one on small images where the usual one does not fit.

    None, with a line, where too few epochs fit.
    """
    images, runtime = session.problem.pretrainable, session.runtime
    settings = _settings(session, newcomer)
    key = {"stage": "epochs", **settings, "data": images.digest}
    each = session.once(key, lambda: {"each": seconds_of_epoch(settings, images)})["each"]
    epochs = session.once({**key, "stage": "plan"}, lambda: {"epochs": min(int(seconds / each), MOST)})["epochs"]
    is_large = images.decodes and newcomer.start is None and newcomer.size is None
    if epochs < newcomer.fewest and is_large:
        return train(session, replace(newcomer, size=SMALL), seconds)
    if epochs < newcomer.fewest:
        runtime.say(
            f"pretrain  {newcomer.name}: left out, {counted(newcomer.fewest, 'epoch')} would take "
            f"{lasting(newcomer.fewest * each)} and {lasting(max(seconds, 0))} are left for it"
        )
        return None
    about = f"{counted(epochs, 'epoch')} of {counted(len(images), 'image')}, about {lasting(epochs * each)}"
    runtime.say(f"pretrain  {newcomer.name}: {about}")
    session.once({**key, "stage": "pretrain", "epochs": epochs}, lambda: _train({**settings, "epochs": epochs}, images))
    return newcomer, load(Path(settings["out"]) / settings["name"])


def _settings(session: Session, newcomer: Newcomer) -> dict[str, Any]:
    runtime, images = session.runtime, session.problem.pretrainable
    return {
        "method": newcomer.method,
        "batch_size": min(BATCH, len(images)),
        "out": str(session.out / "zoo"),
        "name": name_of(newcomer.name),
        "seed": runtime.seed,
        "device": runtime.device,
        "cache": runtime.cache and str(runtime.cache),
        "eval.tsne": 0,
        **newcomer.settings,
    }


def _train(settings: Mapping[str, Any], images: Any) -> dict[str, Any]:
    folder = Path(settings["out"]) / settings["name"]
    if not (folder / CARD).is_file():
        with only_warnings():
            pretrain({**settings, "data": images, "resume": folder.is_dir()})
    return {"entry": str(ZooEntry.load(folder).folder)}
