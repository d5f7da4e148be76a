"""SFDA against loops over the formula, and its first stage against scikit-learn's discriminant."""

import numpy as np
import pytest
import torch
from sklearn.covariance import ShrunkCovariance
from sklearn.discriminant_analysis import LinearDiscriminantAnalysis

import evaluation
from evaluation.ranking.inputs.samples import as_sample
from evaluation.transferability import sfda
from sslkit import open_images
from sslkit.errors import UserError


def task(n: int = 120, d: int = 9, c: int = 4, seed: int = 0, spread: float = 1.0) -> tuple[np.ndarray, np.ndarray]:
    rng = np.random.default_rng(seed)
    y = rng.permutation(np.arange(n) % c)
    return spread * (rng.normal(size=(c, d))[y] + rng.normal(size=(n, d)) @ rng.normal(size=(d, d)) / 2), y


def within(x: np.ndarray, y: np.ndarray) -> np.ndarray:
    """Covariance within the classes, an outer product for each row."""
    total = np.zeros((x.shape[1], x.shape[1]))
    for row, label in zip(x, y, strict=True):
        away = row - x[y == label].mean(0)
        total += np.outer(away, away)
    return total / len(x)


def leading(s: np.ndarray) -> float:
    v = s @ np.ones(len(s))
    for _ in range(3):
        u = s @ v / np.linalg.norm(s @ v)
        v = s @ u / np.linalg.norm(s @ u)
    return v @ s @ u


def posterior(x: np.ndarray, y: np.ndarray, g: float) -> np.ndarray:
    """(N, C) by the densities of Gaussians with one covariance, row by row."""
    s = within(x, y)
    a = (1 - g) * s + g * np.trace(s) / len(s) * np.eye(len(s))
    p = np.zeros((len(x), y.max() + 1))
    for i, row in enumerate(x):
        logs = []
        for c in range(p.shape[1]):
            away = row - x[y == c].mean(0)
            logs.append(-away @ np.linalg.solve(a, away) / 2 + np.log((y == c).mean()))
        e = np.exp(np.array(logs) - max(logs))
        p[i] = e / e.sum()
    return p


def loop(x: np.ndarray, y: np.ndarray) -> np.ndarray:
    """(N,) what SFDA takes the mean of."""
    g = max(np.exp(-5 * leading(within(x, y))), 1e-10)
    p = posterior(x, y, g)
    mixed = np.zeros_like(x)
    for i, row in enumerate(x):
        q = np.exp(p[i, y[i]]) / np.exp(p[i]).sum()
        others = np.mean([x[y == c].mean(0) for c in range(p.shape[1]) if c != y[i]], axis=0)
        mixed[i] = q * row + (1 - q) * others
    return posterior(mixed, y, g)[np.arange(len(y)), y]


@pytest.mark.parametrize(("n", "d", "c"), [(120, 9, 4), (90, 6, 2), (60, 3, 12), (30, 45, 3)])
@pytest.mark.parametrize("spread", [0.2, 0.6, 1.0])
def test_it_is_the_loop_over_the_formula(n: int, d: int, c: int, spread: float) -> None:
    x, y = task(n, d, c, spread=spread)
    found = evaluation.evaluate_metric("sfda", x, y)
    expected = loop(x, y)
    assert np.isclose(found.score, expected.mean(), rtol=1e-6)
    assert np.allclose(found.details.terms, expected, rtol=1e-5, atol=1e-9)


@pytest.mark.parametrize("spread", [0.1, 0.3])
def test_the_first_stage_is_sklearns_discriminant_with_the_same_shrinkage(spread: float) -> None:
    x, y = task(spread=spread)
    stage = sfda.first_stage(as_sample(x, y))
    assert 1e-3 < stage.g < 1
    estimator = ShrunkCovariance(shrinkage=stage.g)  # of each class; their mean over the priors is A
    lda = LinearDiscriminantAnalysis(solver="lsqr", covariance_estimator=estimator).fit(x, y)
    assert np.allclose(stage.own_posterior(), lda.predict_proba(x)[np.arange(len(y)), y], rtol=1e-9)


def test_without_shrinkage_it_is_sklearns_discriminant_as_it_is() -> None:
    x, y = task(spread=3.0)
    stage = sfda.first_stage(as_sample(x, y))
    assert stage.g == 1e-10
    lda = LinearDiscriminantAnalysis(solver="lsqr").fit(x, y)
    assert np.allclose(stage.own_posterior(), lda.predict_proba(x)[np.arange(len(y)), y], rtol=1e-6)


def test_confmix_is_the_loop() -> None:
    rng = np.random.default_rng(0)
    x, means, q, y = rng.normal(size=(7, 3)), rng.normal(size=(4, 3)), rng.random(7), rng.integers(0, 4, 7)
    found = sfda.confmix(*(torch.from_numpy(part) for part in (x, q, y, means)))
    for i in range(7):
        o = sum(means[c] for c in range(4) if c != y[i]) / 3
        assert np.allclose(found[i], q[i] * x[i] + (1 - q[i]) * o)


def test_confidence_lies_between_the_bounds_of_a_second_softmax() -> None:
    sure, y = torch.eye(5, dtype=torch.float64), torch.tensor([0, 1, 2, 3, 0])
    q = sfda.confidence(sure, y)
    assert torch.allclose(q[:4], torch.tensor(np.e / (np.e + 4), dtype=torch.float64))
    assert np.isclose(float(q[4]), 1 / (np.e + 4))


def test_what_does_not_change_it() -> None:
    x, y = task(spread=0.4)
    value = evaluation.score("sfda", x, y)
    order = np.random.default_rng(1).permutation(len(y))
    names = np.array(["b", "z", "a", "k"])
    assert np.isclose(evaluation.score("sfda", x[order], y[order]), value, rtol=1e-10)
    assert np.isclose(evaluation.score("sfda", x, names[y]), value, rtol=1e-10)
    assert np.isclose(evaluation.score("sfda", x + 1e3, y), value, rtol=1e-7)
    dead = np.concatenate([x, np.zeros((len(x), 5)), np.full((len(x), 2), 0.1)], 1)
    assert np.isclose(evaluation.score("sfda", dead, y), value, rtol=1e-9)
    wide = np.concatenate([x, np.zeros((len(x), 300)), np.full((len(x), 2), 0.1)], 1)
    assert np.isclose(evaluation.score("sfda", wide, y), value, rtol=1e-9)


def test_float32_at_a_large_offset_keeps_what_its_digits_hold() -> None:
    x, y = task(spread=0.4)
    stored = (x + 1e3).astype(np.float32)
    exact = evaluation.score("sfda", stored.astype(np.float64) - 1e3, y)
    assert np.isclose(evaluation.score("sfda", stored, y), exact, rtol=1e-8)


def test_standardizing_takes_the_unit_out() -> None:
    x, y = task(d=6)
    unit = np.array([1e-3, 1, 20, 5, 0.1, 3.0])
    plain = evaluation.score("sfda", x * 0.3, y)
    assert not np.isclose(evaluation.score("sfda", x * unit, y), plain, rtol=1e-4)
    value = evaluation.score("sfda", x, y, standardize=True)
    assert np.isclose(value, loop((x - x.mean(0)) / x.std(0), y).mean(), rtol=1e-7)
    dead = np.concatenate([x * unit, np.full((len(x), 2), 7.3)], 1)
    assert np.isclose(evaluation.score("sfda", dead, y, standardize=True), value, rtol=1e-7)


def test_it_warns_where_it_no_longer_tells_models_apart() -> None:
    rng = np.random.default_rng(0)
    x, y = rng.normal(size=(40, 200)) * 10, np.arange(40) % 4
    found = evaluation.evaluate_metric("sfda", x, y)
    assert found.score > 0.9999 and any("too near 1 to rank models" in said for said in found.warnings)


def test_hard_cases_are_finite() -> None:
    rng = np.random.default_rng(0)
    x, y = rng.normal(size=(40, 6)), np.arange(40) % 3
    y[0] = 3  # a class of one image
    assert np.isclose(evaluation.score("sfda", x, y), loop(x, y).mean(), rtol=1e-6)
    twice = np.concatenate([x, x], 1) * 100  # g at its floor and A singular but for it
    assert 0 < evaluation.score("sfda", twice, y) <= 1
    points = rng.normal(size=(3, 6))[np.arange(9) % 3]  # no spread within
    assert 0.99 < evaluation.evaluate_metric("sfda", points, np.arange(9) % 3).score <= 1
    same = np.full((9, 4), 0.1)  # nothing but the priors
    assert np.isclose(evaluation.score("sfda", same, np.arange(9) % 3), 1 / 3)


def test_jitter_grows_until_the_matrix_is_definite() -> None:
    v = torch.tensor([[1.0, 2.0, 3.0]], dtype=torch.float64)
    singular = v.T @ v - 1e-12 * torch.eye(3, dtype=torch.float64)
    means = torch.randn(2, 3, dtype=torch.float64, generator=torch.Generator().manual_seed(0))
    found = sfda.discriminant(singular, means, torch.tensor([0.5, 0.5], dtype=torch.float64))
    assert 1e-13 < found.jitter < 1e-9
    assert torch.isfinite(found.weights).all()


def test_blocks_do_not_matter(monkeypatch) -> None:
    from evaluation.transferability import base

    x, y = task(spread=0.4)
    value = evaluation.score("sfda", x, y)
    monkeypatch.setattr(base, "BLOCK", 63)
    assert np.isclose(evaluation.score("sfda", x, y), value, rtol=1e-11)


def test_on_images_the_input_stays_and_the_bits_repeat() -> None:
    images = open_images("digits")
    x, y = images.pixels[:300, 0].reshape(300, -1) / np.float32(255), np.asarray(images.labels[:300])
    before = x.copy()
    values = [evaluation.score("sfda", x, y) for _ in range(2)]
    assert values[0] == values[1] and (x == before).all()
    assert 0.5 < values[0] < 1
    assert evaluation.score("sfda", x, np.random.default_rng(0).permutation(y)) < values[0]


def test_labels_that_are_no_classes_are_an_error() -> None:
    x, _ = task()
    with pytest.raises(UserError, match="one class label"):
        evaluation.score("sfda", x, np.linspace(0, 1, len(x)))


def test_the_dimensions_of_the_shrinkage_are_those_that_vary() -> None:
    """A constant column, dead or not, is in neither Sw nor D."""
    x, y = task(spread=0.05)  # narrow classes, of which much is shrunk
    n = len(x)
    padded = np.hstack([x, np.zeros((n, 40)), np.full((n, 1), 0.1), 1e3 + 1e-13 * np.resize([1.0, -1.0], (n, 1))])
    stages = [sfda.first_stage(as_sample(features, y)) for features in (x, padded)]
    assert stages[0].columns == stages[1].columns == x.shape[1] and stages[0].g > 0.1
    assert stages[1].lam == pytest.approx(stages[0].lam, rel=1e-9)
    assert "D the number of columns" in sfda.score.__doc__ and "that vary" in sfda.score.__doc__
    assert evaluation.score("sfda", padded, y) == pytest.approx(loop(x, y).mean(), rel=1e-9)


def test_large_features_have_the_eigenvalue_of_small_ones() -> None:
    s = torch.from_numpy(within(*task()))
    assert sfda.leading_eigenvalue(1e140 * s) == pytest.approx(1e140 * sfda.leading_eigenvalue(s), rel=1e-12)


def test_few_images_of_wide_features_are_warned_of() -> None:
    """github.com/TencentARC/SFDA/issues/5: 1.0 for every model on 500 images of 2,024 features."""
    rng = np.random.default_rng(0)
    y = np.arange(120) % 4
    x = 3 * rng.normal(size=(120, 500))  # of noise: nothing tells the classes apart
    found = evaluation.evaluate_metric("sfda", x, y)
    assert found.score > 0.9999 and any("too near 1 to rank models" in said for said in found.warnings)
