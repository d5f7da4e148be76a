"""Does successive halving choose better models than metrics alone? Its choices, judged by the measured truth.

    python recipes/benchmarks/ranking/run.py halving --zoo runs/study efficientnet_lite0 --truth runs/truth_many
    python recipes/benchmarks/ranking/run.py halving --table      (print the committed results)

Truth: output of recipes/ground_truth.py, accuracies on test images. `evaluation.successive_halving` sees the training
images only; it gets the truth's steps and learning rates. For each task, each number of models that are tuned, and each
repetition, with its own held-out images and seeds, the model that it chooses is looked up in the truth. Beside it: the
first model by the metrics, and the best on the truth's own held-out images by accuracy and by loss, which is what
tuning every model would choose (the mean where several are equal). Finished choices are not made again.
"""

import argparse
import itertools
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import cli
import numpy as np
import torch
from ranking.truth import measured, seed_noise, titled, usable
from results import keep, keep_constant, load
from tqdm import tqdm

from sslkit.cli.process import keep_freed_memory

from evaluation.features.models import LoadedModel
from evaluation.features.zoo_members import load_zoo
from evaluation.ranking.choice.beliefs import SEED_NOISE
from evaluation.ranking.choice.halving import successive_halving
from evaluation.ranking.choice.rounds import Round
from evaluation.results.choice import levelled
from evaluation.results.records import run_id
from evaluation.results.statistics import over_seeds
from sslkit.errors import UserError
from sslkit.terminal.tables import markdown

RESULTS = "ranking/halving"
SEEDS = 3  # of the last round
IS = ("right, as measured", "right, with the truth's noise")
DRAWS = 4000  # of the truth's noise


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
        noises = [round(noise, 3) for noise in noise_by_round(load(RESULTS)["runs"])]
        keep_constant("evaluation.ranking.choice.beliefs:STEP_NOISE", noises, RESULTS)
        keep_constant("evaluation.ranking.choice.beliefs:SEED_NOISE", round(seed_noise(), 3), "ranking/truth")
    runs = load(RESULTS)["runs"]
    print(table(runs) if runs else f"{RESULTS}: no results yet")


def arguments() -> argparse.Namespace:
    parser = cli.parser(__doc__, "threads", "table")
    parser.add_argument("--zoo", nargs="+", help="models, as in recipes/rank.py")
    parser.add_argument("--truth", type=Path, nargs="+", default=[Path("runs/truth")])
    parser.add_argument("--data", nargs="+", help="tasks; default all of the truth")
    parser.add_argument("--first", type=int, nargs="+", default=[4, 8], help="models that are tuned")
    parser.add_argument("--repeats", type=int, default=2, help="choices by other held-out images and seeds")
    parser.add_argument("--cache", default="runs/cache", help="folder of the features")
    parser.add_argument("--work", type=Path, default=Path("runs/halving"), help="folder of the finished runs")
    return parser.parse_args()


def measure(args: argparse.Namespace) -> None:
    """Make every choice that is not stored yet. Raises UserError for a truth without its settings."""
    truth, details = measured(args.truth)
    wanted = args.data or list(truth)
    missing = [task for task in wanted if task not in truth or titled(task) not in details["settings"]]
    if missing:
        raise UserError(f"--truth has no results with settings of {', '.join(missing)}")
    settings = details["settings"]
    models, failures = load_zoo(args.zoo)
    if failures:
        raise UserError("; ".join(map(str, failures)))
    judged = {task: usable(titled(task), truth[task], details, models) for task in wanted}
    for task, kept in judged.items():
        keep(RESULTS, f"truth | {titled(task)}", of_truth(truth[task], details["results"][titled(task)], kept))
    place = {"cache": args.cache, "out": args.work}
    runs = itertools.product(range(args.repeats), args.first, wanted)
    for repeat, first, task in tqdm(list(runs), unit="choice", leave=False, disable=None):
        key = f"choice | {titled(task)} | {first} | {repeat}"
        own = {name: models[name] for name in judged[task]}
        made_with = inputs(settings[titled(task)], {name: model.digest for name, model in own.items()})
        if load(RESULTS)["runs"].get(key, {}).get("inputs") != made_with:
            found = choice(own, task, first, repeat, settings[titled(task)], truth[task], place)
            keep(RESULTS, key, found | {"inputs": made_with})


def inputs(settings: Mapping[str, Any], weights: Mapping[str, str]) -> str:
    """The id of what a choice is made from: the truth's settings that it shares, and the models' names and digests."""
    shared = {name: value for name, value in settings.items() if name not in ("seeds", "folds")}
    return run_id({"settings": shared, "weights": dict(weights)})


def of_truth(truth: Mapping[str, float], records: Mapping[str, Any], kept: Sequence[str]) -> dict[str, Any]:
    """Accuracies of a task on test images, with their numbers of seeds; the models best on held-out images; seconds."""
    by_accuracy = {name: of_chosen_rate(records[name], "value") for name in kept}
    by_loss = {name: -of_chosen_rate(records[name], "loss") for name in kept}
    return {
        "accuracies": {name: truth[name] for name in kept},
        "seeds": {name: len(records[name]["values"]) for name in kept},
        "best held out": {"accuracy": highest(by_accuracy), "loss": highest(by_loss)},
        "seconds": round(sum(records[name]["seconds"] for name in kept)),
    }


def of_chosen_rate(record: Mapping[str, Any], name: str) -> float:
    """The accuracy ("value") or loss on held-out training images with the rate that was chosen."""
    same = ("lr", "weight_decay", "optimizer")
    chosen = [tried[name] for tried in record["grid"] if all(tried[key] == record["chosen"][key] for key in same)]
    if not chosen:
        raise UserError("the truth has one setting, so that none was chosen on held-out images: give it several lr")
    return chosen[0]


def highest(values: Mapping[str, float]) -> list[str]:
    """The models of the highest value, several if they are equal."""
    levels = levelled(list(values.values()))
    return [name for name, level in zip(values, levels, strict=True) if level == levels.max()]


def choice(
    models: Mapping[str, LoadedModel],
    task: str,
    first: int,
    repeat: int,
    settings: Mapping[str, Any],
    truth: Mapping[str, float],
    place: Mapping[str, Any],
) -> dict[str, Any]:
    """Choose once, by the default metric of recipes/rank.py. place: further options of `successive_halving`."""
    seeds = [SEEDS * repeat + seed for seed in range(SEEDS)]
    same = {name: settings[name] for name in ("steps", "batch_size", "crop", "mirror", "precision", "max_images")}
    grid = settings["grid"]
    if len(grid["weight_decay"]) > 1:
        raise UserError(f"{task}: the truth has several weight decays, recipes/choose.py takes one")
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
        "step noise": step_noise(found.rounds, truth),
    }


def step_noise(rounds: Sequence[Round], truth: Mapping[str, float]) -> list[float]:
    """Variances over p (1 - p) between models of an early round's accuracy less the truth's, beyond that of images.

    One for each round but the last with more than two models.
    """
    found = []
    for one in rounds[:-1]:
        arms = [arm for arm in one.arms if arm.right is not None]
        if len(arms) < 3:
            continue
        right = np.stack([arm.right[0] for arm in arms])
        p = right.mean(1)
        images = np.var(right - right.mean(0), axis=1).mean() / right.shape[1] * len(arms) / (len(arms) - 1)
        between = np.var(p - [truth[arm.model] for arm in arms], ddof=1)
        unit = np.clip(p.mean(), 0.02, 0.98)  # of 0 or 1 nothing is known
        found.append(float((between - images) / (unit * (1 - unit))))
    return found


def table(runs: Mapping[str, Any]) -> str:
    """Markdown tables: regret by task, in points, and its differences; how often the stated probabilities are right."""
    truths = {key.partition(" | ")[2]: one for key, one in runs.items() if key.startswith("truth | ")}
    choices: dict[tuple[str, str], list[Mapping[str, Any]]] = {}
    for key, one in runs.items():
        if key.startswith("choice | "):
            _, task, first, _ = key.split(" | ")
            choices.setdefault((task, f"{first} models"), []).append(one)
    ways = sorted({way for _, way in choices})
    done = [task for task in truths if all((task, way) in choices for way in ways)]
    regrets = {task: by_task(truths[task], {way: choices[task, way] for way in ways}) for task in done}
    names = list(next(iter(regrets.values())))
    rows = [["task", *names], *([task, *_cells(one.values())] for task, one in regrets.items())]
    rows.append(["mean", *_cells([np.mean([one[name] for one in regrets.values()]) for name in names])])
    facts = [["tuned", "choices", "share of all steps", "P(best of the tuned)", *IS, "P(best is tuned)", "right"]]
    facts += [[way, *calibrated(truths, choices, way)] for way in ways]
    tables = [markdown(found, range(1, len(found[0]))) for found in (rows, differences(list(regrets.values())), facts)]
    told = ", ".join(f"{noise:.2f}" for noise in noise_by_round(runs))
    return "\n\n".join([*tables, f"noise of the steps, by round: {told or '-'}"])


def noise_by_round(runs: Mapping[str, Any]) -> list[float]:
    """Standard deviations over sqrt(p (1 - p)) of the rounds, as STEP_NOISE is one: means over the choices."""
    noises = [one["step noise"] for key, one in runs.items() if key.startswith("choice | ")]
    places = range(max(map(len, noises), default=0))
    means = [np.mean([own[place] for own in noises if len(own) > place]) for place in places]
    return [float(max(mean, 0) ** 0.5) for mean in means]


def by_task(truth: Mapping[str, Any], found: Mapping[str, Sequence[Mapping[str, Any]]]) -> dict[str, float]:
    """Mean regret of each way to choose, in points of the metric of the task."""
    accuracies = truth["accuracies"]
    best = max(accuracies.values())

    def regret(names: Sequence[str]) -> float:
        return 100 * float(best - np.mean([accuracies[name] for name in names]))

    some = next(iter(found.values()))
    return {
        "a model at random": regret(list(accuracies)),
        "first by the metric": regret([one["ranked first"] for one in some]),
        **{f"halving, {way}": regret([one["chosen"] for one in own]) for way, own in found.items()},
        **{f"every model tuned, by {kind}": regret(names) for kind, names in truth["best held out"].items()},
    }


def differences(regrets: Sequence[Mapping[str, float]]) -> list[list[str]]:
    """Rows and columns: ways to choose. Cells: mean regret of the row less the column's, with a t interval over tasks.

    regrets: of each task, as `by_task` returns them.
    """
    ways = list(regrets[0])[1:]
    rows = [["regret of the row less that of the column", *ways]]
    for way in ways:
        apart = [np.array([one[way] - one[other] for one in regrets]) for other in ways]
        rows.append([way, *("" if way == other else _paired(d) for other, d in zip(ways, apart, strict=True))])
    return rows


def _paired(apart: np.ndarray) -> str:
    found = over_seeds(apart, unit="points")
    return f"{found.value:+.1f}" + (f" ({found.interval[0]:.1f} to {found.interval[1]:.1f})" if found.interval else "")


def calibrated(truths: Mapping[str, Any], choices: Mapping[tuple[str, str], Sequence], way: str) -> list[str]:
    """Number of choices, and stated probabilities beside the facts, means over tasks and repetitions with any.

    "right": by the measured accuracies, and by `chance_best`, as their seeds do not settle which model is the best.
    """
    share, best_of, is_best, chance, within, is_within = [], [], [], [], [], []
    for (task, chosen_by), own in choices.items():
        accuracies = truths[task]["accuracies"]
        for one in own if chosen_by == way else ():
            share.append(one["share of all steps"])
            tuned = max(one["tuned"], key=accuracies.get)
            if one["probability"] is not None:
                best_of.append(one["probability"]), is_best.append(accuracies[one["chosen"]] == accuracies[tuned])
                chance.append(chance_best(truths[task], one["tuned"], one["chosen"]))
            if one["within"] is not None:
                within.append(one["within"]), is_within.append(accuracies[tuned] == max(accuracies.values()))
    columns = (share, best_of, is_best, chance, within, is_within)
    return [str(len(share)), *(f"{np.mean(values):.2f}" if values else "-" for values in columns)]


def chance_best(truth: Mapping[str, Any], tuned: Sequence[str], chosen: str) -> float:
    """The probability that the chosen model is the best of those tuned, when the truth has the noise of its seeds."""
    p = np.array([truth["accuracies"][name] for name in tuned])
    noise = SEED_NOISE * np.sqrt(p * (1 - p) / [truth["seeds"][name] for name in tuned])
    drawn = p + noise * np.random.default_rng(0).standard_normal((DRAWS, len(p)))
    return float((drawn.argmax(1) == list(tuned).index(chosen)).mean())


def _cells(values: Any) -> list[str]:
    return [f"{value:.1f}" for value in values]
