"""How much of the truth of the ranking study is due to the choice of the learning rate? Models measured a second time.

    python recipes/benchmarks/truth_again.py      (reads ranking_one_fold, _truth, _again and _folds in results/)

All seeds of a model share one learning rate, chosen on one held-out fifth of the training images, so that halves of the
seeds do not contain the error of this choice. `_again` holds results of recipes/ground_truth.py with the settings of
the first two files and seeds=[5,6], of which the first also draws another held-out fifth. Two measurements with two
seeds each differ by the standard deviation between seeds, if the choice of the rate does not matter; what they differ
by beyond that is the choice. The second table is of folds=5, where rates are chosen on all training images, each held
out once: the truth of these tasks, and `_folds` with seeds=[5,6].
"""

from collections.abc import Iterable, Mapping
from typing import Any

import numpy as np
from ranking_truth import titled
from scipy.stats import pearsonr, weightedtau
from truth_budgets import ONE_FOLD, STUDY, read

from evaluation.protocols.fine_tune import SHARE
from sslkit.terminal.tables import markdown

AGAIN, FOLDS = STUDY.with_name("ranking_again.jsonl"), STUDY.with_name("ranking_folds.jsonl")
HEAD = (
    "task",
    "held-out images",
    "best rates equal, of all models",
    "measured twice",
    "same rate",
    "sd between seeds",
    "sd between measurements",
    "due to the rate",
    "Pearson",
    "weighted tau",
)

FEWEST = 2  # models measured twice

Records = Mapping[str, Mapping[str, Any]]  # of one task, by model


def main() -> None:
    study = read(STUDY)
    one_fold = [one for one in (*read(ONE_FOLD), *study) if "folds" not in one["settings"]]
    folds = [one for one in study if "folds" in one["settings"]]
    for first, second in ((one_fold, read(AGAIN)), (folds, read(FOLDS))):
        again = by_task(second)
        rows = [list(HEAD)] + [row(task, own, again.get(task, {})) for task, own in by_task(first).items()]
        print(markdown(rows, range(1, len(HEAD))), end="\n\n")


def by_task(records: Iterable[Mapping[str, Any]]) -> dict[str, dict[str, Mapping[str, Any]]]:
    """Return {task: {model: record}}, of several records of a model the one with the most seeds."""
    found: dict[str, dict[str, Mapping[str, Any]]] = {}
    for record in sorted(records, key=lambda record: len(record["values"])):
        found.setdefault(titled(record["data"]), {})[record["model"]] = record
    return found


def row(task: str, first: Records, second: Records) -> list[str]:
    """Return the cells of a task; those of the second measurement are empty for fewer than FEWEST models.

    Raises ValueError if the second measurement of a model is of other weights.
    """
    some = next(iter(first.values()))
    held_out = round(SHARE * some["settings"].get("folds", 1) * some["train_images"])
    cells = [task, str(held_out), f"{sum(map(equal_best, first.values()))} of {len(first)}"]
    both = [name for name in second if name in first]
    if len(both) < FEWEST:
        return [*cells, *[""] * (len(HEAD) - len(cells))]
    others = [name for name in both if first[name]["weights"] != second[name]["weights"]]
    if others:
        raise ValueError(f"{task}: measured again with other weights: {', '.join(others)}")
    same = sum(first[name]["chosen"]["lr"] == second[name]["chosen"]["lr"] for name in both)
    a, b = (100 * np.array([own[name]["values"][:2] for name in both]) for own in (first, second))
    seeds, apart = between_seeds(a, b), float(np.sqrt(np.mean((a.mean(1) - b.mean(1)) ** 2)))
    spread = [seeds, apart, rate_noise(seeds, apart)]
    pearson, tau = pearsonr(a.mean(1), b.mean(1))[0], weightedtau(a.mean(1), b.mean(1))[0]
    return [*cells, str(len(both)), str(same), *(f"{one:.1f}" for one in spread), f"{pearson:.2f}", f"{tau:.2f}"]


def equal_best(record: Mapping[str, Any]) -> bool:
    """Return True if several rates share the highest accuracy on held-out images, so that the loss decided."""
    values = [tried["value"] for tried in record["grid"] if not tried["diverged"]]
    return values.count(max(values)) > 1


def between_seeds(*measured: np.ndarray) -> float:
    """Return the standard deviation between seeds at one rate, pooled. measured: (M, S) accuracies each."""
    return float(np.sqrt(np.mean([one.var(1, ddof=1) for one in measured])))


def rate_noise(seeds: float, apart: float) -> float:
    """Return the standard deviation of one measurement that is due to its choice of the rate.

    seeds: the standard deviation between seeds. apart: the root mean square of the difference of two measurements with
    two seeds each, whose variance is 2 (seeds^2 / 2 + rate^2).
    """
    return max((apart**2 - seeds**2) / 2, 0) ** 0.5


if __name__ == "__main__":
    main()
