"""KITE against its definition with N x N kernels, and in a ranking with the untrained networks."""

from pathlib import Path

import numpy as np
import pytest
import torch
from torch import nn

import evaluation
import sslkit
from evaluation.features.untrained import with_random_weights
from sslkit.data.sources.named import open_images
from sslkit.errors import UserError


def by_kernels(x: np.ndarray, y: np.ndarray, z: np.ndarray) -> float:
    """The two alignments as the paper writes them, kernel by kernel."""
    n = len(x)
    h = np.eye(n) - 1 / n

    def cka(k: np.ndarray, other: np.ndarray) -> float:
        k, other = h @ k @ h, h @ other @ h
        return np.trace(k @ other) / np.sqrt(np.trace(k @ k) * np.trace(other @ other))

    labels = y.astype(float) if y.ndim == 2 else np.eye(y.max() + 1)[y]
    return cka(x @ x.T, labels @ labels.T) / cka(x @ x.T, z @ z.T)


@pytest.fixture(scope="module")
def task() -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    images = open_images("digits")
    x = images.pixels[:120, 0].reshape(120, -1).astype(np.float64) / 16
    return x, images.labels[:120], np.tanh(x @ np.random.default_rng(0).normal(size=(64, 30)))


@pytest.mark.parametrize("columns", [64, 10])
def test_it_is_the_ratio_of_the_two_alignments(columns: int, task: tuple) -> None:
    x, y, z = task
    x = 3 + x[:, :columns]  # an offset, which the centring takes off
    found = evaluation.evaluate_metric("kite", x, y, untrained=z)
    assert found.score == pytest.approx(by_kernels(x, y, z), rel=1e-10)
    assert found.score == pytest.approx(
        found.diagnostics["label_alignment"] / found.diagnostics["random_alignment"], rel=1e-12
    )


def test_blocks_of_rows_and_more_columns_than_rows(task: tuple, monkeypatch: pytest.MonkeyPatch) -> None:
    x, y, z = task
    wide = np.concatenate([x] * 4, 1) + np.random.default_rng(1).normal(size=(120, 256))
    monkeypatch.setattr("evaluation.transferability.base.BLOCK", 2000)
    assert evaluation.score("kite", wide, y, untrained=z) == pytest.approx(by_kernels(wide, y, z), rel=1e-10)


def test_several_labels_an_image_are_columns_of_the_label_kernel(task: tuple) -> None:
    x, y, z = task
    several = np.stack([y > 4, y % 2 == 0, y == 3], 1).astype(float)
    assert evaluation.score("kite", x, several, untrained=z) == pytest.approx(by_kernels(x, several, z), rel=1e-10)


def test_labels_in_the_features_raise_it_and_the_untrained_network_is_its_floor(task: tuple) -> None:
    x, y, z = task
    taught = np.concatenate([x, 3 * np.eye(10)[y]], 1)
    assert evaluation.score("kite", taught, y, untrained=z) > evaluation.score("kite", x, y, untrained=z)
    same = evaluation.evaluate_metric("kite", z, y, untrained=z)
    assert same.diagnostics["random_alignment"] == pytest.approx(1)


def test_it_says_what_is_missing_and_what_has_no_ratio(task: tuple) -> None:
    x, y, z = task
    with pytest.raises(UserError, match="kite needs untrained: give untrained"):
        evaluation.score("kite", x, y)
    with pytest.raises(UserError, match="119 rows of untrained and 120 labels"):
        evaluation.score("kite", x, y, untrained=z[1:])
    with pytest.raises(UserError, match="equal for all images"):
        evaluation.score("kite", x, y, untrained=np.ones((120, 3)))


def test_a_ranking_extracts_the_untrained_networks_and_notes_those_that_it_cannot_build(tmp_path: Path) -> None:
    own = nn.Sequential(nn.Flatten(), nn.Linear(3 * 16 * 16, 8))
    zoo = {"net": "random:resnet10t:3", "module": own}
    how = {"image_size": 16, "max_images": 60, "cache": tmp_path, "bootstrap": 4}
    ranking = evaluation.rank(zoo, "digits", ["kite", "logme"], **how)
    assert np.isfinite(ranking.scores[0]).all() and np.isnan(ranking.scores[1, 0])
    assert any("random weights: no KITE (module)" in note for note in ranking.notes)


def test_an_untrained_network_has_other_weights_and_the_same_images() -> None:
    model = sslkit.load("random:resnet10t:3", image_size=32)
    one, again = with_random_weights(model, seed=0), with_random_weights(model, seed=0)
    assert one.digest == again.digest != model.digest
    assert (one.image_size, one.mean, one.resizing, one.width) == (32, model.mean, model.resizing, model.width)
    assert torch.equal(*(next(found.net.parameters()) for found in (one, again)))
