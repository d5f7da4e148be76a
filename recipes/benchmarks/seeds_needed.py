"""How many seeds would settle the truth of the ranking study? Agreement of two halves of the seeds, by their number.

    python recipes/benchmarks/seeds_needed.py      (a minute; reads results/ranking_truth.jsonl, writes results/)

A simulation from the measured truth. Of each task: the models' means, drawn together by the share of their variance
that is due to seeds, and the standard deviation between seeds over sqrt(p (1 - p)), the root mean square of all models.
Two halves of S seeds each are drawn from normals. Its first row has the seeds of the study, so that it can be compared
with what was measured.
"""

import json
from pathlib import Path

import numpy as np
from ranking_truth import runs_of, titled
from results import keep
from scipy.stats import weightedtau
from tqdm import tqdm

from sslkit.terminal.tables import markdown

TRUTH = Path(__file__).parent / "results" / "ranking_truth.jsonl"
RESULTS = "seeds_needed"
SEEDS = (1, 2, 5, 10, 20, 50, 100, 200)  # of each half
DRAWS = 200


def main() -> None:
    values, seconds = by_task(TRUTH)
    rows = [["seeds of each half", "weighted tau", "Pearson", "hours of a core for both"]]
    for seeds in tqdm((None, *SEEDS), unit="design", leave=False, disable=None):
        found = {task: simulated(own, seeds) for task, own in values.items()}
        tau, pearson = np.mean(list(found.values()), 0)
        hours = None if seeds is None else 2 * seeds * seconds / 3600
        numbers = {"weighted tau": round(tau, 3), "Pearson": round(pearson, 3), "hours": hours and round(hours, 1)}
        each = {task: round(one[0], 3) for task, one in found.items()}
        keep(RESULTS, "as measured" if seeds is None else str(seeds), {**numbers, "weighted tau by task": each})
        rows.append([str(seeds or "as in the study"), f"{tau:.2f}", f"{pearson:.2f}", f"{hours:.0f}" if hours else ""])
    print(markdown(rows, range(1, 4)))


def by_task(path: Path) -> tuple[dict[str, list[np.ndarray]], float]:
    """{task: accuracies (S,) of each model's seeds}, and the seconds of one seed of every model and task.

    Of several records of a model, the one with the most seeds counts.
    """
    found: dict[str, dict[str, np.ndarray]] = {}
    spent: dict[str, float] = {}
    for record in map(json.loads, path.read_text().splitlines()):
        task, values = titled(record["data"]), np.array(record["values"])
        own = found.setdefault(task, {})
        if len(values) > len(own.get(record["model"], ())):
            own[record["model"]] = values
            spent[f"{task} {record['model']}"] = record["seconds"] / runs_of(record, record["settings"])
    return {task: list(own.values()) for task, own in found.items()}, sum(spent.values())


def simulated(values: list[np.ndarray], seeds: int | None, draws: int = DRAWS) -> tuple[float, float]:
    """Mean weighted tau and Pearson's correlation of two halves of `seeds` seeds each.

    values: (S,) accuracies of each model's seeds. seeds: None halves the seeds that each model has.
    """
    rng = np.random.default_rng(0)
    truth, noise = model_of(values)
    halves = [(len(own) + 1) // 2 for own in values], [len(own) // 2 for own in values]
    counts = np.array(halves if seeds is None else [[seeds] * len(values)] * 2)
    found = []
    for _ in range(draws):
        first, second = truth + noise / np.sqrt(counts) * rng.standard_normal(counts.shape)
        found.append((weightedtau(first, second).statistic, np.corrcoef(first, second)[0, 1]))
    tau, pearson = np.mean(found, 0)
    return float(tau), float(pearson)


def model_of(values: list[np.ndarray]) -> tuple[np.ndarray, np.ndarray]:
    """Accuracies (M,) without the variance that is due to seeds, and standard deviations (M,) between seeds."""
    means, counts = np.array([own.mean() for own in values]), np.array([len(own) for own in values])
    units = means * (1 - means)
    share = np.mean([own.var(ddof=1) / unit for own, unit in zip(values, units, strict=True)])
    due = (share * units / counts).mean()
    kept = max(1 - due / means.var(ddof=1), 0) ** 0.5
    return means.mean() + kept * (means - means.mean()), np.sqrt(share * units)


if __name__ == "__main__":
    main()
