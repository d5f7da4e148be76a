"""What does a backbone reach by 1 % or 10 % of the labels? All weights are tuned, over several draws.

Sources: the subset's rule and the fine-tuning are SimCLR's (Chen et al. 2020, arXiv 2002.05709, appendix B.5); 50
epochs: Song et al. 2024. Neither gives the rates that are searched here.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import product
from numbers import Integral
from typing import Any

import numpy as np

from evaluation.datasets import LABELLED, Reading
from evaluation.features.checks import as_list
from evaluation.features.extraction import LOADED
from evaluation.protocols.base import TUNED, Subject
from evaluation.protocols.fine_tune import NOTHING_CHOSEN, SELECT, Runs
from evaluation.results.result import Result
from evaluation.tuning.classifier import Setting
from evaluation.tuning.outcomes import (
    best,
    in_groups,
    mean_record,
    outcome_of,
    require_sound,
    result_of,
    seconds_of,
    spread,
)
from evaluation.tuning.task import Task, open_task
from evaluation.tuning.trials import Runner, Trial, open_runner
from sslkit.data.subsets import label_subset, list_digest
from sslkit.errors import UserError
from sslkit.models.loading import Loading
from sslkit.options.settings import MOST, setting
from sslkit.runtime.callers import public
from sslkit.runtime.context import Runtime

SHARE = 0.1  # of the labelled images, held out to choose the rates by: labels are few, so less than the usual fifth


@dataclass(frozen=True, kw_only=True)
class Options(Runs):
    fraction: int | float = setting(
        0.01,
        "of the labels, 0.01 for 1 %, spread equally over the classes, or a whole number of images of each class, "
        "from 2",
        above=0,
    )
    draws: int = setting(5, "of the labels", least=1, most=MOST)
    epochs: int = setting(50, "of each run", least=1, most=MOST)
    batch_size: int = setting(256, "images of a step; fewer labelled ones are one batch", least=2, most=MOST)
    lrs: float | Sequence[float] = setting(
        (0.002, 0.005, 0.01, 0.02), "rates of the backbone; every pair with one of head_lrs is tried", above=0
    )
    head_lrs: float | Sequence[float] = setting((0.1, 0.5, 1.0), "rates of the head", above=0)
    select: str = setting(
        "held_out",
        "held_out; or test: the rates of the highest test accuracy, to reproduce others; the result is marked leaky",
        choices=SELECT,
    )


@public(*LOADED, *LABELLED, *TUNED, "seed")
def semi_supervised(
    model: Any,
    dataset: Any,
    *,
    options: Options,
    loading: Loading,
    reading: Reading,
    runtime: Runtime,
) -> Result:
    """Accuracy on the test images after fine-tuning all weights on a few labels: the mean over draws of the labels.

        result = evaluation.semi_supervised("runs/zoo/NAME", "digits", fraction=10, draws=3)

    For each draw the rates are chosen on 10 % of the labelled images, held out from them, and the network is then tuned
    on all of the labelled ones and tested once, at the last epoch; a single pair of rates is tested at once. SGD,
    Nesterov momentum 0.9, no weight decay, cosine; random resized crop, mirrored at random, batch normalisation in
    training mode. The seed, of the order and the crops, is the same for each draw, so that the spread is that of the
    labels (see `evaluation.subsets.label_subset`).

    model, dataset: see `fine_tune`; the file is `semi_supervised.jsonl` below `out`.

    Returns the mean over draws with its t interval, the draws in `others`; details: the rates chosen, the images of
    each class and the sha256 of the list of names, draw by draw.
    Raises UserError for options out of range, several labels an image, a class with too few images, missing splits or
    labels, and if every pair of rates diverges. Images that cannot be read are left out, as in `fine_tune`.
    """
    _check(options, runtime)
    return tune_draws(open_task(loading.load(model), dataset, reading), options, runtime)


def tune_draws(task: Task, options: Options, runtime: Runtime) -> Result:
    """Tune each draw of the labels on an open task, and test its best pair of rates; see `semi_supervised`."""
    tuning, rates = _check(options, runtime, task.mirror)
    subsets = [_draw_rows(task, options.fraction, draw) for draw in range(options.draws)]
    with open_runner(task, "semi_supervised", replace(runtime, workers=options.workers)) as runner:
        searched = _on_test if options.select == "test" else _on_held_out
        tried, tested = searched(runner, subsets, rates, tuning)
    return _result(task, tuning, options.fraction, subsets, rates, tried, tested, options.select)


def _check(options: Options, runtime: Runtime, mirror: bool = True) -> tuple["_Tuning", list[tuple[float, float]]]:
    """Return the settings of all runs, and the pairs of rates. Raises UserError for what does not fit together."""
    crop = tuple(as_list("crop", options.crop))
    run = (options.epochs, options.batch_size, runtime.seed, crop, mirror, options.precision)
    tuning, rates = _Tuning(*run), list(product(as_list("lrs", options.lrs), as_list("head_lrs", options.head_lrs)))
    for lr, head_lr in rates:
        tuning.setting(lr, head_lr, options.batch_size)
    return tuning, rates


@dataclass(frozen=True)
class _Tuning:
    """Settings that all runs share."""

    epochs: int
    batch_size: int
    seed: int
    crop: tuple[float, float]
    mirror: bool
    precision: str

    def setting(self, lr: float, head_lr: float, images: int) -> Setting:
        """The setting of a run that learns from so many images."""
        one_step = Setting(
            lr, head_lr, 0.0, 1, self.batch_size, "sgd", self.crop, self.mirror, self.precision, self.seed
        )
        return replace(one_step, steps=self.epochs * (images // min(images, self.batch_size)))


def _is_whole(value: Any) -> bool:
    return isinstance(value, Integral) and not isinstance(value, bool)


def _draw_rows(task: Task, fraction: float, draw: int) -> np.ndarray:
    """(n,) the training rows that keep their labels in one draw."""
    y, ids, classes = task.train.y, task.train.ids, task.classes
    if y.ndim != 1:
        raise UserError(f"{task.name} has several labels an image; semi_supervised needs one")
    if not _is_whole(fraction):
        return label_subset(y, ids, classes, fraction, draw)
    counts = np.bincount(y, minlength=len(classes))
    few = [label for label in np.unique(y) if counts[label] < fraction]
    if fraction < 2 or few:
        have = f"class {classes[few[0]]!r} has {counts[few[0]]}" if few else "one of each is to be held out"
        raise UserError(f"{task.name}: fraction={fraction} asks for {fraction} images of each class, but {have}")
    return label_subset(y, ids, classes, fraction * len(np.unique(y)) / len(y), draw)


def _on_held_out(
    runner: Runner, subsets: list[np.ndarray], rates: list[tuple], tuned: _Tuning
) -> tuple[list[list[dict]], list[dict]]:
    """The records of each draw's grid on its held-out images, and of its best pair on the test images."""
    task, pairs = runner.task, [rates[0]] * len(subsets)
    tried: list[list[dict]] = [[] for _ in subsets]
    if len(rates) > 1:
        grid = [trial for draw, rows in enumerate(subsets) for trial in _choosing(task, rows, draw, rates, tuned)]
        tried = in_groups(runner.run(grid, "semi_supervised: choose"), len(rates))
        pairs = [rates[best(records, f"{task.name}, draw {draw}")] for draw, records in enumerate(tried)]
    final = [_final(task, rows, draw, pairs[draw], tuned) for draw, rows in enumerate(subsets)]
    tested = runner.run(final, "semi_supervised: test")
    require_sound(tested, f"semi_supervised on {task.name}")
    return tried, tested


def _on_test(
    runner: Runner, subsets: list[np.ndarray], rates: list[tuple], tuned: _Tuning
) -> tuple[list[list[dict]], list[dict]]:
    """The records of each draw's grid on the test images, and those of the pair of the highest mean."""
    trials = [_final(runner.task, rows, draw, pair, tuned) for draw, rows in enumerate(subsets) for pair in rates]
    tried = in_groups(runner.run(trials, "semi_supervised: choose on test"), len(rates))
    means = [mean_record(records) for records in zip(*tried, strict=True)]
    chosen = best(means, f"semi_supervised on {runner.task.name}")
    return tried, [records[chosen] for records in tried]


def _choosing(task: Task, rows: np.ndarray, draw: int, rates: list[tuple], tuned: _Tuning) -> list[Trial]:
    subset = np.isin(np.arange(len(task.train)), rows)
    held = task.held_out(subset, SHARE, draw)
    learn, judge = task.rows(subset & ~held), task.rows(held)
    return [
        Trial("select", tuned.setting(lr, head_lr, len(learn)), learn, judge, {"draw": draw}) for lr, head_lr in rates
    ]


def _final(task: Task, rows: np.ndarray, draw: int, pair: tuple[float, float], tuned: _Tuning) -> Trial:
    learn = task.rows(np.isin(np.arange(len(task.train)), rows))
    return Trial("test", tuned.setting(*pair, len(learn)), learn, None, {"draw": draw})


def _result(
    task: Task,
    tuned: _Tuning,
    fraction: float,
    subsets: list[np.ndarray],
    rates: list[tuple],
    tried: list[list[dict]],
    tested: list[dict],
    select: str,
) -> Result:
    amount = f"{fraction} labels of each class" if _is_whole(fraction) else f"{100 * fraction:g} % of the labels"
    chosen = "rates of the highest test accuracy" if select == "test" else "rates chosen on 10 % of the labels"
    several = len(rates) > 1
    names = [f"draw {draw}" for draw in range(len(subsets))]
    lists = {name: list_digest(task.train.ids[rows]) for name, rows in zip(names, subsets, strict=True)}
    return result_of(
        task,
        tested,
        names,
        "label draws",
        protocol="semi_supervised",
        recipe=f"{amount}, {tuned.epochs} epochs, {chosen if several else NOTHING_CHOSEN}",
        seeds=list(range(len(subsets))),
        digests={"model": task.model.digest, "data": task.digest, **lists},
        leaky=select == "test" and several,
        seconds=seconds_of([record for records in [*tried, tested] for record in records]),
        details={
            "draws": [_details_of_draw(task, *draw) for draw in zip(subsets, tried, tested, strict=True)],
            "batch": min(tuned.batch_size, len(subsets[0])),
            "seed": tuned.seed,
            **spread(tested),
        },
    )


def _details_of_draw(task: Task, rows: np.ndarray, tried: list[dict], tested: dict) -> dict[str, Any]:
    counts = np.bincount(task.train.y[rows], minlength=len(task.classes)).tolist()
    named: Mapping[str, int] = dict(zip(task.classes, counts, strict=True))
    return {"chosen": outcome_of(tested), "grid": list(map(outcome_of, tried)), "images": len(rows), "per_class": named}


def open(subject: Subject, options: Options) -> Subject:
    """Check the labels, and that each draw has enough of them, before anything is computed. Raises UserError."""
    subject.open_labelled()  # their notes go into the result
    task = open_task(subject.model, subject.splits_to_tune(), subject.reading)
    for draw in range(options.draws):
        rows = _draw_rows(task, options.fraction, draw)
        try:
            task.held_out(np.isin(np.arange(len(task.train)), rows), SHARE, draw)
        except UserError as error:
            asked = f"semi_supervised.fraction={options.fraction}"
            raise UserError(f"{task.name}: with {asked} no class keeps 2 labels, one to hold out: raise it") from error
    return subject


def run(opened: Subject, options: Options, runtime: Runtime) -> list[Result]:
    """All weights, on a share of the labels; resumed by the same command; see `semi_supervised`."""
    return [tune_draws(open_task(opened.model, opened.splits_to_tune(), opened.reading), options, runtime)]


def beside(result: Result) -> tuple[str, ...]:
    return ()
