"""A ranking as JSON and back."""

import json
import math
from collections.abc import Collection, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from evaluation.ranking.consensus import Consensus, Null
from evaluation.ranking.truth.agreement import Agreement
from sslkit.decision import Candidate, Difference
from sslkit.errors import UserError
from sslkit.files.reading import regular
from sslkit.files.writing import write_text

# Sizes after (models, metrics).
ARRAYS = {"scores": (), "intervals": (2,), "ranks": (), "rank_intervals": (2,), "seconds": (), "memory": ()}


def write_ranking(fields: Mapping[str, Any], path: Path) -> Path:
    """Write the fields of a `Ranking` atomically; nan is written as null."""
    write_text(path, json.dumps(_plain(fields), indent=2, allow_nan=False) + "\n")
    return path


def read_ranking(path: Path, known: Collection[str]) -> dict[str, Any]:
    """Read the fields of a ranking; null becomes nan. Fields that are not `known` are left out.

    Raises UserError for an invalid file, with the reason.
    """
    try:
        return _fields(json.loads(regular(path).read_text(encoding="utf-8")), known)
    except OSError as error:
        raise UserError(f"{path} cannot be read: {error.strerror}") from error
    except KeyError as error:
        raise UserError(f"{path} is not a ranking of recipes/rank.py: it has no {error}") from error
    except (ValueError, TypeError, AttributeError, OverflowError, RecursionError) as error:
        raise UserError(f"{path} is not a ranking of recipes/rank.py: {error}") from error


def _fields(record: dict[str, Any], known: Collection[str]) -> dict[str, Any]:
    models, metrics = tuple(map(str, record["models"])), tuple(map(str, record["metrics"]))
    size = (len(models), len(metrics))
    arrays = {name: _array(record, name, (*size, *more)) for name, more in ARRAYS.items()}
    truth = None if record.get("truth") is None else _array(record, "truth", size[:1])
    agreements = record.get("agreement", {})
    plain = {name: value for name, value in record.items() if name in known}
    return (
        plain
        | arrays
        | {
            "models": models,
            "metrics": metrics,
            "tied": _array(record, "tied", size).astype(bool),
            "consensus": _consensus(record, models),
            "data": str(record["data"]),
            "n": int(record["n"]),
            "nulls": tuple(_null(null, len(models)) for null in record.get("nulls") or ()),
            "notes": tuple(map(str, record.get("notes") or ())),
            "sources": {str(name): _source(source) for name, source in dict(record.get("sources") or {}).items()},
            "left_out": {str(name): str(why) for name, why in dict(record.get("left_out") or {}).items()},
            "details": dict(record.get("details") or {}),
            "made": dict(record.get("made") or {}),
            "costs": tuple(_array(record, "costs", size[:1]).tolist()) if record.get("costs") else (),
            "truth": truth,
            "agreement": {name: [_agreement(entry) for entry in column] for name, column in agreements.items()},
        }
    )


def _consensus(record: dict[str, Any], models: Sequence[str]) -> Consensus:
    saved = record["consensus"]
    arrays = {name: _array(saved, name, (len(models),)) for name in ("score", "rank", "best", "regret")}
    agreement = math.nan if saved["agreement"] is None else float(saved["agreement"])
    return Consensus(tuple(map(str, saved["metrics"])), **arrays, agreement=agreement)


def _null(record: dict[str, Any], models: int) -> Null:
    if len(record["differences"]) != models:
        raise ValueError(f"nulls have differences of {len(record['differences'])} models, not of {models}")
    name, fact = (str(record["candidate"][field]) for field in ("name", "fact"))
    return Null(Candidate(name, fact), [Difference(**difference) for difference in record["differences"]])


def _array(record: dict[str, Any], name: str, shape: tuple[int, ...]) -> np.ndarray:
    array = np.array(record[name], dtype=float)
    if array.shape != shape:
        raise ValueError(f"{name} is of shape {array.shape}, not {shape}")
    return array


def _source(record: dict[str, Any]) -> dict[str, Any]:
    return {"classes": int(record["classes"]), **{name: str(record[name]) for name in ("kind", "data", "made")}}


def _agreement(record: dict[str, Any]) -> Agreement:
    value = float("nan") if record["value"] is None else float(record["value"])
    interval = record["interval"] and tuple(map(float, record["interval"]))
    return Agreement(str(record["name"]), value, interval, int(record["n"]))


def _plain(value: Any) -> Any:
    """Convert a value for JSON."""
    if isinstance(value, Mapping):
        return {str(key): _plain(entry) for key, entry in value.items()}
    if isinstance(value, (Agreement, Candidate, Consensus, Difference, Null)):
        return _plain(vars(value))
    if isinstance(value, (list, tuple)):
        return [_plain(entry) for entry in value]
    if hasattr(value, "tolist"):
        return _plain(value.tolist())
    if isinstance(value, float):
        return value if np.isfinite(value) else None
    return value
