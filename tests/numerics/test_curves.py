"""loss.png: its panels, the lines of a short and of a long run, marks of epochs, and texts that do not overlap."""

import csv
from itertools import combinations
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from figures import overlapping_texts

import sslkit
from sslkit.numerics import curves
from sslkit.numerics import figures as embedding
from sslkit.numerics.curves import FEW, MARKS, RANK, SHARES, SMOOTHED, SPREAD, Judged, plot_terms
from sslkit.numerics.figures import plot_embedding
from sslkit.numerics.wilson import wilson
from sslkit.training.monitor import History

HELD_OUT = "accuracy on held-out images"
BEFORE = {"knn": 0.3, "probe": 0.4, "n": 200}
TERMS = ["align", "constrain", "dsa/arrange", "dsa/consistency"]


@pytest.fixture
def drawn(monkeypatch: pytest.MonkeyPatch) -> list[Any]:
    """The figures that were saved."""
    figures = []
    for module in (curves, embedding):
        monkeypatch.setattr(module, "save_figure", lambda figure, path: figures.append(figure))
    return figures


def rows_of(epochs: int, each: int, terms: list[str], *, judged: bool = True) -> list[dict[str, float]]:
    rows, rng = [], np.random.default_rng(0)
    for epoch in range(1, epochs + 1):
        for place in range(each):
            values = {name: 10.0**k * (2 + rng.normal()) for k, name in enumerate(terms)}
            row = {"epoch": epoch, "step": (epoch - 1) * each + place + 1, **values}
            rows.append({**row, "loss": sum(values.values())})
        end = {"epoch": epoch, "step": epoch * each, "rankme": 5.0, "std": 0.9}
        rows.append({**end, "knn": 0.5 + 0.0004 * epoch, "probe": 0.6} if judged else end)
    return rows


def titles(figure: Any) -> list[str]:
    return [axis.get_title(loc="left") for axis in figure.axes]


@pytest.mark.parametrize(("epochs", "each"), [(2, 3), (6, 40), (100, 1), (1000, 1)])
def test_texts_do_not_overlap_and_epochs_are_marked(epochs: int, each: int, drawn, tmp_path: Path) -> None:
    plot_terms(
        rows_of(epochs, each, TERMS), TERMS, tmp_path / "a run with a name" / "loss.png", Judged(20, before=BEFORE)
    )
    (figure,) = drawn
    assert titles(figure) == [HELD_OUT, RANK, SPREAD, "loss", *TERMS], "first what a person can judge"
    assert figure.get_suptitle() == "a run with a name" and overlapping_texts(figure) == []
    marks = [line for line in figure.axes[0].lines if len(line.get_xdata()) == 2 and len(set(line.get_xdata())) == 1]
    assert min(epochs, 5) - 3 <= len(marks) <= MARKS
    said = "lines mark epochs" if epochs <= MARKS else "lines mark every"
    assert said in figure.axes[-1].get_xlabel()


def test_accuracies_are_in_per_cent_with_their_intervals_and_those_before_training(drawn, tmp_path: Path) -> None:
    plot_terms(rows_of(3, 5, ["align"]), ["align"], tmp_path / "loss.png", Judged(20, before=BEFORE))
    axis = drawn[0].axes[0]
    said = [text.get_text() for text in axis.get_legend().get_texts()]
    assert said == ["20-NN", "20-NN before", "online probe", "quick probe before"]
    drawn[0].draw_without_rendering()
    assert all(label.get_text().endswith(" %") for label in axis.get_yticklabels())
    lines = {line.get_label(): line for line in axis.lines}
    assert list(lines["online probe"].get_ydata()) == [60, 60, 60]
    assert lines["20-NN before"].get_linestyle() == ":" and set(lines["20-NN before"].get_ydata()) == {30}
    low, high = wilson(0.6, 200)
    band = axis.collections[1].get_paths()[0].vertices[:, 1]
    assert (band.min(), band.max()) == pytest.approx((100 * low, 100 * high))
    assert [text.get_text() for text in axis.texts] == ["higher is better; band: 95 % interval, 200 images"]
    assert "Dotted: before training, random weights." in drawn[0].get_supxlabel()
    assert overlapping_texts(drawn[0]) == []


def test_rank_and_spread_begin_at_the_value_of_a_collapse(drawn, tmp_path: Path) -> None:
    plot_terms(rows_of(3, 5, ["align"]), ["align"], tmp_path / "loss.png")
    _, rank, spread, _ = drawn[0].axes
    assert rank.get_ylim()[0] == rank.get_yticks()[0] == 1 and spread.get_ylim()[0] == 0
    assert all("collapse" in axis.texts[0].get_text() for axis in (rank, spread))


def test_each_term_has_a_line_of_words(drawn, tmp_path: Path) -> None:
    terms = [*TERMS, "koleo", "own/term"]
    plot_terms(rows_of(2, 2, terms), terms, tmp_path / "loss.png")
    words = [axis.texts[0].get_text() for axis in drawn[0].axes]
    assert len(words) == len(terms) + 4 and words[4] == "falls as the views of an image agree"
    assert words[-1] == "a term of the loss; falls as it is learned" and overlapping_texts(drawn[0]) == []


def test_one_term_is_one_panel_and_no_list_is_changed(drawn, tmp_path: Path) -> None:
    terms = ["align"]
    plot_terms(rows_of(2, 2, terms, judged=False), terms, tmp_path / "loss.png")
    assert titles(drawn[0]) == [RANK, SPREAD, "align"] and terms == ["align"]
    plot_terms(rows_of(2, 2, terms), terms, tmp_path / "loss.png")
    assert titles(drawn[1]) == [HELD_OUT, RANK, SPREAD, "align"] and terms == ["align"]
    plot_terms(rows_of(2, 2, terms), terms, tmp_path / "loss.png", Judged(10, held_out=False))
    assert titles(drawn[2])[0] == "accuracy on images that were trained on too"
    assert overlapping_texts(drawn[2]) == []


def test_the_shares_of_regularisers_are_one_panel_of_lines_on_a_logarithmic_axis(drawn, tmp_path: Path) -> None:
    rows = rows_of(2, 4, TERMS)
    for place, row in enumerate(rows[:4:2]):
        row |= {"dsa/share": 10.0 ** (2 + place), "guide/share": 1.0, "guide/share_h": 5.0, "guide/factor": 3.0}
    plot_terms(rows, TERMS, tmp_path / "loss.png")
    (figure,) = drawn
    assert titles(figure)[-1] == SHARES and SHARES.endswith("log scale")
    axis = figure.axes[-1]
    assert axis.get_yscale() == "log" and overlapping_texts(figure) == []
    assert all(other.get_yscale() == "linear" for other in figure.axes[:-1])
    assert [text.get_text() for text in axis.get_legend().get_texts()] == ["dsa", "guide"]
    assert [list(line.get_ydata()) for line in axis.lines[:2]] == [[100, 1000], [1, 1]]


def test_few_rows_have_dots_and_many_a_running_median_that_a_peak_does_not_lift(drawn, tmp_path: Path) -> None:
    plot_terms(rows_of(1, FEW, ["align"]), ["align"], tmp_path / "loss.png")
    assert drawn[0].axes[-1].lines[0].get_marker() == "o"
    rows = rows_of(2, SMOOTHED, ["align"])
    rows[0]["align"] = rows[0]["loss"] = 1000.0
    plot_terms(rows, ["align"], tmp_path / "loss.png")
    raw, smooth = drawn[1].axes[-1].lines[:2]
    assert max(raw.get_ydata()) == 1000 and max(smooth.get_ydata()) < 10 > drawn[1].axes[-1].get_ylim()[1]
    assert "running median" in drawn[1].get_supxlabel()


@pytest.mark.parametrize(("first", "top"), [(200.0, 8.0), (6.0, 12.0)])
def test_first_steps_far_above_the_others_do_not_flatten_them(first: float, top: float, drawn, tmp_path: Path) -> None:
    rows = rows_of(8, SMOOTHED, ["align"])
    for place, row in enumerate(rows):
        row["align"] = 5.0 - 3.0 * place / len(rows) + (first if place < len(rows) // 12 else 0.0)
    plot_terms(rows, ["align"], tmp_path / "loss.png")
    low, high = drawn[0].axes[-1].get_ylim()
    assert 1.5 < low < 2.5 and top - 4 < high < top


def test_a_short_run_records_every_step(small_run) -> None:
    settings = {**small_run["trainer"], "log_every": "auto"}
    entry = sslkit.pretrain({**small_run, "trainer": settings})
    rows = [row for row in csv.DictReader((entry.folder / "metrics.csv").open()) if row["loss"]]
    assert [row["step"] for row in rows] == ["1", "2", "3", "4", "5", "6"]


def test_the_line_of_an_epoch_is_the_mean_of_its_last_steps(tmp_path: Path) -> None:
    history = History(tmp_path, unit="images", k=20, log_every=1)
    history.terms = ["align"]
    history.rows = [{"epoch": 1 + k // 50, "step": k + 1, "align": float(k), "loss": float(k)} for k in range(100)]
    assert history._latest(2) == {"align": 89.5, "loss": 89.5}, "of twenty rows"
    history.rows = [{"epoch": 1, "step": 40, "loss": 3.0, "lr": 0.1}, {"epoch": 1, "step": 60, "loss": 1.0, "lr": 0.1}]
    assert history._latest(1) == {"loss": 1.0}, "rows of twenty steps: the last alone, as it was"


@pytest.mark.parametrize("classes", [3, 30])
def test_every_image_of_the_embedding_is_drawn(classes: int, drawn, tmp_path: Path) -> None:
    x, y = torch.randn(90, 6, generator=torch.Generator().manual_seed(0)), torch.arange(90) % classes
    plot_embedding(x, y, [f"kind {c}" for c in range(classes)], tmp_path / "e.png", seed=0, title="a title")
    axis = drawn[0].axes[0]
    assert sum(len(points.get_offsets()) for points in axis.collections) == 90
    said = [text.get_text() for text in drawn[0].legends[0].get_texts()]
    assert said == (
        ["kind 0", "kind 1", "kind 2"] if classes == 3 else ["18 other classes", *(f"kind {c}" for c in range(12))]
    )


def test_the_measure_of_overlaps_would_show_them() -> None:
    from matplotlib.figure import Figure

    figure = Figure(figsize=(2, 2))
    axis = figure.subplots()
    axis.set_xticks(range(8), [f"a long label {k}" for k in range(8)])
    assert len(overlapping_texts(figure)) >= 7
    assert all(a != b for a, b in combinations([text for pair in overlapping_texts(figure)[:1] for text in pair], 2))
