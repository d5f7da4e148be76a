"""The measured truth of a ranking study: the outputs of recipes/ground_truth.py, read and checked."""

import gzip
import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from results import FOLDER

from evaluation.ranking.summary import read_truth
from evaluation.ranking.truth.ground_truth import DETAILS, TRUTH
from sslkit.errors import UserError
from sslkit.models.model import Model

RECORDS = FOLDER / "ranking" / "results" / "truth.jsonl.gz"  # of all runs of fine-tuning of the study
FEWEST = 3  # smallest number of models with ground truth for a task


def read_measured(folders: Sequence[Path]) -> tuple[dict[str, Any], dict[str, Any]]:
    """Read truth.json of each folder, and truth_details.json if it exists: {task: truth}, {settings, results} by task.

    Raises UserError for a task that is in two of them.
    """
    truth: dict[str, Any] = {}
    details: dict[str, Any] = {"settings": {}, "results": {}}
    for folder in folders:
        file = folder / TRUTH if folder.is_dir() else folder
        accuracies = read_truth(file)
        if not all(isinstance(column, dict) for column in accuracies.values()):
            raise UserError(f"{file} must be {{data: {{model: accuracy}}}}")
        twice = [task for task in accuracies if task in truth]
        if twice:
            raise UserError(f"--truth: {twice[0]} is measured in two of the folders")
        beside = file.with_name(DETAILS)
        recorded = json.loads(beside.read_text()) if beside.is_file() else {}
        truth |= accuracies
        details["settings"] |= {task_title(task): recorded["settings"] for task in accuracies if "settings" in recorded}
        details["results"] |= {task_title(task): column for task, column in recorded.get("results", {}).items()}
    return truth, details


def task_title(task: str) -> str:
    """The task in the tables: the name of a file without its folder, else as written."""
    return Path(task).stem if task.endswith(".npz") else task


def runs_of(record: Mapping[str, Any], settings: Mapping[str, Any]) -> int:
    """The runs of fine-tuning behind a result: each rate once for every held-out fifth, and each seed."""
    return len(record["grid"]) * settings.get("folds", 1) + len(record["values"])


def usable(task: str, truth: Mapping[str, float], details: Mapping, models: Mapping[str, Model]) -> list[str]:
    """The models of a task with ground truth of their current weights. Raises UserError for fewer than three."""
    records = details.get("results", {}).get(task, {})
    measured = [name for name in models if name in truth]
    stale = [name for name in measured if name in records and records[name]["weights"] != models[name].digest]
    if stale:
        raise UserError(f"{task}: the ground truth of {', '.join(stale)} is of other weights; measure it again")
    if len(measured) < FEWEST:
        raise UserError(
            f"{task}: the ground truth has {len(measured)} of the {len(models)} models, at least {FEWEST} are needed"
        )
    return measured


def seed_noise() -> float:
    """Standard deviation between seeds over sqrt(p (1 - p)): root mean square over models, mean over tasks."""
    by_task: dict[str, dict[str, np.ndarray]] = {}
    with gzip.open(RECORDS, "rt") as file:
        for record in map(json.loads, file):
            by_model = by_task.setdefault(task_title(record["data"]), {})
            if len(record["values"]) > len(
                by_model.get(record["model"], ())
            ):  # of several records the one with most seeds
                by_model[record["model"]] = np.array(record["values"])
    shares = [[v.var(ddof=1) / (v.mean() * (1 - v.mean())) for v in by_model.values()] for by_model in by_task.values()]
    return float(np.mean([np.mean(variances) ** 0.5 for variances in shares]))
