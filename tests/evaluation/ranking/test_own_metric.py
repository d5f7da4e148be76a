"""A metric of one's own by its name: scored, ranked, wrapped, checked; a file of results never imports it."""

import sys
from pathlib import Path

import numpy as np
import pytest
from own_metric import OWN_METRIC

import evaluation
from evaluation import transferability
from evaluation.ranking.ranking import reads_source
from evaluation.transferability import base
from sslkit.data.sources.named import open_images
from sslkit.errors import UserError

NAME = "my_metrics:score"


@pytest.fixture(autouse=True)
def mine(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "my_metrics.py").write_text(OWN_METRIC)
    monkeypatch.syspath_prepend(str(tmp_path))
    monkeypatch.setattr(base, "_given", {})
    yield
    sys.modules.pop("my_metrics", None)


@pytest.fixture(scope="module")
def digits() -> tuple[np.ndarray, np.ndarray]:
    images = open_images("digits")
    return images.pixels[:200, 0].reshape(200, -1) / 16.0, images.labels[:200]


def test_it_scores_and_ranks_with_options_in_brackets(digits: tuple) -> None:
    x, y = digits
    usual = evaluation.score(NAME, x, y)
    assert usual > 0 and evaluation.score(f"{NAME[:-6]}:score(times=6)", x, y) == pytest.approx(3 * usual)
    assert evaluation.score(NAME, x, y, times=4) == pytest.approx(2 * usual)
    zoo = {"wide": (x, y), "narrow": (x * 0.5, y)}
    ranking = evaluation.rank(zoo, metrics=[NAME, "knn"])
    assert list(ranking.metrics) == [NAME, "knn"] and ranking.ranks[:, 0].tolist() == [1, 2]


@pytest.mark.parametrize(
    ("name", "options", "message"),
    [
        ("my_none:score", {}, r"cannot import 'my_none:score' \(written package.module:score\)"),
        ("my_metrics:Sample", {}, "is no metric: write package.module:score"),
        (NAME, {"time": 1}, "has no option 'time': did you mean 'times'"),
        (NAME, {"times": "many"}, "times must be a whole number"),
    ],
)
def test_what_is_wrong_is_one_line(name: str, options: dict, message: str, digits: tuple) -> None:
    with pytest.raises(UserError, match=message) as caught:
        evaluation.score(name, *digits, **options)
    assert "\n" not in str(caught.value)


def test_a_name_in_a_file_imports_nothing() -> None:
    assert not reads_source(NAME) and "my_metrics" not in sys.modules
    with pytest.raises(UserError, match="code of your own, which this process was not given"):
        transferability.find(NAME)
