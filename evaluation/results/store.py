"""Results stored beside the weights: results.jsonl in the zoo entry's folder, and the outcomes for paired tests."""

import dataclasses
import hashlib
import io
import json
import re
from pathlib import Path
from typing import Any

import numpy as np

from evaluation.results.records import Records, read_records
from evaluation.results.result import ARRAYS, Result
from sslkit.errors import UserError
from sslkit.files.reading import regular
from sslkit.files.writing import write_whole
from sslkit.zoo.entry import ZooEntry

RESULTS, OUTCOMES = "results.jsonl", "outcomes"
SAME = ("protocol", "recipe", "metric", "model", "data", "seeds", "digests", "leaky")
# Solver reports, which may differ in the last digits from run to run.
MEASURED = ("tried", "objective", "gap", "gradient_norm", "n_iter", "steps", "not_converged", "note")
MEASURED += ("values", "std", "largest_class", "chance", "near_copies", "multiply_adds")
REACHED = ("value", "loss")  # of a setting of fine-tuning


def append(folder: str | Path | ZooEntry, result: Result) -> Path:
    """Add a result to a zoo entry and return the path of its results.jsonl.

    Writes the outcomes to outcomes/SHA256.npy, then one line under a lock: several processes may add at once, and an
    incomplete line of a killed process is removed by the next. Nothing is ever rewritten.
    Raises UserError for a folder that does not exist, and for NaN and infinity, which JSON does not support.
    """
    path = _existing(folder) / RESULTS
    record = _finite(result)
    for name in ARRAYS:
        if (values := getattr(result, name)) is not None:
            record[name] = _save(path.parent, values)
    key = {name: record.pop(name) for name in SAME}
    key["choices"] = {
        name: _without_reached(value) for name, value in record["details"].items() if name not in MEASURED
    }
    Records(path).add(key, record)
    return path


def read(folder: str | Path | ZooEntry, *, outcomes: bool = True) -> list[Result]:
    """Return the results of a zoo entry in the order of their first measurement; empty if there are none.

    Of results with equal protocol, recipe, metric, model, data, seeds, digests, leaky and choices (the details without
    solver reports) only the latest is returned: repeating a protocol replaces its number, another choice adds one. The
    file keeps every line.
    outcomes: load them too.
    Raises UserError for a damaged line, and for missing or changed outcomes.
    """
    path = _existing(folder) / RESULTS
    if not path.is_file():
        return []
    return [_result(path.parent, record, outcomes) for record in read_records(path).values()]


def _without_reached(value: Any) -> Any:
    """Return a detail without what settings of fine-tuning, also inside of lists and mappings, have reached."""
    if isinstance(value, list):
        return [_without_reached(one) for one in value]
    if isinstance(value, dict):
        left_out = REACHED if "lr" in value else ()
        return {name: _without_reached(one) for name, one in value.items() if name not in left_out}
    return value


def _existing(folder: str | Path | ZooEntry) -> Path:
    folder = folder.folder if isinstance(folder, ZooEntry) else Path(folder)
    if not folder.is_dir():
        raise UserError(f"there is no folder {folder} to keep results in: give a zoo entry, or make the folder")
    return folder


def _finite(result: Result) -> dict[str, Any]:
    record = json.loads(result.to_json())
    try:
        json.dumps(record, allow_nan=False)
    except ValueError as error:
        raise UserError(
            f"the result of {result.protocol} on {result.data or 'unnamed data'} has a number that is NaN or infinite: "
            "it is not stored; check the model"
        ) from error
    return record


def _save(folder: Path, values: np.ndarray) -> str:
    buffer = io.BytesIO()
    np.save(buffer, np.ascontiguousarray(values), allow_pickle=False)
    sha = hashlib.sha256(buffer.getvalue()).hexdigest()
    path = folder / OUTCOMES / f"{sha}.npy"
    if not path.is_file():
        with write_whole(path) as partial:
            partial.write_bytes(buffer.getvalue())
    return sha


def _result(folder: Path, record: dict[str, Any], outcomes: bool) -> Result:
    stored = {name: sha for name in ARRAYS if (sha := record.pop(name, None))}
    try:
        result = Result.from_json(json.dumps(record))
    except (ValueError, KeyError, TypeError, AttributeError) as error:
        raise UserError(
            f"{folder / RESULTS}: the record of run {record.get('run')} is not a result ({error}): remove that line"
        ) from error
    arrays = {name: _load(folder, sha) for name, sha in stored.items()} if outcomes else {}
    return dataclasses.replace(result, **arrays)


def _load(folder: Path, sha: str) -> np.ndarray:
    if not re.fullmatch("[0-9a-f]{64}", str(sha)):
        raise UserError(f"{folder / RESULTS} names outcomes {str(sha)[:80]!r}, which is not a sha256: measure again")
    path = folder / OUTCOMES / f"{sha}.npy"
    try:
        content = regular(path).read_bytes()
    except OSError as error:
        raise UserError(
            f"{folder / RESULTS} names {path.relative_to(folder)}, which cannot be read ({error.strerror}): copy the "
            f"folder {OUTCOMES} along, or read(folder, outcomes=False)"
        ) from error
    if hashlib.sha256(content).hexdigest() != sha:
        raise UserError(f"{path} has changed since it was written: measure again, or read(folder, outcomes=False)")
    return np.load(io.BytesIO(content), allow_pickle=False)
