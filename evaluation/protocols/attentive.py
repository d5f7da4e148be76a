"""Are the classes told apart where attention may choose among the patches? The attentive probe.

A linear layer on a pooled vector understates networks whose patches know more than their class token or mean, as those
of masked image modelling. Here frozen patches, or the positions of a convolutional network's last map, are pooled by
attention that learns with the classifier. `pool=efficient` is efficient probing (Psomas et al. 2026, arXiv 2506.10178):
32 queries and one projection, without keys, under 1.4 M parameters for a ViT-B and 1,000 classes; in its paper it is
above other attention pools, with fewer parameters, so it is the default. `pool=attention` is CAPI's (Darcet et al.
2025, arXiv 2502.08769), as V-JEPA's without the block behind it.
"""

import time
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import torch

from evaluation.datasets import Reading
from evaluation.features.places import as_places, check_network
from evaluation.features.table import Features, match_labels
from evaluation.learners.attention_pools import POOLS, Stack, Tokens, scores_of, train_pools
from evaluation.learners.linear_heads import Grid, judge_scores
from evaluation.learners.linear_parts import Part, Parts, parts_of
from evaluation.learners.strengths import best
from evaluation.protocols._scored import (
    HELD_OUT,
    SHARED,
    at_edge,
    checkpoint_file,
    number_of,
    require_finite,
    result_of_scores,
)
from evaluation.protocols.base import Subject, Terminal, among
from evaluation.results.result import Result
from sslkit.models.loading import Loading
from sslkit.options.settings import overlaid, setting
from sslkit.runtime.callers import public
from sslkit.runtime.context import Runtime
from sslkit.runtime.device import device_of

NAME = "attentive"
KEPT = np.float16  # of tokens: half the disk, rounded by at most 0.05 %; what it cannot hold is an error
# CAPI takes 12,500 steps of 128 images, at ten rates from 1e-5 to 1e-2 and decays from 5e-4 to 0.05. A tenth of the
# steps sees 1,000 images 160 times; rates and decays are higher for it, and fewer: those of its grid differ little
USUAL = Grid(learning_rates=(5e-4, 2e-3, 1e-2, 5e-2), weight_decays=(5e-4, 0.05, 0.5), iterations=1250, batch_size=128)


@dataclass(frozen=True, kw_only=True)
class Options:
    pool: str = setting(
        POOLS[0], "efficient probing (32 queries, one projection), or attention (CAPI's one query)", choices=POOLS
    )
    grid: Mapping | None = setting(
        None,
        "of AdamW, what is not as usual: {learning_rates: [0.0005,0.002,0.01,0.05], weight_decays: [0.0005,0.05,0.5], "
        f"iterations: {USUAL.iterations}, batch_size: {USUAL.batch_size}}}",
    )

    def settings(self) -> Grid:
        """The grid, checked. Raises UserError."""
        return overlaid(USUAL, self.grid or {}, "grid.")


@public(*SHARED)
def attentive(
    model: Any, data: Any, *, options: Options, loading: Loading, reading: Reading, runtime: Runtime
) -> Result:
    """Train attention pools of frozen tokens with their classifiers; return the metric of the best on test.

        result = evaluation.attentive("runs/zoo/NAME", "path/to/images")
        result.value, result.details["lr"], result.details["parameters"]

    All learning rates and weight decays train in one pass. The best on a tenth of each class of the training images,
    copies and groups kept together, is fitted again to all of them; ties go to the lowest loss, then to the largest
    decay. Tokens stay in the cache as float16 (2 bytes x places x width an image) and are read batch by batch; with
    cache=None they are in memory so. With `out` a stopped call goes on where it was.
    Raises UserError for a network without a map of several places, before anything is computed.
    """
    subject = Subject(loading.load(model), data, reading)
    return run(open(subject, options), options, runtime)[0]


def open(subject: Subject, options: Options) -> Subject:
    """Check network, grid and labels before tokens are extracted. Raises UserError."""
    options.settings()
    check_network(subject.model, NAME)
    subject.check_train_and_test(NAME, several=True)
    return subject


def run(opened: Subject, options: Options, runtime: Runtime) -> list[Result]:
    """Choose on held-out training images, fit to all; see `attentive`."""
    start = time.perf_counter()
    runtime = replace(runtime, device=str(device_of(runtime.device)))
    grid = check_network(opened.model, NAME)
    places = opened.with_features(as_places(opened.model), KEPT)
    train, test = (
        replace(features, model=opened.model.name)
        for features in match_labels(places.train(runtime), places.test(runtime))
    )
    return [_measure(train, test, grid, options, runtime, start)]


def beside(result: Result) -> tuple[str, ...]:
    """The area under the precision-recall curve, beside 11 points of it."""
    return among(result, "map")


terminal = Terminal(classifies=True, fits=lambda model, options: check_network(model, NAME) and None)


def _measure(
    train: Features, test: Features, places: tuple[int, int], options: Options, runtime: Runtime, start: float
) -> Result:
    parts = parts_of(train, None, test, share=HELD_OUT, seed=runtime.seed, select="held_out", choose=True)
    grid, count = options.settings(), places[0] * places[1]
    key = {"train": train.digest, "pool": options.pool, "grid": vars(grid)}
    files = [checkpoint_file(NAME, {**key, "use": use}, runtime) for use in ("choose", "final")]

    def fit(part: Part, settings: Grid, use: int) -> tuple[Stack, Tokens]:
        tokens = Tokens(part.x, count).scale_by(part.rows)
        how = (options.pool, tokens, part.rows, part.y, parts.classes, settings, runtime, files[use])
        return train_pools(*how), tokens

    values, chosen = _choose(parts, grid, *fit(parts.learn, grid, 0))
    lr, decay = grid.heads()[chosen]
    pool, tokens = fit(parts.full, replace(grid, learning_rates=(lr,), weight_decays=(decay,)), 1)
    scores = _scores(pool, tokens, parts.test)
    require_finite(scores, NAME, lr)
    for file in filter(None, files):
        file.remove()
    return result_of_scores(
        {"train": train, "test": test},
        parts,
        scores,
        protocol=NAME,
        recipe=f"{options.pool} pool of {places[0]} x {places[1]} tokens, {grid.iterations:,} steps, "
        f"{len(values)} settings, chosen on a tenth of train",
        seeds=[runtime.seed],
        seconds=time.perf_counter() - start,
        details={
            "pool": options.pool,
            "tokens": count,
            "parameters": pool.size(),
            "lr": lr,
            "weight_decay": decay,
            "iterations": grid.iterations,
            "batch_size": grid.rows_a_step(len(parts.full.rows)),
            "rows": len(parts.full.rows),
            "chosen_by": parts.chosen_by,
            "device": runtime.device,
            "at_edge": at_edge(lr, grid),
            "tried": [
                {"lr": lr, "weight_decay": decay, "value": number_of(value)}
                for (lr, decay), value in zip(grid.heads(), values, strict=True)
            ],
        },
    )


def _choose(parts: Parts, grid: Grid, stack: Stack, tokens: Tokens) -> tuple[np.ndarray, int]:
    """Return the metric (H,) of each setting on the held-out images, and the number of the best."""
    judge = parts.judge
    finite = [value.flatten(1).isfinite().all(1) for value in stack.tensors()]
    sound = torch.stack(finite).all(0)
    values = judge_scores(scores_of(stack, tokens, judge.rows), sound, judge.y, parts.metric)
    penalties = [(decay, -lr) for lr, decay in grid.heads()]
    chosen = best(values, lambda head: judge.loss(_scores(stack.take(head), tokens, judge), parts.metric), penalties)
    return values, chosen


def _scores(stack: Stack, tokens: Tokens, part: Part) -> np.ndarray:
    """Return the scores (n, K) of one pool on other images. tokens: those that it learned from."""
    blocks = scores_of(stack, replace(tokens, x=part.x), part.rows)
    return torch.cat([block[0] for block in blocks]).cpu().numpy()
