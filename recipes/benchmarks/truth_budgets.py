"""Has the truth of the ranking study converged? Accuracy after fine-tuning by the number of steps.

    python recipes/benchmarks/truth_budgets.py      (reads results/ranking_truth.jsonl and ranking_budgets.jsonl)

The second file holds results of recipes/ground_truth.py with the study's settings and other steps=. Every number is
tuned on its own grid of learning rates, and the mean of the seeds that all budgets of a model have.
"""

import json
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import numpy as np
from ranking_truth import titled

from sslkit.text_tables import markdown

STUDY = Path(__file__).parent / "results" / "ranking_truth.jsonl"
OTHERS = STUDY.with_name("ranking_budgets.jsonl")

Budgets = dict[int, dict[str, Any]]  # steps: record


def main() -> None:
    print(markdown(table(curves([*read(STUDY), *read(OTHERS)])), range(2, 8)))


def read(path: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in path.read_text().splitlines()]


def curves(records: Iterable[dict[str, Any]]) -> dict[tuple[str, str], Budgets]:
    """Return {(task, model): {steps: record}} of models with several budgets; of equal records that with more seeds."""
    found: dict[tuple[str, str], Budgets] = {}
    for record in sorted(records, key=lambda record: len(record["values"])):
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


def told(values: list[float]) -> str:
    """Return mean and standard deviation between seeds, in percent."""
    spread = f" ± {100 * np.std(values, ddof=1):.1f}" if len(values) > 1 else ""
    return f"{100 * np.mean(values):.1f}{spread}"


if __name__ == "__main__":
    main()
