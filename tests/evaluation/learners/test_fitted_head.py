"""The fitted source classifier: scikit-learn's regression, the best penalty, and clusters at a fixed point."""

import numpy as np
import pytest
import torch
from random_entries import CLOTHES
from sklearn.linear_model import LogisticRegression

import evaluation
from evaluation.learners import fitted_head
from evaluation.learners.fitted_head import linear_head, spherical_clusters
from sslkit.data.held_out import held_out


def test_the_linear_head_is_scikit_learns(monkeypatch: pytest.MonkeyPatch) -> None:
    x, y = CLOTHES.pixels[:400, 0, ::3, ::3].reshape(400, -1) / 255, CLOTHES.labels[:400]
    layers, strength = linear_head(x, y + 5, [str(k) for k in range(400)])
    scale = x.std(0)
    scale[scale <= 1e-6 * x.mean(0)] = 1
    theirs = LogisticRegression(C=strength, tol=1e-8, max_iter=5000).fit((x - x.mean(0)) / scale, y)
    expected, rows = theirs.predict_proba((x - x.mean(0)) / scale), torch.from_numpy(x).float()
    assert np.abs(layers(rows).softmax(1).numpy() - expected).sum(1).mean() < 0.02
    monkeypatch.setattr(fitted_head, "FIT", {"tol": 1e-6, "max_iter": 5000, "promise": 0.0})
    exact, same = linear_head(x, y, [str(k) for k in range(400)])
    np.testing.assert_allclose(exact(rows).softmax(1).numpy(), expected, atol=1e-3)
    assert same == strength


@pytest.mark.parametrize("shape", [(500, 50, 8), (1000, 100, 8), (120, 10, 100)])
def test_the_penalty_is_that_of_the_lowest_held_out_cross_entropy(
    shape: tuple, monkeypatch: pytest.MonkeyPatch
) -> None:
    """At the strongest penalties a head of many classes hardly differs from a uniform one: that is no end."""
    n, classes, width = shape
    rng = np.random.default_rng(0)
    y = np.arange(n) % classes
    x = (rng.normal(size=(classes, width))[y] + 0.3 * rng.normal(size=(n, width))).astype(np.float32)
    ids = [str(k) for k in range(n)]
    _, strength = linear_head(x, y, ids)
    out = held_out(y, ids, seed=0)

    def loss(c: float) -> float:
        scale = x.std(0)
        fitted = evaluation.fit_logistic((x[~out] - x.mean(0)) / scale, y[~out], c, tol=1e-4)
        scores = fitted.scores((x[out] - x.mean(0)) / scale)
        return float((np.logaddexp.reduce(scores, axis=1) - scores[np.arange(out.sum()), y[out]]).mean())

    losses = {c: loss(c) for c in fitted_head.HEAD_STRENGTHS}
    assert losses[strength] <= min(losses.values()) + 0.05 * np.log(classes)


def test_spherical_clusters_are_at_a_fixed_point() -> None:
    """Every row is in the cluster of the nearest mean direction, and directions alone decide."""
    x = CLOTHES.pixels[:500, 0, ::3, ::3].reshape(500, -1) / 255
    found = spherical_clusters(x, 8)
    rows = x - x.mean(0)
    rows /= np.linalg.norm(rows, axis=1, keepdims=True)
    means = np.stack([rows[found == k].sum(0) for k in range(8)])
    means /= np.linalg.norm(means, axis=1, keepdims=True)
    assert ((rows @ means.T).argmax(1) == found).mean() > 0.97 and len(np.unique(found)) == 8
    assert (spherical_clusters(3 * x + 2, 8) == found).mean() > 0.99
