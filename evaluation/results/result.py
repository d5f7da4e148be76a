"""Result: one number of one protocol on one data set, with all that is needed to trust and to repeat it. JSON first."""

import dataclasses
import datetime
import hashlib
import importlib.metadata
import json
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from evaluation.results.statistics import Estimate

PACKAGES = ("sslkit", "torch", "timm", "scikit-learn", "numpy")


@dataclass(frozen=True)
class Result:
    """What a protocol measured.

    protocol: its name ("linear", "knn", ...). recipe: which of its recipes, with what a reader needs to compare
        ("lbfgs on centre-crop features"). metric: what `value` is ("top1", "mean_per_class", "map11", ...).
    value, unit, interval, kind, n: see `Estimate`; accuracies are fractions.
    others: further numbers by name (top5, k=20, nearest centroid, ...), each with its interval.
    seeds: those of the draws that the number depends on; empty where nothing is drawn.
    digests: of what went in: {"train": ..., "test": ..., "episodes": ...}.
    converged: whether the solver reached its tolerance, None where nothing is solved.
    leaky: whether test data was used to choose; such a number only reproduces others.
    seconds: wall time of the protocol, without the extraction.
    details: the choices made (c, lr, k, ...), JSON types only.
    outcomes: (n,) per image right or wrong, or per episode accuracy: for paired tests, kept out of the JSON.
    paired_on: digest of the rows that `outcomes` belongs to; results with the same one may be compared.
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
    paired_on: str = ""

    @classmethod
    def of(cls, estimate: Estimate, **fields: Any) -> "Result":
        """A result whose main number is `estimate`, dated and with the packages' versions."""
        now = datetime.datetime.now(datetime.timezone.utc).isoformat(timespec="seconds")
        versions = {name: importlib.metadata.version(name) for name in PACKAGES}
        return cls(**{**dataclasses.asdict(estimate), "date": now, "versions": versions, **fields})

    @property
    def estimate(self) -> Estimate:
        return Estimate(self.value, self.interval, self.kind, self.n, self.unit)

    def to_json(self) -> str:
        """One line, without `outcomes`."""
        record = {f.name: getattr(self, f.name) for f in dataclasses.fields(self) if f.name != "outcomes"}
        record["others"] = {name: dataclasses.asdict(other) for name, other in self.others.items()}
        return json.dumps(record)

    @classmethod
    def from_json(cls, line: str) -> "Result":
        """The result of one line; fields that this version does not know are left out."""
        record = json.loads(line)
        known = {f.name for f in dataclasses.fields(cls)}
        record["others"] = {name: _estimate(other) for name, other in record.get("others", {}).items()}
        record["interval"] = record.get("interval") and tuple(record["interval"])
        return _checked(cls(**{key: value for key, value in record.items() if key in known}))


def _checked(result: Result) -> Result:
    """Return a result whose fields are of their kinds. Raises TypeError for one that a damaged file holds."""
    number = isinstance(result.value, (int, float)) and not isinstance(result.value, bool)
    texts = (result.protocol, result.recipe, result.metric, result.unit, result.kind, result.model, result.data)
    if not number or not isinstance(result.n, int) or not all(isinstance(text, str) for text in texts):
        raise TypeError("its value, n or names are of another kind")
    if result.interval is not None and len(result.interval) != 2:
        raise TypeError(f"its interval is {result.interval}")
    if not isinstance(result.details, dict) or not isinstance(result.digests, dict):
        raise TypeError("its details or digests are no mappings")
    return result


def _estimate(record: dict[str, Any]) -> Estimate:
    return Estimate(**{**record, "interval": record["interval"] and tuple(record["interval"])})


def rows_digest(ids: np.ndarray, y: np.ndarray) -> str:
    """sha256 of images and labels in their order: the same for two models on the same rows."""
    digest = hashlib.sha256("\n".join(map(str, ids)).encode())
    digest.update(np.ascontiguousarray(y))
    return digest.hexdigest()
