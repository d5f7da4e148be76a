"""Times of contestants that take turns, so that other load on the machine slows all equally."""

import time
from collections.abc import Callable, Mapping, Sequence

import numpy as np


def take_turns(
    contestants: Mapping[str, Callable[[], object]], repeats: int, *, clock: Callable[[], float] = time.perf_counter
) -> dict[str, list[float]]:
    """Seconds of each repeat, after one to warm up."""
    times: dict[str, list[float]] = {name: [] for name in contestants}
    for repeat in range(repeats + 1):
        for name, once in contestants.items():
            start = clock()
            once()
            if repeat:
                times[name].append(clock() - start)
    return times


def summary(values: Sequence[float]) -> dict[str, float]:
    ways = {"median": np.median, "min": np.min, "max": np.max}
    return {name: round(float(way(values)), 3) for name, way in ways.items()}


def format_times(times: Mapping[str, float], digits: int = 2) -> str:
    return "{median:.{d}f} ({min:.{d}f} to {max:.{d}f})".format(d=digits, **times)
