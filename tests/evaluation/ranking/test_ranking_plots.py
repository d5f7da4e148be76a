"""The pictures of a ranking: panels, names, notes, no bar that is cut, and texts that do not overlap."""

from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from figures import cut_texts, overlapping_texts

import evaluation
from evaluation.ranking import plots
from evaluation.ranking.consensus import CHANCES
from evaluation.ranking.plots import BEST, plot_agreement, plot_ranking
from evaluation.ranking.ranking import Ranking
from evaluation.results.names import short, wrap
from sslkit.data.sources.named import open_images
from sslkit.numerics.figures import FIRST, PAPER, REFERENCE

METRICS = ["logme", "h_score", "knn", "feature_dim", "nce"]
LONG = "method_{k}+dsa+koleo-some_data_set_with_a_long_name-vit_small_patch16_224-e{k}00-s{k}"


@pytest.fixture(scope="module")
def ranking() -> Ranking:
    """Twenty-five models with long names: digits with more and more noise. No model has a score by nce."""
    images, rng = open_images("digits"), np.random.default_rng(0)
    x = images.pixels[:80, 0].reshape(80, -1) / 16.0
    models = {LONG.format(k=k): (x + 0.2 * k * rng.normal(size=x.shape), images.labels[:80]) for k in range(25)}
    truth = [0.95 - 0.02 * k for k in range(25)]
    return evaluation.rank(models, metrics=METRICS, truth=truth, bootstrap=4)


@pytest.fixture
def drawn(monkeypatch: pytest.MonkeyPatch) -> list[Any]:
    figures = []
    monkeypatch.setattr(plots, "save_figure", lambda figure, path: figures.append(figure))
    return figures


def of_first(ranking: Ranking, models: int, metrics: int) -> Ranking:
    """The ranking of the first models by the first metrics."""
    rows = {name: getattr(ranking, name)[:models] for name in ("models", "truth")}
    cells = ("scores", "intervals", "ranks", "tied", "rank_intervals", "seconds", "memory")
    tables = {name: getattr(ranking, name)[:models, :metrics] for name in cells}
    whole = vars(ranking.consensus).items()
    combined = replace(
        ranking.consensus, **{name: value[:models] for name, value in whole if isinstance(value, np.ndarray)}
    )
    return replace(ranking, metrics=ranking.metrics[:metrics], consensus=combined, **rows, **tables)


@pytest.mark.parametrize(
    ("models", "metrics"),
    [(25, 2), (1, 2), *(pytest.param(*more, marks=pytest.mark.nightly) for more in ((2, 1), (2, 5)))],
)
def test_texts_neither_overlap_nor_stick_out(models: int, metrics: int, ranking, drawn, tmp_path: Path) -> None:
    few = of_first(ranking, models, metrics)
    plot_ranking(few, tmp_path / "a.png")
    plot_agreement(few, tmp_path / "b.png")
    for figure in drawn:
        assert overlapping_texts(figure) == [] and cut_texts(figure) == []


def test_a_metric_without_scores_has_no_panel_but_a_note(ranking, drawn, tmp_path: Path) -> None:
    plot_ranking(ranking, tmp_path / "a.png")
    plot_agreement(ranking, tmp_path / "b.png")
    for figure in drawn:
        panels = [axis for axis in figure.axes if axis.axison]
        assert [axis.get_title(loc="left") for axis in panels if axis.get_title(loc="left") != BEST] == METRICS[:4]
        assert all(axis.lines or axis.collections for axis in panels), "an empty panel"
        assert "No model has a score by nce." in figure.get_supxlabel()


def test_no_bar_is_drawn_and_the_axis_says_that_it_is_cut(ranking, drawn, tmp_path: Path) -> None:
    plot_ranking(ranking, tmp_path / "a.png")
    (figure,) = drawn
    assert not [patch for axis in figure.axes for patch in axis.patches]
    said = figure.get_supxlabel().replace("\n", " ")
    assert "Axes of scores do not start at 0" in said
    assert said.startswith("Take method_") and CHANCES in said and "leave-one-out 20-NN on the 80 images" in said


def test_models_stand_by_consensus_with_ranks_beside_and_hollow_ties(ranking, drawn, tmp_path: Path) -> None:
    plot_ranking(of_first(ranking, 6, 3), tmp_path / "a.png")
    first, axis, *others = drawn[0].axes
    names = [label.get_text().replace("\n", "") for label in first.get_yticklabels()]
    best = of_first(ranking, 6, 3).consensus.order()
    assert [name[:8] for name in names] == [ranking.models[m][:8] for m in best]
    assert all(label.get_text() == "" for other in others for label in other.get_yticklabels())
    assert axis.get_xlabel() == "score; higher is better"
    ranks = [text.get_text() for text in axis.texts[:-1]]
    assert ranks == [f"{ranking.ranks[m, 0]:g}" for m in best]
    faces = [line.get_markerfacecolor() for line in axis.lines if line.get_marker() == "o"]
    tied = [bool(ranking.tied[m, 0]) and ranking.ranks[m, 0] > 1 for m in best]
    assert [face == PAPER for face in faces] == tied


def test_a_model_without_a_score_is_said(ranking, drawn, tmp_path: Path) -> None:
    scores = ranking.scores.copy()
    scores[3, 0] = np.nan
    plot_ranking(replace(ranking, scores=scores), tmp_path / "a.png")
    assert [text.get_text() for text in drawn[0].axes[1].texts].count("no score") == 1
    plot_ranking(replace(ranking, scores=np.full_like(scores, np.nan)), tmp_path / "b.png")
    assert len(drawn[1].axes) == 1 and drawn[1].get_supxlabel().count("No model has a score") == 5


def test_the_chances_and_regrets_come_first_and_random_weights_are_gray(ranking, drawn, tmp_path: Path) -> None:
    few = of_first(ranking, 3, 2)
    few = replace(few, models=(*few.models[:2], "random:vit"), data="/a/folder/of/flowers/")
    regret = np.array([0.0, 0.012, np.nan])
    few = replace(few, consensus=replace(few.consensus, best=np.array([0.6, 0.3, 0.1]), regret=regret))
    plot_ranking(few, tmp_path / "a.png")
    (figure,) = drawn
    axis = figure.axes[0]
    order = few.consensus.order()
    said = ["60 %, regret 0.0", "30 %, regret 1.2", "10 %"]
    assert axis.get_title(loc="left") == BEST and axis.get_xlim() == (0, 100)
    assert [text.get_text() for text in axis.texts[:3]] == [said[m] for m in order]
    dots = [line.get_color() for line in axis.lines if line.get_marker() == "o"]
    assert dots == [REFERENCE if m == 2 else FIRST for m in order] and "Gray: random weights." in figure.get_supxlabel()
    assert figure.get_suptitle().replace("\n", " ") == "3 models ranked for flowers, by 80 images"
    assert overlapping_texts(figure) == [] and cut_texts(figure) == []


def test_numbers_of_the_agreement_are_those_of_the_list(ranking, drawn, tmp_path: Path) -> None:
    plot_agreement(of_first(ranking, 8, 2), tmp_path / "a.png")
    *panels, beside = drawn[0].axes
    lines = beside.texts[0].get_text().splitlines()
    assert lines[1].startswith("1  method_0+dsa") and lines[1].endswith("(0.95)") and len(lines) == 9
    for axis in panels:
        *labels, words = axis.texts
        assert words.get_text().startswith("weighted tau (Vigna) 0.")
        shown = [int(text.get_text()) for text in labels if text.get_visible()]
        assert 1 in shown and set(shown) <= set(range(1, 9))


@pytest.mark.parametrize("name", ["short", LONG.format(k=1), 90 * "x", "a-" * 60, "a name with $math_ in it"])
def test_names_are_wrapped_into_two_lines(name: str) -> None:
    lines = wrap(name).split("\n")
    assert len(lines) <= 2 and max(map(len, lines)) <= 30
    assert "".join(lines)[:5] == name[:5] and "".join(lines)[-5:] == name[-5:]
    assert len(short(name)) <= 45 and short("short") == "short"
