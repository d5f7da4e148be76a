"""NLEEP: scikit-learn's own steps, known mixtures, and the limits of its options."""

import math

import numpy as np
import pytest
import torch

import evaluation
import sslkit
from evaluation.ranking.inputs.samples import as_sample
from evaluation.ranking.scoring import evaluate_metric
from evaluation.transferability import nleep
from sslkit.errors import UserError


def draw(n: int = 150, d: int = 12, c: int = 3, apart: float = 3.0, seed: int = 0) -> tuple[np.ndarray, np.ndarray]:
    rng = np.random.default_rng(seed)
    y = np.concatenate([np.arange(c), rng.integers(c, size=n - c)])
    return apart * rng.normal(size=(c, d))[y] + rng.normal(size=(n, d)), y


def leep_of(p: np.ndarray, y: np.ndarray) -> np.ndarray:
    joint = np.stack([p[y == label].sum(0) for label in np.unique(y)])
    return (p @ (joint / joint.sum(0)).T)[np.arange(len(y)), y]


@pytest.mark.parametrize("covariance", ["full", "diag"])
def test_scikit_learns_mixture_on_its_pca(covariance: str) -> None:
    from sklearn.decomposition import PCA
    from sklearn.mixture import GaussianMixture

    x, y = draw()
    sample = as_sample(x, y)
    z = PCA(n_components=0.8, svd_solver="full").fit_transform(x)
    ours = sample.principal_coordinates(nleep.energy_dims(sample.scatter, 0.8)).numpy()
    assert z.shape == ours.shape
    np.testing.assert_allclose(np.abs(z), np.abs(ours), atol=1e-10)
    result = evaluate_metric("nleep", x, y, covariance=covariance, components_per_class=2)
    fits = [GaussianMixture(6, covariance_type=covariance, random_state=seed).fit(z) for seed in range(12)]
    scores = [np.log(leep_of(fit.predict_proba(z), y)).mean() for fit in fits]
    assert min(scores) - 0.02 <= result.score <= max(scores) + 0.02
    assert result.diagnostics["dims"] == z.shape[1] and result.diagnostics["components"] == 6


def test_one_component_a_class_far_apart_finds_the_classes() -> None:
    x, y = draw(apart=30)
    assert evaluation.score("nleep", x, y, components_per_class=1) == pytest.approx(0, abs=1e-9)
    wrong = np.random.default_rng(1).permutation(y)
    assert evaluation.score("nleep", x, wrong, components_per_class=1) < -0.9


def test_one_component_in_all_is_the_entropy_of_the_labels() -> None:
    x, y = draw(n=3)
    shares = np.bincount(y) / 3
    few = evaluate_metric("nleep", x, y)
    assert few.diagnostics["components"] == 1 and "few for 5 components a class" in few.warnings[0]
    assert few.score == pytest.approx((shares * np.log(shares)).sum())


def test_with_and_without_the_logarithm() -> None:
    x, y = draw(apart=1.0)
    plain, logged = (evaluate_metric("nleep", x, y, log=log) for log in (False, True))
    assert 0 < plain.score < 1 and logged.score < math.log(plain.score)  # Jensen
    np.testing.assert_allclose(logged.details.terms.exp(), plain.details.terms, atol=1e-15)
    assert float(logged.details.terms.mean()) == logged.score


def test_energy_and_max_dims() -> None:
    x, y = draw()
    values = np.linalg.svd(x - x.mean(0), compute_uv=False) ** 2
    for energy in (0.3, 0.8, 0.99):
        expected = np.searchsorted(values.cumsum() / values.sum(), energy, side="right") + 1
        assert evaluate_metric("nleep", x, y, energy=energy).diagnostics["dims"] == expected
    assert evaluate_metric("nleep", x, y, energy=1.0).diagnostics["dims"] == 12
    assert evaluate_metric("nleep", x, y, energy=1.0, max_dims=3).diagnostics["dims"] == 3


def test_the_seed_and_nothing_else_draws() -> None:
    x, y = draw(apart=0.7)
    np.random.seed(0)
    first = evaluation.score("nleep", x, y, seed=4)
    np.random.seed(1)
    assert evaluation.score("nleep", x, y, seed=4) == first != evaluation.score("nleep", x, y, seed=5)


def test_scale_offset_and_names_do_not_matter() -> None:
    x, y = draw(apart=2.0)
    before = x.copy()
    score = evaluation.score("nleep", x, y, components_per_class=1)
    names = np.array(["owl", "ape", "cat"])[y].tolist()
    for features in (2.0**-20 * x, 2.0**20 * x, np.hstack([x, np.zeros((150, 200))]), x + 1e3):
        assert evaluation.score("nleep", features, names, components_per_class=1) == pytest.approx(score, abs=1e-6)
    rounded = (x + 1e3).astype(np.float32)
    assert evaluation.score("nleep", rounded, y, components_per_class=1) == pytest.approx(score, abs=1e-3)
    assert (x == before).all()


def test_more_dimensions_than_images_and_few_images_a_class() -> None:
    x, y = draw(n=40, d=300, c=8)
    result = evaluate_metric("nleep", x, y)
    assert result.diagnostics["components"] == 20 and np.isfinite(result.score) and result.score <= 0
    one = evaluate_metric("nleep", *draw(n=26, d=10, c=25))
    assert one.diagnostics["components"] == 13 and np.isfinite(one.score)


def test_rows_that_are_equal() -> None:
    x, y = draw(n=60)
    flat = evaluate_metric("nleep", np.ones_like(x), y)
    shares = np.bincount(y) / 60
    assert flat.score == pytest.approx((shares * np.log(shares)).sum()) and "are equal" in flat.warnings[0]
    x[:] = x[:2].repeat(30, axis=0)  # two different rows, fifteen components
    assert np.isfinite(evaluation.score("nleep", x, y))


def test_the_floor_rises_until_the_covariances_hold(monkeypatch: pytest.MonkeyPatch) -> None:
    x, _ = draw()
    fit, floors = nleep.FullMixture.fit, []

    def ill(x: torch.Tensor, components: int, floor: float, seed: int) -> object:
        floors.append(floor)
        if len(floors) < 3:
            raise UserError("ill-defined covariance")
        return fit(x, components, floor, seed)

    def never(*_: object) -> None:
        raise UserError("ill-defined covariance")

    monkeypatch.setattr(nleep.FullMixture, "fit", ill)
    rows = torch.from_numpy(x)
    floor = nleep.fit_mixture(rows, 3, "full", 0).floor
    np.testing.assert_allclose(np.array(floors) / x.var(0).mean(), [1e-6, 1e-5, 1e-4])
    assert floor == floors[-1]
    monkeypatch.setattr(nleep.FullMixture, "fit", never)
    with pytest.raises(UserError, match="no mixture of 3 Gaussians fits 150 x 12 features: ill-defined"):
        nleep.fit_mixture(rows, 3, "full", 0)


def test_real_digits_in_both_forms() -> None:
    images = sslkit.open_images("digits", split="train")
    x, y = images.pixels[:300].reshape(300, -1).astype(np.float32), np.asarray(images.labels[:300])
    wrong = np.random.default_rng(0).permutation(y)
    for covariance in ("full", "diag"):
        options = {"covariance": covariance, "components_per_class": 2}
        right = evaluation.score("nleep", x, y, **options)
        assert -1.5 < right < 0 and right > evaluation.score("nleep", x, wrong, **options) + 0.5


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"covariance": "tied"}, "covariance must be full or diag, got 'tied'"),
        ({"components_per_class": 0}, "components_per_class must be a whole number, at least 1, got 0"),
        ({"components_per_class": 5.0}, "components_per_class must be a whole number"),
        ({"energy": 0.0}, "energy must be a number, above 0 and at most 1, got 0"),
        ({"energy": 80.0}, "energy must be a number, above 0 and at most 1, got 80"),
        ({"max_dims": 0}, "max_dims must be a whole number, at least 1, or null, got 0"),
    ],
)
def test_bad_options(options: dict, message: str) -> None:
    with pytest.raises(UserError, match=message):
        evaluation.score("nleep", *draw(), **options)


def test_axes_that_hold_just_the_energy_are_not_more_than_it() -> None:
    """Five axes of equal variance: four hold 80 % but for rounding, and more than 80 % takes the fifth."""
    for seed in range(8):
        turn = np.linalg.qr(np.random.default_rng(seed).normal(size=(5, 5)))[0]
        scatter = as_sample(np.vstack([np.eye(5), -np.eye(5)]) @ turn, np.arange(10) % 2).scatter
        assert nleep.energy_dims(scatter, 0.8) == 5 and nleep.energy_dims(scatter, 0.79) == 4
