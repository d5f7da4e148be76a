"""The beginning of the page: one table and one figure of all entries, for one entry, two and forty."""

import json
import re
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from PIL import Image
from report_page import Page
from report_zoo import make_entry, make_zoo

from evaluation.ranking.ranking import Ranking
from evaluation.report import write_report
from evaluation.report.charts import dots
from evaluation.report.overview import BOTTOM, COLOURS, FIRST, HEIGHT, MOST_POINTS, TOP, overview, panels
from evaluation.report.reading import Material, Member, read_all
from evaluation.report.zoo_table import MOST, zoo_table
from evaluation.results import store
from evaluation.results.result import Result
from evaluation.results.statistics import Estimate


def zoo_of(root: Path, count: int) -> Path:
    for k in range(count):
        make_entry(root / "zoo" / f"byol-digits-s{k}", 0.3 + 0.01 * k)
        Image.fromarray(np.zeros((4, 6), np.uint8)).save(root / "zoo" / f"byol-digits-s{k}" / "views.png")
    return root / "zoo"


def material_of(zoo: Path, *rankings: Path) -> Material:
    return read_all(zoo, rankings, zoo.parent / "evaluation", None)


@pytest.mark.parametrize("count", [1, 2, 40])
def test_the_page_opens_with_a_table_and_a_figure_and_folds_the_entries(count: int, tmp_path: Path) -> None:
    path, problems = write_report(zoo_of(tmp_path, count), tmp_path / "report.html", rankings=[])
    page, source = Page(path), path.read_text()
    assert problems == []
    places = ("answer", "zoo-table", "evaluation", "rankings", "all", "entries", "words")
    found = [source.index(f'id="{name}"') for name in places]
    assert found == sorted(found) and source.index('class="rows"') < found[2], "the chart stands below the table"
    assert "border-collapse: separate" in source, "cells that stay in place keep their lines"
    assert not any("open" in one for one in page.all("details")), "all beyond the answer, a table and a chart is folded"
    assert len([one for one in page.all("details") if one.get("class") == "entry"]) == count + 1
    assert len(page.all("img")) == 2 * count, "the embedding and the views of each"
    ticks = {one["id"]: "checked" in one for one in page.all("input")}
    assert sum(on for name, on in ticks.items() if name.startswith("show-")) == min(count, FIRST)
    assert ticks["of-knn"] and ticks["of-probe"] and ticks["of-embedding"] and ticks["of-views"]
    for name in ticks:
        assert f"#all:has(#{name}:not(:checked))" in source, "a tick works without scripts"


def test_curves_of_all_entries_share_their_axes(tmp_path: Path) -> None:
    members = [
        Member(
            name, tmp_path, curves=[{"epoch": e, "step": e * each, "knn": 0.1 * e + add} for e in range(1, epochs + 1)]
        )
        for name, each, epochs, add in (("short", 10, 2, 0.0), ("long", 7, 8, 0.1))
    ]
    (panel,) = panels(members)
    assert panel.quantity.key == "knn" and panel.quantity.shown
    first, second = panel.curves
    assert [len(first.dots), len(second.dots)] == [2, 8]
    assert first.dots[0][0] == second.dots[0][0] == panel.x(1), "the first epoch of both is at one place"
    assert first.dots[0][1] == panel.y(10) and second.dots[0][1] == panel.y(20)
    assert [label for _, label in panel.x.ticks] == ["0", "2", "4", "6", "8"]


def test_a_long_run_is_thinned_and_a_wide_range_is_logarithmic(tmp_path: Path) -> None:
    def rows(scale: float) -> list[dict[str, float]]:
        return [{"epoch": 1 + k // 100, "step": k + 1, "loss": scale / (k + 1)} for k in range(1000)]

    (panel,) = panels([Member("a", tmp_path, curves=rows(1.0)), Member("b", tmp_path, curves=rows(300.0))])
    assert all(curve.path.count("L") == MOST_POINTS - 1 and not curve.dots for curve in panel.curves)
    labels = [float(label) for _, label in panel.y.ticks]
    assert {0.1, 1, 10, 100} <= set(labels) and len(labels) < 14
    assert float(panel.curves[1].path.split()[1]) == pytest.approx(TOP) and panel.curves[0].path.endswith(
        f" {HEIGHT - BOTTOM}"
    )
    (flat,) = panels([Member("a", tmp_path, curves=[{"epoch": 1, "step": 1, "loss": -1.0}])])
    assert flat.quantity.shown, "without accuracies the loss is shown"


def test_the_best_entries_come_first_and_their_lines_differ(tmp_path: Path) -> None:
    material = material_of(zoo_of(tmp_path, 40))
    assert [member.name[-3:] for member in material.members[:3]] == ["-s0", "-s1", "-s2"], "s2 before s10"
    found = overview(material)
    assert [entry.name for entry in found.entries[:2]] == ["byol-digits-s39", "byol-digits-s38"]
    assert [entry.ticked for entry in found.entries].count(True) == FIRST
    assert len({entry.style for entry in found.entries}) == 40
    assert len({entry.style.split()[0] for entry in found.entries[:FIRST]}) == COLOURS
    assert found.entries[0].anchor == "entry-40" and found.entries[0].line == (
        "During training: quick 10-NN 69.0 %, quick probe 70.0 % on 450 held-out images of digits"
    )


def test_the_table_has_quick_and_evaluated_accuracies_under_names_of_their_own(tmp_path: Path) -> None:
    zoo = zoo_of(tmp_path, 2)
    about = {"recipe": "r", "metric": "top1", "model": "m"}
    for data in ("clipart", "path/to/photos"):
        for protocol in ("knn", "linear", "few_shot"):
            result = Result.from_estimate(Estimate(0.625), protocol=protocol, data=data, **about)
            store.append(zoo / "byol-digits-s0", result)
    table = zoo_table(material_of(zoo))
    names = [column.name for column in table.columns]
    assert names[:5] == ["entry", "linear, clipart", "kNN, clipart", "linear, photos", "kNN, photos"]
    assert names[5:] == ["quick 10-NN", "quick probe", "trained on", "epochs"]
    assert [cell.text for cell in table.rows[1][1:5]] == ["62.5 %"] * 4
    assert [cell.text for cell in table.rows[0][1:5]] == ["–"] * 4
    assert table.rows[0][0].link == "entry-2", "the best first, by the number that both have"
    for k in range(12):
        store.append(
            zoo / "byol-digits-s1", Result.from_estimate(Estimate(0.5), protocol="knn", data=f"set {k}", **about)
        )
    assert len(zoo_table(material_of(zoo)).columns) == len(names) - 4 + MOST


def test_rankings_of_other_zoos_are_left_out_and_named(tmp_path: Path) -> None:
    make_zoo(tmp_path)
    own = tmp_path / "ranking" / "digits.json"
    other = tmp_path / "ranking" / "of_another_zoo.json"
    replace(Ranking.from_json(own), models=("x-e9", "y-e9", "z-e9")).to_json(other)
    path, problems = write_report(tmp_path / "zoo", tmp_path / "report.html", rankings=tmp_path / "ranking")
    page = Page(path)
    assert problems == [] and "x-e9" not in page.text and "2 rankings" in page.text
    assert f"Left out, since they rank no entry of this zoo: {other}." in re.sub(r"\s+", " ", page.text)
    only, _ = write_report(tmp_path / "zoo", tmp_path / "only.html", rankings=other)
    assert f"There is no ranking of this zoo in {other}" in re.sub(r"\s+", " ", Page(only).text)


def test_models_from_elsewhere_are_marked(tmp_path: Path) -> None:
    make_zoo(tmp_path)
    path = tmp_path / "ranking" / "digits.json"
    replace(Ranking.from_json(path), models=("byol+dsa-digits", "simclr-digits", "efficientnet_lite0")).to_json(path)
    written, _ = write_report(tmp_path / "zoo", tmp_path / "report.html", rankings=path)
    text = Page(written).text
    assert "efficientnet_lite0 †" in text and "digits †" not in text
    assert "† marks models that are not in this zoo" in re.sub(r"\s+", " ", text)


def test_scores_are_dots_on_an_axis_with_labels_and_a_metric_without_any_has_no_chart(tmp_path: Path) -> None:
    make_zoo(tmp_path)
    ranking = Ranking.from_json(tmp_path / "ranking" / "digits.json")
    chart = dots(ranking, 0)
    assert len(chart.dots) == 3 and len(chart.x.ticks) >= 2
    for dot, m in zip(chart.dots, ranking.order_by(0), strict=True):
        assert dot.x == chart.x(ranking.scores[m, 0]) and dot.low <= dot.x <= dot.high
    empty = np.full_like(ranking.scores, np.nan)
    empty[:, 1] = ranking.scores[:, 1]
    path = tmp_path / "ranking" / "digits.json"
    replace(ranking, scores=empty).to_json(path)
    assert dots(Ranking.from_json(path), 0) is None
    written, _ = write_report(tmp_path / "zoo", tmp_path / "report.html", rankings=path)
    assert f"No model has a score by {ranking.metrics[0]}." in Page(written).text


def test_an_entry_of_one_epoch_is_said_in_the_singular(tmp_path: Path, monkeypatch) -> None:
    monkeypatch.chdir(tmp_path)  # results of models that are no entries lie below the working folder
    make_entry(tmp_path / "zoo" / "byol-digits", 0.5)
    card = json.loads((tmp_path / "zoo" / "byol-digits" / "card.json").read_text())
    (tmp_path / "zoo" / "byol-digits" / "card.json").write_text(json.dumps(card | {"epochs": 1}))
    path, _ = write_report(tmp_path / "zoo", tmp_path / "report.html", rankings=[])
    assert ", 1 epoch," in Page(path).text and "1 entry, 0 results, 0 rankings" in Page(path).text
