"""The result of action recognition: of one official split, or the mean of several."""

import hashlib
from dataclasses import asdict, replace
from typing import Any

import numpy as np

from evaluation.results import unseen
from evaluation.results.measures import right_by_largest
from evaluation.results.result import Result, rows_digest
from evaluation.results.statistics import Estimate, over_seeds
from evaluation.tasks.action import datasets
from evaluation.tasks.action.recipes import Recipe, fit_of
from evaluation.tasks.action.runs import FEATURES, ONCE, Run
from evaluation.tuning.outcomes import spread, unpack

NAMED = 50  # films left out that a result names; action.jsonl has all of them


def result_of(runs: list[Run], records: list[dict[str, Any]], planned: Recipe, description: str) -> Result:
    """One result of R runs, one for each official split.

    planned: the recipe before it was fitted to the films of each split. description: what it is called.
    """
    first = runs[0]
    films = first.test.films
    several = len(runs) > 1
    folds = [run.test.films.fold for run in runs]
    fold = f", split {folds[0]}" if len(datasets.folds_by_name(films.name)) > 1 else ""
    where = f", mean of splits {', '.join(map(str, folds))}" if several else fold
    once = "" if first.features == FEATURES[0] else f", features of {ONCE} extracted once"
    plan = [f"{planned.protocol.replace('_', '-')}, {description}", fit_of(planned, [run.recipe for run in runs])]
    seen = f"{first.shape}{once}, {first.views}{where}"
    largest = [
        right_by_largest(run.test.films.y[_rows_tested(run, record)]) for run, record in zip(runs, records, strict=True)
    ]
    estimate, others, outcomes, paired_on = _several(runs, records) if several else _single(first, records[0])
    return Result.from_estimate(
        estimate,
        protocol="action",
        recipe=", ".join(filter(None, [*plan, seen])),
        metric="top1",
        model=first.model.name,
        data=films.name,
        others=others,
        seeds=[first.runtime.seed],
        digests=_digests(runs),
        leaky=any(record["leaky"] for record in records),
        seconds=sum(record["seconds"] for record in records),
        details={
            **_details(runs, records),
            "largest_class": float(np.mean([right.mean() for right in largest])),
            **(spread(records) if several else {}),
        },
        outcomes=outcomes,
        largest=None if several else largest[0],
        paired_on=paired_on,
    )


def _single(run: Run, record: dict[str, Any]) -> tuple[Estimate, dict[str, Estimate], np.ndarray, str]:
    right = unpack(record["right"], record["tested"])
    others = {name: _estimate(other) for name, other in record["others"].items()}
    return _estimate(record), others, right, _test_digest(run, record)


def _several(runs: list[Run], records: list[dict[str, Any]]) -> tuple[Estimate, dict[str, Estimate], np.ndarray, str]:
    kind = f"t over {len(runs)} splits, which share videos"
    values = [record["value"] for record in records]
    others = {}
    for name in (name for name in records[0]["others"] if all(name in record["others"] for record in records)):
        others[name] = replace(over_seeds([record["others"][name]["value"] for record in records]), kind=kind)
    others |= {fold_name(run.test.films.fold): _estimate(record) for run, record in zip(runs, records, strict=True)}
    tested = " ".join(_test_digest(run, record) for run, record in zip(runs, records, strict=True))
    return replace(over_seeds(values), kind=kind), others, np.array(values), hashlib.sha256(tested.encode()).hexdigest()


def fold_name(fold: int) -> str:
    """Return what the number of an official split is called in `others`."""
    return f"split {fold}"


def _test_digest(run: Run, record: dict[str, Any]) -> str:
    """Digest of what was judged: the films, their labels, and the clips and crops that each was judged by."""
    films, rows = run.test.films, _rows_tested(run, record)
    tested = rows_digest(np.array([films.paths[row] for row in rows]), films.y[rows])
    return hashlib.sha256(f"{tested} {asdict(run.shape)} {asdict(run.views)}".encode()).hexdigest()


def _rows_tested(run: Run, record: dict[str, Any]) -> list[int]:
    """The rows of the films that were judged."""
    out = set(record["left_out"])
    return [row for row, path in enumerate(run.test.films.paths) if path not in out]


def _digests(runs: list[Run]) -> dict[str, str]:
    """Return the digests of the weights, and the manifests of the videos."""
    digests = {"model": runs[0].model.digest}
    for run in runs:
        mark = f" {run.test.films.fold}" if len(runs) > 1 else ""
        digests |= {f"train{mark}": run.train.films.digest, f"test{mark}": run.test.films.digest}
    return digests


def _details(runs: list[Run], records: list[dict[str, Any]]) -> dict[str, Any]:
    first = runs[0]
    plan = {name: value for name, value in asdict(first.recipe).items() if name not in ("data", "folds", "view")}
    left_out: dict[str, str] = {}
    for run, record in zip(runs, records, strict=True):
        for films in (run.train.films, run.test.films):
            left_out |= {films.name_of(path): reason for path, reason in films.left_out.items()}
        left_out |= record["unreadable"]
    unreadable = sorted(f"{path}: {reason}" for path, reason in left_out.items() if reason != "missing")
    missing = sorted(path for path, reason in left_out.items() if reason == "missing")
    notes = dict.fromkeys(videos.films.note for run in runs for videos in (run.train, run.test) if videos.films.note)
    remarks = {
        "unreadable": len(unreadable),
        "unreadable_films": unreadable[:NAMED],
        "missing": len(missing),
        "missing_films": missing[:NAMED],
        "notes": "; ".join(notes),
    }
    return {
        **plan,
        **asdict(first.shape),
        **asdict(first.views),
        "features": first.features,
        "mirror": any(view.flip > 0 for view in first.recipe.view.each()),
        "precision": first.runtime.precision,
        "decoder": first.train.reader.name,
        "device": records[0]["device"],
        "films": [[len(run.train.films), len(run.test.films)] for run in runs],
        **{name: sum(record[name] for record in records) for name in (unseen.IN_TRAIN, unseen.TESTED)},
        "losses": [[record["losses"][0], record["losses"][-1]] for record in records],
        **{name: value for name, value in remarks.items() if value},
    }


def _estimate(record: dict[str, Any]) -> Estimate:
    interval = record["interval"]
    return Estimate(record["value"], interval and tuple(interval), record["kind"], record["n"], record["unit"])
