"""NCTI against its three parts, written out with matrices."""

import math

import numpy as np
import pytest
from scipy.linalg import eigh
from sklearn.discriminant_analysis import LinearDiscriminantAnalysis

import evaluation
from evaluation.transferability import ncti
from sslkit import open_images
from sslkit.errors import UserError


def task(scale: float, n: int = 160, d: int = 9, c: int = 4) -> tuple[np.ndarray, np.ndarray]:
    rng = np.random.default_rng(0)
    y = rng.permutation(np.arange(n) % c)
    return scale * (rng.normal(size=(c, d))[y] + rng.normal(size=(n, d)) * np.linspace(0.5, 1.5, d)), y


def shrunk_parts(x: np.ndarray, y: np.ndarray, dims: int) -> dict[str, float]:
    """PCA, shrunk covariances and the discriminant from their definitions."""
    centred = x - x.mean(0)
    z = centred @ np.linalg.svd(centred, full_matrices=False)[2][:dims].T
    share = np.exp(-z.var(0, ddof=1)[:32].sum())

    def shrink(rows: np.ndarray) -> np.ndarray:
        own = np.cov(rows.T, bias=True)
        return (1 - share) * own + share * np.trace(own) / dims * np.eye(dims)

    classes = np.unique(y)
    priors = [np.mean(y == c) for c in classes]
    within = sum(p * shrink(z[y == c]) for p, c in zip(priors, classes, strict=True))
    means = np.stack([z[y == c].mean(0) for c in classes])
    axes = eigh(shrink(z) - within, within)[1][:, ::-1]
    low = (z @ axes)[:, : len(classes) - 1]
    inverse = np.linalg.inv(within)
    logits = z @ inverse @ means.T - np.diag(means @ inverse @ means.T) / 2 + np.log(priors)
    posterior = np.exp(logits - logits.max(1, keepdims=True))
    posterior /= posterior.sum(1, keepdims=True)
    return {
        "seli": np.linalg.norm(low - low.mean(0), "nuc"),
        "ncc": posterior[np.arange(len(y)), y].mean(),
        "vc": np.log(sum(np.linalg.norm(posterior[y == c], "nuc") for c in classes)),
    }


@pytest.mark.parametrize("scale", [0.2, 0.5])
def test_the_parts_are_those_of_the_shrunk_discriminant(scale: float) -> None:
    x, y = task(scale)
    found = evaluation.evaluate_metric("ncti", x, y)
    assert math.isnan(found.score) and 1e-10 < found.details.diagnostics["shrinkage"] < 1
    assert found.parts == pytest.approx(shrunk_parts(x, y, 9), rel=1e-8)


def test_features_of_large_variance_are_not_shrunk_and_their_scale_does_not_matter() -> None:
    x, y = task(50.0)
    found, larger = (evaluation.evaluate_metric("ncti", s * x, y) for s in (1, 3))
    assert found.details.diagnostics["shrinkage"] == 0
    assert found.parts == pytest.approx(larger.parts, rel=1e-9)


def test_only_64_components_of_real_images_are_used() -> None:
    digits = open_images("digits")
    x, y = digits.pixels[:300, 0].reshape(300, -1).astype(np.float64) / 16, digits.labels[:300]
    wide = np.concatenate([x, 1e-3 * np.random.default_rng(0).normal(size=(300, 40))], axis=1)
    for features in (x, wide):
        found = evaluation.evaluate_metric("ncti", features, y)
        # the pixels at the edge are 0: a full-rank oracle needs the others only
        dims = min(64, int((features.std(0) > 0).sum()))
        assert found.parts == pytest.approx(shrunk_parts(features, y, dims), rel=1e-3)


def test_a_zoo_adds_separation_and_right_posteriors_and_takes_off_the_spread_within_classes() -> None:
    values = [(5.0, 0.2, 1.0), (9.0, 0.6, 3.0), (7.0, 0.4, 2.0)]
    parts = [dict(zip(("seli", "ncc", "vc"), one, strict=True)) for one in values]
    assert ncti.over_zoo(parts) == pytest.approx([0 + 0 - 0, 1 + 1 - 1, 0.5])
    assert ncti.over_zoo([{**part, "vc": 1.0} for part in parts]) == pytest.approx([0, 2, 1])


def test_a_singular_covariance_is_said(monkeypatch: pytest.MonkeyPatch) -> None:
    def singular(*_: object, **__: object) -> None:
        raise np.linalg.LinAlgError

    monkeypatch.setattr(LinearDiscriminantAnalysis, "_solve_eigen", singular)
    found = evaluation.evaluate_metric("ncti", *task(0.2))
    assert any("covariance within classes is singular" in text for text in found.warnings)
    assert all(map(math.isfinite, found.parts.values())) and found.details.diagnostics["shrinkage"] == 0


def test_classes_without_variance_are_refused() -> None:
    x, y = np.repeat(np.random.default_rng(0).normal(size=(6, 9)), 5, axis=0), np.repeat(np.arange(6), 5)
    with pytest.raises(UserError, match="all features of a class are equal"):
        evaluation.evaluate_metric("ncti", x, y)
