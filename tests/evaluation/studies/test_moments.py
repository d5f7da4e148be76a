from pathlib import Path

import numpy as np

from evaluation.studies.claims import AGREES, OPEN
from evaluation.studies.moments import Moments, moments

ONE = Moments(caption="Figure.", benchmark="itm", data={"small": "clipart"})


def test_mean_and_variance_with_intervals_over_images(tmp_path: Path) -> None:
    x = np.random.default_rng(0).normal(3, 2, size=(200, 50))
    numbers = moments(x)
    assert np.isclose(numbers["mean"], x.mean()) and np.isclose(numbers["variance"], x.var(0).mean())
    assert numbers["variance, low"] < numbers["variance"] < numbers["variance, high"]
    assert ONE.summarize({"a": numbers, "b": numbers}).outcome == OPEN
    found = {"a": numbers, "b": moments(2 * x)}
    assert ONE.summarize(found).outcome == AGREES and "(a) to" in ONE.summarize(found).sentence
    ONE.draw(found, tmp_path / "moments.png", "Moments")
    assert (tmp_path / "moments.png").exists()
