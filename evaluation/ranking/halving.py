"""Successive halving: fine-tune the first models of a ranking for a few steps, then the better half for twice as many.

found = successive_halving("runs/zoo", "clipart", first=8, steps=200)
found.winner, found.probability, found.steps
"""

import math
from collections.abc import Callable, Mapping, Sequence, Sized
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np

from evaluation.datasets import Reading, Split, published
from evaluation.datasets._copies import identified, units
from evaluation.datasets._readable import readable
from evaluation.datasets._splits import held_out
from evaluation.features.checks import as_list, checked, checked_images, device_of, different_seeds
from evaluation.features.models import name_of
from evaluation.features.using import use_it
from evaluation.features.zoo_members import lines_of, load_member, members, open_all
from evaluation.protocols.fine_tune import SHARE, settings_of
from evaluation.ranking.candidates import sampled
from evaluation.ranking.checks import checked_metrics
from evaluation.ranking.elimination import tuned
from evaluation.ranking.rank import rank
from evaluation.ranking.ranking import Ranking
from evaluation.ranking.regions import judged_by, parts
from evaluation.ranking.rounds import Round, rounds_of
from sslkit.data.decode.fill import AUTO, Fill
from sslkit.errors import UserError
from sslkit.runtime.callers import process_kept
from sslkit.runtime.context import Runtime

SURE = 0.95  # probability at which the tuning stops early


@dataclass(frozen=True, eq=False)
class Halving:
    """The outcome. data: the task. ranking: by metrics, of all models. rounds: of fine-tuning, with growing steps.

    probability: that the winner is the best of the tuned models (`evaluation.ranking.beliefs`); nan for several labels
        per image.
    within: that the best model of the zoo is among the tuned ones, by the ranking; nan if it has no probabilities.
    train, held_out: numbers of images. checkpoint: the winner on a command line.
    use: the Python that loads the winner's weights before tuning, in lines.
    whole_steps: of tuning every ranked model with every rate, and with its best rate every seed.
    """

    data: str
    ranking: Ranking
    rounds: tuple[Round, ...]
    probability: float
    within: float
    train: int
    held_out: int
    checkpoint: str
    whole_steps: int
    use: tuple[str, ...] = ()

    @property
    def winner(self) -> str:
        return self.rounds[-1].arms[0].model

    @property
    def lr(self) -> float:
        """The winner's best learning rate."""
        return self.rounds[-1].arms[0].lrs[0]

    @property
    def steps(self) -> int:
        return sum(arm.steps for one in self.rounds for arm in one.arms)

    @property
    def seconds(self) -> float:
        """Seconds of fine-tuning, without the ranking's."""
        return sum(arm.seconds for one in self.rounds for arm in one.arms)


@process_kept()
def successive_halving(
    zoo: Any,
    data: Any,
    metrics: Sequence[str] | None = None,
    *,
    first: int = 8,
    steps: int = 200,
    lr: Sequence[float] = (3e-2, 1e-2, 3e-3, 1e-3),
    seeds: Sequence[int] = (0, 1, 2),
    sure: float = SURE,
    optimizer: str = "adamw",
    weight_decay: float = 0.01,
    batch_size: int = 32,
    crop: Sequence[float] = (0.5, 1.0),
    mirror: bool | None = None,
    precision: str = "float32",
    max_images: int | None = 2000,
    rank_images: int | None = 500,
    image_size: int | None = None,
    trust: str | Sequence[str] | None = (),
    root: str | Path = "data",
    range: Sequence[float] | str | None = None,
    opacity: bool | None = None,
    fill: Fill = AUTO,
    cache: str | Path | None = "runs/cache",
    out: str | Path | None = None,
    device: str = "auto",
    workers: int = 1,
    progress: bool = True,
    say: Callable[[str], None] = lambda line: None,
) -> Halving:
    """Rank a zoo by metrics, then fine-tune its first models in rounds, of which each keeps the better half.

    zoo, metrics, image_size, trust, root, range, opacity, fill: see `evaluation.rank`. data: a source of
        `evaluation.open_split`; only its training split is used, of which a fifth of each class is held out to compare
        the models.
    first: models that are fine-tuned, the first of the ranking. steps: of the last round; each round before it has half
        as many as the next.
    lr: the grid of the first round; each round keeps the better half of each model's rates, the last but one the best.
    seeds: of the last round; the others have the first of them. Two models have a single round, of every rate and seed.
    sure: stop once a model is the best with this probability; 1: never.
    optimizer, weight_decay, batch_size, crop, mirror, precision, device, workers: see `evaluation.fine_tune`.
    max_images: of the task, the same number of each class; rank_images: of these for the metrics; None: all.
    out: folder of halving.jsonl, with a line for each finished run, from which a stopped call goes on.
    The accuracy of the winner was used to choose it, so it is optimistic; `evaluation.fine_tune` measures on test
    images. Source: Jamieson and Talwalkar, Non-stochastic Best Arm Identification and Hyperparameter Optimization,
    AISTATS 2016.
    Raises UserError before any computation for bad options, metrics, models and data; before any tuning if no metric
    scores every model, or fewer than 2 can be ranked; and if all models diverge.
    """
    seeds, rates = tuple(different_seeds(seeds)), as_list("lr", lr)
    how = {"batch_size": batch_size, "crop": tuple(as_list("crop", crop)), "precision": precision}
    grid = {"lr": rates, "weight_decay": [weight_decay], "optimizer": optimizer}
    settings = settings_of(grid, steps=steps, **how)
    checked("first", first, int, least=2)
    checked("sure", sure, float, least=0.5, most=1)
    checked("steps", steps, int, least=2 ** (rounds_of(first) - 1))
    checked("workers", workers, int, least=1, most=256)
    checked_images(image_size=image_size), device_of(device), checked_metrics(metrics)
    given = members(zoo)
    models = open_all(given, lambda one: load_member(one, image_size, trust=trust))
    _at_least_two(models, models.left_out)
    reading = Reading(root=root, range=range, opacity=opacity, fill=fill, mirror=mirror, cache=cache)
    train, held = divided(_opened(data, reading, max_images), seeds[0])
    settings = [replace(one, mirror=reading.mirrors(train.classes, train.name)) for one in settings]
    ranked = sampled(train, rank_images, seeds[0])
    ranking = rank(models, ranked, metrics, seed=seeds[0], say=say, cache=cache, progress=progress)
    _at_least_two(ranking.models, ranking.left_out)
    asked = [ranking.best, *ranking.order[1:first]]
    runtime = Runtime(device=device, workers=workers, out=out, progress=progress, say=say)
    chosen = {name: load_member(models[name]) for name in asked}
    rounds = tuned(chosen, {"train": train, "test": held}, settings, seeds, sure, runtime)
    names = [ranking.models.index(name) for name in asked]
    within = float(ranking.consensus.best[names].sum())
    winner = rounds[-1].arms[0].model
    return Halving(
        data=str(data),
        ranking=ranking,
        rounds=rounds,
        probability=rounds[-1].best.get(winner, math.nan),
        within=within,
        train=len(train),
        held_out=len(held),
        checkpoint=name_of(given[winner], chosen[winner]),
        use=tuple(use_it(given[winner], chosen[winner], image_size, trust)),
        whole_steps=len(ranking.models) * (len(rates) + len(seeds)) * steps,
    )


def _at_least_two(models: Sized, left_out: Mapping[str, str]) -> None:
    if len(models) < 2:
        why = "".join(f"; {line}" for line in lines_of(left_out))
        raise UserError(f"the zoo has {len(models)} usable model: successive halving chooses among at least 2{why}")


def divided(split: Split, seed: int, share: float = SHARE) -> tuple[Split, Split]:
    """Return a split without the held-out images, and these: a share of each class; a group stays together,
    and so do copies of an image."""
    names, start, member = units(split.ids, identified(split).pixel_digests, split.groups)
    out = held_out(split.y[start], names.tolist(), share, seed)[member]
    if not out.any():
        raise UserError(f"{split.name}: no class has 2 labelled images, so none can be held out to compare models")
    return split.take(np.flatnonzero(~out)), split.take(np.flatnonzero(out))


def _opened(data: Any, reading: Reading, max_images: int | None) -> Split:
    if data is None:
        raise UserError("name the task: data=clipart, or data=PATH/TO/IMAGES")
    if found := parts(data):
        recipe, _ = judged_by(found[0])
        raise UserError(f"{data}: only classifiers are tuned here; rank with data={data}, then use recipes/{recipe}.py")
    entry = published(data)
    return readable(sampled(reading.open(data, entry.train if entry else "train"), max_images, 0))
