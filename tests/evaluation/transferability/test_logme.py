"""LogME against a loop over classes with a singular value decomposition, and its evidence against the definition."""

import numpy as np
import pytest
import torch
from scipy.optimize import minimize_scalar

from evaluation.features import as_features
from evaluation.ranking.inputs.samples import as_sample
from evaluation.ranking.scoring import evaluate_metric, score
from evaluation.transferability.logme import class_targets, evidence, fixed_point, logme, make_axes, ridge
from sslkit.data.sources.named import open_images
from sslkit.errors import UserError

RNG = np.random.default_rng(0)


def drawn(n: int, d: int, c: int) -> tuple[np.ndarray, np.ndarray]:
    y = RNG.permutation(np.arange(n) % c)
    return np.maximum(RNG.normal(size=(c, d))[y] + RNG.normal(size=(n, d)), 0), y


def in_own_units(x: np.ndarray) -> np.ndarray:
    """Features divided by a power of 10, so that their mean variance where they vary is 0.1 to 10."""
    apart = x - x.mean(0)
    varies = not (x == x[0]).all()
    variance = apart.var(0).sum() / np.linalg.matrix_rank(apart) if varies else x[0] @ x[0]
    return x / 10.0 ** round(np.log10(variance) / 2) if variance else x


def precisions(x: np.ndarray, t: np.ndarray, unit: str = "relative") -> tuple[float, float, float]:
    """alpha, beta and log evidence of one target, by the spectrum of X; the determinant is that of all D weights.

    The published code's: of the features as they are, or in their own units.
    """
    x = in_own_units(x) if unit == "relative" else x
    n, d = x.shape
    u, s, _ = np.linalg.svd(x, full_matrices=False)
    sigma, x2 = s**2, (u.T @ t) ** 2
    rest = max(t @ t - x2.sum(), 0.0)
    a = b = 1.0
    for _ in range(11):
        tau = a / b
        gamma = (sigma / (sigma + tau)).sum()
        m2 = (sigma * x2 / (sigma + tau) ** 2).sum()
        r2 = (x2 * (tau / (sigma + tau)) ** 2).sum() + rest
        a, b = gamma / (m2 + 1e-5), (n - gamma) / (r2 + 1e-5)
        if abs(a / b - tau) <= 1e-3 * tau:
            break
    padded = np.concatenate([sigma, np.zeros(d - len(sigma))])
    found = d * np.log(a) + n * np.log(b) - np.log(a + b * padded).sum() - b * r2 - a * m2 - n * np.log(2 * np.pi)
    return a, b, found / 2 / n


def looped(x: np.ndarray, y: np.ndarray, unit: str = "relative") -> float:
    return float(np.mean([precisions(x, (y == c).astype(float), unit)[2] for c in np.unique(y)]))


X, Y = drawn(200, 16, 5)
CASES = {
    "tall": (X, Y),
    "wide": drawn(30, 80, 3),
    "square": drawn(40, 40, 4),
    "two classes": drawn(60, 10, 2),
    "more classes than dimensions": drawn(120, 4, 9),
    "class of one image": (X, np.where(np.arange(200) == 7, 5, Y)),
    "dead units": (np.concatenate([X, np.zeros((200, 300))], 1), Y),
    "constant column": (np.concatenate([X, np.full((200, 1), 3.0)], 1), Y),
    "duplicated columns": (np.concatenate([X, X[:, :6]], 1), Y),
    "large offset": (X + 1000, Y),
    "small scale": (X * 1e-3, Y),
    "large scale": (X * 100, Y),
}


@pytest.mark.parametrize("unit", ["relative", "absolute"])
@pytest.mark.parametrize("case", CASES)
def test_is_the_loop_over_classes(case: str, unit: str) -> None:
    x, y = CASES[case]
    tolerance = 1e-7 if case == "square" else 1e-8
    assert score("logme", x, y, unit=unit) == pytest.approx(looped(x, y, unit), rel=tolerance, abs=tolerance)


def highest_evidence(x: np.ndarray, y: np.ndarray) -> float:
    """The maximum over alpha / beta by a search, with beta in closed form; no start, no constant, no rounds."""
    (n, _), (u, s, _) = x.shape, np.linalg.svd(x, full_matrices=False)
    found = []
    for c in np.unique(y):
        t = (y == c).astype(float)
        along = (u.T @ t) ** 2

        def lost(log_tau: float, along: np.ndarray = along, t: np.ndarray = t) -> float:
            tau = np.exp(log_tau)
            left = max(t @ t - along.sum(), 0) + (along * tau / (tau + s**2)).sum()
            return (np.log1p(s**2 / tau).sum() + n + n * np.log(2 * np.pi * left / n)) / (2 * n)

        middle = np.log((s**2).mean() / n)
        found.append(-minimize_scalar(lost, bounds=(middle - 12, middle + 12), method="bounded").fun)
    return float(np.mean(found))


@pytest.mark.parametrize("power", range(-3, 5))
def test_features_of_any_scale_have_the_evidence(power: int) -> None:
    images = open_images("digits")
    x, y = images.pixels[:300, 0].reshape(300, -1) / np.float64(255), images.labels[:300]
    assert score("logme", x * 10.0**power, y) == pytest.approx(highest_evidence(x, y), abs=1e-6)
    published = evaluate_metric("logme", x * 10.0**power, y, unit="absolute").score
    assert published == pytest.approx(highest_evidence(x, y), abs=1e-6) or power > 0


@pytest.mark.parametrize("case", [case for case in CASES if not case.endswith("scale")])
def test_near_a_variance_of_1_it_is_bit_for_bit_the_published_score(case: str) -> None:
    x, y = CASES[case]
    assert score("logme", x, y) == score("logme", x, y, unit="absolute")


@pytest.mark.parametrize("factor", [3, 255, 1 / 255, 0.02])
def test_other_factors_change_no_more_than_the_stop_of_the_fixed_point(factor: float) -> None:
    x, y = CASES["tall"]
    assert score("logme", factor * x, y) == pytest.approx(score("logme", x, y), abs=1e-7)


def test_published_constants_are_warned_of_where_they_show() -> None:
    x, y = CASES["tall"]
    assert not evaluate_metric("logme", x, y, unit="absolute").warnings
    large = evaluate_metric("logme", 1e3 * x, y, unit="absolute")
    assert "the published 1e-5 is up to" in large.warnings[0] and large.score < score("logme", x, y) - 0.05
    tiny = evaluate_metric("logme", 1e-4 * CASES["wide"][0], CASES["wide"][1], unit="absolute")
    assert "took all 11 rounds" in tiny.warnings[0]
    assert not evaluate_metric("logme", 1e3 * x, y).warnings


def test_real_features() -> None:
    images = open_images("digits")
    x, y = images.pixels[:300, 0].reshape(300, -1) / np.float64(16), images.labels[:300]
    assert score("logme", x, y) == pytest.approx(looped(x, y), abs=1e-7)


@pytest.mark.parametrize("shape", [(60, 8, 3), (15, 25, 3)])
def test_evidence_is_the_density_of_the_targets(shape: tuple[int, int, int]) -> None:
    """ln N(t; 0, I / b + X X' / a), with no posterior in it: equal to eq. 2 where m is the posterior mean at a, b."""
    x, y = drawn(*shape)
    n = len(x)
    sample = as_sample(x, y).compact
    axes, basis = make_axes(sample.scatter)
    targets = class_targets(sample.scatter, basis)
    fit, _ = fixed_point(axes, targets)
    settled = ridge(axes, targets, fit.tau)  # m2 and r2 at the final tau, as eq. 2 wants them
    exact = type(fit)(fit.alpha, fit.beta, settled.weights, settled.residual)
    for c, found in enumerate(evidence(axes, exact).tolist()):
        t = (y == c).astype(float)
        a, b = float(fit.alpha[c]), float(fit.beta[c])
        covariance = np.eye(n) / b + x @ x.T / a
        logdet = np.linalg.slogdet(covariance)[1]
        density = -0.5 * (logdet + t @ np.linalg.solve(covariance, t) + n * np.log(2 * np.pi))
        assert found == pytest.approx(density / n, abs=1e-8)


def test_each_round_is_a_ridge_regression() -> None:
    x, y = CASES["constant column"]
    sample = as_sample(x, y)
    axes, basis = make_axes(sample.scatter)
    assert axes.unit == 1
    for tau in (1e-2, 1.0, 50.0):
        fit = ridge(axes, class_targets(sample.scatter, basis), torch.full((5,), tau, dtype=torch.float64))
        inverse = np.linalg.inv(x.T @ x + tau * np.eye(17))
        for c in range(5):
            t = (y == c).astype(float)
            m = inverse @ x.T @ t
            gamma = np.trace(inverse @ x.T @ x)
            assert float(fit.weights[c]) == pytest.approx(m @ m, rel=1e-9)
            assert float(fit.residual[c]) == pytest.approx(((t - x @ m) ** 2).sum(), rel=1e-9)
            assert float(fit.alpha[c]) == pytest.approx(gamma / (m @ m + 1e-5), rel=1e-9)


@pytest.mark.parametrize("case", ["tall", "wide"])
def test_dead_units_change_nothing(case: str) -> None:
    x, y = CASES[case]
    padded = np.concatenate([x, np.zeros((len(x), 600))], 1)
    assert score("logme", padded, y) == pytest.approx(score("logme", x, y), abs=1e-8)


def test_row_order_labels_and_rotation_change_nothing() -> None:
    value = score("logme", X, Y)
    order = RNG.permutation(200)
    turn = np.linalg.qr(RNG.normal(size=(16, 16)))[0]
    names = np.array(["e", "b", "a", "d", "c"])[Y]
    for x, y in ((X[order], Y[order]), (X, 7 * Y - 3), (X, names), (X @ turn, Y)):
        assert score("logme", x, y) == pytest.approx(value, abs=1e-10)


def test_large_offset_in_float32() -> None:
    x = (np.round(X * 512) / 512 + 1024).astype(np.float32)
    assert score("logme", x, Y) == pytest.approx(looped(x.astype(np.float64), Y), abs=1e-7)


def test_features_that_know_the_class_score_higher() -> None:
    assert score("logme", X, Y) > score("logme", X, RNG.permutation(Y)) + 0.1


def test_labels_that_a_linear_model_gave_score_higher_than_the_true_ones() -> None:
    """github.com/thuml/LogME/issues/11: the score is of a model for given labels, not of labels for a given model."""
    hot = np.eye(5)[Y]
    guessed = (X @ np.linalg.lstsq(X, hot, rcond=None)[0]).argmax(1)
    assert score("logme", X, guessed) > score("logme", X, Y)


def test_regression_takes_the_numbers_as_they_are() -> None:
    t = X @ RNG.normal(size=(16, 3)) + RNG.normal(size=(200, 3)) + 5
    expected = np.mean([precisions(X, t[:, k])[2] for k in range(3)])
    assert score("logme", X, t, targets="regression") == pytest.approx(expected, abs=1e-8)
    assert score("logme", X, t[:, 0], targets="regression") == pytest.approx(precisions(X, t[:, 0])[2], abs=1e-8)
    x = RNG.normal(size=(20, 50)) + 2
    assert score("logme", x, t[:20, 0], targets="regression") == pytest.approx(precisions(x, t[:20, 0])[2], abs=1e-7)


@pytest.mark.parametrize("power", [-6, -3, -1, 3])
def test_numbers_in_other_units_move_the_score_by_their_logarithm(power: int) -> None:
    """ln p(s t) = ln p(t) - N ln s: metres or kilometres, no model gains more than another."""
    rng = np.random.default_rng(5)
    t = (X @ rng.normal(size=16) + rng.normal(size=200) + 5) / 20
    found = score("logme", X, 10.0**power * t, targets="regression")
    assert found == pytest.approx(score("logme", X, t, targets="regression") - power * np.log(10), abs=1e-7)


def test_whole_numbers_can_be_regressed_on() -> None:
    expected = precisions(X, Y.astype(float))[2]
    assert score("logme", X, Y, targets="regression") == pytest.approx(expected, abs=1e-8)


def test_several_labels_an_image() -> None:
    t = (RNG.random((200, 4)) < 0.3).astype(int)
    expected = np.mean([precisions(X, t[:, k].astype(float))[2] for k in range(4)])
    assert score("logme", X, t, targets="regression") == pytest.approx(expected, abs=1e-8)
    absent = np.concatenate([t, np.zeros((200, 2), int)], 1)  # labels that no image has
    assert score("logme", X, absent, targets="regression") == pytest.approx(expected, abs=1e-8)


def test_features_of_several_labels_an_image_score_as_their_yes_and_no() -> None:
    t = (RNG.random((200, 4)) < 0.3).astype(np.float64)
    features = as_features((X, np.where(t == 1, 1, -1)))
    assert set(np.unique(features.y)) == {-1, 1}
    assert score("logme", features) == pytest.approx(score("logme", X, t), abs=1e-8)
    features.y[:20] = 0  # these do not count
    t[:20] = 0
    with pytest.warns(UserWarning, match=r"10\.0% of the labels, 0, do not count"):
        assert score("logme", features) == pytest.approx(score("logme", X, t), abs=1e-8)


def test_one_label_an_image_is_one_hot_columns() -> None:
    hot = np.eye(5)[Y]
    assert score("logme", X, hot, targets="regression") == pytest.approx(score("logme", X, Y), abs=1e-10)


def test_constant_features() -> None:
    for value in (2.0, 0.1):
        x = np.full((200, 3), value)
        assert evaluate_metric("logme", x, Y).diagnostics["rank"] == 0
        assert score("logme", x, Y) == pytest.approx(looped(x, Y), abs=1e-8)


def test_input_stays_and_bits_repeat() -> None:
    x = torch.from_numpy(X.astype(np.float32))
    kept = x.clone()
    found = evaluate_metric("logme", x, Y)
    assert found.score == evaluate_metric("logme", x, Y).score and torch.equal(x, kept)
    assert 1 <= found.diagnostics["rounds"] <= 11 and found.diagnostics["targets"] == 5


def test_a_value_a_class() -> None:
    sample = as_sample(X, Y)
    axes, basis = make_axes(sample.scatter)
    values, rounds = logme(axes, class_targets(sample.scatter, basis))
    assert np.allclose(values, [precisions(X, (c == Y).astype(float))[2] for c in range(5)], atol=1e-9)
    assert ((rounds >= 1) & (rounds <= 11)).all()


@pytest.mark.parametrize(
    ("labels", "options", "said"),
    [
        (Y, {"targets": "ranks"}, "targets must be classes or regression, got 'ranks'"),
        (Y, {"unit": "pixels"}, "unit must be relative or absolute, got 'pixels'"),
        (RNG.normal(size=200), {}, "logme"),
        (np.array(list("abcde"))[Y], {"targets": "regression"}, "numbers, not names"),
        (np.zeros((200, 2)), {"targets": "regression"}, "every label is 0"),
        (np.zeros(200, int), {}, "at least 2 classes"),
    ],
)
def test_errors(labels: np.ndarray, options: dict, said: str) -> None:
    with pytest.raises(UserError, match=said):
        score("logme", X, labels, **options)


def test_features_that_are_all_zero_leave_the_noise() -> None:
    """Nothing is explained: ln N(t; 0, I / b) at b = N / (t't + 1e-5), whatever the width."""
    y = np.arange(30) % 3
    squares = 10.0
    b = 30 / (squares + 1e-5)
    expected = (30 * np.log(b) - b * squares - 30 * np.log(2 * np.pi)) / 60
    for width in (4, 50):
        assert score("logme", np.zeros((30, width)), y) == pytest.approx(expected)
