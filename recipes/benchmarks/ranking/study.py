"""Ranking quality of transferability metrics on a zoo: against fine-tuning, with baselines and the papers' claims.

    python recipes/ground_truth.py zoo='[runs/zoo,efficientnet_lite0(image_size=64)]' data=[clipart,digits]
    python recipes/benchmarks/ranking/run.py study --truth runs/truth runs/truth_many \
        --zoo runs/zoo "efficientnet_lite0(image_size=64)"
    python recipes/benchmarks/ranking/run.py study --table --markdown      (print the committed results)

Every metric scores the same images of a task, balanced by class and drawn from the training images of fine-tuning. Each
starts from extracted features and shares no computation with another, so seconds are separate. Finished cells (a metric
on a task) are stored in --work and not computed again. The result contains the numbers of models and tasks.
"""

import argparse
import json
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import cli
import numpy as np
import results
from ranking.summary import summarise
from ranking.table import table
from ranking.truth import FEWEST, read_measured, runs_of, task_title, usable

from sslkit.cli.process import keep_freed_memory

import evaluation
from evaluation.datasets import Split, open_split
from evaluation.features.zoo_members import load_zoo
from evaluation.ranking.inputs.candidates import draw_images
from evaluation.ranking.scoring import needs, parse
from evaluation.ranking.truth.agreement import spearman
from evaluation.ranking.truth.ground_truth import at_an_end
from evaluation.results.records import Records
from evaluation.tuning.recorded import each_recorded
from sslkit.errors import UserError
from sslkit.models.model import Model

OUT = results.path_of("ranking/study")
PED = ("ped+logme", "ped+sfda", "ped+gbc")
METRICS = (*(name for name in evaluation.metrics() if name != "ped" and "boxes" not in needs(name)), *PED)


def main() -> None:
    args = arguments()
    if args.table:
        print(table(json.loads(args.out.read_text()), args.markdown))
        return
    keep_freed_memory()
    try:
        study_results = study(args)
        json.dumps(study_results, allow_nan=False)  # raises
        results.write(args.out, study_results)
    except UserError as error:
        print(f"error: {error}", file=sys.stderr)
        sys.exit(2)
    print(table(study_results, args.markdown))
    print(f"\nwritten   {args.out}")
    sys.exit(1 if study_results["failed"] else 0)


def arguments() -> argparse.Namespace:
    parser = cli.parser(__doc__)
    parser.add_argument("--zoo", nargs="+", help="models, as in recipes/rank.py")
    parser.add_argument(
        "--truth", type=Path, nargs="+", default=[Path("runs/truth")], help="output folders of recipes/ground_truth.py"
    )
    parser.add_argument("--data", nargs="+", help="tasks; default all of the ground truth")
    parser.add_argument("--metrics", nargs="+", default=list(METRICS))
    parser.add_argument("--images", type=int, default=500, help="images of each task that are scored")
    parser.add_argument("--draws", type=int, default=1000, help="bootstrap draws of models, for the intervals")
    parser.add_argument("--seed", type=int, default=0, help="random seed of metrics and draws")
    parser.add_argument("--root", default="data", help="folder of the published data sets")
    parser.add_argument("--cache", default="runs/cache", help="folder of the features")
    parser.add_argument("--work", type=Path, default=Path("runs/ranking_study"), help="folder of the finished cells")
    parser.add_argument("--out", type=Path, default=OUT)
    parser.add_argument("--table", action="store_true", help="print the results in --out and exit")
    parser.add_argument("--markdown", action="store_true", help="print the table in Markdown, as in the README")
    return parser.parse_args()


def study(args: argparse.Namespace) -> dict[str, Any]:
    """Compute the content of the results file. Checks arguments and ground truth first; raises UserError."""
    if not args.zoo:
        raise UserError("give the models: --zoo runs/zoo 'efficientnet_lite0(image_size=64)'")
    for metric in args.metrics:
        parse(metric)
    truth, details = read_measured(args.truth)
    models, failures = load_zoo(args.zoo)
    if failures:
        raise UserError(f"cannot be loaded: {'; '.join(map(str, failures))}")
    wanted = args.data or list(truth)
    missing = [task for task in wanted if task not in truth]
    if missing:
        raise UserError(f"the ground truth has no {', '.join(missing)}; it has: {', '.join(truth)}")
    tasks = {task_title(task): task for task in wanted}
    truth = {title: truth[task] for title, task in tasks.items()}
    usable_models = {title: usable(title, truth[title], details, models) for title in tasks}
    opened = {
        title: draw_images(open_split(task, "train", root=args.root), args.images, 0) for title, task in tasks.items()
    }
    cells, failed = compute_cells(opened, usable_models, models, args)
    apart = [title for title, split in opened.items() if split.y.ndim > 1]
    accuracies = {task: {name: truth[task][name] for name in usable_models[task]} for task in tasks}
    return {
        **about(args, details),
        "models": {name: describe(model) for name, model in models.items()},
        "images": {task: len(split) for task, split in opened.items()},
        "truth": accuracies,
        "without_truth": {task: [name for name in models if name not in usable_models[task]] for task in tasks},
        **summarise(cells, accuracies, _seeds(details, usable_models), apart, draws=args.draws, seed=args.seed),
        "cost": _cost(details, usable_models),
        "failed": failed,
    }


def compute_cells(
    opened: Mapping[str, Split],
    usable_models: Mapping[str, Sequence[str]],
    models: Mapping[str, Model],
    args: Any,
) -> tuple[dict[str, dict[str, Any]], list[str]]:
    """{task: {metric: {scores, seconds, notes, reliability}}}, and a line for each failure."""
    records = Records(args.work / "cells.jsonl")
    cells: dict[str, dict[str, Any]] = {task: {} for task in opened}
    failed = []
    for task, split in opened.items():
        zoo = {name: models[name] for name in usable_models[task]}
        for metric in args.metrics:
            try:
                cell = compute_cell_once(records, task, zoo, split, metric, args)
            except UserError as error:
                failed.append(f"{metric} on {task}: {error}")
                continue
            cells[task][metric] = {**cell, "reliability": reliability(records, task, zoo, split, metric, args)}
            print(f"{task}: {metric}, {sum(cell['seconds'].values()):.2f} s", flush=True)
    return cells, failed


def compute_cell_once(
    records: Records, task: str, zoo: Mapping[str, Model], split: Split, metric: str, args: Any
) -> dict[str, Any]:
    """The cell of a metric on these images, computed once. Raises UserError."""
    identities = [[name, model.digest, model.image_size] for name, model in zoo.items()]
    key = {"task": task, "images": split.digest, "metric": metric, "models": identities, "seed": args.seed}
    (cell,) = each_recorded([key], records, lambda _: cell_of(zoo, split, metric, args))
    return {name: cell[name] for name in ("scores", "seconds", "notes")}


def reliability(
    records: Records, task: str, zoo: Mapping[str, Model], split: Split, metric: str, args: Any
) -> float | None:
    """Spearman's correlation over models of the scores on one half of the images with those on the other.

    Without the truth. None if a half cannot be scored, and for fewer than three models.
    """
    try:
        first, second = (compute_cell_once(records, task, zoo, half, metric, args)["scores"] for half in halves(split))
    except UserError:
        return None
    common = sorted(set(first) & set(second))
    columns = [[scores[name] for name in common] for scores in (first, second)]
    if len(common) < FEWEST or any(len(set(column)) < 2 for column in columns):
        return None
    return round(spearman(*columns), 4)


def halves(split: Split) -> tuple[Split, Split]:
    """Every second image of each class, and the others; of all images for several labels an image."""
    y = split.y if split.y.ndim == 1 else np.zeros(len(split))
    order = np.argsort(y, kind="stable")
    return split.take(np.sort(order[::2])), split.take(np.sort(order[1::2]))


def describe(model: Model) -> dict[str, Any]:
    """Identity of a model, and what is known of it without an image."""
    method = model.entry.card.get("method") if model.entry is not None else None
    return {
        "weights": model.digest[:12],
        "image_size": model.image_size,
        "family": type(model.net).__name__,
        "parameters": sum(p.numel() for p in model.net.parameters()),
        "width": model.width,
        "trained": "with labels"
        if model.source_head is not None or str(method).startswith("supervised")
        else "no"
        if method is None
        else "without labels",
    }


def cell_of(zoo: Mapping[str, Model], split: Split, metric: str, args: Any) -> dict[str, Any]:
    """Scores and seconds by model, without models that the metric cannot score."""
    how = {"split": split.split, "cache": args.cache, "seed": args.seed, "progress": False}
    ranking = evaluation.rank(zoo, split, [metric], bootstrap=0, **how)
    columns = {"scores": ranking.scores[:, 0], "seconds": ranking.seconds[:, 0]}
    is_scored = ranking.scores[:, 0] == ranking.scores[:, 0]
    return {
        name: {
            model: float(value)
            for model, value, is_known in zip(ranking.models, column, is_scored, strict=True)
            if is_known
        }
        for name, column in columns.items()
    } | {"notes": list(ranking.notes)}


def about(args: argparse.Namespace, details: Mapping[str, Any]) -> dict[str, Any]:
    """Date, machine, commit, and the settings of the ground truth."""
    return {
        **results.about(),
        "commit": results.commit(),
        "seed": args.seed,
        "draws": args.draws,
        "ground_truth": details["settings"] or "as given, without its settings",
    }


def _seeds(details: Mapping[str, Any], usable_models: Mapping[str, Sequence[str]]) -> dict[str, dict[str, list[float]]]:
    """{task: {model: accuracy with each seed}}, empty if the ground truth has no seeds."""
    records = details["results"]
    return {
        task: {name: records[task][name]["values"] for name in names}
        for task, names in usable_models.items()
        if task in records
    }


def _cost(details: Mapping[str, Any], usable_models: Mapping[str, Sequence[str]]) -> dict[str, Any]:
    """Runs and hours of the ground truth, and how many models of each task chose an end of their grid."""
    runs = details["results"]
    records = {task: [runs[task][name] for name in names] for task, names in usable_models.items() if task in runs}
    everything = [record for column in records.values() for record in column]
    settings = details["settings"]
    return {
        "runs": sum(runs_of(record, settings.get(task, {})) for task, column in records.items() for record in column),
        "core_hours": round(sum(record["seconds"] for record in everything) / 3600, 2),
        "at_an_end": {task: sum(map(at_an_end, column)) for task, column in records.items()},
    }
