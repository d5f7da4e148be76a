"""Fine-tuning all weights over a grid of settings: what a backbone really reaches, the ground truth of a ranking.

Sources: Ericsson et al. 2021, arXiv 2011.13377 and its public code (the grid "ped", as PED uses it); "itm": the
fine-tuning of Zheng et al. 2025, arXiv 2510.23145.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import product
from pathlib import Path
from typing import Any

import numpy as np

from evaluation.datasets import Reading
from evaluation.features.checks import as_list, different_seeds
from evaluation.features.models import load_model
from evaluation.protocols._option_types import AtLeastTwo, Count, Crop, Folds, Precision, Seeds, Workers
from evaluation.protocols.base import Subject, among
from evaluation.results.result import Result
from evaluation.tuning.classifier import Setting
from evaluation.tuning.estimate import announce
from evaluation.tuning.outcomes import best, in_groups, mean_record, require_sound, result_of, seconds_of, spread, told
from evaluation.tuning.task import Task, open_task
from evaluation.tuning.trials import Runner, Trial, open_runner
from sslkit.data.image_options import CACHE
from sslkit.errors import UserError
from sslkit.options.members import nearest
from sslkit.runtime.callers import process_kept
from sslkit.runtime.context import Runtime

SELECT = ("held_out", "test")
NOTHING_CHOSEN = "one setting, nothing chosen"
MOST_RATES = 12  # learning rates of a grid that is extended
SHARE = 0.2  # of train, held out to choose by where the data set has no validation images of its own
_PED_RATES, _PED_DECAYS = (1e-1, 1e-2, 1e-3, 1e-4), (0.0, 1e-6, 1e-5, 1e-4, 1e-3)
# The public code divides the decay by the rate, so that a step shrinks the weights by the same factor at any rate.
GRIDS: dict[str, list[dict[str, Any]]] = {
    "ped": [
        {"lr": lr, "weight_decay": decay / lr, "optimizer": "sgd"} for lr, decay in product(_PED_RATES, _PED_DECAYS)
    ],
    "itm": [
        {"lr": lr, "weight_decay": decay, "optimizer": "adamw"}
        for lr, decay in product((1e-5, 2e-5, 5e-5), (1e-2, 1e-4))
    ],
}


@dataclass(frozen=True, kw_only=True)
class Options:
    """grid: ped (20 settings of SGD), itm (6 of AdamW), or own ones, such as {lr:[0.1,0.01],weight_decay:[0]}.

    extend: while the best rate is an end of the grid, try the next one beyond it.
    folds: fifths of train that are held out one after the other, 1 to 5. steps: of each run.
    batch_size: images of a step.
    seeds: of the runs that are tested, such as [0,1,2]. crop: share of the image's area in a crop, least and greatest.
    precision: float32, or bfloat16 autocast. workers: processes that share the runs. Others as in `fine_tune`.
    """

    grid: str | Mapping = "ped"
    extend: bool = False
    folds: Folds = 1
    steps: Count = 5000
    batch_size: AtLeastTwo = 64
    seeds: Seeds = (0,)
    crop: Crop = (0.08, 1.0)
    precision: Precision = "float32"
    workers: Workers = 1


@process_kept()
def fine_tune(
    model: Any,
    dataset: Any,
    *,
    grid: str | Mapping[str, Any] = Options.grid,
    extend: bool = Options.extend,
    folds: int = Options.folds,
    steps: int = Options.steps,
    batch_size: int = Options.batch_size,
    seeds: Sequence[int] = Options.seeds,
    select: str = "held_out",
    out: str | Path | None = None,
    root: str | Path = "data",
    cache: str | Path | None = CACHE,
    image_size: int | None = None,
    crop: Sequence[float] = Options.crop,
    mirror: bool | None = None,
    precision: str = Options.precision,
    device: str = "auto",
    workers: int = Options.workers,
    counts: str = "raise",
    progress: bool = True,
) -> Result:
    """Accuracy on the test images after fine-tuning all weights with the best setting of a grid.

        result = evaluation.fine_tune("runs/zoo/NAME", "digits", grid="itm", steps=200, out="runs/truth")

    Each setting is tuned on train without what is held out (the set's own "val", else 20 % of each class), seed
    seeds[0], and tested on that; the best (of equal ones that of the lowest loss) is tuned on train and held-out images
    together, once with each seed, and tested once at the last step. A grid of one setting is tested at once.
    Images: random resized crop, mirrored at random, batch normalisation in training mode; tests on centre crops. No run
    is stopped early.

    model: see `evaluation.load_model`. dataset, root, cache: see `evaluation.open_split`; or a mapping {"train": Split,
        "test": Split, "val": Split (optional)}.
    grid: "ped" (SGD with Nesterov momentum, 4 rates from 1e-1 to 1e-4, 5 decays 0, 1e-6 to 1e-3 divided by the rate),
        "itm" (AdamW, 3 rates, 2 decays), or {"lr": [...], "weight_decay": [...], "optimizer": "sgd" | "adamw"}.
    extend: while the chosen learning rate is an end of the grid, try the next one beyond it, by the factor between the
        two rates at that end, up to 12 rates; only with select="held_out".
    folds: fifths of train, 1 to 5, that are held out one after the other; the mean over them decides. With 20 held-out
        images, one of which is 5 points, a single fifth chooses rates whose test accuracies differ by several points
        (recipes/benchmarks); five take five times the steps of the grid.
    steps, batch_size: of each run; 5000 and 64 as in the public code. The rate falls to 0 along a cosine.
    select: "test" takes the highest test accuracy of the grid (mean over the seeds) as ITM and others do, over the
        settings, not over epochs; it only reproduces their numbers, and the result is marked leaky.
    out: folder of `fine_tune.jsonl`, to which every finished run is added, so that a second call goes on where the
        first was stopped, a run from its checkpoint; several processes may work there together.
        None: nothing is kept.
    image_size: of the model, where it does not say it. crop: share of the image's area in a crop.
    mirror: half of the training images; None: unless names of classes differ by left and right. False for letters.
    precision: "float32", or "bfloat16" autocast. device: "auto" is a GPU if there is one.
    workers: processes that share the runs and the threads. Under torchrun the processes share every batch instead, and
        return the same result.
    counts: "warn" goes on with a published set that has not the published number of images. progress: show lines.

    Returns the test accuracy: Wilson's interval over images (the jackknife for map11) for one seed,
    mean and t interval over several, whose single results are in `others`.
    Images that cannot be read are left out, with a warning; of given splits they stop the run.
    Raises UserError for options out of range, missing splits or labels, and if every setting diverges.
    """
    run = {"grid": grid, "steps": steps, "batch_size": batch_size, "crop": crop, "precision": precision}
    options = Options(**run, extend=extend, folds=folds, seeds=seeds, workers=workers)
    runtime = Runtime(device=device, out=out, progress=progress)
    _checked(options, select)
    reading = Reading(root=root, counts=counts, mirror=mirror, cache=cache)
    task = open_task(load_model(model, image_size=image_size), dataset, reading)
    return tuned(task, options, runtime, select)


def tuned(task: Task, options: Options, runtime: Runtime, select: str = "held_out") -> Result:
    """Tune the grid on an open task, and test its best setting; see `fine_tune`."""
    settings, seeds = _checked(options, select, task.mirror)
    with open_runner(task, "fine_tune", replace(runtime, workers=options.workers)) as runner:
        if select == "test":
            tried, tested = _on_test(runner, settings, seeds)
        else:
            tried, tested = _on_held_out(runner, settings, seeds, options.extend, options.folds)
    named = options.grid if isinstance(options.grid, str) else "own"
    part = "held-out images" if options.folds == 1 else f"{options.folds} held-out fifths"
    chosen = "the highest test accuracy" if select == "test" else f"chosen on {part}"
    points = len(settings) if select == "test" else len(tried)
    how = f"{named} grid of {points}, {chosen}" if len(settings) > 1 else NOTHING_CHOSEN
    return result_of(
        task,
        tested,
        [f"seed {seed}" for seed in seeds],
        "seeds",
        protocol="fine_tune",
        recipe=f"{how}, {options.steps} steps of {options.batch_size}",
        seeds=seeds,
        digests={"model": task.model.digest, "data": task.digest},
        leaky=select == "test" and len(settings) > 1,
        seconds=seconds_of([*tried, *tested]),
        details={
            "chosen": told(tested[0]),
            "grid": list(map(told, tried)),
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


def _checked(options: Options, select: str, mirror: bool = True) -> tuple[list[Setting], list[int]]:
    """Return the settings of the grid, and the seeds. Raises UserError for options out of range."""
    check_select(select)
    run = {name: getattr(options, name) for name in ("steps", "batch_size", "precision")}
    run |= {"crop": tuple(as_list("crop", options.crop)), "mirror": mirror}
    seeds, settings = different_seeds(options.seeds), settings_of(options.grid, **run)
    check_extend(options.extend, settings, select)
    return settings, seeds


def check_select(select: str) -> None:
    """Raises UserError for an unknown way to select."""
    if select not in SELECT:
        raise UserError(f"there is no select={select!r}: {nearest(str(select), SELECT)}")


def check_extend(extend: bool, settings: Sequence[Setting], select: str = "held_out") -> None:
    """Raises UserError if a grid cannot be extended: with one rate, or if test images choose."""
    if extend and select == "test":
        raise UserError("extend=true chooses on held-out images: leave out select=test")
    if extend and len({setting.lr for setting in settings}) < 2:
        raise UserError("extend=true needs a grid of at least two learning rates, whose factor it goes on with")


def _on_held_out(
    runner: Runner, settings: Sequence[Setting], seeds: Sequence[int], extend: bool, folds: int
) -> tuple[list[dict], list[dict]]:
    """The records of the grid on held-out images, means over the folds, and the best setting's on the test images."""
    task, tried, chosen = runner.task, [], settings[0]
    if len(settings) > 1:
        parts = _parts(task, seeds[0], folds)
        left = list(settings)
        settings = []
        while left:
            settings += left
            own = [replace(setting, seed=seeds[0]) for setting in settings]
            grid = [Trial("select", setting, task.rows(~held), task.rows(held)) for setting in own for held in parts]
            records = runner.run(grid, "fine_tune: choose")
            tried = [mean_record(folded) for folded in in_groups(records, len(parts))]
            chosen = settings[best(tried, f"fine_tune on {task.name}")]
            left = beyond(settings, chosen) if extend else []
    everything = task.rows()
    final = [Trial("test", replace(chosen, seed=seed), everything) for seed in seeds]
    tested = runner.run(final, "fine_tune: test")
    require_sound(tested, f"fine_tune on {task.name}")
    return tried, tested


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
    tried = runner.run(trials, "fine_tune: choose on test")
    of_setting = in_groups(tried, len(seeds))
    chosen = best([mean_record(records) for records in of_setting], f"fine_tune on {runner.task.name}")
    return tried, of_setting[chosen]


_OWN = '{"lr": [...], "weight_decay": [...], "optimizer": "sgd" or "adamw"}'


def open(subject: Subject, options: Options) -> Subject:
    """Check the grid, the seeds and the labels before anything is computed. Raises UserError."""
    _checked(options, "held_out")
    subject.labelled()  # their notes go into the result
    open_task(subject.model, subject.tuned_on(), subject.reading)
    return subject


def run(opened: Subject, options: Options, runtime: Runtime) -> list[Result]:
    """All weights, on the whole grid: hours for large networks, and resumed by the same command; see `fine_tune`."""
    runs = runs_of(options)
    announce([(opened.model, runs * options.steps)], runs, options.batch_size, runtime)
    return [tuned(open_task(opened.model, opened.tuned_on(), opened.reading), options, runtime)]


def runs_of(options: Options) -> int:
    """Return the number of runs for a model, without those of an extended grid."""
    tried = len(settings_of(options.grid))
    return (options.folds * tried if tried > 1 else 0) + len(different_seeds(options.seeds))


def beside(result: Result) -> tuple[str, ...]:
    """The area under the precision-recall curve, beside 11 points of it."""
    return among(result, "map")
