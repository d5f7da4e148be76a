"""Has the truth of the ranking study converged? Accuracy after fine-tuning by the number of steps.

    python recipes/benchmarks/truth_budgets.py      (reads ranking_truth, ranking_one_fold, ranking_budgets in results/)

The last file holds results of recipes/ground_truth.py with other steps=. Every number is tuned on its own grid of
learning rates with one held-out fifth (the second file has these for tasks whose truth has five), and is the mean of
the seeds that all budgets compared have. Models with three budgets or more are shown, and for each pair of budgets the
means and the agreement of all models that have both.
"""

import itertools
import json
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import numpy as np
from ranking_truth import titled
from scipy.stats import pearsonr, weightedtau

from sslkit.terminal.tables import markdown

STUDY = Path(__file__).parent / "results" / "ranking_truth.jsonl"
ONE_FOLD, OTHERS = STUDY.with_name("ranking_one_fold.jsonl"), STUDY.with_name("ranking_budgets.jsonl")
SHOWN = 3  # budgets of a model
FEWEST = 10  # models of a pair of budgets

Budgets = dict[int, dict[str, Any]]  # steps: record


def main() -> None:
    found = curves(one for path in (STUDY, ONE_FOLD, OTHERS) for one in read(path) if "folds" not in one["settings"])
    for rows in (table({which: own for which, own in found.items() if len(own) >= SHOWN}), pairs(found)):
        print(markdown(rows, range(2, len(rows[0]))), end="\n\n")


def read(path: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in path.read_text().splitlines()]


def curves(records: Iterable[dict[str, Any]]) -> dict[tuple[str, str], Budgets]:
    """Return {(task, model): {steps: record}} of models with several budgets; of equal records that with more seeds.

    Raises ValueError for a model whose records are of different weights.
    """
    found: dict[tuple[str, str], Budgets] = {}
    weights: dict[str, str] = {}
    for record in sorted(records, key=lambda record: len(record["values"])):
        if weights.setdefault(record["model"], record["weights"]) != record["weights"]:
            raise ValueError(f"the records of {record['model']} are of different weights")
        own = found.setdefault((titled(record["data"]), record["model"]), {})
        own[record["settings"]["steps"]] = record
    return {which: dict(sorted(own.items())) for which, own in sorted(found.items()) if len(own) > 1}


def table(found: dict[tuple[str, str], Budgets]) -> list[list[str]]:
    """Return rows: task, model, a column for each number of steps in percent with the spread of the seeds."""
    steps = sorted({budget for own in found.values() for budget in own})
    rows = [["task", "model", *(f"{budget} steps" for budget in steps)]]
    for (task, model), own in found.items():
        shared = min(len(record["values"]) for record in own.values())
        rows.append([task, model, *(told(own[budget]["values"][:shared]) if budget in own else "" for budget in steps)])
    return rows


def pairs(found: dict[tuple[str, str], Budgets]) -> list[list[str]]:
    """Return rows: task, two numbers of steps, and means and agreement of the models that have both."""
    rows = [["task", "steps", "models", "mean accuracy", "Pearson", "weighted tau"]]
    for task in dict.fromkeys(task for task, _ in found):
        own = [budgets for which, budgets in found.items() if which[0] == task]
        for steps in itertools.combinations(sorted({budget for one in own for budget in one}), 2):
            both = np.array([accuracies([one[n] for n in steps]) for one in own if set(steps) <= set(one)])
            if len(both) >= FEWEST:
                short, long = both.T
                means = f"{100 * short.mean():.1f}, {100 * long.mean():.1f}"
                agreement = (f"{pearsonr(short, long)[0]:.2f}", f"{weightedtau(short, long)[0]:.2f}")
                rows.append([task, f"{steps[0]}, {steps[1]}", str(len(both)), means, *agreement])
    return rows


def accuracies(records: list[dict[str, Any]]) -> list[float]:
    """Return the mean accuracy of each record over the seeds that all of them have."""
    shared = min(len(record["values"]) for record in records)
    return [float(np.mean(record["values"][:shared])) for record in records]


def told(values: list[float]) -> str:
    """Return mean and standard deviation between seeds, in percent."""
    spread = f" ± {100 * np.std(values, ddof=1):.1f}" if len(values) > 1 else ""
    return f"{100 * np.mean(values):.1f}{spread}"


if __name__ == "__main__":
    main()
