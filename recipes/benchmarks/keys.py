"""Keys of published numbers: which runs of a study, and which of its measures, are of older code.

`fingerprints.json` has every fingerprint (`fingerprints.py`) that a component of the code had, by a key, and the keys
of today's code. A run of a study has in "key" those of its components, in their order, judging the last.
"""

import functools
import hashlib
import json
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from results import FOLDER, write

FILE = FOLDER / "fingerprints.json"
JUDGING = "judging"  # the component whose numbers are the study's measures
MARK = " †"
WITHIN = 2e-4  # of the largest number or 1: kernels of another processor differ by up to 6e-5, DINO's change was 3e-4
WITHIN_OF = {
    "moco_v3": 2e-3,
    "vicregl": 1e-3,
    "visreg": 3e-3,
    "mae + dsa": 2e-2,
    **dict.fromkeys(("metric knn", "metric linear_probe", "metric itm"), 9e-3),  # one image of 120 may be undecided
}  # which enlarge it: a quarter of these
SHARES = ("probe", "knn", "few_shot")
SHARES_WITHIN = 0.003  # one image of 400, which may be nearly undecided between two classes
Numbers = Mapping[str, Sequence[float]]
PartsOf = Callable[[str], Sequence[str]]  # of a run by its name: the parts of the code that it rests on


def load() -> dict[str, Any]:
    """{"now": the key of each component, "known": by component and key {"numbers", "commit" of the first}}."""
    return json.loads(FILE.read_text(encoding="utf-8"))


@functools.cache
def today() -> dict[str, Any]:
    """The file as it was when it was first asked for."""
    return load()


def differing(component: str, numbers: Numbers, other: Numbers) -> set[str]:
    """The names of the numbers of a component that differ by more than rounding, or that one lacks."""
    names = numbers.keys() | other.keys()
    return {name for name in names if not _is_close(component, name, numbers.get(name, ()), other.get(name, ()))}


def _is_close(component: str, name: str, numbers: Sequence[float], other: Sequence[float]) -> bool:
    if not len(numbers) == len(other) > 0:
        return False
    within = WITHIN_OF.get(component, WITHIN) * max(1.0, float(np.abs(other).max()))
    return bool(np.abs(np.subtract(numbers, other)).max() <= (SHARES_WITHIN if name in SHARES else within))


def add(record: dict[str, Any], component: str, numbers: Numbers, commit: str) -> str:
    """Return the key of a fingerprint, which is added to a record of `load` where it is new."""
    recorded = record["known"].setdefault(component, {})
    key = next((key for key, entry in recorded.items() if not differing(component, numbers, entry["numbers"])), None)
    if key is None:
        rounded = {name: [float(f"{value:.6g}") for value in values] for name, values in numbers.items()}
        key = hashlib.sha256(json.dumps([component, rounded]).encode()).hexdigest()[:6]
        recorded[key] = {"numbers": rounded, "commit": commit}
    return key


def keep(record: dict[str, Any]) -> None:
    """Write the file."""
    write(FILE, {name: dict(sorted(record[name].items())) for name in ("now", "known")})
    today.cache_clear()


def key_now(parts: Iterable[str]) -> str:
    """The key of a run that is made by today's code."""
    return " ".join(today()["now"][component] for component in parts)


def stale_parts(row: Mapping[str, Any], parts: Sequence[str]) -> list[str]:
    """The parts of a run whose code computes something else now; see `keys_of`."""
    return [
        component for component, key in zip(parts, keys_of(row, parts), strict=True) if key != today()["now"][component]
    ]


def keys_of(row: Mapping[str, Any], parts: Sequence[str]) -> list[str]:
    """The key of each component; of a run without keys the oldest known, since it was made before there were any."""
    return row["key"].split() if "key" in row else [next(iter(today()["known"][component])) for component in parts]


@dataclass(frozen=True)
class Stale:
    """What of some runs is of older code. parts: with the number of such runs. measures: names of numbers."""

    parts: Mapping[str, int]
    measures: frozenset[str]
    runs: int

    def mark(self, name: str, *parts: str) -> str:
        """The name, marked if one of these parts, or the measure of this name, is of older code."""
        return name + MARK * any(
            component in self.parts or component in self.measures for component in parts or (name,)
        )

    def mark_row(self, name: str) -> str:
        """The name of a row that has these runs, marked if any is of older code but for the measures."""
        return name + MARK * bool(self.parts)


def find_stale(runs: Mapping[str, Mapping[str, Any]], parts_of: PartsOf) -> Stale:
    """What of these runs is of older code."""
    by_run = {run: stale_parts(row, parts_of(run)) for run, row in runs.items()}
    judged = {keys_of(row, parts_of(run))[-1] for run, row in runs.items()}
    counts = Counter(component for parts in by_run.values() for component in parts if component != JUDGING)
    measures = (_stale_measures(key) for key in judged)
    return Stale(counts, frozenset().union(*measures), len(runs))


def _stale_measures(key: str) -> set[str]:
    """The measures that say something else now than the judging of this key."""
    recorded = today()["known"][JUDGING]
    return differing(JUDGING, recorded[key]["numbers"], recorded[today()["now"][JUDGING]]["numbers"])
