"""The table of all entries: a quick accuracy over images that were trained on is marked."""

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from evaluation.report.reading import Material, Member
from evaluation.report.zoo_table import chart, zoo_table
from evaluation.results.result import Result
from evaluation.results.statistics import share

SHARE = "80.0 % (75.8 to 83.6)"


@pytest.mark.parametrize(("held_out", "text"), [(True, SHARE), (False, f"^ {SHARE}"), (None, SHARE)])
def test_accuracies_over_images_of_the_training_are_marked(held_out: bool | None, text: str) -> None:
    config = {"method": "byol", "data": {"source": "photos"}, "eval": {"k": 10}}
    card = {"method": "byol", "config": config, "data": {"source": "photos", "held_out": held_out}}
    card["after"] = {"knn": 0.8, "probe": 0.8, "n": 400}
    table = zoo_table(Material(Path("zoo"), members=[Member("a", Path("zoo/a"), card), Member("b", Path("zoo/b"))]))
    knn, missing = table.rows[0][1], table.rows[1][1]
    assert knn.text == text and table.rows[0][2].text == text and knn.key == 0.8 and missing.text == "–"
    assert (knn.aside == "on images that were trained on too") == (held_out is False)
    assert ("data: training images of photos" in knn.how) == (held_out is False)
    assert ("^" in table.columns[1].how) == (held_out is False)
    assert ("held-out images" in table.columns[1].how) and table.columns[1].name == "quick 10-NN"


def test_models_beside_the_zoo_that_were_evaluated_have_marked_rows() -> None:
    about = {"protocol": "linear", "recipe": "r", "metric": "top1", "data": "photos"}
    names = {"a": 40, "wheel": 90, "other": 50}
    a, wheel, other = (
        Member(name, Path(name), results=[Result.from_estimate(share(np.arange(100) < right), model=name, **about)])
        for name, right in names.items()
    )
    other = replace(other, results=[replace(other.results[0], data="elsewhere")])
    material = Material(Path("zoo"), members=[a], outside=[wheel, other])
    assert [row[0].text for row in zoo_table(material).rows] == ["wheel †", "a"]
    assert [row[0].link for row in zoo_table(material).rows] == ["", "entry-1"]
    assert [dot.name for dot in chart(material).dots] == ["wheel †", "a"]
