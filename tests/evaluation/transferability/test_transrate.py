"""TransRate against log-determinants by numpy."""

import numpy as np
import pytest
import torch

from evaluation.ranking.inputs.samples import as_sample
from evaluation.ranking.scoring import evaluate_metric, score
from evaluation.transferability import base
from evaluation.transferability.transrate import class_grams, coding_rate
from sslkit.data.sources.named import open_images
from sslkit.errors import UserError

RNG = np.random.default_rng(0)
Y = RNG.choice(5, p=[0.4, 0.3, 0.15, 0.1, 0.05], size=200)
X = RNG.normal(size=(5, 16))[Y] + RNG.normal(size=(200, 16))


def rate(z: np.ndarray, eps: float) -> float:
    return 0.5 * np.linalg.slogdet(np.eye(z.shape[1]) + z.T @ z / (len(z) * eps))[1]


def direct(x: np.ndarray, y: np.ndarray, eps: float = 1e-4, equal: bool = False) -> float:
    z = x - x.mean(0)
    labels, counts = np.unique(y, return_counts=True)
    shares = np.full(len(labels), 1 / len(labels)) if equal else counts / len(y)
    return rate(z, eps) - sum(share * rate(z[y == label], eps) for share, label in zip(shares, labels, strict=True))


CASES = {
    "tall": (X, Y),
    "wide": (RNG.normal(size=(30, 80)), np.arange(30) % 3),
    "two classes": (X, Y % 2),
    "more classes than dimensions": (X[:, :3], Y),
    "class of one image": (X, np.where(np.arange(200) == 7, 5, Y)),
    "dead units": (np.concatenate([X, np.zeros((200, 300))], 1), Y),
    "offset": (X + 1000, Y),
}


@pytest.mark.parametrize("weights", ["shares", "equal"])
@pytest.mark.parametrize("case", CASES)
def test_is_the_difference_of_log_determinants(case: str, weights: str) -> None:
    x, y = CASES[case]
    found = evaluate_metric("transrate", x, y, weights=weights)
    assert found.score == pytest.approx(direct(x, y, equal=weights == "equal"), rel=1e-9)
    assert found.diagnostics["rate"] == pytest.approx(rate(x - x.mean(0), 1e-4), rel=1e-9)
    assert found.score == pytest.approx(found.diagnostics["rate"] - found.diagnostics["rate_within"])


def test_coding_rate_of_either_gram() -> None:
    z = torch.from_numpy(RNG.normal(size=(30, 7)))
    assert coding_rate(z.T @ z, 30, 0.1) == pytest.approx(coding_rate(z @ z.T, 30, 0.1), rel=1e-12)
    assert coding_rate(z.T @ z, 30, 0.1) == pytest.approx(rate(z.numpy(), 0.1), rel=1e-12)


def test_class_grams_are_of_the_smaller_side_and_in_blocks(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(base, "BLOCK", 3 * 16)
    monkeypatch.setattr("evaluation.transferability.transrate.BLOCK", 3 * 16)
    z = X - X.mean(0)
    for c, gram in enumerate(class_grams(as_sample(X, Y))):
        rows = z[c == Y]
        assert len(gram) == min(rows.shape)
        assert np.allclose(np.linalg.eigvalsh(gram)[-1], np.linalg.norm(rows, 2) ** 2, rtol=1e-10)
        assert float(gram.trace()) == pytest.approx((rows**2).sum(), rel=1e-10)
    assert {min((c == Y).sum(), 16) for c in range(5)} != {16}


def test_classes_that_are_moved() -> None:
    shift = RNG.normal(size=(5, 16))
    moved = as_sample(X, Y).move(torch.from_numpy(shift))
    from evaluation.transferability.transrate import score as of_sample

    assert of_sample(moved).value == pytest.approx(direct(X + shift[Y], Y), rel=1e-9)


def test_eps() -> None:
    for eps in (1e-6, 1e-2, 1.0):
        assert score("transrate", X, Y, eps=eps) == pytest.approx(direct(X, Y, eps), rel=1e-9)


def test_normalized_features_have_no_scale() -> None:
    z = X - X.mean(0)
    expected = direct(z / np.linalg.norm(z), Y)
    assert score("transrate", X, Y, normalize=True) == pytest.approx(expected, rel=1e-9)
    assert score("transrate", 1e3 * X, Y, normalize=True) == pytest.approx(expected, rel=1e-9)
    assert score("transrate", 1e-3 * X, Y) != pytest.approx(score("transrate", X, Y), rel=0.1)
    assert score("transrate", np.ones((200, 3)), Y, normalize=True) == 0


def test_rotation_offset_row_order_and_labels_change_nothing() -> None:
    value = score("transrate", X, Y)
    order = RNG.permutation(200)
    turn = np.linalg.qr(RNG.normal(size=(16, 16)))[0]
    for x, y in ((X @ turn - 5, Y), (X[order], Y[order]), (X, np.array(list("ebadc"))[Y])):
        assert score("transrate", x, y) == pytest.approx(value, rel=1e-10)


def test_features_that_know_the_class_score_higher() -> None:
    assert score("transrate", X, Y) > score("transrate", X, RNG.permutation(Y)) + 1


def test_large_offset_in_float32() -> None:
    x = np.round(X * 512) / 512
    assert score("transrate", (x + 1024).astype(np.float32), Y) == pytest.approx(direct(x, Y), rel=1e-9)


def test_real_features() -> None:
    images = open_images("digits")
    x, y = images.pixels[:300, 0].reshape(300, -1) / np.float32(16), images.labels[:300]
    assert score("transrate", x, y) == pytest.approx(direct(x.astype(float), y), rel=1e-9)


@pytest.mark.parametrize(
    ("labels", "options", "said"),
    [
        (Y, {"eps": 0.0}, "eps must be a number, above 0"),
        (Y, {"weights": "counts"}, "weights must be shares or equal, got 'counts'"),
        (np.zeros(200), {}, "at least 2 classes"),
        (RNG.normal(size=200), {}, "one class label per image"),
    ],
)
def test_errors(labels: np.ndarray, options: dict, said: str) -> None:
    with pytest.raises(UserError, match=said):
        score("transrate", X, labels, **options)


def test_input_stays_and_bits_repeat() -> None:
    x = torch.from_numpy(X.copy())
    assert score("transrate", x, Y) == score("transrate", x, Y)
    assert np.array_equal(x.numpy(), X)


@pytest.mark.parametrize("scale", [1.0, 1e3, 1e9, 1e30])
def test_directions_without_features_add_nothing_at_any_scale(scale: float) -> None:
    """Duplicated columns: half of the eigenvalues are 0 but for rounding, which is far above 1 at a large scale."""
    twice = np.hstack([X, X]) / 2**0.5
    assert score("transrate", scale * twice, Y) == pytest.approx(score("transrate", scale * X, Y), rel=1e-9)
