"""GBC against the Bhattacharyya distance of Gaussians with full covariance matrices, pair by pair."""

import numpy as np
import pytest
import torch
from sklearn.decomposition import PCA

import evaluation
from evaluation.transferability import base, gbc
from sslkit import open_images
from sslkit.errors import UserError


def task(n: int = 150, d: int = 8, c: int = 5, seed: int = 0) -> tuple[np.ndarray, np.ndarray]:
    rng = np.random.default_rng(seed)
    y = rng.permutation(np.arange(n) % c)
    return rng.normal(size=(c, d))[y] + rng.normal(size=(n, d)) * (0.3 + rng.random((c, d))[y]), y


def closed_form(m: np.ndarray, n: np.ndarray, v: np.ndarray, w: np.ndarray) -> float:
    """Of N(m, diag v) and N(n, diag w), with matrices and determinants."""
    a, b = np.diag(v), np.diag(w)
    s = (a + b) / 2
    far = (m - n) @ np.linalg.inv(s) @ (m - n) / 8
    return far + np.log(np.linalg.det(s) / np.sqrt(np.linalg.det(a) * np.linalg.det(b))) / 2


def loop(x: np.ndarray, y: np.ndarray, spherical: bool, floor: float = 1e-4, once: bool = False) -> float:
    classes, d = np.unique(y), x.shape[1]
    means = {c: x[y == c].mean(0) for c in classes}
    variances = {c: np.maximum(x[y == c].var(0), floor) for c in classes}
    if spherical:
        variances = {c: np.full(d, v.mean()) for c, v in variances.items()}
    total = 0.0
    for i in classes:
        for j in classes:
            if i != j:
                distance = closed_form(means[i], means[j], variances[i], variances[j])
                if once:
                    s, a, b = (variances[i][0] + variances[j][0]) / 2, variances[i][0], variances[j][0]
                    distance -= (d - 1) * np.log(s / np.sqrt(a * b)) / 2
                total -= np.exp(-distance)
    return total


@pytest.mark.parametrize("covariance", ["spherical", "diagonal"])
@pytest.mark.parametrize("pca", [None, 3, 64])
def test_it_is_the_closed_form_over_all_pairs(covariance: str, pca: int | None) -> None:
    x, y = task()
    z = x if pca is None else PCA(min(pca, 8), svd_solver="full").fit_transform(x)
    value = evaluation.score("gbc", x, y, covariance=covariance, pca=pca)
    assert np.isclose(value, loop(z, y, covariance == "spherical"), rtol=1e-9)
    published = evaluation.score("gbc", x, y, covariance=covariance, pca=pca, floor_unit="absolute")
    assert value == published  # where no variance is near the floor


def test_the_official_logdet_counts_the_logarithm_once() -> None:
    x, y = task()
    official = evaluation.score("gbc", x, y, logdet="official", pca=None)
    assert np.isclose(official, loop(x, y, True, once=True), rtol=1e-9)
    assert not np.isclose(official, evaluation.score("gbc", x, y, pca=None), rtol=1e-4)


@pytest.mark.parametrize("covariance", ["spherical", "diagonal"])
def test_more_columns_than_images(covariance: str) -> None:
    x, y = task(n=30, d=70, c=3)
    z = PCA(30, svd_solver="full").fit_transform(x)
    value = evaluation.score("gbc", x, y, covariance=covariance)
    assert np.isclose(value, loop(z, y, covariance == "spherical"), rtol=1e-7)
    small = evaluation.score("gbc", x / 100, y, covariance=covariance, floor=1.0)
    assert np.isclose(small, loop(z, y, covariance == "spherical", floor=1.0), rtol=1e-7)
    z = PCA(4, svd_solver="full").fit_transform(x)
    value = evaluation.score("gbc", x, y, covariance=covariance, pca=4)
    assert np.isclose(value, loop(z, y, covariance == "spherical"), rtol=1e-8)


def test_blocks_of_classes_do_not_matter(monkeypatch) -> None:
    x, y = task(c=7)
    whole = evaluation.score("gbc", x, y, covariance="diagonal")
    monkeypatch.setattr(gbc, "BLOCK", 2 * 7 * 8)
    monkeypatch.setattr(base, "BLOCK", 100)
    assert np.isclose(evaluation.score("gbc", x, y, covariance="diagonal"), whole, rtol=1e-12)


@pytest.mark.parametrize("covariance", ["spherical", "diagonal"])
def test_what_does_not_change_it(covariance: str) -> None:
    x, y = task()
    value = evaluation.score("gbc", x, y, covariance=covariance)
    order = np.random.default_rng(1).permutation(len(y))
    assert np.isclose(evaluation.score("gbc", x[order], y[order], covariance=covariance), value, rtol=1e-10)
    assert np.isclose(evaluation.score("gbc", x, [f"class {k}" for k in 9 - y], covariance=covariance), value)
    turn = np.linalg.qr(np.random.default_rng(2).normal(size=(8, 8)))[0]
    assert np.isclose(evaluation.score("gbc", x @ turn + 1e3, y, covariance=covariance), value, rtol=1e-8)
    assert np.isclose(evaluation.score("gbc", (x + 1e3).astype("f"), y, covariance=covariance), value, rtol=1e-4)


def test_scale_counts_only_under_an_absolute_floor() -> None:
    x, y = task()
    tiny = x * 1e-3
    for floor in (1e-4, 0.2):
        assert np.isclose(evaluation.score("gbc", tiny, y, floor=floor), evaluation.score("gbc", x, y, floor=floor))
    absolute = evaluation.evaluate_metric("gbc", tiny, y, floor_unit="absolute")
    assert absolute.diagnostics["floored"] == 1 and any("floor" in said for said in absolute.warnings)
    assert not np.isclose(absolute.score, evaluation.score("gbc", x, y), rtol=1e-2)


def test_the_bounds() -> None:
    rng = np.random.default_rng(0)
    same = np.tile(rng.normal(size=(20, 6)), (3, 1))  # three classes of the same images
    y = np.repeat(np.arange(3), 20)
    assert np.isclose(evaluation.score("gbc", same, y), -3 * 2)
    far = evaluation.evaluate_metric("gbc", same + 1e4 * np.arange(3).repeat(20)[:, None], y, pca=None)
    assert far.score == 0 and any("whatever the model" in said for said in far.warnings)
    assert np.isclose(evaluation.score("gbc", np.ones((60, 4)), y), -6)


def test_a_class_of_one_image_has_the_floor_for_a_variance() -> None:
    x, y = task()
    y[0] = 5
    z = PCA(8, svd_solver="full").fit_transform(x)
    for covariance in ("spherical", "diagonal"):
        value = evaluation.score("gbc", x, y, covariance=covariance, floor=0.1)
        assert np.isclose(value, loop(z, y, covariance == "spherical", floor=0.1), rtol=1e-8)


def test_of_digits_real_labels_overlap_least() -> None:
    images = open_images("digits")
    x, y = images.pixels[:400, 0].reshape(400, -1) / np.float32(255), np.asarray(images.labels[:400])
    before = x.copy()
    values = [evaluation.score("gbc", x, y) for _ in range(2)]
    assert values[0] == values[1] and (x == before).all()
    shuffled = evaluation.score("gbc", x, np.random.default_rng(0).permutation(y))
    assert shuffled < values[0] < 0


@pytest.mark.parametrize(
    ("options", "said"),
    [
        ({"covariance": "full"}, "spherical or diagonal"),
        ({"logdet": "half"}, "paper or official"),
        ({"pca": 0}, "pca must be a whole number, at least 1, or null, got 0"),
        ({"floor": -1.0}, "floor must be a number, at least 0, got -1"),
        ({"floor": float("nan")}, "floor must be a number, at least 0, got nan"),
        ({"floor_unit": "pixels"}, "absolute or relative"),
    ],
)
def test_options_that_do_not_exist_are_errors(options: dict, said: str) -> None:
    x, y = task()
    with pytest.raises(UserError, match=said):
        evaluation.score("gbc", x, y, **options)


def test_distances_are_symmetric_and_zero_of_itself() -> None:
    draw = torch.Generator().manual_seed(0)
    means, variances = torch.rand(2, 6, 4, dtype=torch.float64, generator=draw)
    for found in (
        gbc.bhattacharyya_diagonal(means, variances + 0.1),
        gbc.bhattacharyya_spherical(means, variances.mean(1) + 0.1, 4),
    ):
        assert torch.allclose(found, found.T) and torch.allclose(found.diag(), torch.zeros(6, dtype=torch.float64))
        assert (found >= -1e-12).all()


def test_coincident_classes_overlap_whole_however_narrow() -> None:
    """With more than 25 classes torch would take the distances from products of the means."""
    means = torch.randn(40, 64, dtype=torch.float64, generator=torch.Generator().manual_seed(0))
    means[20:] = means[:20]
    distances = gbc.bhattacharyya_spherical(means, torch.full((40,), 1e-300, dtype=torch.float64), 64)
    assert (distances[:20, 20:].diagonal() == 0).all() and gbc.gbc(distances) == -40
