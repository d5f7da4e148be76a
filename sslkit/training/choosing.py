"""The weights that a run ends with: of its last epoch or its best one, and of those and its start what lies between.

They are compared by images apart from those on which results are told, so that the choice lends nothing to these:
with labels by half of the held-out ones, the mean of kNN and quick probe; without labels by the other view of training
images, which more training always finds more often, so that nothing between the start and the end is chosen by it.
"""

import math
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor

from sslkit.backbones.words import AUTO
from sslkit.composition.method import Method
from sslkit.data.cached_images import CachedImages
from sslkit.errors import RunFailed, UserError, first_line
from sslkit.files.writing import write_whole
from sslkit.layers.precise_bn import recompute_statistics
from sslkit.numerics.paired import pair
from sslkit.numerics.state_dicts import interpolate
from sslkit.numerics.view_retrieval import FEWEST
from sslkit.runtime.distributed import gather_objects
from sslkit.runtime.loop import Hook, Loop
from sslkit.terminal import say
from sslkit.terminal.say import CALL, counted
from sslkit.training.config import Config
from sslkit.training.data import Data, cap
from sslkit.training.evaluators import Evaluations
from sslkit.training.monitor import Monitor
from sslkit.training.quick_evaluation import features, hits, usefulness

BEST = Path("checkpoints", "best.ckpt")  # in a run's folder
SHARES = (0.25, 0.5, 0.75)  # tried beside 1: a grid of four costs as much as four evaluations of an epoch
STATISTICS, BATCH = 1024, 64  # images, and those of a batch, of means and variances: an error of 3 % of a deviation


def check_choice(config: Config, data: Data) -> None:
    """Raises UserError where keep=best or stop= has nothing to compare weights by."""
    asked = {"keep": config.keep, "stop": config.stop}
    named = [f"{name}={value}" for name, value in asked.items() if value not in ("last", None)]
    if config.eval.by is not None:
        return
    if named and data.choice is None and (data.bank is not None or data.train.item.axes or len(data.train) < FEWEST):
        raise UserError(
            f"{' and '.join(named)}: weights are compared on held-out {data.unit} with labels, of which each half has "
            f"two classes of two, or by views of at least {FEWEST} images without labels; {config.data.source} has "
            "neither: leave it out"
        )


def describe_choice(config: Config, data: Data) -> list[str]:
    """The first line of a run on the weights that it will keep; none where these are the last."""
    apart = "finding the other view"
    if data.choice is not None:
        apart = f"{len(data.choice.rows):,} held-out {data.unit} that no result is told on"
    by = config.eval.by or apart
    told = [f"the epoch that is best by {by}"] if config.keep == "best" else []
    told += [f"ends after {counted(config.stop, 'evaluation')} without gain by {by}"] if config.stop else []
    if config.init is not None and config.interpolate != 1:
        at = f"{config.interpolate} of the training's weights" if config.interpolate != AUTO else ""
        chosen = f"the best share of the training's weights and the start's by {apart}"
        few = "the training's weights alone: too few held-out images have labels to choose a share of the start's"
        told.append(f"{at} and the rest of the start's" if at else chosen if data.choice is not None else few)
    return [f"kept      {'; '.join(told)}"] if told else []


class Best(Hook):
    """Keeps the weights of the best epoch, and ends a run that has not gained for long.

    scorer: has the scores of an epoch. folder: of the run. An epoch that is not evaluated is neither.
    """

    def __init__(self, config: Config, scorer: Monitor | Evaluations, folder: Path) -> None:
        self.keeps, self.patience, self.by = config.keep == "best", config.stop, config.eval.by
        self.scorer, self.file = scorer, folder / BEST
        self.score, self.epoch, self.since, self.ended = -math.inf, 0, 0, 0

    def begin(self, loop: Loop) -> None:
        if self.ended:  # a run that is resumed to be finished
            loop.epochs = self.ended

    def epoch_end(self, loop: Loop) -> None:
        if not (self.keeps or self.patience):
            return
        if self.scorer.scores is not None:  # of the first process
            self._compare(loop, float(self.scorer.scores.mean()))
        if self.patience and any(gather_objects(self.since >= self.patience)):
            self.ended = loop.epochs = loop.epoch + 1
            if loop.is_main:
                say.line(f"stop      no gain in {counted(self.since, 'evaluation')} since epoch {self.epoch}")

    def _compare(self, loop: Loop, score: float) -> None:
        self.since += 1
        if score > self.score:
            self.score, self.epoch, self.since = score, loop.epoch + 1, 0
            if self.keeps:
                with write_whole(self.file) as partial:
                    torch.save(loop.module.method.state_dict(), partial)

    def restore_best(self, loop: Loop, method: Method) -> dict[str, Any]:
        """Load the weights of the best epoch, and return fields of the card. Raises RunFailed for a damaged file."""
        last = loop.epochs
        if not (self.keeps and self.epoch):
            return {"epochs": last}
        if self.epoch < last:
            try:
                method.load_state_dict(torch.load(self.file, map_location="cpu", weights_only=True))
            except Exception as error:  # torch and pickle raise any class
                why = f"the weights of the best epoch, cannot be read: {first_line(error)}"
                raise RunFailed(f"{self.file}, {why}; start a new run") from error
        images = 0 if self.scorer.scores is None else len(self.scorer.scores)
        about = {"images": images} if self.by is None else {"by": self.by}
        return {"epochs": self.epoch, "kept": {"epoch": self.epoch, "of": last, "score": self.score, **about}}

    def state(self) -> dict[str, Any]:
        return {"score": self.score, "epoch": self.epoch, "since": self.since, "ended": self.ended}

    def restore(self, state: dict[str, Any]) -> None:
        self.score, self.epoch, self.since, self.ended = (state[name] for name in ("score", "epoch", "since", "ended"))


def weights_of(method: Method) -> dict[str, Tensor]:
    """The backbone's weights, which training does not change any more."""
    return {name: value.clone() for name, value in method.backbone.export().items()}


def settle_weights(
    config: Config, data: Data, method: Method, start: dict[str, Tensor] | None
) -> tuple[dict[str, Any], dict[str, Tensor] | None]:
    """Load what lies between the start and the end, and return the fields of the card and the end's weights.

    start: of the backbone; None where it is random. Without anything between, {} and None. Statistics of batch
    normalisation are made anew on clean training images where a share is given. Where it is chosen both are tried,
    those and the statistics in between: of efficientnet_lite0 on clip art those made anew lost 6 points against the end
    (one seed). Statistics that are kept (tune=) stay.
    """
    is_chosen = config.interpolate == AUTO
    if start is None or config.interpolate == 1 or (is_chosen and data.choice is None):
        return {}, None
    end, pixels = weights_of(method), _read_training(data, config)

    def load(share: float, anew: bool) -> None:
        method.backbone.load_exported(interpolate(start, end, share))
        if not anew:
            return
        try:
            recompute_statistics(method.backbone.net, _as_batches(method, pixels), method.backbone.kept_norms)
        except ValueError as error:
            raise UserError(f"interpolate={share:g}: {error}; {CALL} with interpolate=1 keeps the end") from error

    if not is_chosen:
        load(config.interpolate, True)
        return {"interpolation": {"share": config.interpolate}}, end
    has_statistics = not method.backbone.batch_norms().keys() <= method.backbone.kept_norms
    between = [(share, anew) for share in SHARES for anew in ((False, True) if has_statistics else (False,))]
    scores = {}
    for share, anew in ((0.0, False), *between, (1.0, False)):
        load(share, anew)
        scores[share, anew] = usefulness(
            hits(features(method, data.bank), features(method, data.choice), config.eval.k)
        )
    best = max((*between, (1.0, False)), key=lambda tried: (scores[tried].mean(), -tried[0]))
    load(*best)
    images, about = data.choice.images, {"share": best[0], "anew": best[1], "images": len(scores[best])}
    groups = None if images.groups is None else images.groups[data.choice.rows]
    for name, other in (("over_start", 0.0), ("over_end", 1.0)):
        if groups is None or len(groups) == len(scores[best]):  # of all, none is unreadable
            gain = pair(scores[best], scores[other, False], groups)
            about |= {} if gain is None else {name: gain.of_card()}
    about["scores"] = {
        f"{share:g}{' anew' if anew else ''}": float(of_images.mean()) for (share, anew), of_images in scores.items()
    }
    return {"interpolation": about}, None if best[0] == 1 else end


def _read_training(data: Data, config: Config) -> list[Tensor]:
    """Clean training images, uint8, in whole batches in which classes are mixed."""
    clean = data.bank or cap(data.train.clean(data.image_size), config)
    rows = np.random.default_rng(0).permutation(clean.rows)[:STATISTICS]
    size = min(BATCH, len(rows))
    drawn = CachedImages(clean.images, rows[: len(rows) // size * size])
    return [batch["images"] for _, batch in drawn.batches(size)]


def _as_batches(method: Method, pixels: list[Tensor]) -> Iterator[Tensor]:
    device = next(method.parameters()).device
    for some in pixels:
        items = some.reshape(-1, *method.backbone.input_shape(some.shape[-1]))
        yield method.normalize_pixels(items.to(device).float() / 255)
