"""Which blocks and pooling tell the classes apart best? A grid of linear probes, chosen on training images.

DINOv2's linear evaluation (Oquab et al. 2023, arXiv 2304.07193, appendix B.3): the last 1 and 4 blocks, class tokens
with and without the mean of the last patches, 13 learning rates. Here features are also standardized, means of patches
stand alone too, steps are fewer and rates higher, and the best setting is fitted again to all training images.
"""

import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import torch

from evaluation.datasets import Reading
from evaluation.features.levels import open_levels
from evaluation.features.table import Features, match_labels
from evaluation.learners.linear_heads import LEARNING_RATES, Grid, Heads, Scaling, judge_heads, train_heads
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
from evaluation.protocols.base import Judged, Subject, Terminal, among
from evaluation.results.result import Result
from sslkit.models.loading import Loading, name_of
from sslkit.models.model import Model
from sslkit.models.pooling import BOTH, CLASS, LAST_POOLINGS, MEAN, OWN, pool
from sslkit.options.settings import overlaid, setting
from sslkit.runtime.callers import public
from sslkit.runtime.context import Runtime
from sslkit.runtime.device import device_of
from sslkit.terminal.say import counted

SCALE = "standardize"
# DINOv2's 12,500 steps of 1,024 rows are ten passes over ImageNet. For smaller sets a tenth of them at ten times the
# rates: on digits, at its own rates, the highest won.
USUAL = Grid(learning_rates=tuple(10 * rate for rate in LEARNING_RATES), iterations=1250)
POOLED = {CLASS: "class token", MEAN: "mean of the positions", BOTH: "class token and mean of the last positions"}


@dataclass(frozen=True, kw_only=True)
class Options:
    blocks: Sequence[int] = setting(
        (1, 4), "numbers of last blocks, or stages of a convolutional network, side by side", least=1, most=256
    )
    pools: Sequence[str] = setting(
        (),
        "class tokens, mean of the patches, or both (the mean of the last block alone); []: all that the network has",
        choices=LAST_POOLINGS,
    )
    grid: Mapping | None = setting(
        None,
        f"what is not as usual: {{learning_rates: [0.1,0.01], weight_decays: [0], iterations: {USUAL.iterations}, "
        f"batch_size: {USUAL.batch_size}}}",
    )

    def heads(self) -> Grid:
        """The grid, checked. Raises UserError."""
        return overlaid(USUAL, self.grid or {}, "grid.")


@public(*SHARED)
def linear_grid(
    model: Any, data: Any, *, options: Options, loading: Loading, reading: Reading, runtime: Runtime
) -> Result:
    """Train linear probes of blocks, poolings and learning rates together; return the test metric of the best.

        result = evaluation.linear_grid("runs/zoo/NAME", "path/to/images")
        result.value, result.details["best"]  # a fraction, and the sentence on what won

    It is chosen on a tenth of each class of the training images, copies and groups kept together; ties go to the
    lowest loss, then to fewer features. The best setting is then fitted to all training images. Of a network without
    tokens the inputs are means of its last stages, and its own features where these are others.
    With `out` a stopped call goes on where it was. Raises UserError for a network without such blocks or tokens.
    """
    subject = Subject(loading.load(model), data, reading)
    return run(open(subject, options), options, runtime)[0]


def open(subject: Subject, options: Options) -> Subject:
    """Check network, grid and labels before feature extraction. Raises UserError."""
    options.heads()
    inputs_of(subject.model, options)
    subject.check_train_and_test("linear_grid", several=True)
    return subject


def run(opened: Subject, options: Options, runtime: Runtime) -> list[Result]:
    """Choose on held-out training images, fit to all; see `linear_grid`."""
    start = time.perf_counter()
    runtime = replace(runtime, device=str(device_of(runtime.device)))
    levels = open_levels(opened.model, inputs_of(opened.model, options))
    joined = opened.with_features(levels.model)
    train, test = (
        replace(features, model=opened.model.name)
        for features in match_labels(joined.train(runtime), joined.test(runtime))
    )
    return [_measure(train, test, levels.columns, options.heads(), runtime, start)]


def beside(result: Result) -> tuple[str, ...]:
    """The area under the precision-recall curve, beside 11 points of it."""
    return among(result, "map")


def _remarks(members: Sequence[Judged]) -> list[str]:
    return [line for member in members for result in member.results for line in _lines(member, result)]


def _lines(member: Judged, result: Result) -> list[str]:
    """Return what won, and the word that names its features."""
    word = result.details["input"]
    named = f"features  checkpoint={name_of(member.asked, member.model)}@{word}"
    return [f"{'best':<9} {result.details['best']}", *([] if word == OWN else [named])]


terminal = Terminal(classifies=True, fits=lambda model, options: inputs_of(model, options) and None, remarks=_remarks)


def inputs_of(model: Model, options: Options) -> list[str]:
    """Return the poolings that are tried, by their words. Raises UserError for one that the network has not."""
    backbone = model.backbone
    has_class = backbone.is_vit and backbone.net.cls_token is not None
    pools = options.pools or (LAST_POOLINGS if has_class else (MEAN,))
    words = [f"last{count}.{pool}" for count in dict.fromkeys(options.blocks) for pool in pools]
    joined = pool(backbone, words, model.name)
    if backbone.is_vit:
        return words
    with torch.inference_mode():
        noise = torch.rand(1, *backbone.input_shape(), generator=torch.Generator().manual_seed(0))
        noise = noise.to(next(backbone.net.parameters()))
        features, last = backbone.net(noise), joined.net.pool_parts(noise)[0]
    is_last = last.shape == features.shape and torch.allclose(last, features, rtol=1e-3, atol=1e-5)
    return words if is_last else [*words, OWN]


@dataclass(frozen=True)
class _Choice:
    """The best of the grid. value: that it reached; by_input: the best of each input; tried: all, for the details."""

    word: str
    lr: float
    weight_decay: float
    value: float
    by_input: dict[str, float]
    tried: list[dict[str, Any]]


def _measure(
    train: Features, test: Features, columns: Mapping[str, np.ndarray], grid: Grid, runtime: Runtime, start: float
) -> Result:
    parts = parts_of(train, None, test, share=HELD_OUT, seed=runtime.seed, select="held_out", choose=True)
    key = {"train": train.digest, "inputs": list(columns), "grid": vars(grid)}
    files = [checkpoint_file("linear_grid", {**key, "use": use}, runtime) for use in ("choose", "final")]
    chosen = _choose(parts, columns, grid, runtime, files[0])
    final = replace(grid, learning_rates=(chosen.lr,), weight_decays=(chosen.weight_decay,))
    [heads] = _train(parts.full, parts.classes, {chosen.word: columns[chosen.word]}, final, runtime, files[1])
    scores = heads.scores_of(0, parts.test.x, parts.test.rows)
    require_finite(scores, "linear_grid", chosen.lr)
    for file in filter(None, files):
        file.remove()
    return result_of_scores(
        {"train": train, "test": test},
        parts,
        scores,
        protocol="linear_grid",
        recipe=f"{counted(len(columns), 'input')} x {counted(len(grid.heads()), 'head')}, {grid.iterations:,} steps, "
        "chosen on a tenth of train",
        seeds=[runtime.seed],
        seconds=time.perf_counter() - start,
        details={
            "input": chosen.word,
            "features": len(columns[chosen.word]),
            "lr": chosen.lr,
            "weight_decay": chosen.weight_decay,
            "iterations": grid.iterations,
            "batch_size": grid.rows_a_step(len(parts.full.rows)),
            "rows": len(parts.full.rows),
            "chosen_by": parts.chosen_by,
            "device": runtime.device,
            "at_edge": at_edge(chosen.lr, grid),
            "best": _sentence(chosen, columns, len(chosen.tried), test),
            "tried": chosen.tried,
        },
    )


def _train(
    part: Part, classes: int, columns: Mapping[str, np.ndarray], grid: Grid, runtime: Runtime, saved: Any
) -> list[Heads]:
    scaling = Scaling.measure(part.x, part.rows, SCALE)
    inputs = list(columns.values())
    return train_heads(part.x, part.rows, part.y, classes, grid, scaling, runtime, inputs, saved)


def _choose(parts: Parts, columns: Mapping[str, np.ndarray], grid: Grid, runtime: Runtime, saved: Any) -> _Choice:
    """Train all heads of all inputs together and choose by the held-out images."""
    judge, settings = parts.judge, grid.heads()
    by_input = dict(zip(columns, _train(parts.learn, parts.classes, columns, grid, runtime, saved), strict=True))
    each = [judge_heads(heads, judge.x, judge.rows, judge.y, parts.metric) for heads in by_input.values()]
    tried = [(word, head) for word in columns for head in range(len(settings))]

    def loss(number: int) -> float:
        word, head = tried[number]
        return judge.loss(by_input[word].scores_of(head, judge.x, judge.rows), parts.metric)

    penalties = [(-len(columns[word]), settings[head][1], -settings[head][0]) for word, head in tried]
    values = np.concatenate(each)
    number = best(values, loss, penalties)
    word, head = tried[number]
    reached = {
        name: float(np.nanmax(heads)) for name, heads in zip(columns, each, strict=True) if not np.isnan(heads).all()
    }
    listed = [
        {"input": name, "lr": settings[at][0], "weight_decay": settings[at][1], "value": number_of(value)}
        for (name, at), value in zip(tried, values, strict=True)
    ]
    return _Choice(word, *settings[head], float(values[number]), reached, listed)


def _sentence(chosen: _Choice, columns: Mapping[str, np.ndarray], count: int, test: Features) -> str:
    """Return which input and rate won, with how much on held-out training images, and the next input."""
    others = {word: value for word, value in chosen.by_input.items() if word != chosen.word}
    second = max(others, key=lambda word: others[word], default=None)
    return (
        f"{test.model} on {test.data}: {_in_words(chosen.word)}, {len(columns[chosen.word]):,} features, at learning "
        f"rate {chosen.lr:g} won of {count} with {100 * chosen.value:.1f} % on held-out training images"
        + (f", before {_in_words(second)} with {100 * others[second]:.1f} %" if second else "")
    )


def _in_words(word: str) -> str:
    """Return "last 4 layers, class token and mean of the last positions" of "last4.both"."""
    if word == OWN:
        return "the network's own features"
    count, pool = word.removeprefix("last").split(".")
    return f"last {f'{count} layers' if int(count) > 1 else 'layer'}, {POOLED[pool]}"
