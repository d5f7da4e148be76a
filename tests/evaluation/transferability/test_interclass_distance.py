"""INT against a loop over pairs of classes and images."""

import numpy as np
import pytest

import evaluation
from sslkit import open_images
from sslkit.errors import UserError


def loop(x: np.ndarray, y: np.ndarray) -> float:
    """Pair by pair, as the formula is written."""
    classes = np.unique(y)
    total = 0.0
    for a in classes:
        for b in classes[classes > a]:
            apart = [np.sqrt(((u - v) ** 2).sum()) for u in x[y == a] for v in x[y == b]]
            total += sum(apart) / len(apart)
    return 2 * total / (len(classes) * (len(classes) - 1))


def within(x: np.ndarray, y: np.ndarray) -> float:
    """Mean distance of two images of one class."""
    apart = [np.sqrt(((x[i] - x[j]) ** 2).sum()) for i in range(len(x)) for j in range(i + 1, len(x)) if y[i] == y[j]]
    return sum(apart) / len(apart)


def test_it_is_the_loop_over_pairs(monkeypatch: pytest.MonkeyPatch) -> None:
    rng = np.random.default_rng(0)
    x, y = rng.normal(size=(57, 5)), rng.permutation(np.repeat([0, 1, 2], [40, 12, 5]))
    monkeypatch.setattr("evaluation.transferability.interclass_distance.BLOCK", 57 * 10)  # six blocks
    assert evaluation.score("interclass_distance", x, y) == pytest.approx(loop(x, y), rel=1e-12)
    found = evaluation.score("interclass_distance", x, y, normalize=True)
    assert found == pytest.approx(loop(x, y) / within(x, y), rel=1e-12)


def test_real_images() -> None:
    digits = open_images("digits")
    x, y = digits.pixels[:150, 0].reshape(150, -1).astype(np.float64), digits.labels[:150]
    assert evaluation.score("interclass_distance", x, y) == pytest.approx(loop(x, y), rel=1e-12)


def test_a_large_offset_costs_no_digits() -> None:
    rng = np.random.default_rng(0)
    x, y = rng.normal(size=(40, 30)), np.arange(40) % 4
    assert evaluation.score("interclass_distance", x + 1e6, y) == pytest.approx(loop(x, y), rel=1e-9)


def test_normalised_it_does_not_depend_on_the_scale() -> None:
    rng = np.random.default_rng(0)
    x, y = rng.normal(size=(40, 30)) + 2 * np.eye(30)[np.arange(40) % 4], np.arange(40) % 4
    plain = [evaluation.score("interclass_distance", scale * x, y) for scale in (1, 10)]
    normal = [evaluation.score("interclass_distance", scale * x, y, normalize=True) for scale in (1, 10)]
    assert plain[1] == pytest.approx(10 * plain[0])
    assert normal[1] == pytest.approx(normal[0])


def test_bad_input_is_one_line() -> None:
    with pytest.raises(UserError, match="classes of at least 2 different images"):
        evaluation.score("interclass_distance", np.eye(3), [0, 1, 2], normalize=True)
