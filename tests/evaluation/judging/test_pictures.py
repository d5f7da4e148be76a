"""Pictures of an evaluation: small test sets, images that are in training and test, data sets of one name."""

from pathlib import Path

import numpy as np
import pytest

from evaluation.features import as_features
from evaluation.features.table import Features
from evaluation.judging import pictures
from evaluation.results.result import Result
from evaluation.results.statistics import Estimate
from sslkit.runtime.context import Runtime


class Judged:
    """A stand-in that gives what a `Subject` does."""

    def __init__(self, train: Features, test: Features) -> None:
        self.train, self.test = lambda runtime: train, lambda runtime: test


def features(rows: np.ndarray, classes: int = 2) -> Features:
    x = np.random.default_rng(0).normal(size=(200, 5))[rows]
    return as_features((x, np.arange(200)[rows] % classes))


@pytest.fixture
def result() -> Result:
    estimate = Estimate(0.5, (0.4, 0.6), "wilson over images", 20)
    return Result.from_estimate(estimate, protocol="knn", recipe="", metric="top1", model="m", data="d", seconds=0.0)


def test_too_few_images_for_a_map_are_a_warning(result: Result, tmp_path: Path) -> None:
    few = Judged(features(np.arange(100)), features(np.arange(100, 120)))
    with pytest.warns(UserWarning, match="no map of .*at least 30 images"):
        written = pictures.draw([result], [few], Runtime(out=tmp_path))
    assert [path.name for path in written] == ["evaluation.png", "confusion-.png"]


def test_an_image_of_train_does_not_vote_for_itself(
    result: Result, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    shown = {}
    monkeypatch.setattr(pictures, "plot_confusion", lambda y, voted, *_, **said: shown.update(said, y=y, voted=voted))
    twins = Judged(features(np.arange(100), 10), features(np.arange(90), 10))
    pictures.draw([result], [twins], Runtime(out=tmp_path))
    assert (shown["y"] == shown["voted"]).mean() < 0.4, "random features"
    assert shown["title"].endswith("confusions of 20-NN (not of the linear probe)")


def test_data_sets_of_one_name_have_pictures_of_their_own(result: Result, tmp_path: Path) -> None:
    one = Judged(features(np.arange(100)), features(np.arange(100, 200)))
    written = pictures.draw([result], [one, one, one], Runtime(out=tmp_path))
    assert len(set(written)) == 7 and all(path.is_file() for path in written)
