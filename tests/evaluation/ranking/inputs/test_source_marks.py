"""Letters for kinds of source heads, and data sets with other numbers of classes, which LEEP ranks apart."""

import json
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

import evaluation
from evaluation.ranking.consensus import normal_scores, within
from evaluation.ranking.inputs.source_marks import groups, letters, lines
from evaluation.ranking.rank import _in_numbers
from evaluation.ranking.ranking import Ranking
from evaluation.ranking.scoring import parse
from evaluation.report.ranked import _mark_outside as on_the_page
from evaluation.transferability.base import Score
from sslkit.errors import UserError


def head(kind: str, classes: int, data: str) -> dict:
    return {"kind": kind, "classes": classes, "data": data, "made": "so"}


ALIKE = {name: head("labels", 10, "clothes") for name in "abc"}
KINDS = {**ALIKE, "b": head("prototypes", 300, "clothes")}
SETS = {"a": head("labels", 10, "clothes"), "b": head("labels", 62, "glyphs"), "c": head("labels", 10, "clothes")}
CLUSTERS = {"a": head("clusters", 100, "clothes"), "b": head("clusters", 100, "glyphs")}
OUTSIDE = {"a": head("labels", 10, "clothes"), "w": head("classifier", 1000, "its own training")}


THREE = {**SETS, "d": head("labels", 10, "digits")}
SWAPPED = {
    "a": head("labels", 10, "x"),
    "b": head("prototypes", 62, "x"),
    "c": head("labels", 62, "y"),
    "d": head("prototypes", 10, "y"),
}
MORE = {**ALIKE, "b": head("prototypes", 300, "clothes"), "d": head("labels", 10, "digits")}


@pytest.mark.parametrize(
    ("sources", "marks", "apart", "mixed"),
    [
        (ALIKE, "", [0, 0, 0], False),
        (KINDS, "aba", [0, 0, 0], True),
        (SETS, "aba", [0, 1, 0], False),
        (CLUSTERS, "ab", [0, 0], False),  # of equal number: one ranking
        (OUTSIDE, "ab", [0, 1], False),
        (THREE, "abac", [0, 1, 0, 0], False),
        (SWAPPED, "abcd", [0, 0, 1, 1], True),
        (MORE, "abac", [0, 0, 0, 0], True),
    ],
)
def test_letters_and_groups(sources: dict, marks: str, apart: list[int], mixed: bool) -> None:
    assert "".join(letters(sources).values()) == marks
    assert groups(sources, list(sources)).tolist() == apart
    said = lines(sources, ["leep", "nce"])
    assert any("ranked apart" in line for line in said) == (max(apart) > 0)
    assert any("heads of several kinds" in line for line in said) == mixed
    assert said[0].startswith("source head") and all(name in " ".join(said) for name in sources)


def test_a_model_without_a_head_is_in_no_group_and_nothing_is_said_without_heads() -> None:
    assert groups(SETS, ["a", "x", "b"]).tolist() == [0, -1, 1]
    assert lines({}, ["leep"]) == [] and letters({}) == {} and groups({}, ["a", "b"]).tolist() == [0, 0]


def test_ranks_ties_and_their_intervals_are_within_a_group() -> None:
    class Result:
        seconds, peak_memory = 1.0, None

        def __init__(self, value: float) -> None:
            self.details = Score(value)

    values = [-1.0, -5.0, -2.0, -6.0]
    scored = (parse("leep"), {m: Result(value) for m, value in zip((0, 1, 3, 4), values, strict=True)})
    redrawn = np.array(values) + 0.001 * np.random.default_rng(0).normal(size=(50, 4))
    column = _in_numbers(scored, redrawn, np.array([0, 1, -1, 0, 1]), 5, 500)
    np.testing.assert_array_equal(column["ranks"], [1, 1, np.nan, 2, 2])
    assert column["tied"].tolist() == [True, True, False, False, False]
    assert column["rank_intervals"][4].tolist() == [2, 2]
    together = _in_numbers(scored, redrawn, np.zeros(5, dtype=int), 5, 500)
    np.testing.assert_array_equal(together["ranks"], [1, 3, np.nan, 2, 4])


def test_in_the_consensus_groups_are_level() -> None:
    scores = np.array([3.0, 1.0, -7.0, -9.0, np.nan])
    apart = np.array([0, 0, 1, 1, -1])
    found = within(apart, scores)
    np.testing.assert_allclose(found[:4], np.tile(normal_scores(np.array([2.0, 1.0])), 2))
    assert np.isnan(found[4]) and within(np.zeros(5), scores) is scores
    drawn = within(apart[:4], np.stack([scores[:4], scores[:4][::-1]]))
    assert drawn.shape == (2, 4) and (drawn[0] == -drawn[1]).all()


def marked(tmp_path, sources: dict, metrics: tuple[str, ...] = ("leep", "knn")) -> Ranking:
    rng = np.random.default_rng(0)
    y = np.arange(20) % 2
    zoo = {name: (rng.normal(size=(20, 3)), y) for name in "abc"}
    found = evaluation.rank(zoo, metrics=["logme", "knn"], bootstrap=0)
    return Ranking.from_json(replace(found, metrics=metrics, sources=sources).to_json(tmp_path / "ranking.json"))


def test_letters_are_in_the_table_and_on_the_page_also_of_models_from_outside(tmp_path: Path) -> None:
    found = marked(tmp_path, SETS)
    assert [found.mark(m, 0) for m in range(3)] == ["a", "b", "a"] and [found.mark(m, 1) for m in range(3)] == [""] * 3
    shown = on_the_page(found, {"b", "c"})
    assert [shown.mark(m, 0) for m in range(3)] == ["a", "b", "a"]
    cells = found.table("markdown").splitlines()[2:5]
    assert sorted(line.split("|")[-3].strip()[-1] for line in cells) == ["a", "a", "b"]


def test_a_ranking_with_a_metric_of_another_version_is_shown(tmp_path: Path) -> None:
    found = marked(tmp_path, SETS, ("leep", "of_another_version"))
    assert found.mark(1, 1) == "" and "of_another_version" in found.table()
    for broken in ({"a": {}}, {"a": 7}, {"a": {"kind": "labels", "classes": "x", "data": "", "made": ""}}):
        content = json.loads((tmp_path / "ranking.json").read_text()) | {"sources": broken}
        (tmp_path / "ranking.json").write_text(json.dumps(content))
        with pytest.raises(UserError, match="is not a ranking of"):
            Ranking.from_json(tmp_path / "ranking.json")
