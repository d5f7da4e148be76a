"""The ground truth of a ranking: accuracy of every model of a zoo on every task after fine-tuning all weights.

outcome = ground_truth(["runs/zoo", "efficientnet_lite0"], ["clipart", "digits"], out="runs/truth", image_size=64)
evaluation.rank(zoo, "clipart", truth=outcome.truth["clipart"])
"""

import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from evaluation.datasets import Reading, Split, find_published, note_of
from evaluation.datasets._copies import near_across
from evaluation.datasets._labels import check_classes
from evaluation.datasets._readable import readable
from evaluation.features.checks import as_list, different_seeds
from evaluation.features.extraction import check
from evaluation.features.zoo_members import Failure, error_line, load_zoo
from evaluation.protocols import fine_tune
from evaluation.protocols.fine_tune import runs_of, settings_of, tune_grid
from evaluation.ranking.inputs.candidates import draw_images
from evaluation.ranking.inputs.runs import SHARED, Runs
from evaluation.ranking.truth.keeping import keep_measured
from evaluation.results.records import Records, check_fields, run_id
from evaluation.results.result import Result
from evaluation.tuning import ALL, NONE
from evaluation.tuning.estimate import announce
from evaluation.tuning.processes import process_group
from evaluation.tuning.recorded import each_recorded
from evaluation.tuning.task import open_task
from sslkit.data.columns import Columns
from sslkit.data.image_options import parse_range
from sslkit.data.sources.named import reusable
from sslkit.errors import UserError
from sslkit.files.writing import write_text
from sslkit.models.loading import Loading
from sslkit.models.model import Model
from sslkit.options.settings import MOST, MOST_SEED, setting, with_default
from sslkit.runtime.callers import public
from sslkit.runtime.context import Runtime, silent
from sslkit.runtime.distributed import rank, world_size
from sslkit.zoo.entry import ZooEntry

NEEDS = ("model", "data", "weights", "images", "settings", "value", "interval", "chosen", "grid", "seconds")
RESULTS, TRUTH, DETAILS = "results.jsonl", "truth.json", "truth_details.json"


@dataclass(frozen=True)
class GroundTruth:
    """truth: {task: {model: accuracy}}. results: {task: {model: record}}, see `ground_truth`. failures: the others.

    settings: of the measurement. entries: {task: {model: entry}} of tuned models that are kept.
    """

    truth: Mapping[str, Mapping[str, float]]
    results: Mapping[str, Mapping[str, Mapping[str, Any]]]
    settings: Mapping[str, Any]
    failures: tuple[Failure, ...] = ()
    entries: Mapping[str, Mapping[str, ZooEntry]] = field(default_factory=dict)


@dataclass(frozen=True, kw_only=True)
class Options(Runs):
    keep: str = with_default(Runs, "keep", NONE)
    out: str | Path = setting("runs/truth", "folder of truth.json, truth_details.json and the finished runs")
    max_test_images: int | None = setting(1000, "the same for test images; null: all", least=1, most=MOST)
    lr: float | Sequence[float] = setting(
        (3e-2, 1e-2, 3e-3, 1e-3, 3e-4), "grid of learning rates, selected on a held-out fifth of train", above=0
    )
    extend: bool = setting(True, "while the selected rate is an end of the grid, try the next one beyond it")
    folds: int = setting(
        1, "fifths of train, held out one after the other to select the rate; 5 for few images", least=1, most=5
    )
    weight_decay: float | Sequence[float] = setting((0.01,), "likewise", least=0)
    steps: int = setting(200, "steps of each run", least=1, most=MOST)
    seeds: int | Sequence[int] = setting(
        (0, 1, 2), "random seeds of the runs with the selected rate, on all training images", least=0, most=MOST_SEED
    )
    closest: int = setting(
        0, "number of models of each task, the best ones, that are trained with more_seeds too", least=0, most=MOST
    )
    more_seeds: int | Sequence[int] = setting(
        (3, 4), "the further seeds of the closest models", least=0, most=MOST_SEED
    )

    def tuning(self, precision: str) -> dict[str, Any]:
        """Return the options of `fine_tune` that decide the numbers. Raises UserError for a grid that cannot be run."""
        lr, weight_decay = as_list("lr", self.lr), as_list("weight_decay", self.weight_decay)
        grid = {"lr": lr, "weight_decay": weight_decay, "optimizer": self.optimizer}
        run = {"steps": self.steps, **self.how(precision)}
        settings_of(grid, **run)
        run |= {"grid": grid, "extend": self.extend and len(set(lr)) > 1, "seeds": different_seeds(self.seeds)}
        return run | (
            {"folds": self.folds} if self.folds > 1 else {}
        )  # keys of one fold are as before there were several


@public(*SHARED)
def ground_truth(
    zoo: Any,
    data: Any,
    *,
    options: Options,
    loading: Loading,
    reading: Reading,
    runtime: Runtime,
    say: Callable[[str], None] = silent,
) -> GroundTruth:
    """Fine-tune every model on every task (see `evaluation.fine_tune`), task by task, and store each result at once.

    zoo: see `evaluation.rank`. data: a source of `evaluation.open_split` or a list; its training and test splits.
    The images of max_images and max_test_images are drawn by the names with seed 0, so that every model uses the same
    images, and `evaluation.rank` with fewer a subset. The best setting of each model on a held-out fifth of the
    training images is trained on all of them with every seed; a grid of one rate is not extended.
    Below `out` are results.jsonl (a line for every model and task), fine_tune.jsonl (a line for every run of them),
    and truth.json and truth_details.json with all results of these settings, also of earlier calls. Results
    with the same weights, images and settings are not measured again.
    A model that cannot be loaded or tuned is recorded in `failures`; the others go on. Under torchrun the processes
    share every batch, and the first error ends them.

    A record: value and interval (t over the seeds), values (one per seed), chosen, grid, seconds, weights, image_size,
    train_images, test_images, and the rest of a `Result`.
    Raises UserError before any measurement for unknown data, duplicate model names, and bad settings.
    """
    run = options.tuning(runtime.precision)
    check(runtime)
    more = different_seeds([*run["seeds"], *as_list("more_seeds", options.more_seeds)]) if options.closest else []
    sizes = {"max_images": options.max_images, "max_test_images": options.max_test_images}
    read = replace(reading, range=parse_range(reading.range))  # its numbers as floats, as the keys have them
    sizes |= {"image_size": loading.image_size, **read.values_given}
    settings = json.loads(json.dumps({**run, **sizes, "mirror": reading.mirror}))
    most = (options.max_images, options.max_test_images)
    tasks = {str(task_asked): open_splits(task_asked, reading, *most) for task_asked in _as_list(data, reading.columns)}
    for task, splits in tasks.items():
        if splits["test"].note:
            say(f"{task}: {splits['test'].note}")
        is_given = not note_of(splits["test"].source, reading.cache, reading.columns)
        if line := near_across(**splits, what="test images", columns=reading.columns, is_given=is_given):
            say(f"{task}: {line}")
    models, failures = load_zoo(zoo, loading)
    for failure in failures:
        say(f"cannot be loaded: {failure}")
    tuning = fine_tune.Options(**run, workers=options.workers)
    records = Records(Path(options.out) / RESULTS)
    records.read()  # report a damaged file before any measurement
    runtime = replace(runtime, out=options.out, say=say)
    with process_group(runtime):
        runtime = runtime if rank() == 0 else replace(runtime, say=silent)
        measurement = _Measurement(models, tasks, reading, records, settings, tuning, failures, runtime, options.keep)
        return replace(measurement.all(options.closest, more), entries=measurement.keep())


@dataclass(frozen=True, eq=False)
class _Measurement:
    """The models and tasks of `ground_truth`, and where their results go.

    options: of `fine_tune`. reading: of the tasks.
    """

    models: Mapping[str, Model]
    tasks: Mapping[str, Mapping[str, Split]]
    reading: Reading
    records: Records
    settings: Mapping[str, Any]
    options: fine_tune.Options
    failures: list[Failure]
    runtime: Runtime
    which: str = NONE

    def keep(self) -> dict[str, dict[str, ZooEntry]]:
        """Keep the best model of each task, or all."""
        entries: dict[str, dict[str, ZooEntry]] = {}
        for source in self.tasks if self.which != NONE else ():
            column = self._latest(lambda seeds: seeds == self.settings["seeds"]).get(source, {})
            for name in self.highest(source, len(self.models) if self.which == ALL else 1):
                task = open_task(self.models[name], self.tasks[source], self.reading)
                if entry := keep_measured(task, column[name], self.options, source, self.runtime):
                    entries.setdefault(source, {})[name] = entry
        return entries

    def all(self, closest: int, more: list[int]) -> GroundTruth:
        """Measure every model on every task; the `closest` best of a task also with the seeds `more`."""
        missing = [self.models[name] for task in self.tasks for name in self.models if not self.is_done(task, name)]
        runs = runs_of(self.options)
        work = [(model, runs * self.options.steps) for model in missing]
        announce(work, runs * len(work), self.options.batch_size, self.runtime)
        for task in self.tasks:
            for name in self.models:
                self.one(task, name, self.settings["seeds"])
            for name in self.highest(task, closest):
                self.one(task, name, more)
        return self.write()

    def is_done(self, task: str, name: str) -> bool:
        """Return whether a model is measured on a task with the seeds that all have."""
        return self.records.find(_key(name, self.models[name], task, self.tasks[task], self.settings)) is not None

    def one(self, task: str, name: str, seeds: list[int]) -> None:
        """Measure a model on a task, unless that is recorded; add the error of a network to the failures."""
        model, splits, options = self.models[name], self.tasks[task], replace(self.options, seeds=seeds)
        key = _key(name, model, task, splits, {**self.settings, "seeds": seeds})
        done = self.records.find(key) is not None
        try:
            (record,) = each_recorded([key], self.records, lambda _: self._measure(model, splits, options))
        except Exception as error:  # an error of one network does not stop the others
            if world_size() > 1:  # the ranks must do the same calls
                raise
            self.failures.append(Failure(name, task, error_line(error)))
            self.runtime.say(f"FAILED    {self.failures[-1]}")
            return
        self.runtime.say(_progress_line(task, name, record, done))
        if not done:
            self.write()

    def _measure(self, model: Model, splits: Mapping[str, Split], options: fine_tune.Options) -> dict[str, Any]:
        task, keep = open_task(model, splits, self.reading), self.which == ALL
        return _record(tune_grid(task, options, self.runtime, keep), splits)

    def highest(self, task: str, count: int) -> list[str]:
        """Return the `count` models with the highest accuracies by the seeds that all models have, best first."""
        column = self._latest(lambda seeds: seeds == self.settings["seeds"]).get(task, {}) if count else {}
        return sorted((name for name in self.models if name in column), key=lambda name: -column[name]["value"])[:count]

    def write(self) -> GroundTruth:
        """Write truth.json and truth_details.json of all results with these settings, each atomically."""
        if rank() != 0:
            return self._collect()
        with self.records.alone():
            truth = self._collect()
            failures = [vars(failure) for failure in truth.failures]
            details = {"settings": truth.settings, "results": truth.results, "failures": failures}
            for name, content in ((TRUTH, truth.truth), (DETAILS, details)):
                write_text(Path(self.runtime.out) / name, json.dumps(content, indent=1) + "\n")
        return truth

    def _collect(self) -> GroundTruth:
        first = self.settings["seeds"]
        results = self._latest(lambda seeds: seeds[: len(first)] == first)
        truth = {task: {name: record["value"] for name, record in column.items()} for task, column in results.items()}
        return GroundTruth(truth, results, self.settings, tuple(self.failures))

    def _latest(self, wanted: Callable[[list[int]], bool]) -> dict[str, dict[str, Any]]:
        """Return {task: {model: record}} with these settings and the most of the wanted lists of seeds."""
        latest: dict[str, dict[str, Any]] = {}
        everything = list(self.records.read().values())
        for record in everything:
            check_fields(record, NEEDS, self.records.path)
        for record in sorted(everything, key=lambda record: len(record["settings"]["seeds"])):
            seeds = record["settings"]["seeds"]
            same = {**record["settings"], "seeds": self.settings["seeds"]} == self.settings
            if same and wanted(seeds) and self._current(record):
                fields = {
                    key: value for key, value in record.items() if key not in ("run", "model", "data", "settings")
                }
                latest.setdefault(record["data"], {})[record["model"]] = fields
        return latest

    def _current(self, record: Mapping[str, Any]) -> bool:
        """Return False for a record of other weights or images than those of this call."""
        model, splits = self.models.get(record["model"]), self.tasks.get(record["data"])
        if model and splits:
            key = _key(record["model"], model, record["data"], splits, record["settings"])
            return record["run"] == run_id(key)
        if splits and isinstance(record["images"], list):  # records before 2026-11-25 have a number there
            return record["images"] == _digests(splits)
        return model is None or record["weights"] == model.digest


def _as_list(data: Any, columns: Columns) -> list[Any]:
    tasks = list(data) if isinstance(data, (list, tuple)) else [data]
    if not tasks or None in tasks:
        raise UserError("name the tasks to fine-tune on: data=[clipart,digits]")
    return [reusable(task, columns) for task in tasks]


def open_splits(source: Any, reading: Reading, most: int | None, most_tested: int | None) -> dict[str, Split]:
    """Return the images to tune and to test on. most, most_tested: see `ground_truth`. Raises UserError."""
    entry = find_published(source)
    train, test = (reading.open(source, split) for split in (entry.train if entry else "train", "test"))
    check_classes([train], "fine-tuning")
    return {"train": readable(draw_images(train, most, 0)), "test": readable(draw_images(test, most_tested, 0))}


def _key(name: str, model: Model, task: str, splits: Mapping[str, Split], settings: Mapping) -> dict[str, Any]:
    """Return everything a result depends on."""
    return {
        "model": name,
        "data": task,
        "weights": model.digest,
        "image_size": model.image_size,
        "images": _digests(splits),
        "settings": dict(settings),
    }


def _digests(splits: Mapping[str, Split]) -> list[str]:
    return [split.digest for split in splits.values()]


def _record(result: Result, splits: Mapping[str, Split]) -> dict[str, Any]:
    told = json.loads(result.to_json())
    details = told.pop("details")
    told = {name: value for name, value in told.items() if name not in ("model", "data")}
    del details["images"]  # the number of training images, which is below; the key has the digests of this name
    counts = {"train_images": len(splits["train"]), "test_images": len(splits["test"])}
    return {**told, **details, **counts}


def _progress_line(task: str, name: str, record: Mapping[str, Any], done: bool) -> str:
    interval = record["interval"]
    bounds = f" ({100 * interval[0]:.1f} to {100 * interval[1]:.1f})" if interval else ""
    spent = "there already" if done else f"{record['seconds']:.0f} s"
    edge = " (an end of the grid)" if at_an_end(record) else ""
    return f"{task}: {name}  {100 * record['value']:.1f} %{bounds}, lr {record['chosen']['lr']:g}{edge}, {spent}"


def at_an_end(record: Mapping[str, Any]) -> bool:
    """Return True if the chosen learning rate is the lowest or the highest of several."""
    rates = {tried["lr"] for tried in record["grid"]}
    return len(rates) > 1 and record["chosen"]["lr"] in (min(rates), max(rates))
