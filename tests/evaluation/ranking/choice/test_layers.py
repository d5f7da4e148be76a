"""The best layer of each model, and the correction for having chosen it."""

import json
from pathlib import Path

import numpy as np
import pytest

import sslkit
from evaluation.datasets import Reading, open_split
from evaluation.ranking.choice import layers as module
from evaluation.ranking.choice.layers import OWN, best_layers, check_metric, of_samples, table, write
from evaluation.ranking.inputs.candidates import draw_images
from evaluation.ranking.inputs.samples import as_sample
from evaluation.ranking.scoring import parse
from evaluation.transferability.base import Score
from sslkit.errors import UserError
from sslkit.runtime.context import Runtime

KNN = parse("knn")


def test_of_many_layers_of_noise_the_best_looks_good_and_its_corrected_score_does_not() -> None:
    rng = np.random.default_rng(0)
    y = np.arange(120) % 4
    samples = [as_sample(rng.normal(size=(120, 8)), y) for _ in range(30)]
    found = of_samples("noise", [f"layer{k}" for k in range(29)] + [OWN], samples, KNN, seed=0)
    assert found.scores.max() > 0.33  # chance is 0.25
    assert found.corrected == pytest.approx(np.nanmean(found.scores), abs=0.04)


def test_layers_of_many_images_are_compared_on_halves(monkeypatch: pytest.MonkeyPatch) -> None:
    sizes = set()
    monkeypatch.setattr(module, "of_part", lambda _, sample: sizes.add(len(sample)) or Score(0.0))
    sample = as_sample(np.random.default_rng(0).normal(size=(2000, 2)), np.arange(2000) % 4)
    of_samples("many", ["layer", OWN], [sample, sample], KNN, splits=1, seed=0)
    assert sizes == {1000, 2000}


def test_a_layer_that_is_really_better_is_chosen_and_keeps_its_score() -> None:
    rng = np.random.default_rng(0)
    y = np.arange(120) % 4
    good = np.eye(4)[y] + 0.3 * rng.normal(size=(120, 4))
    samples = [as_sample(x, y) for x in (rng.normal(size=(120, 4)), good, rng.normal(size=(120, 4)))]
    found = of_samples("model", ("layer1", "layer2", OWN), samples, KNN, seed=0)
    assert found.chosen == "layer2" and found.better == 1
    assert found.corrected > 0.9 and found.own < 0.4


def test_equal_layers_are_the_networks_own_features() -> None:
    x, y = np.random.default_rng(0).normal(size=(40, 4)), np.arange(40) % 2
    found = of_samples("model", ("layer1", OWN), [as_sample(x, y)] * 2, KNN, seed=0)
    assert found.chosen == OWN and found.better == 0 and found.corrected == found.own


def test_layers_of_real_networks_are_scored_told_and_written(tmp_path: Path) -> None:
    models = {name: sslkit.load(f"random:{name}", image_size=8, in_chans=1) for name in ("narrow_resnet", "narrow_vit")}
    task = draw_images(open_split("digits", "train"), 60, 0)
    found = best_layers(models, task, "knn", Reading(cache=None), Runtime(cache=None, progress=False), splits=2)
    names = {one.model: one.names for one in found}
    assert names["narrow_resnet"] == ("layer1", "layer2", "layer3", "layer4", "layer5", OWN)
    assert names["narrow_vit"] == ("layer1", "layer2", "layer3", "layer4", "class", "mean", "class+mean", OWN)
    assert found[0].corrected >= found[1].corrected
    assert all(name in table(found, "knn") for name in models)
    written = json.loads(write(found, "knn", tmp_path / "a.json").read_text())
    assert written["metric"] == "knn" and list(written["models"]["narrow_vit"]["layers"]) == list(names["narrow_vit"])


@pytest.mark.parametrize("metric", ["leep", "param_count", "etran", "kite", "random"])
def test_a_metric_without_a_score_of_one_models_features_is_an_error(metric: str) -> None:
    with pytest.raises(UserError, match="give knn or logme"):
        check_metric(metric)


def test_several_labels_an_image_are_an_error_before_any_extraction(tmp_path: Path) -> None:
    x = np.zeros((6, 8, 8), np.uint8)
    np.savez(tmp_path / "scenes.npz", x_train=x, y_train=1 - np.eye(3, dtype=int)[[0, 1, 2] * 2])
    task = open_split(tmp_path / "scenes.npz", "train")
    with pytest.raises(UserError, match="several labels an image"):
        best_layers({"a": "random:narrow_resnet"}, task, "knn", Reading(), Runtime(say=lambda line: pytest.fail(line)))
