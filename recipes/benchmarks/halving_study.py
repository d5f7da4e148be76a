"""Does successive halving choose better models than metrics alone? Its choices, judged by the measured truth.

    python recipes/benchmarks/halving_study.py --zoo runs/study efficientnet_lite0 --truth runs/truth runs/truth_many
    python recipes/benchmarks/halving_study.py --table      (print the committed results)

Truth: output of recipes/ground_truth.py, accuracies on test images. `evaluation.successive_halving` sees the training
images only; it gets the truth's steps and learning rates. For each task, each number of models that are tuned, and each
repetition, with its own held-out images and seeds, the model that it chooses is looked up in the truth. Beside it: the
first model by the metrics, and the model with the highest accuracy on the truth's own held-out images, which is what
tuning every model would choose. Finished choices are stored and not made again.
"""

import argparse
import itertools
import os
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

os.environ.setdefault("OMP_WAIT_POLICY", "passive")

import numpy as np
import torch
from ranking_truth import image_size, measured, titled, usable
from results import keep, load
from tqdm import tqdm

from evaluation.features.models import LoadedModel
from evaluation.ranking.ground_truth import load_zoo
from evaluation.ranking.halving import successive_halving
from sslkit.allocator import keep_freed_memory
from sslkit.errors import UserError
from sslkit.text_tables import markdown

RESULTS = "halving_study"
SEEDS = 3  # of the last round


def main() -> None:
    args = arguments()
    if not args.table:
        torch.set_num_threads(args.threads)
        keep_freed_memory()
        try:
            measure(args)
        except UserError as error:
            print(f"error: {error}", file=sys.stderr)
            sys.exit(2)
    print(table(load(RESULTS)["runs"]))


def arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--zoo", nargs="+", help="models, as in recipes/rank.py")
    parser.add_argument("--truth", type=Path, nargs="+", default=[Path("runs/truth")])
    parser.add_argument("--data", nargs="+", help="tasks; default all of the truth")
    parser.add_argument("--first", type=int, nargs="+", default=[4, 8], help="models that are tuned")
    parser.add_argument("--repeats", type=int, default=2, help="choices by other held-out images and seeds")
    parser.add_argument("--cache", default="runs/cache", help="folder of the features")
    parser.add_argument("--work", type=Path, default=Path("runs/halving_study"), help="folder of the finished runs")
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--table", action="store_true", help="print the results and exit")
    return parser.parse_args()


def measure(args: argparse.Namespace) -> None:
    """Make every choice that is not stored yet. Raises UserError for a truth without its settings."""
    truth, details = measured(args.truth)
    wanted = args.data or list(truth)
    missing = [task for task in wanted if task not in truth or titled(task) not in details["settings"]]
    if missing:
        raise UserError(f"--truth has no results with settings of {', '.join(missing)}")
    settings = details["settings"]
    models, _ = load_zoo(args.zoo, image_size(settings))
    for task in wanted:
        kept = usable(titled(task), truth[task], details, models)
        keep(RESULTS, f"truth | {titled(task)}", of_truth(truth[task], details["results"][titled(task)], kept))
    place = {"cache": args.cache, "out": args.work}
    runs = itertools.product(range(args.repeats), args.first, wanted)
    for repeat, first, task in tqdm(list(runs), unit="choice", leave=False, disable=None):
        key = f"choice | {titled(task)} | {first} | {repeat}"
        if key not in load(RESULTS)["runs"]:
            keep(RESULTS, key, choice(models, task, first, repeat, settings[titled(task)], place))


def of_truth(truth: Mapping[str, float], records: Mapping[str, Any], kept: Sequence[str]) -> dict[str, Any]:
    """Accuracies of a task on test images, the model that is best on held-out images, and the seconds of all."""
    held_out = {name: of_chosen_rate(records[name]) for name in kept}
    return {
        "accuracies": {name: truth[name] for name in kept},
        "best held out": max(held_out, key=held_out.get),
        "seconds": round(sum(records[name]["seconds"] for name in kept)),
    }


def of_chosen_rate(record: Mapping[str, Any]) -> float:
    """The accuracy on held-out training images with the rate that was chosen by it."""
    chosen = record["chosen"]["lr"]
    return next(tried["value"] for tried in record["grid"] if tried["lr"] == chosen)


def choice(
    models: Mapping[str, LoadedModel], task: str, first: int, repeat: int, settings: Mapping[str, Any], place: Mapping
) -> dict[str, Any]:
    """Choose once, by the default metric of recipes/rank.py. place: folders of the features and finished runs."""
    seeds = [SEEDS * repeat + seed for seed in range(SEEDS)]
    same = {name: settings[name] for name in ("steps", "batch_size", "crop", "flip", "precision", "max_images")}
    grid = settings["grid"]
    same |= {"lr": grid["lr"], "optimizer": grid["optimizer"], "weight_decay": grid["weight_decay"][0]}
    found = successive_halving(dict(models), task, first=first, seeds=seeds, **place, progress=False, **same)
    return {
        "ranked first": found.ranking.order[0],
        "tuned": [arm.model for arm in found.rounds[0].arms],
        "chosen": found.winner,
        "probability": None if np.isnan(found.probability) else found.probability,
        "within": None if np.isnan(found.within) else found.within,
        "steps": found.steps,
        "share of all steps": found.steps / found.whole_steps,
        "seconds": round(found.seconds, 1),
    }


def table(runs: Mapping[str, Any]) -> str:
    """Markdown tables: regret by task, in points; how often the stated probabilities are right."""
    truths = {key.partition(" | ")[2]: one for key, one in runs.items() if key.startswith("truth | ")}
    choices: dict[tuple[str, int], list[Mapping[str, Any]]] = {}
    for key, one in runs.items():
        if key.startswith("choice | "):
            _, task, first, _ = key.split(" | ")
            choices.setdefault((task, int(first)), []).append(one)
    firsts = sorted({first for _, first in choices})
    done = [task for task in truths if all((task, first) in choices for first in firsts)]
    regrets = {task: by_task(truths[task], {first: choices[task, first] for first in firsts}) for task in done}
    names = list(next(iter(regrets.values())))
    rows = [["task", *names], *([task, *_cells(one.values())] for task, one in regrets.items())]
    rows.append(["mean", *_cells([np.mean([one[name] for one in regrets.values()]) for name in names])])
    facts = [["models tuned", "share of all steps", "P(best of the tuned)", "is", "P(best is tuned)", "is"]]
    facts += [[str(first), *calibrated(truths, choices, first)] for first in firsts]
    return f"{markdown(rows, range(1, len(rows[0])))}\n\n{markdown(facts, range(len(facts[0])))}"


def by_task(truth: Mapping[str, Any], found: Mapping[int, Sequence[Mapping[str, Any]]]) -> dict[str, float]:
    """Mean regret of each way to choose, in points of the metric of the task."""
    accuracies = truth["accuracies"]
    best = max(accuracies.values())

    def regret(names: Sequence[str]) -> float:
        return 100 * float(best - np.mean([accuracies[name] for name in names]))

    some = next(iter(found.values()))
    return {
        "a model at random": regret(list(accuracies)),
        "first by the metric": regret([one["ranked first"] for one in some]),
        **{f"halving, {first} models": regret([one["chosen"] for one in own]) for first, own in found.items()},
        "every model tuned": regret([truth["best held out"]]),
    }


def calibrated(truths: Mapping[str, Any], choices: Mapping[tuple[str, int], Sequence], first: int) -> list[str]:
    """Stated probabilities beside the facts, means over tasks and repetitions, where they are stated."""
    share, best_of, is_best, within, is_within = [], [], [], [], []
    for (task, count), own in choices.items():
        accuracies = truths[task]["accuracies"]
        for one in own if count == first else ():
            share.append(one["share of all steps"])
            tuned = max(one["tuned"], key=accuracies.get)
            if one["probability"] is not None:
                best_of.append(one["probability"]), is_best.append(accuracies[one["chosen"]] == accuracies[tuned])
            if one["within"] is not None:
                within.append(one["within"]), is_within.append(accuracies[tuned] == max(accuracies.values()))
    return [f"{np.mean(values):.2f}" if values else "-" for values in (share, best_of, is_best, within, is_within)]


def _cells(values: Any) -> list[str]:
    return [f"{value:.1f}" for value in values]


if __name__ == "__main__":
    main()
