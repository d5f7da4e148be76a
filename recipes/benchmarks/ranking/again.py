"""Do the study's numbers hold after images came to be resized as timm does? Its ImageNet members, measured again.

    python recipes/benchmarks/ranking/run.py again --truth runs/truth_folds runs/truth_many \\
        --zoo "efficientnet_lite0(image_size=32)" ...

The fine-tuned accuracies of these members and their scores by every metric replace those of the study, on the tasks
that are measured again. Printed: how much they moved beside the spread of their seeds, and the means of the study's
table before and after.
"""

import json
import math
import statistics
from pathlib import Path
from typing import Any

import cli
import results
from ranking.study import METRICS, OUT, scored
from ranking.summary import summarised
from ranking.truth import measured, titled

from sslkit.cli.process import keep_freed_memory

from evaluation.datasets import open_split
from evaluation.features.zoo_members import load_zoo
from evaluation.ranking.inputs.candidates import sampled
from evaluation.ranking.truth.paired_agreement import TAU

SHOWN = (TAU, "regret@1")


def main() -> None:
    parser = cli.parser(__doc__)
    parser.add_argument("--zoo", nargs="+", required=True, help="the members")
    parser.add_argument("--truth", type=Path, nargs="+", required=True, help="folders of recipes/ground_truth.py")
    parser.add_argument("--metrics", nargs="+", default=list(METRICS))
    parser.add_argument("--cache", default="runs/cache", help="folder of the features")
    parser.add_argument("--work", type=Path, default=Path("runs/ranking_again"), help="folder of the finished cells")
    args = parser.parse_args()
    args.seed = 0
    keep_freed_memory()
    study = json.loads(OUT.read_text())
    truth, details = measured(args.truth)
    models, failures = load_zoo(args.zoo)
    tasks = {titled(task): task for task, column in truth.items() if set(models) <= set(column)}
    opened = {title: sampled(open_split(task, "train"), study["images"][title], 0) for title, task in tasks.items()}
    cells, failed = scored(opened, {title: list(models) for title in opened}, models, args)
    moved = [
        movement(study["truth"][title][name], details["results"][title][name])
        for title, task in tasks.items()
        for name in models
    ]
    found = {
        "members": list(models),
        "tasks": list(tasks),
        "accuracies": summary_of(moved),
        "table": compared(study, {title: truth[task] for title, task in tasks.items()}, cells),
        "failed": [*map(str, failures), *failed],
    }
    results.write(results.path_of("ranking/again"), {**results.about(), "commit": results.commit(), **found})
    print(table(found))


def movement(before: float, record: dict[str, Any]) -> dict[str, float]:
    """The accuracy now minus before, and the standard error of its mean over seeds."""
    return {"difference": record["value"] - before, "error": record["std"] / math.sqrt(len(record["values"]))}


def summary_of(moved: list[dict[str, float]]) -> dict[str, float]:
    """Mean, spread and largest of the differences, in points, beside what seeds alone would give.

    Both means have an error of their seeds, so that a difference without a cause spreads by sqrt(2) of it.
    """
    differences = [100 * one["difference"] for one in moved]
    return {
        "n": len(differences),
        "mean": statistics.mean(differences),
        "std": statistics.stdev(differences),
        "largest": max(differences, key=abs),
        "std_by_seeds": 100 * math.sqrt(2 * statistics.mean(one["error"] ** 2 for one in moved)),
    }


def compared(study: dict[str, Any], truth: dict[str, Any], cells: dict[str, Any]) -> dict[str, Any]:
    """{metric: {measure: [before, after]}} of the means over the study's tasks."""
    before = {
        task: {metric: _cell(row, task) for metric, row in study["metrics"].items() if task in row["scores"]}
        for task in study["truth"]
    }
    after = {task: {metric: dict(cell) for metric, cell in column.items()} for task, column in before.items()}
    for task, column in cells.items():
        for metric, cell in column.items():
            after[task][metric]["scores"] = {**before[task][metric]["scores"], **cell["scores"]}
    accuracies = {task: {**study["truth"][task], **truth.get(task, {})} for task in study["truth"]}
    apart = [task for task in study["truth"] if task not in study["mean_of"]]
    how = {"draws": study["draws"], "seed": study["seed"]}
    rows = [summarised(*part, {}, apart, **how)["metrics"] for part in ((before, study["truth"]), (after, accuracies))]
    return {
        metric: {measure: [own[metric]["mean"][measure] for own in rows] for measure in SHOWN}
        for metric in rows[0]
        if all(own[metric]["mean"][TAU] for own in rows)
    }


def table(found: dict[str, Any]) -> str:
    """The differences of the accuracies, and both means of each metric."""
    moved = found["accuracies"]
    lines = [
        f"{moved['n']} accuracies on {', '.join(found['tasks'])}: {moved['mean']:+.1f} points, standard deviation "
        f"{moved['std']:.1f} ({moved['std_by_seeds']:.1f} by seeds alone), largest {moved['largest']:+.1f}",
        f"{'metric':24}{'weighted tau':>20}{'regret@1, points':>24}",
    ]
    for metric, row in found["table"].items():
        tau, regret = ([one["value"] for one in row[measure]] for measure in SHOWN)
        lines.append(f"{metric:24}{tau[0]:>10.2f} -> {tau[1]:5.2f}{100 * regret[0]:>14.1f} -> {100 * regret[1]:5.1f}")
    return "\n".join(lines)


def _cell(row: dict[str, Any], task: str) -> dict[str, Any]:
    return {"scores": row["scores"][task], "seconds": {}, "notes": [], "reliability": None}
