"""Result: one number of one protocol on one data set, with everything needed to judge and reproduce it, as JSON."""

import dataclasses
import datetime
import hashlib
import importlib.metadata
import json
import sys
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from evaluation.results.statistics import Estimate

ARRAYS = ("outcomes", "groups", "largest")  # of rows, beside the lines of a file of results
PACKAGES = ("sslkit", "torch", "timm", "scikit-learn", "numpy")


@dataclass(frozen=True)
class Result:
    """The measurement of a protocol.

    protocol: its name ("linear", "knn", ...). recipe: its recipe, with the details needed for comparisons
        ("lbfgs on centre-crop features"). metric: of `value` ("top1", "mean_per_class", "map11", ...).
    value, unit, interval, kind, n: see `Estimate`; accuracies are fractions.
    model, data: names. date: UTC, ISO 8601. versions: of the packages.
    others: further numbers by name (top5, k=20, nearest centroid, ...), each with its interval.
    seeds: of the random draws behind the number; empty if there are none.
    digests: of the inputs: {"train": ..., "test": ..., "episodes": ...}.
    converged: True if the solver reached its tolerance, None without a solver.
    leaky: True if test data was used for selection, or more than 1 % of the test images were trained on (`unseen`);
        such a number only reproduces others.
    seconds: wall time of the protocol, without the extraction.
    details: the choices made (c, lr, k, ...), JSON types only.
    outcomes: (n,) per image right or wrong, or of numbers the share explained, or per episode accuracy: for paired
        tests, not in the JSON.
    groups: (n,) of rows of `outcomes` that belong together; None where each stands alone.
    largest: (n,) outcomes of always answering the largest class of these images, or the mean; None: not known.
    paired_on: digest of the rows of `outcomes`; results with the same digest may be compared.
    """

    protocol: str
    recipe: str
    metric: str
    value: float
    unit: str = "fraction"
    n: int = 0
    interval: tuple[float, float] | None = None
    kind: str = ""
    model: str = ""
    data: str = ""
    others: dict[str, Estimate] = field(default_factory=dict)
    seeds: list[int] = field(default_factory=list)
    digests: dict[str, str] = field(default_factory=dict)
    converged: bool | None = None
    leaky: bool = False
    seconds: float = 0.0
    details: dict[str, Any] = field(default_factory=dict)
    date: str = ""
    versions: dict[str, str] = field(default_factory=dict)
    outcomes: np.ndarray | None = field(default=None, repr=False, compare=False)
    groups: np.ndarray | None = field(default=None, repr=False, compare=False)
    largest: np.ndarray | None = field(default=None, repr=False, compare=False)
    paired_on: str = ""

    @classmethod
    def from_estimate(cls, estimate: Estimate, **fields: Any) -> "Result":
        """Make a result with the main number `estimate`, the date and the packages' versions."""
        now = datetime.datetime.now(datetime.UTC).isoformat(timespec="seconds")
        versions = {name: importlib.metadata.version(name) for name in PACKAGES}
        return cls(**{**dataclasses.asdict(estimate), "date": now, "versions": versions, **fields})

    @property
    def estimate(self) -> Estimate:
        """The main number with its interval."""
        return Estimate(self.value, self.interval, self.kind, self.n, self.unit)

    def to_json(self) -> str:
        """Return one line, without `ARRAYS`."""
        record = {f.name: getattr(self, f.name) for f in dataclasses.fields(self) if f.name not in ARRAYS}
        record["others"] = {name: dataclasses.asdict(other) for name, other in self.others.items()}
        return json.dumps(record)

    @classmethod
    def from_json(cls, line: str) -> "Result":
        """Read the result of one line; unknown fields are left out."""
        record = json.loads(line)
        names = {f.name for f in dataclasses.fields(cls)}
        record["others"] = {name: _estimate(other) for name, other in record.get("others", {}).items()}
        record["interval"] = record.get("interval") and tuple(record["interval"])
        return _check_types(cls(**{key: value for key, value in record.items() if key in names}))


def _check_types(result: Result) -> Result:
    """Return the result if its fields have the right types. Raises TypeError for a damaged one."""
    texts = ("protocol", "recipe", "metric", "model", "data", "paired_on", "date")
    wrong = [name for name in texts if not isinstance(getattr(result, name), str)]
    wrong += [f"others {name}" for name, other in result.others.items() if not _is_estimate(other)]
    fits = {
        "value, interval, kind, n or unit": _is_estimate(result.estimate),
        "seconds": _is_number(result.seconds),
        "seeds": isinstance(result.seeds, list) and all(isinstance(seed, int) for seed in result.seeds),
        "converged": result.converged is None or isinstance(result.converged, bool),
        "leaky": isinstance(result.leaky, bool),
        "versions": _are_texts(result.versions),
        "digests": _are_texts(result.digests),
        "details": isinstance(result.details, dict),
    }
    wrong += [name for name, right in fits.items() if not right]
    if not wrong:
        splits, notes = result.details.get("splits") or [], result.details.get("notes", "")
        wrong += ["splits"] * (not isinstance(splits, list) or not all(isinstance(name, str) for name in splits))
        wrong += ["notes"] * (not isinstance(notes, str))
    if wrong:
        raise TypeError(f"{', '.join(wrong)}: of another kind than is written")
    return result


def _is_estimate(estimate: Estimate) -> bool:
    ends = (0, 0) if estimate.interval is None else estimate.interval
    whole = isinstance(estimate.n, int) and isinstance(estimate.unit, str) and isinstance(estimate.kind, str)
    pair = isinstance(ends, tuple) and len(ends) == 2
    return whole and pair and all(_is_number(number) for number in (estimate.value, *ends))


def _is_number(value: object) -> bool:
    """Return whether a value is a finite number, as the store writes them all."""
    return isinstance(value, (int, float)) and not isinstance(value, bool) and abs(value) <= sys.float_info.max


def _are_texts(values: object) -> bool:
    return isinstance(values, dict) and all(isinstance(value, str) for value in values.values())


def _estimate(record: dict[str, Any]) -> Estimate:
    return Estimate(**{**record, "interval": record["interval"] and tuple(record["interval"])})


def rows_digest(ids: np.ndarray, y: np.ndarray) -> str:
    """Return the sha256 of image ids and labels in their order: the same for two models on the same rows."""
    digest = hashlib.sha256("\n".join(map(str, ids)).encode())
    digest.update(np.ascontiguousarray(y))
    return digest.hexdigest()
