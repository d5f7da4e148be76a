"""What does a backbone reach once all weights are tuned, over a grid of settings? The ground truth of a ranking.

Sources: Ericsson et al. 2021, arXiv 2011.13377 and its public code (the grid "ped", as PED uses it); "itm": the
fine-tuning of Zheng et al. 2025, arXiv 2510.23145.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import product
from typing import Any

import numpy as np

from evaluation.datasets import LABELLED, Reading
from evaluation.features.checks import as_list, different_seeds
from evaluation.features.extraction import LOADED
from evaluation.protocols.base import TUNED, Subject, among
from evaluation.results.result import Result
from evaluation.tuning.classifier import Setting
from evaluation.tuning.estimate import announce
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
from sslkit.errors import UserError
from sslkit.models.loading import Loading
from sslkit.options.members import nearest
from sslkit.options.settings import MOST, MOST_SEED, setting
from sslkit.runtime.callers import public
from sslkit.runtime.context import PRECISIONS, Runtime

NAME = "fine_tune"  # of its results, and of the file of its runs
SELECT = ("held_out", "test")
NOTHING_CHOSEN = "one setting, nothing chosen"
MOST_RATES = 12  # learning rates of a grid that is extended: it ends a search that diverges nowhere
SHARE = 0.2  # of train, held out to choose by where the data set has no validation images: a fifth, as usual
# of the PED paper: Li et al. 2023, see `Options`
_PED_RATES, _PED_DECAYS = (1e-1, 1e-2, 1e-3, 1e-4), (0.0, 1e-6, 1e-5, 1e-4, 1e-3)
# The public code divides the decay by the rate, so that a step shrinks the weights by the same factor at any rate.
GRIDS: dict[str, list[dict[str, Any]]] = {
    "ped": [
        {"lr": lr, "weight_decay": decay / lr, "optimizer": "sgd"} for lr, decay in product(_PED_RATES, _PED_DECAYS)
    ],
    "adamw": [{"lr": lr, "weight_decay": 0.05, "optimizer": "adamw"} for lr in (1e-3, 3e-4, 1e-4)],
    "itm": [
        {"lr": lr, "weight_decay": decay, "optimizer": "adamw"}
        for lr, decay in product((1e-5, 2e-5, 5e-5), (1e-2, 1e-4))
    ],
}


@dataclass(frozen=True, kw_only=True)
class Runs:
    """Options of every run that tunes all weights."""

    crop: Sequence[float] = setting(
        (0.08, 1.0), "share of the image's area in a crop, least and greatest", above=0, most=1
    )
    precision: str = setting("float32", "float32, or bfloat16 autocast", choices=PRECISIONS)
    workers: int = setting(1, "processes that share the runs and the threads", least=1, most=256)


@dataclass(frozen=True, kw_only=True)
class Options(Runs):
    grid: str | Mapping = setting(
        "ped",
        "ped (SGD with Nesterov momentum, 4 rates from 1e-1 to 1e-4, 5 decays 0, 1e-6 to 1e-3 divided by the rate), "
        "itm (AdamW, 3 rates, 2 decays), adamw (1e-3, 3e-4, 1e-4, decay 0.05), or own ones, such as "
        "{lr:[0.1,0.01],weight_decay:[0],optimizer:sgd}",
    )
    extend: bool = setting(
        False,
        "while the best rate is an end of the grid, try the next one beyond it, by the factor between the two rates at "
        f"that end, up to {MOST_RATES} rates; only with select=held_out",
    )
    folds: int = setting(
        1, "fifths of train that are held out one after the other; the mean over them decides", least=1, most=5
    )
    steps: int = setting(
        5000, "of each run, as in the public code; the rate falls to 0 along a cosine", least=1, most=MOST
    )
    batch_size: int = setting(64, "images of a step, as in the public code", least=2, most=MOST)
    seeds: int | Sequence[int] = setting((0,), "of the runs that are tested, such as [0,1,2]", least=0, most=MOST_SEED)
    select: str = setting(
        "held_out",
        "held_out; or test: the highest test accuracy of the grid (mean over the seeds), as ITM and others do, over "
        "the settings, not over epochs; it only reproduces their numbers, and the result is marked leaky",
        choices=SELECT,
    )


@public(*LOADED, *LABELLED, *TUNED)
def fine_tune(
    model: Any,
    dataset: Any,
    *,
    options: Options,
    loading: Loading,
    reading: Reading,
    runtime: Runtime,
) -> Result:
    """Accuracy on the test images after fine-tuning all weights with the best setting of a grid.

        result = evaluation.fine_tune("runs/zoo/NAME", "digits", grid="itm", steps=200, out="runs/truth")

    Each setting is tuned on train without what is held out (the set's own "val", else 20 % of each class), seed
    seeds[0], and tested on that; the best (of equal ones that of the lowest loss) is tuned on train and held-out images
    together, once with each seed, and tested once at the last step. A grid of one setting is tested at once.
    Images: random resized crop, mirrored at random, batch normalisation in training mode; tests on centre crops. No run
    is stopped early.

    model: see `sslkit.load`. dataset: see `evaluation.open_split`; or a mapping {"train": Split,
        "test": Split, "val": Split (optional)}.
    With 20 held-out images, one of which is 5 points, a single fold chooses rates whose test accuracies differ by
    several points (recipes/benchmarks); five take five times the steps of the grid.
    Below `out` is `fine_tune.jsonl`, to which every finished run is added, so that a second call goes on where the
    first was stopped, a run from its checkpoint; several processes may work there together. Under torchrun the
    processes share every batch instead, and return the same result.

    Returns the test accuracy: Wilson's interval over images (the jackknife for map11) for one seed,
    mean and t interval over several, whose single results are in `others`.
    Images that cannot be read are left out, with a warning; of given splits they stop the run.
    Raises UserError for options out of range, missing splits or labels, and if every setting diverges.
    """
    check_options(options)
    return tune_grid(open_task(loading.load(model), dataset, reading), options, runtime)


def tune_grid(task: Task, options: Options, runtime: Runtime, keep: bool = False) -> Result:
    """Tune the grid on an open task, and test its best setting; see `fine_tune`. keep: weights of the first seed."""
    settings, seeds = check_options(options, task.mirror)
    select = options.select
    with open_runner(task, NAME, replace(runtime, workers=options.workers)) as runner:
        if select == "test":
            tried, tested = _on_test(runner, settings, seeds)
        else:
            tried, number, settings = (
                choose_setting(runner, settings, options) if len(settings) > 1 else ([], 0, settings)
            )
            tested = tune_on_all(runner, settings[number], seeds, keep=keep)
    return report_grid(task, options, tried, tested)


def report_grid(task: Task, options: Options, tried: Sequence[dict], tested: Sequence[dict]) -> Result:
    """Make the result of a grid. tried: the records of the grid. tested: those of its best setting, by seed."""
    settings, seeds, select = settings_of(options.grid), different_seeds(options.seeds), options.select
    named = options.grid if isinstance(options.grid, str) else "own"
    where = "held-out images" if options.folds == 1 else f"{options.folds} held-out fifths"
    chosen = "the highest test accuracy" if select == "test" else f"chosen on {where}"
    points = len(settings) if select == "test" else len(tried)
    how = f"{named} grid of {points}, {chosen}" if len(settings) > 1 else NOTHING_CHOSEN
    return result_of(
        task,
        tested,
        [f"seed {seed}" for seed in seeds],
        "seeds",
        protocol=NAME,
        recipe=f"{how}, {options.steps} steps of {options.batch_size}",
        seeds=seeds,
        digests={"model": task.model.digest, "data": task.digest},
        leaky=select == "test" and len(settings) > 1,
        seconds=seconds_of([*tried, *tested]),
        details={
            "chosen": outcome_of(tested[0]),
            "grid": list(map(outcome_of, tried)),
            **spread(tested),
            "images": len(task.train),
        },
    )


def settings_of(grid: str | Mapping[str, Any], **fixed: Any) -> list[Setting]:
    """Every setting of a grid, see `fine_tune`. Raises UserError for an unknown grid or entry, or a bad value."""
    if isinstance(grid, str):
        if grid not in GRIDS:
            raise UserError(f"there is no grid {grid!r}: {nearest(grid, GRIDS)}; or give {_OWN}")
        return [Setting(**point, **fixed) for point in GRIDS[grid]]
    if not isinstance(grid, Mapping) or "lr" not in grid or not set(grid) <= {"lr", "weight_decay", "optimizer"}:
        raise UserError(f"grid={grid!r} is neither {' nor '.join(map(repr, GRIDS))} nor {_OWN}")
    rates, decays = as_list("grid lr", grid["lr"]), as_list("grid weight_decay", grid.get("weight_decay", [0.0]))
    optimizer = grid.get("optimizer", "sgd")
    return [Setting(lr=lr, weight_decay=decay, optimizer=optimizer, **fixed) for lr, decay in product(rates, decays)]


def check_options(options: Options, mirror: bool = True) -> tuple[list[Setting], list[int]]:
    """Return the settings of the grid, and the seeds. Raises UserError for options that do not fit together."""
    run = {name: getattr(options, name) for name in ("steps", "batch_size", "precision")}
    run |= {"crop": tuple(as_list("crop", options.crop)), "mirror": mirror}
    seeds, settings = different_seeds(options.seeds), settings_of(options.grid, **run)
    check_extend(options.extend, settings, options.select)
    return settings, seeds


def check_extend(extend: bool, settings: Sequence[Setting], select: str) -> None:
    """Raises UserError if a grid cannot be extended: with one rate, or if test images choose."""
    if extend and select == "test":
        raise UserError("extend=true chooses on held-out images: leave out select=test")
    if extend and len({setting.lr for setting in settings}) < 2:
        raise UserError("extend=true needs a grid of at least two learning rates, whose factor it goes on with")


def choose_setting(
    runner: Runner, settings: Sequence[Setting], options: Options
) -> tuple[list[dict], int, list[Setting]]:
    """Return the records of the grid on held-out images, means over the folds, the number of the best, and the settings
    that were tried."""
    task, seed = runner.task, different_seeds(options.seeds)[0]
    parts = _parts(task, seed, options.folds)
    left, tried_settings = list(settings), []
    while left:
        tried_settings += left
        plan = [replace(setting, seed=seed) for setting in tried_settings]
        grid = [Trial("select", setting, task.rows(~held), task.rows(held)) for setting in plan for held in parts]
        records = runner.run(grid, f"{NAME}: choose")
        tried = [mean_record(folded) for folded in in_groups(records, len(parts))]
        chosen = best(tried, f"{NAME} on {task.name}")
        left = beyond(tried_settings, tried_settings[chosen]) if options.extend else []
    return tried, chosen, tried_settings


def tune_on_all(runner: Runner, chosen: Setting, seeds: Sequence[int], *, keep: bool = False) -> list[dict]:
    """Return the records of a setting that is tuned on all training images, by seed, on the test images."""
    tested = runner.run(final_trials(runner.task, chosen, seeds, keep=keep), f"{NAME}: test")
    require_sound(tested, f"{NAME} on {runner.task.name}")
    return tested


def final_trials(task: Task, chosen: Setting, seeds: Sequence[int], *, keep: bool = False) -> list[Trial]:
    """Return the runs of a setting on all training images. keep: the weights of the first seed."""
    return [
        Trial("test", replace(chosen, seed=seed), task.rows(), keep=keep and number == 0)
        for number, seed in enumerate(seeds)
    ]


def _parts(task: Task, seed: int, folds: int) -> list[np.ndarray]:
    """(N,) bool each: the held-out images of each fold. Raises UserError for several, if the set has its own."""
    if task.train.own_val is not None:
        if folds > 1:
            raise UserError(f"{task.name} has validation images of its own to choose by: leave out folds={folds}")
        return [task.train.own_val]
    return [task.held_out(np.ones(len(task.train), bool), SHARE, seed, fold) for fold in range(folds)]


def beyond(settings: Sequence[Setting], chosen: Setting) -> list[Setting]:
    """The settings at the next learning rate, if the chosen one is an end of the grid; none otherwise.

    The rate is rounded to three digits. Other hyperparameters are those that were tried at the chosen rate.
    """
    rates = sorted({setting.lr for setting in settings})
    if chosen.lr not in (rates[0], rates[-1]) or len(rates) >= MOST_RATES:
        return []
    end, inner = (rates[0], rates[1]) if chosen.lr == rates[0] else (rates[-1], rates[-2])
    lr = float(f"{end * end / inner:.3g}")
    return [replace(setting, lr=lr) for setting in settings if setting.lr == chosen.lr]


def _on_test(runner: Runner, settings: list[Setting], seeds: Sequence[int]) -> tuple[list[dict], list[dict]]:
    """The records of the whole grid on the test images, and those of the setting of the highest mean."""
    rows = runner.task.rows()
    trials = [Trial("test", replace(setting, seed=seed), rows) for setting in settings for seed in seeds]
    tried = runner.run(trials, f"{NAME}: choose on test")
    of_setting = in_groups(tried, len(seeds))
    chosen = best([mean_record(records) for records in of_setting], f"{NAME} on {runner.task.name}")
    return tried, of_setting[chosen]


_OWN = '{"lr": [...], "weight_decay": [...], "optimizer": "sgd" or "adamw"}'


def open(subject: Subject, options: Options) -> Subject:
    """Check the grid, the seeds and the labels before anything is computed. Raises UserError."""
    check_options(options)
    subject.open_labelled()  # their notes go into the result
    open_task(subject.model, subject.splits_to_tune(), subject.reading)
    return subject


def run(opened: Subject, options: Options, runtime: Runtime) -> list[Result]:
    """All weights, on the whole grid: hours for large networks, and resumed by the same command; see `fine_tune`."""
    runs = runs_of(options)
    announce([(opened.model, runs * options.steps)], runs, options.batch_size, runtime)
    return [tune_grid(open_task(opened.model, opened.splits_to_tune(), opened.reading), options, runtime)]


def runs_of(options: Options) -> int:
    """Return the number of runs for a model, without those of an extended grid."""
    tried = len(settings_of(options.grid))
    return (options.folds * tried if tried > 1 else 0) + len(different_seeds(options.seeds))


def beside(result: Result) -> tuple[str, ...]:
    """The area under the precision-recall curve, beside 11 points of it."""
    return among(result, "map")
