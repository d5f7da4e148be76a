"""How often intervals hold the value that they are about, by simulation; the slow run draws more data sets."""

from collections.abc import Callable
from functools import partial

import numpy as np
import pytest
import simulations

from evaluation.results import measures

COVERS = 0.92
SIMULATIONS: dict[str, Callable] = {
    "share": simulations.shares,
    "mean of images": simulations.means,
    "seeds": simulations.seeds,
    "episodes": simulations.episodes,
    "miou": partial(simulations.label_maps, "miou"),
    "pixel_accuracy": partial(simulations.label_maps, "pixel_accuracy"),
    "class_accuracy": partial(simulations.label_maps, "class_accuracy"),
}
NIGHTLY: dict[str, Callable] = {  # a second a data set
    "map11": partial(simulations.precisions, measures.ap11),
    "map": partial(simulations.precisions, measures.average_precision),
}


def covered(simulation: Callable, count: int) -> float:
    drawn = [one for one in simulation(np.random.default_rng(0), count) if one[0] is not None]
    assert len(drawn) > count / 4, "too few data sets had an interval"
    return float(np.mean([low <= value <= high for (low, high), value in drawn]))


@pytest.mark.parametrize("name", SIMULATIONS)
def test_intervals_cover(name: str) -> None:
    """60 data sets: three standard errors below 92 %; a percentile bootstrap of mIoU reaches 0.7."""
    assert covered(SIMULATIONS[name], 60) > COVERS - 3 * (COVERS * (1 - COVERS) / 60) ** 0.5


@pytest.mark.slow
@pytest.mark.parametrize("name", [*SIMULATIONS, *(pytest.param(name, marks=pytest.mark.nightly) for name in NIGHTLY)])
def test_intervals_cover_many_data_sets(name: str) -> None:
    """Two standard errors of 300 data sets below 92 %."""
    assert covered({**SIMULATIONS, **NIGHTLY}[name], 300) > COVERS - 2 * (COVERS * (1 - COVERS) / 300) ** 0.5
