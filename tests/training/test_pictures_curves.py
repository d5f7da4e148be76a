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
from sslkit.numerics import figures as embedding
from sslkit.numerics.figures import plot_embedding
from sslkit.training import pictures
from sslkit.training.monitor import History
from sslkit.training.pictures import FEW, MARKS, SMOOTHED, plot_terms

TERMS = ["align", "constrain", "dsa/arrange", "dsa/consistency"]


@pytest.fixture
def drawn(monkeypatch: pytest.MonkeyPatch) -> list[Any]:
    """The figures that were saved."""
    figures = []
    for module in (pictures, embedding):
        monkeypatch.setattr(module, "save_figure", lambda figure, path: figures.append(figure))
    return figures


def rows_of(epochs: int, each: int, terms: list[str], *, judged: bool = True) -> list[dict[str, float]]:
    rows, rng = [], np.random.default_rng(0)
    for epoch in range(1, epochs + 1):
        for place in range(each):
            values = {name: 10.0**k * (2 + rng.normal()) for k, name in enumerate(terms)}
            row = {"epoch": epoch, "step": (epoch - 1) * each + place + 1, **values}
            rows.append({**row, "loss": sum(values.values())})
        end = {"epoch": epoch, "step": epoch * each, "rankme": 5.0}
        rows.append({**end, "knn": 0.5 + 0.001 * epoch, "probe": 0.6} if judged else end)
    return rows


def titles(figure: Any) -> list[str]:
    return [axis.get_title(loc="left") for axis in figure.axes]


@pytest.mark.parametrize(("epochs", "each"), [(2, 3), (6, 40), (100, 1), (1000, 1)])
def test_texts_do_not_overlap_and_epochs_are_marked(epochs: int, each: int, drawn, tmp_path: Path) -> None:
    plot_terms(rows_of(epochs, each, TERMS), TERMS, tmp_path / "a run with a name" / "loss.png", 20)
    (figure,) = drawn
    assert titles(figure) == ["loss", *TERMS, "accuracy on held-out images"]
    assert figure.get_suptitle() == "a run with a name" and overlapping_texts(figure) == []
    marks = [line for line in figure.axes[0].lines if len(line.get_xdata()) == 2 and len(set(line.get_xdata())) == 1]
    assert min(epochs, 5) - 3 <= len(marks) <= MARKS
    said = "lines mark epochs" if epochs <= MARKS else "lines mark every"
    assert said in figure.axes[-1].get_xlabel()


def test_accuracies_are_in_per_cent_and_named(drawn, tmp_path: Path) -> None:
    plot_terms(rows_of(3, 5, ["align"]), ["align"], tmp_path / "loss.png", 20)
    axis = drawn[0].axes[-1]
    assert [text.get_text() for text in axis.get_legend().get_texts()] == ["20-NN", "online probe"]
    drawn[0].draw_without_rendering()
    assert all(label.get_text().endswith(" %") for label in axis.get_yticklabels())
    assert list(axis.lines[1].get_ydata()) == [60, 60, 60]


def test_one_term_is_one_panel_and_no_list_is_changed(drawn, tmp_path: Path) -> None:
    terms = ["align"]
    plot_terms(rows_of(2, 2, terms, judged=False), terms, tmp_path / "loss.png")
    assert titles(drawn[0]) == ["align"] == terms
    plot_terms(rows_of(2, 2, terms), terms, tmp_path / "loss.png")
    assert titles(drawn[1]) == ["align", "accuracy on held-out images"] and terms == ["align"]
    plot_terms(rows_of(2, 2, terms), terms, tmp_path / "loss.png", 10, False)
    assert titles(drawn[2]) == ["align", "accuracy on images that were trained on too"]
    assert overlapping_texts(drawn[2]) == []


def test_the_shares_of_regularisers_are_one_panel_of_lines_on_a_logarithmic_axis(drawn, tmp_path: Path) -> None:
    rows = rows_of(2, 4, TERMS)
    for place, row in enumerate(rows[:4:2]):
        row |= {"dsa/share": 10.0 ** (2 + place), "guide/share": 1.0, "guide/share_h": 5.0, "guide/factor": 3.0}
    plot_terms(rows, TERMS, tmp_path / "loss.png")
    (figure,) = drawn
    assert titles(figure)[-2:] == ["share: gradient norm / the objective's", "accuracy on held-out images"]
    axis = figure.axes[-2]
    assert axis.get_yscale() == "log" and overlapping_texts(figure) == []
    assert [text.get_text() for text in axis.get_legend().get_texts()] == ["dsa", "guide"]
    assert [list(line.get_ydata()) for line in axis.lines[:2]] == [[100, 1000], [1, 1]]


def test_few_rows_have_dots_and_many_a_running_median_that_a_peak_does_not_lift(drawn, tmp_path: Path) -> None:
    plot_terms(rows_of(1, FEW, ["align"]), ["align"], tmp_path / "loss.png")
    assert drawn[0].axes[0].lines[0].get_marker() == "o"
    rows = rows_of(2, SMOOTHED, ["align"])
    rows[0]["align"] = rows[0]["loss"] = 1000.0
    plot_terms(rows, ["align"], tmp_path / "loss.png")
    raw, smooth = drawn[1].axes[0].lines[:2]
    assert max(raw.get_ydata()) == 1000 and max(smooth.get_ydata()) < 10 > drawn[1].axes[0].get_ylim()[1]
    assert "running median" in drawn[1].get_supxlabel()


def test_a_short_run_records_every_step(small_run) -> None:
    settings = {**small_run["trainer"], "log_every": "auto"}
    entry = sslkit.pretrain({**small_run, "trainer": settings})
    rows = [row for row in csv.DictReader((entry.folder / "metrics.csv").open()) if row["loss"]]
    assert [row["step"] for row in rows] == ["1", "2", "3", "4", "5", "6"]


def test_the_line_of_an_epoch_is_the_mean_of_its_last_steps(tmp_path: Path) -> None:
    history = History(tmp_path, None, log_every=1)
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
    said = [text.get_text() for text in axis.get_legend().get_texts()]
    assert said == (
        ["kind 0", "kind 1", "kind 2"] if classes == 3 else ["10 other classes", *(f"kind {c}" for c in range(20))]
    )


def test_the_measure_of_overlaps_would_show_them() -> None:
    from matplotlib.figure import Figure

    figure = Figure(figsize=(2, 2))
    axis = figure.subplots()
    axis.set_xticks(range(8), [f"a long label {k}" for k in range(8)])
    assert len(overlapping_texts(figure)) >= 7
    assert all(a != b for a, b in combinations([text for pair in overlapping_texts(figure)[:1] for text in pair], 2))
