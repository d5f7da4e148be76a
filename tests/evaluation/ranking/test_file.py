"""A ranking on disk: all of it comes back, and what is no ranking is refused with the reason."""

import json
from pathlib import Path

import numpy as np
import pytest

import evaluation
from sslkit.errors import UserError


@pytest.fixture(scope="module")
def ranking() -> evaluation.Ranking:
    rng = np.random.default_rng(0)
    y = np.repeat(np.arange(4), 15)
    zoo = {name: (rng.normal(size=(60, 6)) + scale * np.eye(4, 6)[y], y) for scale, name in enumerate("abc")}
    zoo["wide"] = (rng.normal(size=(60, 6)) + 3 * np.eye(4, 6)[y], y)
    truth = {"a": 0.3, "b": 0.5, "c": 0.7, "wide": 0.9}
    return evaluation.rank(zoo, metrics=["logme", "leep"], truth=truth, bootstrap=5, seed=3)


def test_it_is_read_as_it_was_written(ranking: evaluation.Ranking, tmp_path: Path) -> None:
    path = ranking.to_json(tmp_path / "ranking.json")
    again = evaluation.Ranking.from_json(path)
    assert again.to_json(tmp_path / "again.json").read_text() == path.read_text()
    assert np.isnan(again.scores[:, 1]).all() and again.table() == ranking.table()
    np.testing.assert_array_equal(again.intervals, ranking.intervals)


def test_it_says_how_it_was_made(ranking: evaluation.Ranking) -> None:
    assert (ranking.made["seed"], ranking.made["bootstrap"], ranking.made["device"]) == (3, 5, "cpu")
    assert ranking.made["date"][:2] == "20" and "sslkit" in ranking.made["versions"]


def test_a_newer_file_is_read_and_an_older_one_too(ranking: evaluation.Ranking, tmp_path: Path) -> None:
    record = json.loads(ranking.to_json(tmp_path / "now.json").read_text())
    (tmp_path / "future.json").write_text(json.dumps(record | {"a_future_field": 1}))
    assert evaluation.Ranking.from_json(tmp_path / "future.json").models == ranking.models
    del record["made"]
    (tmp_path / "past.json").write_text(json.dumps(record))
    assert evaluation.Ranking.from_json(tmp_path / "past.json").made == {}


@pytest.mark.parametrize(
    ("content", "said"),
    [("{", "is not a ranking"), ("[]", "is not a ranking"), ("{}", "has no 'models'"), (None, "cannot be read")],
)
def test_what_is_no_ranking_is_refused(content: str | None, said: str, tmp_path: Path) -> None:
    if content is not None:
        (tmp_path / "file.json").write_text(content)
    with pytest.raises(UserError, match=said):
        evaluation.Ranking.from_json(tmp_path / "file.json")


def test_arrays_of_another_shape_are_refused(ranking: evaluation.Ranking, tmp_path: Path) -> None:
    record = json.loads(ranking.to_json(tmp_path / "now.json").read_text())
    (tmp_path / "cut.json").write_text(json.dumps(record | {"scores": record["scores"][:2]}))
    with pytest.raises(UserError, match=r"scores is of shape \(2, 2\), not \(4, 2\)"):
        evaluation.Ranking.from_json(tmp_path / "cut.json")
