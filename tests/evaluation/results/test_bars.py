"""Bars of results: all accuracies on one axis, ordered by value, with intervals, directions and random weights."""

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from figures import cut_texts, overlapping_texts
from matplotlib.colors import to_hex

from evaluation.results.bars import plot_results
from evaluation.results.names import in_words
from evaluation.results.result import Result
from evaluation.results.statistics import Estimate, share
from sslkit.errors import UserError
from sslkit.numerics.figures import FIRST, OTHERS, REFERENCE

LINEAR = {"protocol": "linear", "recipe": "lbfgs", "metric": "top1"}


@pytest.fixture
def drawn(monkeypatch: pytest.MonkeyPatch) -> list[Any]:
    figures = []
    monkeypatch.setattr("evaluation.results.bars.save_figure", lambda figure, path: figures.append(figure))
    return figures


def right(percent: int) -> Estimate:
    return share(np.arange(100) < percent)


def distance(value: float, **about: str) -> Result:
    about = {"protocol": "crowding", "recipe": "", "metric": "inter_class_distance", **about}
    return Result.from_estimate(Estimate(value, None, unit="distance"), **about)


def test_accuracies_of_one_model_share_an_axis_and_stand_by_value_within_their_data_set(drawn, tmp_path: Path) -> None:
    knn = {"protocol": "knn", "recipe": "k=20", "metric": "top1"}
    results = [
        Result.from_estimate(right(40), data="digits", **knn),
        distance(0.5, data="digits"),
        Result.from_estimate(right(80), data="digits", **LINEAR),
        Result.from_estimate(right(30), data="clipart", **LINEAR),
        distance(0.7, data="clipart"),
    ]
    plot_results(results, tmp_path / "bars.png", title="a run")
    (figure,) = drawn
    shares, distances = figure.axes
    assert figure.get_suptitle() == "a run" and [bar.get_width() for bar in shares.patches] == [80, 40, 30]
    linear = "linear probe, top-1 accuracy"
    assert shares.get_title(loc="left") == "accuracy"
    names = [label.get_text() for label in shares.get_yticklabels()]
    assert names == ["", linear, "nearest neighbours, top-1 accuracy", "", linear]
    said = [text.get_text() for text in shares.texts]
    assert said[:2] == ["digits", "80.0 % (71.1 to 86.7)"] and said[3] == "clipart"
    assert len(shares.collections) == 3 and shares.get_xlabel() == "%; higher is better"
    assert distances.get_title(loc="left") == "class geometry, distance between class means"
    assert [label.get_text() for label in distances.get_yticklabels()] == ["clipart", "digits"]
    assert distances.collections[:] == [] and "Wilson over images" in figure.get_supxlabel()
    with pytest.raises(UserError, match="no result"):
        plot_results([], tmp_path / "bars.png")


def test_models_stand_by_value_random_weights_are_gray_and_leaky_numbers_pale(drawn, tmp_path: Path) -> None:
    about = {"data": "digits", **LINEAR}
    results = [
        Result.from_estimate(right(20), model="random:narrow_resnet", **about),
        Result.from_estimate(right(60), model="simclr", leaky=True, **about),
        Result.from_estimate(right(80), model="byol", **about),
    ]
    plot_results(results, tmp_path / "bars.png")
    axis = drawn[0].axes[0]
    assert [text.get_text() for text in axis.get_yticklabels()] == ["", "byol", "simclr", "random:narrow_resnet"]
    assert [to_hex(bar.get_facecolor()) for bar in axis.patches] == [FIRST, OTHERS, REFERENCE]
    assert axis.texts[0].get_text() == "digits: linear probe, top-1 accuracy"
    assert axis.texts[2].get_text() == "60.0 % (50.2 to 69.1)  leaky"
    below = drawn[0].get_supxlabel().replace("\n", " ")
    assert "Gray: random weights, or raw pixels. Leaky: test images were chosen by, or trained on." in below


def test_recipes_tell_bars_apart(drawn, tmp_path: Path) -> None:
    few = {"protocol": "few_shot", "metric": "episode_accuracy", "data": "glyphs"}
    results = [
        Result.from_estimate(right(50 + 10 * shots), model=model, recipe=f"{shots}-shot", **few)
        for model in ("byol", "simclr")
        for shots in (1, 5)
    ]
    plot_results(results[:2], tmp_path / "one.png")
    names = [label.get_text() for label in drawn[0].axes[0].get_yticklabels()]
    assert names[1:] == ["few-shot, accuracy of episodes\n5-shot", "few-shot, accuracy of episodes\n1-shot"]
    plot_results(results, tmp_path / "two.png")
    headings = [text.get_text() for text in drawn[1].axes[0].texts if "few-shot" in text.get_text()]
    assert headings == [f"glyphs: few-shot, accuracy of episodes: {shots}-shot" for shots in (1, 5)]


@pytest.mark.parametrize("models", [1, 25])
def test_bars_start_at_0_and_their_texts_do_not_overlap(models: int, drawn, tmp_path: Path) -> None:
    results = [
        Result.from_estimate(
            share(np.arange(90) < k),
            model=f"method_{k}+dsa-a_long_name_of_data-vit_tiny-e{k}-s0",
            data=data,
            **{**LINEAR, "recipe": "all features, C from 1e-6 to 1e5"},
        )
        for data in ("clipart", "digits")
        for k in range(90 - models, 90)
    ]
    plot_results(results, tmp_path / "bars.png", title="a title")
    assert overlapping_texts(drawn[0]) == [] and cut_texts(drawn[0]) == []
    assert all(axis.get_xlim()[0] == 0 and bar.get_x() == 0 for axis in drawn[0].axes for bar in axis.patches)


def test_a_name_without_words_stays() -> None:
    assert in_words("a_new_one", "its_metric") == "a new one, its metric"
