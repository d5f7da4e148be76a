"""PARC: scipy's rank correlation with exact ties, and what the score depends on."""

import importlib.util
from pathlib import Path

import numpy as np
import pytest
import torch

import evaluation
import sslkit
from evaluation.ranking.inputs.samples import as_sample
from evaluation.ranking.scoring import evaluate_metric
from evaluation.transferability.parc import parc, principal_features, rank_variance, spearman, spearman_to_classes
from sslkit.errors import UserError

PUBLISHED = Path(__file__).with_name("published_parc.py")


def published(x: np.ndarray, y: np.ndarray) -> float:
    spec = importlib.util.spec_from_file_location("published_parc", PUBLISHED)
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module.published(x, y)


def draw(n: int = 90, d: int = 40, c: int = 5, seed: int = 0) -> tuple[np.ndarray, np.ndarray]:
    rng = np.random.default_rng(seed)
    y = np.concatenate([np.arange(c), rng.integers(c, size=n - c)])
    return rng.normal(size=(c, d))[y] + 1.5 * rng.normal(size=(n, d)) * np.linspace(0.5, 2, d), y


def projected(x: np.ndarray, dims: int) -> np.ndarray:
    """Principal components by an SVD, the largest coordinate of each positive."""
    u, s, _ = np.linalg.svd(x - x.mean(0), full_matrices=False)
    u, s = u[:, :dims], s[:dims]
    return u * s * np.sign(u[np.abs(u).argmax(0), np.arange(u.shape[1])])


def oracle(x: np.ndarray, y: np.ndarray) -> float:
    """Both distance matrices in full; the labels' has its two exact values."""
    from scipy.stats import spearmanr
    from sklearn.preprocessing import StandardScaler

    upper = np.triu_indices(len(x), 1)
    unlike = 1 - np.corrcoef(StandardScaler().fit_transform(x))
    if y.ndim == 1:
        return 100 * spearmanr(unlike[upper], (y[:, None] != y)[upper]).statistic
    return 100 * spearmanr(unlike[upper], np.round(1 - np.corrcoef(y), 10)[upper]).statistic


@pytest.mark.parametrize(("n", "d", "c"), [(90, 40, 5), (60, 200, 2), (80, 12, 37), (50, 6, 7)])
def test_scipy_with_exact_ties(n: int, d: int, c: int) -> None:
    x, y = draw(n, d, c)
    assert evaluation.score("parc", x, y) == pytest.approx(oracle(projected(x, min(32, d)), y), abs=1e-8)
    assert evaluation.score("parc", x, y, n_dims=4) == pytest.approx(oracle(projected(x, 4), y), abs=1e-8)
    assert evaluation.score("parc", x, y, n_dims=None) == pytest.approx(oracle(x, y), abs=1e-8)


@pytest.mark.parametrize("c", [2, 4])
def test_the_published_computation_where_its_ties_are_exact(c: int) -> None:
    """One-hot rows of 2 and 4 classes correlate without rounding; its own PCA is given to both."""
    from sklearn.decomposition import PCA

    x, y = draw(70, 60, c)
    pca = PCA(32, svd_solver="randomized", iterated_power=1, random_state=1919).fit_transform(x)
    assert parc(torch.from_numpy(pca), torch.from_numpy(y)) == pytest.approx(published(x, y), abs=1e-8)


def test_real_digits() -> None:
    images = sslkit.open_images("digits", split="train")
    x, y = images.pixels[:400].reshape(400, -1).astype(np.float32), np.asarray(images.labels[:400])
    score = evaluation.score("parc", x, y)
    assert score == pytest.approx(oracle(projected(x.astype(np.float64), 32), y), abs=1e-7) and score > 5
    wrong = np.random.default_rng(0).permutation(y)
    assert abs(evaluation.score("parc", x, wrong)) < 2


def test_several_labels_an_image() -> None:
    x, _ = draw(60, 20)
    labels = (np.random.default_rng(5).random((60, 6)) < 0.4).astype(float)
    labels[:, 0] = x[:, 0] > 0
    labels[np.ptp(labels, axis=1) == 0, 1] = 1
    labels[np.ptp(labels, axis=1) == 0, 1] = 0
    assert evaluation.score("parc", x, labels, n_dims=None) == pytest.approx(oracle(x, labels), abs=1e-8)
    labels[3] = 1  # does not vary: correlated with nothing
    assert np.isfinite(evaluation.score("parc", x, labels))


def test_one_hot_labels_are_classes() -> None:
    x, y = draw()
    assert evaluation.score("parc", x, np.eye(5)[y]) == pytest.approx(evaluation.score("parc", x, y), abs=1e-10)


def test_what_does_not_matter() -> None:
    x, y = draw()
    score = evaluation.score("parc", x, y)
    rng = np.random.default_rng(1)
    rows, turn = rng.permutation(len(y)), np.linalg.qr(rng.normal(size=(40, 40)))[0]
    names = np.array(["e", "d", "c", "b", "a"])[y]
    changed = {
        "row order": (x[rows], y[rows]),
        "names": (x, names),
        "gaps": (x, 5 * y + 2),
        "zero columns": (np.hstack([x, np.zeros((90, 100))]), y),
        "rotation": (x @ turn, y),
        "scale": (1e-3 * x, y),
        "offset": (x + 1e3, y),
    }
    for what, (features, labels) in changed.items():
        assert evaluation.score("parc", features, labels) == pytest.approx(score, abs=1e-6), what
    narrow = x[:, :10]  # fewer columns than axes: columns of zeros are no axes
    padded = np.hstack([narrow, np.zeros((90, 100))])
    assert evaluation.score("parc", padded, y) == pytest.approx(evaluation.score("parc", narrow, y), abs=1e-6)
    assert evaluation.score("parc", (x + 1e3).astype(np.float32), y) == pytest.approx(score, abs=0.05)


def test_equal_rows_are_ties_not_rounding() -> None:
    x, y = draw(40, 16, 3)
    twice, labels = np.vstack([x, x]), np.concatenate([y, y])
    order = np.random.default_rng(2).permutation(80)
    scores = {evaluation.score("parc", twice[o], labels[o], n_dims=None) for o in (order, np.arange(80))}
    assert max(scores) - min(scores) < 1e-9


def test_rank_formula_with_ties_against_scipy() -> None:
    from scipy.stats import rankdata, spearmanr

    rng = np.random.default_rng(0)
    for levels in (3, 20, 10**6):
        values = rng.integers(levels, size=500).astype(float)
        same = rng.random(500) < 0.2
        expected = spearmanr(-values, ~same).statistic
        assert spearman_to_classes(values.copy(), values[same]) == pytest.approx(expected, abs=1e-12)
        assert spearman(-values, 1.0 - same) == pytest.approx(expected, abs=1e-12)
        assert rank_variance(np.sort(values)) == pytest.approx(rankdata(values).var(), rel=1e-12)


def test_rows_and_columns_that_do_not_vary() -> None:
    x, y = draw(40, 10, 3)
    x[:, 4] = 7.1
    x[5] = np.delete(x, 5, 0).mean(0)  # 0 in every column once they are standardised
    score = evaluation.score("parc", x, y, n_dims=None)
    z = np.delete(x, 4, 1)
    z = np.insert((z - z.mean(0)) / z.std(0), 4, 0.0, axis=1)
    alike = np.nan_to_num(np.corrcoef(z))
    assert np.ptp(z[5]) < 1e-13
    alike[5] = alike[:, 5] = 0
    upper = np.triu_indices(40, 1)
    from scipy.stats import spearmanr

    expected = 100 * spearmanr(-np.round(alike, 12)[upper], (y[:, None] != y)[upper]).statistic
    assert score == pytest.approx(expected, abs=1e-8)
    flat = evaluate_metric("parc", np.ones((20, 5)), np.arange(20) % 2)
    assert flat.score == 0 and "fewer than two dimensions" in flat.warnings[-1]


def test_a_stratified_draw_of_many_images() -> None:
    x, y = draw(400, 20, 4)
    result = evaluate_metric("parc", x, y, max_images=300)
    assert result.diagnostics == {"images": 300, "dims": 20}
    assert result.score == evaluation.score("parc", x, y, max_images=300)
    assert result.score != evaluation.score("parc", x, y, max_images=300, seed=1)
    assert result.score == pytest.approx(evaluation.score("parc", x, y), abs=2)
    assert evaluation.score("parc", x, y, max_images=None) == evaluation.score("parc", x, y)
    assert np.isfinite(evaluation.score("parc", x, y, max_images=300, n_dims=None))


def test_a_draw_keeps_the_shares_of_the_classes() -> None:
    from evaluation.ranking.inputs.samples import as_sample
    from evaluation.transferability.parc import drawn_rows

    y = np.repeat([0, 1, 2], [100, 200, 300])
    rows = drawn_rows(as_sample(np.random.default_rng(0).normal(size=(600, 3)), y), 60)
    assert np.bincount(y[rows]).tolist() == [10, 20, 30] and len(rows.unique()) == 60


def test_the_function_alone_and_its_input() -> None:
    x, y = (torch.from_numpy(part) for part in draw())
    before = x.clone()
    assert parc(x, y) == pytest.approx(oracle(x.numpy(), y.numpy()), abs=1e-8)
    assert torch.equal(x, before)


def test_bad_options_and_labels() -> None:
    x, y = draw()
    for wrong in ({"n_dims": 0}, {"n_dims": 1}, {"max_images": 1}):
        with pytest.raises(UserError, match=r"(n_dims|max_images) must be a whole number, at least 2, or null"):
            evaluation.score("parc", x, y, **wrong)
    with pytest.raises(UserError, match="at least two numbers per image"):
        evaluation.score("parc", x, y + 0.5)


def test_of_mirrored_rows_the_first_says_which_way_an_axis_points() -> None:
    """The largest coordinates of an axis are equal but for rounding: the row's order decides, not the last bit."""
    half = np.random.default_rng(0).normal(size=(20, 6))
    for seed in range(6):
        turn = np.linalg.qr(np.random.default_rng(seed).normal(size=(6, 6)))[0]
        found = principal_features(as_sample(np.vstack([half, -half]) @ turn + 3.3, np.arange(40) % 2), 6)
        assert (found[:20].gather(0, found[:20].abs().argmax(0, keepdim=True)) > 0).all()
