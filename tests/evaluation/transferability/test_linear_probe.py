"""Linear probe: scikit-learn's ridge regression fold by fold, and its cross-validated penalty."""

import numpy as np
import pytest
import torch

import evaluation
import sslkit
from evaluation.ranking.inputs.samples import as_sample
from evaluation.ranking.scoring import evaluate_metric
from evaluation.transferability.linear_probe import PENALTIES, chosen_penalty, gcv_errors
from sslkit.data.held_out import draw_folds
from sslkit.errors import UserError


def draw(n: int = 90, d: int = 12, c: int = 4) -> tuple[np.ndarray, np.ndarray]:
    rng = np.random.default_rng(0)
    y = np.concatenate([np.arange(c), rng.integers(c, size=n - c)])
    return rng.normal(size=(c, d))[y] + 1.5 * rng.normal(size=(n, d)) + 0.7, y


def by_scikit(x: np.ndarray, y: np.ndarray, fold: np.ndarray, alpha: float) -> np.ndarray:
    from sklearn.linear_model import Ridge

    right = np.empty(len(y))
    for number in np.unique(fold):
        held = fold == number
        ridge = Ridge(alpha=alpha, solver="svd").fit(x[~held], np.eye(y.max() + 1)[y[~held]])
        right[held] = ridge.predict(x[held]).argmax(1) == y[held]
    return right


def folds_of(x: np.ndarray, y: np.ndarray, folds: int = 5) -> np.ndarray:
    return draw_folds(torch.from_numpy(y), folds, as_sample(x, y).generator("linear_probe")).numpy()


@pytest.mark.parametrize(("d", "penalty", "folds"), [(12, 0.01, 5), (12, 1e-6, 3), (200, 0.1, 5), (200, 1e-4, 2)])
def test_scikit_learns_ridge_fold_by_fold(d: int, penalty: float, folds: int) -> None:
    x, y = draw(d=d)
    alpha = penalty * np.linalg.norm(x - x.mean(0), 2) ** 2
    result = evaluate_metric("linear_probe", x, y, penalty=penalty, folds=folds)
    assert result.details.terms.tolist() == by_scikit(x, y, folds_of(x, y, folds), alpha).tolist()
    assert result.score == float(result.details.terms.mean())


@pytest.mark.parametrize("d", [12, 200])
def test_the_penalty_of_generalized_cross_validation(d: int) -> None:
    x, y = draw(d=d)
    centred, hot = x - x.mean(0), np.eye(4)[y]
    errors = []
    for penalty in PENALTIES:
        alpha = penalty * np.linalg.norm(centred, 2) ** 2
        hat = 1 / 90 + centred @ np.linalg.solve(centred.T @ centred + alpha * np.eye(d), centred.T)
        errors.append(((hot - hat @ hot) ** 2).sum() / (90 - np.trace(hat)) ** 2)
    assert chosen_penalty(as_sample(x, y).compact.scatter) == PENALTIES[int(np.argmin(errors))]


def test_folds_have_the_same_share_of_each_class() -> None:
    y = np.repeat(np.arange(4), [50, 25, 10, 5])
    fold = folds_of(np.random.default_rng(0).normal(size=(90, 2)), y)
    table = np.array([np.bincount(fold[y == label], minlength=5) for label in range(4)])
    assert (np.ptp(table, axis=1) == 0).all()


def test_real_digits() -> None:
    images = sslkit.open_images("digits", split="train")
    x, y = images.pixels[:500].reshape(500, -1).astype(np.float32), np.asarray(images.labels[:500])
    before = x.copy()
    assert 0.85 < evaluation.score("linear_probe", x, y) < 1  # 64 pixels, some of which never vary
    wrong = np.random.default_rng(0).permutation(y)
    assert evaluation.score("linear_probe", x, wrong) < 0.2 and (x == before).all()


def test_what_does_not_matter() -> None:
    x, y = draw()
    score = evaluation.score("linear_probe", x, y)
    turn = np.linalg.qr(np.random.default_rng(1).normal(size=(12, 12)))[0]
    for features in (
        x @ turn,
        1e-3 * x,
        x + 1e3,
        np.hstack([x, np.zeros((90, 20))]),
        np.hstack([x, np.ones((90, 200))]),
    ):
        assert evaluation.score("linear_probe", features, y) == score
    assert evaluation.score("linear_probe", x, np.array(list("abcd"))[y]) == score
    assert evaluation.score("linear_probe", (x + 1e3).astype(np.float32), y) == pytest.approx(score, abs=0.03)


def test_classes_of_one_image_two_classes_and_equal_rows() -> None:
    x, y = draw(n=24, d=6, c=20)
    assert 0 <= evaluation.score("linear_probe", x, y) <= 1
    lone = np.append(np.zeros(39, int), 1)
    assert evaluation.score("linear_probe", np.random.default_rng(0).normal(size=(40, 3)), lone) == 39 / 40
    assert evaluation.score("linear_probe", np.ones((40, 3)), lone) == 39 / 40
    assert evaluation.score("linear_probe", [[0.0], [1.0]], [0, 1]) == 0  # what is held out is never seen


def test_ped_moves_what_the_probe_sees() -> None:
    x, y = draw()
    sample = as_sample(x, y)
    away = sample.move(100 * torch.eye(4, 12, dtype=torch.float64))
    from evaluation.transferability.linear_probe import score

    assert score(away).value == 1 > score(sample).value


@pytest.mark.parametrize("options", [{"folds": 1}, {"penalty": 0.0}, {"penalty": -1.0}, {"penalty": np.inf}])
def test_bad_options(options: dict) -> None:
    with pytest.raises(UserError, match=r"folds must be a whole number, at least 2|penalty must be a number, above 0"):
        evaluation.score("linear_probe", *draw(), **options)


def test_an_offset_in_few_columns_changes_no_penalty() -> None:
    for seed in range(6):
        rng = np.random.default_rng(seed)
        y = np.arange(20) % 2
        x = rng.normal(size=(20, 50)) + 0.7 * y[:, None]
        far = np.concatenate([x, np.full((20, 3), 1e6)], 1)
        one, other = (evaluation.evaluate_metric("linear_probe", features, y) for features in (x, far))
        assert one.score == other.score and one.diagnostics == other.diagnostics


def test_a_penalty_too_small_for_the_numbers_is_an_error() -> None:
    rng = np.random.default_rng(0)
    x, y = rng.normal(size=(40, 300)), np.arange(40) % 4
    with pytest.raises(UserError, match="penalty=1e-19 is too small for these features: raise it"):
        evaluate_metric("linear_probe", x, y, penalty=1e-19)


def test_of_penalties_that_fit_equally_well_the_strongest() -> None:
    """A perfect fit has one error in the limit of small penalties, and equal rows one for all."""
    y = np.arange(20) % 2
    x = np.random.default_rng(0).normal(size=(20, 50)) + 5 * y[:, None]
    found = gcv_errors(as_sample(x, y).compact.scatter, [1e-13, 1e-12, 1e-11])
    assert np.ptp(found) < 1e-9 * found[0] and found[0] > 0
    assert evaluate_metric("linear_probe", np.ones((20, 3)), y).diagnostics["penalty"] == PENALTIES[-1]


@pytest.mark.parametrize("seed", range(3))
def test_equal_scores_go_to_the_smaller_class(seed: int) -> None:
    """One point a class, and a class in the middle of the others, where every class scores a fifth."""
    corners = np.linalg.qr(np.random.default_rng(seed).normal(size=(4, 4)))[0] + 3.3
    y = np.repeat(np.arange(5), 10)
    for place in (0, 4):
        points = np.insert(corners, place, corners.mean(0), axis=0)
        right = evaluate_metric("linear_probe", points[y], y).details.terms.numpy().reshape(5, 10)
        assert (right[place] == (place == 0)).all() and np.delete(right, place, 0).all()
