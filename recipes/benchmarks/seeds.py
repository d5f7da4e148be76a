"""Numbers of several seeds as the tables show them."""

import statistics
from collections.abc import Mapping, Sequence
from typing import Any

from evaluation.results.statistics import over_seeds
from evaluation.studies.claims import by_row

Rows = dict[int, dict[str, Any]]  # by seed


def of(runs: Mapping[str, dict[str, Any]], *words: str) -> Rows:
    """The results of "WORD | WORD | SEED" by seed."""
    return by_row(runs, " | ".join(words))


def differences(one: Rows, other: Rows, key: str) -> list[float]:
    """one minus other in points, seed by seed, of those that both have."""
    return [100 * (one[seed][key] - other[seed][key]) for seed in one if seed in other]


def spread(values: Sequence[float]) -> str:
    """Mean ± standard deviation."""
    if not values:
        return ""
    sd = f" ± {statistics.stdev(values):.1f}" if len(values) > 1 else ""
    return f"{statistics.mean(values):.1f}{sd}"


def percent(rows: Rows, key: str) -> str:
    return spread([100 * row[key] for row in rows.values() if key in row])


def mean(rows: Rows, key: str) -> float:
    return statistics.mean(row[key] for row in rows.values())


def interval(gains: Sequence[float]) -> str:
    """The mean gain, and from two seeds on its 95 % t-interval."""
    if len(gains) < 2:
        return f"{gains[0]:+.1f}" if gains else ""
    middle, half = statistics.mean(gains), half_width(gains)
    return f"{middle:+.1f} ({middle - half:+.1f} to {middle + half:+.1f})"


def by_chance(intervals: int, beside: int) -> str:
    """How many of the 95 % intervals leave 0 out, beside how many would without any effect."""
    return f"Of {intervals} intervals {beside} leave 0 out; without any effect about {intervals / 20:.0f} would."


def half_width(gains: Sequence[float]) -> float:
    """Half of the 95 % t-interval of a mean."""
    low, high = over_seeds(gains, unit="points").interval
    return (high - low) / 2


def by_seed(gains: Sequence[float]) -> str:
    return " ".join(f"{gain:+.1f}" for gain in gains)
