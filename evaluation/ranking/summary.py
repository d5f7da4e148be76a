"""Output of a ranking: progress, a table for each task, pictures, a file, and the next command."""

import json
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import torch

from evaluation.datasets import Reading, Split
from evaluation.datasets._labels import check_classes
from evaluation.features.using import use_it
from evaluation.features.zoo_members import lines_of, load_member, members, open_all
from evaluation.ranking.checks import check_ranking, truth_values
from evaluation.ranking.choice.halving import Options as Choosing
from evaluation.ranking.choice.layers import FILE, OWN, best_layers, check_metric, check_task, table, write
from evaluation.ranking.choice.rounds import count_runs
from evaluation.ranking.inputs.candidates import Options, draw_images, settle_images
from evaluation.ranking.inputs.references import Reference, open_reference, write_reference
from evaluation.ranking.inputs.regions import open_parts, parts, recipe_for
from evaluation.ranking.inputs.task_names import AGREEMENT, file_names
from evaluation.ranking.output import Output
from evaluation.ranking.plots import plot_agreement, plot_ranking
from evaluation.ranking.rank import data_name, rank_models
from evaluation.ranking.ranking import Ranking
from evaluation.tuning.estimate import seconds_of_step
from sslkit.backbones.words import split_size
from sslkit.data.sources.named import reusable
from sslkit.decision import LABEL
from sslkit.errors import UserError
from sslkit.files.leases import own_folder
from sslkit.files.reading import regular
from sslkit.models.loading import Loading, name_of
from sslkit.models.model import Model
from sslkit.options.calls import by_keywords
from sslkit.options.members import nearest
from sslkit.runtime.context import Runtime
from sslkit.runtime.step_cost import FEW, LONG
from sslkit.terminal import say
from sslkit.terminal.say import words

USUAL = {**vars(Loading()), "root": Reading.root, "seed": Runtime.seed}  # of the options that the next command keeps
STEPS, BATCH, RATES, SEEDS = Choosing.steps, Choosing.batch_size, len(Choosing.lr), len(Choosing.seeds)
SIZES = ((Choosing.first, STEPS), (4, STEPS), (3, 100), (3, 50), (3, 20))  # first and steps of choose.py
STATISTICS = "ped-reference.npz"  # of the features of each model on a data set


@by_keywords
def rank_tasks(
    zoo: Any,
    data: Any,
    metrics: Any,
    *,
    output: Output,
    options: Options,
    loading: Loading,
    reading: Reading,
    runtime: Runtime,
) -> list[Ranking]:
    """Rank a zoo for one task or several and print the results; called by `recipes/rank.py`.

    zoo, metrics: see `evaluation.rank`. data: a source or a list. Below `out` are NAME.json and NAME.png of each task,
    see `file_names`; for layers see `evaluation.ranking.choice.layers`.
    The statistics of PED's reference are written, too.
    Raises UserError before any extraction if possible: every task is opened first; and at the end, when all is written,
    for a task on which no model has a score.
    """
    tasks, options, runtime = _name_tasks(data), settle_images(options), replace(runtime, say=line)
    if not zoo:
        raise UserError("name the models to rank: zoo=runs/zoo, or zoo=[runs/zoo,efficientnet_lite0,timm:resnet18]")
    check_ranking(metrics, options, runtime)
    if output.layers is not None:
        check_metric(output.layers)
    models = open_all(zoo, lambda one: load_member(one, loading))  # once for all tasks
    for text in lines_of(models.left_out):
        say.line(text)
    truths = _read_truths(output.truth, list(tasks), list(models))
    opened = open_tasks(tasks, options, reading, runtime.seed)
    options = replace(options, reference=open_reference(options.reference, reading))
    for split in opened.values() if output.layers is not None else ():
        check_task(split)
    rankings, out = [], Path(output.out)
    with own_folder(out, "ranks in"):
        for (task, split), file in zip(opened.items(), file_names(list(tasks)).values(), strict=True):
            accuracies = truths.get(task)
            as_open = replace(options, split=split.split)  # an alias, as trainval, is open by its own name
            ranking = rank_models(models, split, metrics, accuracies, as_open, Loading(), reading, runtime)
            if truths and accuracies is None:
                ranking = replace(ranking, notes=(*ranking.notes, f"truth={output.truth} has no accuracies of {task}"))
            made = {**ranking.made, **_given(options, loading), **_words(members(zoo))}
            rankings.append(finish(replace(ranking, data=task, made=made), out, file, output.pictures))
            if output.layers is not None:
                _by_layers(models, split, output.layers, out / f"{file}{FILE}", reading, runtime)
        keep_reference(options.reference, models, out)
    _print_end(rankings)
    if rankings[-1].decision:
        _print_next(rankings[-1], zoo, models, loading, reading, runtime)
    if empty := [ranking for ranking in rankings if np.isnan(ranking.scores).all()]:
        asked = ", ".join(empty[0].metrics)
        raise UserError(
            f"no model has a score by {asked} on {', '.join(task.data for task in empty)}: the notes say why"
        )
    return rankings


def _read_truths(path: str | Path | None, tasks: list[str], models: list[str]) -> dict[str, Mapping[str, float]]:
    """Return task -> {model: accuracy} of the tasks in a file, {} without one. Raises UserError for a missing model."""
    truths = {} if path is None else of_tasks(read_truth(path), tasks, path)
    for accuracies in truths.values():
        truth_values(accuracies, models)
    return truths


def _print_next(
    ranking: Ranking, zoo: Any, models: Mapping[str, Any], loading: Loading, reading: Reading, runtime: Runtime
) -> None:
    """Print how to use the first model, and the next command."""
    asked = {"image_size": loading.image_size, "trust": loading.trust, "root": reading.root, "seed": runtime.seed}
    unusual = {name: value for name, value in asked.items() if value not in (None, (), USUAL[name])}
    best = ranking.decision.first.name
    model, member = load_member(models[best]), members(zoo)[best]
    for text in use_it(member, model, loading.image_size, loading.trust) if ranking.decision.taken else ():
        say.line(text)
    names = zoo if isinstance(zoo, (str, list, tuple)) else list(models)
    unusual |= reading.values_given
    say.line(f"next      {next_command(ranking, names, name_of(member, model), model, unusual)}")


def _given(options: Options, loading: Loading) -> dict[str, Any]:
    """Return what was asked of models and images that are open by now, for the record."""
    return {"max_images": options.max_images, "split": options.split, "image_size": loading.image_size}


def open_tasks(tasks: Mapping[str, Any], options: Options, reading: Reading, seed: int) -> dict[str, Split]:
    """Open every task, with the images used for ranking, before any computation. Raises UserError."""
    opened = {name: _open(task, options.split, reading) for name, task in tasks.items()}
    for task_split in opened.values():
        check_classes([task_split], "a ranking")
    return {name: draw_images(task, options.max_images, seed) for name, task in opened.items()}


def _open(task: Any, split: str, reading: Reading) -> Split:
    """Open a task; `boxes:NAME` and `masks:NAME` are parts of the images of another set."""
    if prefix_and_set := parts(task):
        return open_parts(*prefix_and_set, split, reading)
    return reading.open(task, split)


def finish(ranking: Ranking, out: Path, file: str, pictures: bool) -> Ranking:
    """Print a ranking and write it to out/FILE.json."""
    say.line("")
    say.line(f"{ranking.data}: {ranking.n:,} images")
    say.lines(ranking.table())
    for note in (*ranking.explanation, *ranking.notes):
        say.line(f"note      {note}")
    _write(ranking, out, file, pictures)
    return ranking


def _by_layers(
    models: Mapping[str, Any], split: Split, metric: str, path: Path, reading: Reading, runtime: Runtime
) -> None:
    """Print and write the layers of the models, and how to measure the first one's best layer."""
    layers_found = best_layers(models, split, metric, reading, runtime)
    say.line(f"{split.name}: the best layer of each model")
    say.lines(table(layers_found, metric))
    say.line(f"written   {write(layers_found, metric, path)}")
    first = layers_found[0]
    if first.chosen != OWN:
        asked = {
            "checkpoint": f"{name_of(first.model, load_member(models[first.model]))}@{first.chosen}",
            "data": split.name,
        }
        say.line(f"frozen    python recipes/evaluate.py {words({**asked, 'protocols': ['linear', 'knn']})}")
        say.line("")


def _name_tasks(data: Any) -> dict[str, Any]:
    """Return names and tasks. Raises UserError."""
    tasks = list(data) if isinstance(data, (list, tuple)) else [data]
    if not tasks or None in tasks:
        raise UserError("name the task to rank for: data=clipart, or data=PATH/TO/IMAGES, or a list of them")
    named: dict[str, Any] = {}
    for task in map(reusable, tasks):
        name = data_name(task)
        if name in named:
            raise UserError(f"data names {name} twice")
        named[name] = task
    return named


def read_truth(path: str | Path) -> Mapping[str, Any]:
    """Read accuracies from a .json file. Raises UserError."""
    try:
        content = json.loads(regular(Path(path)).read_text(encoding="utf-8"))
    except (OSError, ValueError, RecursionError) as error:
        raise UserError(f"truth={path} cannot be read as JSON: {error}") from error
    if not isinstance(content, dict) or not content:
        raise UserError(f"truth={path} must be {{model: accuracy}}, or {{data: {{model: accuracy}}}}")
    return content


def of_tasks(found: Mapping[str, Any], tasks: Sequence[str], path: str | Path) -> dict[str, Mapping[str, float]]:
    """Return task -> {model: accuracy} for the tasks in the file. Raises UserError if it has none of them."""
    if all(isinstance(value, (int, float)) for value in found.values()):
        return dict.fromkeys(tasks, found)
    if not all(isinstance(value, dict) for value in found.values()):
        raise UserError(f"truth={path} must be {{model: accuracy}} or {{data: {{model: accuracy}}}}, not of both kinds")
    present = {task: found[task] for task in tasks if task in found}
    if not present:
        raise UserError(f"truth={path} has no accuracies of {' and '.join(tasks)}: {nearest(tasks[0], found)}")
    return present


def _write(ranking: Ranking, out: Path, file: str, pictures: bool) -> None:
    """Write FILE.json and, with pictures, FILE.png and FILE-agreement.png, and print the paths."""
    written = [ranking.to_json(out / f"{file}.json")]
    if pictures:
        written.append(plot_ranking(ranking, out / f"{file}.png"))
        if ranking.truth is not None:
            written.append(plot_agreement(ranking, out / f"{file}{AGREEMENT}.png"))
    say.line(f"written   {', '.join(map(str, written))}")
    say.line("")


def keep_reference(reference: Reference, models: Mapping[str, Any], out: Path) -> None:
    """Write PED's statistics of a data set, and print how to use them without it."""
    if path := write_reference(reference, models, out / STATISTICS):
        say.line(f"written   {path}: means and stds of {reference}; reference={path} takes them")


def _print_end(rankings: Sequence[Ranking]) -> None:
    """Print the first of each task, and the left-out members."""
    for ranking in rankings:
        if ranking.decision:
            say.line(f"{LABEL}{ranking.data}: {ranking.decision}")
    for told in lines_of({name: why for ranking in rankings for name, why in ranking.left_out.items()}):
        say.line(told)


def next_command(ranking: Ranking, zoo: Any, best: str, model: Model, kept: Mapping[str, Any]) -> str:
    """Return the command that tunes the first models on the task, or that judges the best where it is the only one.

    zoo, best: on a command line. model: the best. kept: options of this command that the next one needs too.
    """
    if prefix_and_set := parts(ranking.data):
        recipe, options = recipe_for(prefix_and_set[0])
        return f"python recipes/{recipe}.py {words({'checkpoint': best, 'data': prefix_and_set[1], **options, **kept})}"
    if len(ranking.models) < 2:
        asked = {"checkpoint": best, "data": ranking.data, "protocols": ["linear"]}
        return f"python recipes/evaluate.py {words({**asked, **kept})}"
    asked = {"zoo": zoo, "data": ranking.data, **_size(model, len(ranking.models)), **kept}
    return f"python recipes/choose.py {words({name: asked[name] for name in asked if name != 'seed'})}"


def _words(zoo: Mapping[str, Any]) -> dict[str, dict[str, str]]:
    """Return the words that hold a size of images of their own, by the names of their models, as `words`; or {}."""
    words_found = {
        name: str(word) for name, word in zoo.items() if isinstance(word, (str, Path)) and split_size(str(word))[1]
    }
    return {"words": words_found} if words_found else {}


def _size(model: Model, n: int) -> dict[str, int]:
    """Return the options of choose.py with which it takes at most about half an hour on this CPU."""
    if torch.cuda.is_available() or STEPS * BATCH * model.image_size**2 < FEW:
        return {}
    each = seconds_of_step(model, BATCH)
    for first, steps in SIZES:
        if count_runs(min(first, n), RATES, SEEDS, steps)[1] * each <= LONG:
            break
    return {} if (first, steps) == SIZES[0] else {"first": first, "steps": steps}


def line(text: str) -> None:
    """Print a line of progress."""
    say.line(f"          {text}")
