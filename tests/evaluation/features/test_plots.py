"""Pictures are written whole, say what they show, and their numbers are those of scikit-learn and of loops."""

import json
import sys
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest
import torch
from figures import cut_texts, overlapping_texts
from matplotlib.colors import to_hex
from matplotlib.markers import MarkerStyle
from PIL import Image
from sklearn.metrics import confusion_matrix

from evaluation.features import Features, as_features
from evaluation.features.plots import confusions, plot_confusion, plot_features
from evaluation.judging.pictures import draw
from evaluation.results.result import Result
from evaluation.results.statistics import share
from sslkit import open_images
from sslkit.errors import UserError
from sslkit.numerics.figures import NAMED, NoMap, class_styles, plot_embedding, purity
from sslkit.runtime.context import Runtime


@pytest.fixture(scope="module")
def fashion() -> Features:
    images = open_images("fashion_mnist", split="test")
    features = as_features((images.pixels.reshape(len(images), -1) / 255.0, images.labels))
    return replace(features, classes=images.classes, model="pixels", data="fashion_mnist")


def marker_path(marker: str):
    style = MarkerStyle(marker)
    return style.get_path().transformed(style.get_transform())


def colours_in(path: Path) -> set[int]:
    """Every colour of a picture, as 0xRRGGBB."""
    pixels = np.asarray(Image.open(path).convert("RGB")).astype(int)
    return set(np.unique(pixels @ [0x10000, 0x100, 1]).tolist())


def test_a_map_of_real_images_with_its_numbers(fashion: Features, tmp_path: Path) -> None:
    found = plot_features(fashion, tmp_path / "map.png", per_class=30)
    assert found.classes == list(fashion.classes) and found.flat.shape == (300, 2) and len(found.ids) == 300
    assert found.chance == pytest.approx(29 / 299)
    assert found.trustworthiness > 0.85 and found.purity > 3 * found.chance and 0 < found.kl < 3
    assert found.purity == purity(found.flat, found.y)
    with Image.open(found.path) as picture:
        assert picture.text["Description"] == found.caption and min(picture.size) > 500
        assert json.loads(picture.text["Comment"])["classes"] == found.classes
    assert f"KL divergence {found.kl:.2f}" in found.caption and "seed 0" in found.caption
    assert found.caption.startswith("All 10 classes, 300 images")
    assert len(colours_in(found.path)) > 8 and not list(tmp_path.glob(".*.part"))


def test_images_are_drawn_by_the_seed_and_not_by_the_order(fashion: Features, tmp_path: Path) -> None:
    def drawn(features: Features, seed: int) -> list[str]:
        return plot_features(features, tmp_path / "map.png", n_classes=3, per_class=12, seed=seed).ids.tolist()

    shuffled = fashion.take(np.random.default_rng(0).permutation(len(fashion)))
    assert drawn(fashion, 0) == drawn(shuffled, 0) != drawn(fashion, 1)


def test_the_classes_with_the_most_images_are_shown_and_the_others_named(fashion: Features, tmp_path: Path) -> None:
    rows = [np.flatnonzero(fashion.y == label)[: 20 + label] for label in range(10)]
    found = plot_features(fashion.take(np.concatenate(rows)), tmp_path / "map.png", n_classes=5)
    assert found.classes == list(fashion.classes[5:])
    assert "The 5 of 10 classes with the most images (without T-shirt/top, Trouser, Pullover and 2 more)" in (
        found.caption
    )


def test_a_class_looks_the_same_in_the_map_and_in_the_picture_of_training(
    fashion: Features, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    drawn = []
    for module in ("evaluation.features.plots", "sslkit.numerics.figures"):
        monkeypatch.setattr(f"{module}.save_figure", lambda figure, *_: drawn.append(figure))
    few = fashion.take(np.flatnonzero(fashion.y > 2)[:80])
    plot_features(few, tmp_path / "map.png")
    x, y = torch.tensor(fashion.x[:90], dtype=torch.float32), torch.tensor(fashion.y[:90])
    plot_embedding(x, y, list(fashion.classes), tmp_path / "embedding.png", seed=0, title="t", note="90 images.")
    styles = class_styles(fashion.classes)
    for figure, shown in zip(drawn, (fashion.classes[3:], fashion.classes), strict=True):
        axis = figure.axes[0]
        said = [text.get_text() for text in figure.legends[0].get_texts()]
        assert said == list(shown) and cut_texts(figure) == overlapping_texts(figure) == []
        for name, points in zip(said, axis.collections, strict=True):
            colour, marker = styles[list(fashion.classes).index(name)]
            assert to_hex(points.get_facecolor()[0]) == colour
            np.testing.assert_array_equal(points.get_paths()[0].vertices, marker_path(marker).vertices)
        assert axis.get_aspect() == 1 and "by chance" in figure.get_supxlabel().replace("\n", " ")
        drawn_box, frame = axis.dataLim, axis.viewLim
        assert drawn_box.width / frame.width > 0.85 or drawn_box.height / frame.height > 0.85


def test_purity_is_its_loop() -> None:
    rng = np.random.default_rng(0)
    x, y = rng.normal(size=(40, 3)), rng.integers(0, 3, 40)
    same = []
    for i in range(40):
        others = sorted(set(range(40)) - {i}, key=lambda j, i=i: np.square(x[i] - x[j]).sum())
        same += [y[i] == y[j] for j in others[:5]]
    assert purity(x, y, 5) == pytest.approx(np.mean(same))


def test_umap_that_is_not_installed_is_a_clear_error(
    fashion: Features, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, "umap", None)
    with pytest.raises(UserError, match="pip install umap-learn"):
        plot_features(fashion, tmp_path / "map.png", method="umap", per_class=10)
    assert not (tmp_path / "map.png").exists()


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"method": "tnse"}, "did you mean 'tsne'"),
        ({"n_classes": NAMED + 1}, "number of colours"),
        ({"per_class": 1}, "per_class=2"),
        ({"n_classes": 2, "per_class": 4}, "8 images together"),
    ],
)
def test_maps_refuse(fashion: Features, tmp_path: Path, options: dict, message: str) -> None:
    with pytest.raises(UserError, match=message):
        plot_features(fashion, tmp_path / "map.png", **options)


def test_a_picture_that_cannot_be_written_says_where(fashion: Features, tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(UserError, match=r"cannot write .*map\.png"):
        plot_features(fashion, tmp_path / "file" / "map.png", n_classes=3, per_class=12)


@pytest.mark.parametrize("k", [3, 30, 130])
def test_a_confusion_matrix_is_scikit_learns(k: int, tmp_path: Path) -> None:
    rng = np.random.default_rng(0)
    truth = np.concatenate([np.arange(k), rng.integers(0, k, 600)])
    predicted = np.where(rng.random(len(truth)) < 0.8, truth, rng.integers(0, k, len(truth)))
    found = plot_confusion(truth, predicted, [f"class {i}" for i in range(k)], tmp_path / "c.png", title="t")
    np.testing.assert_allclose(found, confusion_matrix(truth, predicted, normalize="true", labels=range(k)))
    assert len(colours_in(tmp_path / "c.png")) > 10


def test_a_class_without_images_is_grey_and_not_a_number(tmp_path: Path) -> None:
    found = plot_confusion(np.array([0, 0, 1]), np.array([0, 1, 1]), ["a", "b", "c"], tmp_path / "c.png")
    assert found[0].tolist() == [0.5, 0.5, 0] and np.isnan(found[2]).all()
    assert 0xCCCCCC in colours_in(tmp_path / "c.png")


def test_the_scale_of_the_confusions_is_said(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    kept = []
    monkeypatch.setattr("evaluation.features.plots.save_figure", lambda figure, path: kept.append(figure))
    plot_confusion(np.array([0, 0, 1]), np.array([0, 1, 1]), ["a", "b"], tmp_path / "c.png", title="t")
    bar = kept[0].axes[-1]
    assert bar.get_ylabel() == "% of the class's images; square-root scale" and overlapping_texts(kept[0]) == []
    assert cut_texts(kept[0]) == []


def test_the_most_frequent_confusions_come_first() -> None:
    shares = np.array([[0.9, 0.1, 0], [0.3, 0.7, 0], [np.nan] * 3])
    lines = confusions(shares, ["a", "b", "c"]).splitlines()
    assert lines[2].split() == ["30", "%", "of", "b"] and lines[3].split() == ["as", "a"] and len(lines) == 6
    assert confusions(np.eye(2), ["a", "b"]) == "no confusion"


@pytest.mark.parametrize(
    ("truth", "predicted", "message"),
    [([0, 1], [0], "of one length"), ([0, 2], [0, 1], "from 0 to 1"), ([0, -1], [0, 1], "from 0 to 1"), ([], [], "N")],
)
def test_confusion_refuses(truth: list, predicted: list, message: str, tmp_path: Path) -> None:
    with pytest.raises(UserError, match=message):
        plot_confusion(np.array(truth, int), np.array(predicted, int), ["a", "b"], tmp_path / "c.png")


def test_a_collapsed_model_has_no_map_and_costs_no_other_picture(fashion: Features, tmp_path: Path) -> None:
    """scikit-learn's t-SNE of equal rows ends the process with a segmentation fault."""
    rounded = 1 + 2e-7 * (np.arange(fashion.x.size) % 3).reshape(fashion.x.shape)  # equal but for rounding
    collapsed = replace(fashion, x=rounded.astype(np.float32))
    with pytest.raises(NoMap, match="images are equal: t-SNE cannot map them"):
        plot_features(collapsed, tmp_path / "map.png", per_class=30)
    subject = SimpleNamespace(train=lambda runtime: collapsed, test=lambda runtime: collapsed)
    result = Result.from_estimate(
        share(np.ones(9, bool)), protocol="knn", recipe="k=3", metric="top1", model="a", data="b"
    )
    with pytest.warns(UserWarning, match="no map of fashion_mnist"):
        written = draw([result], [subject], Runtime(out=tmp_path))
    assert [path.name for path in written] == ["evaluation.png", "confusion-fashion_mnist.png"]
