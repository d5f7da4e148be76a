"""The ground truth of a ranking: accuracy of every model of a zoo on every task after fine-tuning all weights.

outcome = ground_truth(["runs/zoo", "efficientnet_lite0"], ["clipart", "digits"], out="runs/truth", image_size=64)
evaluation.rank(zoo, "clipart", truth=outcome.truth["clipart"])
"""

import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from evaluation.datasets import Reading, Split, published
from evaluation.datasets._labels import check_classes
from evaluation.datasets._readable import readable
from evaluation.features.checks import as_list, checked, checked_images, device_of, different_seeds, whole_number
from evaluation.features.models import LoadedModel
from evaluation.features.zoo_members import Failure, error_line, load_zoo
from evaluation.protocols.fine_tune import Options, runs_of, settings_of, tuned
from evaluation.ranking.candidates import sampled
from evaluation.results.records import Records, check_fields, run_id
from evaluation.results.result import Result
from evaluation.tuning.estimate import announce
from evaluation.tuning.processes import process_group
from evaluation.tuning.recorded import each_recorded
from evaluation.tuning.task import open_task
from sslkit.data.decode.fill import AUTO, Fill
from sslkit.data.image_options import CACHE, checked_fill, checked_range
from sslkit.data.sources.named import reusable
from sslkit.errors import UserError
from sslkit.files.writing import write_text
from sslkit.runtime.callers import process_kept
from sslkit.runtime.context import Runtime, silent
from sslkit.runtime.distributed import rank, world_size

NEEDS = ("model", "data", "weights", "images", "settings", "value", "interval", "chosen", "grid", "seconds")
RESULTS, TRUTH, DETAILS = "results.jsonl", "truth.json", "truth_details.json"


@dataclass(frozen=True)
class GroundTruth:
    """truth: {task: {model: accuracy}}. results: {task: {model: record}}, see `ground_truth`. failures: the others.

    settings: of the measurement.
    """

    truth: Mapping[str, Mapping[str, float]]
    results: Mapping[str, Mapping[str, Mapping[str, Any]]]
    settings: Mapping[str, Any]
    failures: tuple[Failure, ...] = ()


@process_kept()
def ground_truth(
    zoo: Any,
    data: Any,
    *,
    out: str | Path = "runs/truth",
    max_images: int | None = 2000,
    max_test_images: int | None = 1000,
    image_size: int | None = None,
    trust: str | Sequence[str] | None = (),
    lr: Sequence[float] = (3e-2, 1e-2, 3e-3, 1e-3, 3e-4),
    extend: bool = True,
    folds: int = 1,
    weight_decay: Sequence[float] = (0.01,),
    optimizer: str = "adamw",
    steps: int = 200,
    batch_size: int = 32,
    seeds: Sequence[int] = (0, 1, 2),
    closest: int = 0,
    more_seeds: Sequence[int] = (3, 4),
    crop: Sequence[float] = (0.5, 1.0),
    mirror: bool | None = None,
    precision: str = "float32",
    root: str | Path = "data",
    cache: str | Path | None = CACHE,
    range: Sequence[float] | str | None = None,
    opacity: bool | None = None,
    fill: Fill = AUTO,
    device: str = "auto",
    workers: int = 1,
    progress: bool = True,
    say: Callable[[str], None] = lambda line: None,
) -> GroundTruth:
    """Fine-tune every model on every task (see `evaluation.fine_tune`), task by task, and store each result at once.

    zoo: see `evaluation.rank`. data: a source of `evaluation.open_split` or a list; its training and test splits.
    max_images, max_test_images: maximum numbers, the same for each class, drawn by the names with seed 0, so that every
        model uses the same images, and `evaluation.rank` with fewer a subset; None: all.
    image_size, trust: see `evaluation.load_model`. root, range, opacity, fill, cache: see `evaluation.extract`.
    lr, weight_decay, optimizer: the grid; the best setting of each model on a held-out fifth of the training images
        is trained on all of them with every seed. extend, folds, steps, batch_size, seeds, crop, mirror, precision,
        device, workers: see `evaluation.fine_tune`; a grid of one rate is not extended.
    closest: number of models of each task, those with the highest accuracies, that are also trained with `more_seeds`.
    out: folder of results.jsonl (a line for every model and task), of fine_tune.jsonl (a line for every run of them),
        and of truth.json and truth_details.json with all results of these settings, also of earlier calls. Results
        with the same weights, images and settings are not measured again.
    A model that cannot be loaded or tuned is recorded in `failures`; the others go on. Under torchrun the processes
    share every batch, and the first error ends them.

    A record: value and interval (t over the seeds), values (one per seed), chosen, grid, seconds, weights, image_size,
    train_images, test_images, and the rest of a `Result`.
    Raises UserError before any measurement for unknown data, duplicate model names, and bad settings.
    """
    lr, weight_decay, crop = as_list("lr", lr), as_list("weight_decay", weight_decay), tuple(as_list("crop", crop))
    grid = {"lr": lr, "weight_decay": weight_decay, "optimizer": optimizer}
    run = {"steps": steps, "batch_size": batch_size, "crop": crop, "precision": precision}
    settings_of(grid, **run)
    device_of(device)
    checked("workers", workers, int, least=1, most=256)
    checked_images(image_size=image_size)
    closest = whole_number("closest", closest, 0)
    more = different_seeds([*different_seeds(seeds), *as_list("more_seeds", more_seeds)]) if closest else []
    run |= {"grid": grid, "extend": bool(extend) and len(set(lr)) > 1, "seeds": different_seeds(seeds)}
    if checked("folds", folds, int, least=1, most=5) > 1:
        run["folds"] = folds  # keys of one fold are as before there were several
    sizes = {"max_images": max_images, "max_test_images": max_test_images, "image_size": image_size}
    values = {"range": checked_range(range), "opacity": opacity, "fill": checked_fill(fill)}
    reading = Reading(root=root, mirror=mirror, cache=cache, **values)
    sizes |= reading.values_given  # likewise
    settings = json.loads(json.dumps({**run, **sizes, "mirror": mirror}))
    tasks = {str(one): opened_splits(one, reading, max_images, max_test_images) for one in _listed(data)}
    for task, splits in tasks.items():
        if splits["test"].note:
            say(f"{task}: {splits['test'].note}")
    models, failures = load_zoo(zoo, image_size, trust)
    for failure in failures:
        say(f"cannot be loaded: {failure}")
    options = Options(**run, workers=workers)
    records = Records(Path(out) / RESULTS)
    records.read()  # report a damaged file before any measurement
    runtime = Runtime(device=device, out=out, progress=progress, say=say)
    with process_group(runtime):
        runtime = runtime if rank() == 0 else replace(runtime, say=silent)
        return _Measurement(models, tasks, reading, records, settings, options, failures, runtime).all(closest, more)


@dataclass(frozen=True, eq=False)
class _Measurement:
    """The models and tasks of `ground_truth`, and where their results go.

    options: of `fine_tune`. reading: of the tasks.
    """

    models: Mapping[str, LoadedModel]
    tasks: Mapping[str, Mapping[str, Split]]
    reading: Reading
    records: Records
    settings: Mapping[str, Any]
    options: Options
    failures: list[Failure]
    runtime: Runtime

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
            (record,) = each_recorded([key], self.records, lambda _: self._measured(model, splits, options))
        except Exception as error:  # an error of one network does not stop the others
            if world_size() > 1:  # the ranks must do the same calls
                raise
            self.failures.append(Failure(name, task, error_line(error)))
            self.runtime.say(f"FAILED    {self.failures[-1]}")
            return
        self.runtime.say(_told(task, name, record, done))
        if not done:
            self.write()

    def _measured(self, model: LoadedModel, splits: Mapping[str, Split], options: Options) -> dict[str, Any]:
        return _record(tuned(open_task(model, splits, self.reading), options, self.runtime), splits)

    def highest(self, task: str, count: int) -> list[str]:
        """Return the `count` models with the highest accuracies by the seeds that all models have, best first."""
        column = self._of(lambda seeds: seeds == self.settings["seeds"]).get(task, {}) if count else {}
        return sorted((name for name in self.models if name in column), key=lambda name: -column[name]["value"])[:count]

    def write(self) -> GroundTruth:
        """Write truth.json and truth_details.json of all results with these settings, each atomically."""
        if rank() != 0:
            return self._found()
        with self.records.alone():
            found = self._found()
            failures = [vars(failure) for failure in found.failures]
            details = {"settings": found.settings, "results": found.results, "failures": failures}
            for name, content in ((TRUTH, found.truth), (DETAILS, details)):
                write_text(Path(self.runtime.out) / name, json.dumps(content, indent=1) + "\n")
        return found

    def _found(self) -> GroundTruth:
        first = self.settings["seeds"]
        results = self._of(lambda seeds: seeds[: len(first)] == first)
        truth = {task: {name: found["value"] for name, found in column.items()} for task, column in results.items()}
        return GroundTruth(truth, results, self.settings, tuple(self.failures))

    def _of(self, wanted: Callable[[list[int]], bool]) -> dict[str, dict[str, Any]]:
        """Return {task: {model: record}} with these settings and the most of the wanted lists of seeds."""
        found: dict[str, dict[str, Any]] = {}
        everything = list(self.records.read().values())
        for record in everything:
            check_fields(record, NEEDS, self.records.path)
        for record in sorted(everything, key=lambda record: len(record["settings"]["seeds"])):
            seeds = record["settings"]["seeds"]
            same = {**record["settings"], "seeds": self.settings["seeds"]} == self.settings
            if same and wanted(seeds) and self._current(record):
                kept = {key: value for key, value in record.items() if key not in ("run", "model", "data", "settings")}
                found.setdefault(record["data"], {})[record["model"]] = kept
        return found

    def _current(self, record: Mapping[str, Any]) -> bool:
        """Return False for a record of other weights or images than those of this call."""
        model, splits = self.models.get(record["model"]), self.tasks.get(record["data"])
        if model and splits:
            key = _key(record["model"], model, record["data"], splits, record["settings"])
            return record["run"] == run_id(key)
        if splits and isinstance(record["images"], list):  # records before 2026-11-25 have a number there
            return record["images"] == _digests(splits)
        return model is None or record["weights"] == model.digest


def _listed(data: Any) -> list[Any]:
    given = list(data) if isinstance(data, (list, tuple)) else [data]
    if not given or None in given:
        raise UserError("name the tasks to fine-tune on: data=[clipart,digits]")
    return list(map(reusable, given))


def opened_splits(source: Any, reading: Reading, most: int | None, most_tested: int | None) -> dict[str, Split]:
    """Return the images to tune and to test on. most, most_tested: see `ground_truth`. Raises UserError."""
    entry = published(source)
    train, test = (reading.open(source, split) for split in (entry.train if entry else "train", "test"))
    check_classes([train], "fine-tuning")
    return {"train": readable(sampled(train, most, 0)), "test": readable(sampled(test, most_tested, 0))}


def _key(name: str, model: LoadedModel, task: str, splits: Mapping[str, Split], settings: Mapping) -> dict[str, Any]:
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


def _told(task: str, name: str, record: Mapping[str, Any], done: bool) -> str:
    interval = record["interval"]
    bounds = f" ({100 * interval[0]:.1f} to {100 * interval[1]:.1f})" if interval else ""
    spent = "there already" if done else f"{record['seconds']:.0f} s"
    edge = " (an end of the grid)" if at_an_end(record) else ""
    return f"{task}: {name}  {100 * record['value']:.1f} %{bounds}, lr {record['chosen']['lr']:g}{edge}, {spent}"


def at_an_end(record: Mapping[str, Any]) -> bool:
    """Return True if the chosen learning rate is the lowest or the highest of several."""
    rates = {tried["lr"] for tried in record["grid"]}
    return len(rates) > 1 and record["chosen"]["lr"] in (min(rates), max(rates))
