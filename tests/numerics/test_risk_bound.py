import math

import numpy as np
import pytest
import torch

from sslkit.errors import UserError
from sslkit.numerics.risk_bound import risk_bound


def by_loops(z1: np.ndarray, z2: np.ndarray, y: np.ndarray) -> tuple[float, float, float, float]:
    """Risk, contrast, separation and spread of eq. 8, term by term."""
    views = [(row / np.linalg.norm(row), image) for view in (z1, z2) for image, row in enumerate(view)]
    classes = sorted(set(y.tolist()))
    mu = {c: np.mean([f for f, image in views if y[image] == c], axis=0) for c in classes}
    risk = np.mean([math.log(sum(math.exp(f @ mu[c]) for c in classes)) - f @ mu[y[image]] for f, image in views])
    contrast = 0.0
    for f, image in views:
        positive = next(g for g, other in views if other == image and g is not f)
        negative = [math.exp(f @ g) for g, other in views if other != image]
        contrast += (math.log(sum(negative) / len(negative)) - f @ positive) / len(views)
    separation = sum(mu[a] @ mu[b] for a in classes for b in classes if a != b)
    variance = np.mean([np.mean([np.sum((f - mu[c]) ** 2) for f, image in views if y[image] == c]) for c in classes])
    return float(risk), contrast, float(separation), math.sqrt(variance)


def test_the_terms_are_those_of_the_equation() -> None:
    rng = np.random.default_rng(0)
    z1, z2, y = rng.normal(size=(9, 4)), rng.normal(size=(9, 4)), np.array([3, 3, 3, 3, 5, 5, 7, 7, 7])
    found = risk_bound(torch.from_numpy(z1), torch.from_numpy(z2), y)
    risk, contrast, separation, spread = by_loops(z1, z2, y)
    expected = (risk, contrast, separation, spread, contrast + separation + spread)
    assert (found.risk, found.contrast, found.separation, found.spread, found.bound) == pytest.approx(expected)


def test_classes_that_are_points_on_two_sides() -> None:
    z = torch.tensor([[2.0, 0.0], [5.0, 0.0], [-1.0, 0.0], [-3.0, 0.0]])
    found = risk_bound(z, z, [0, 0, 1, 1])
    assert found.spread == pytest.approx(0) and found.separation == pytest.approx(-2)
    assert found.risk == pytest.approx(math.log(1 + math.exp(-2)))


@pytest.mark.parametrize(
    ("second", "labels", "said"),
    [
        (torch.ones(3, 2), [0, 1, 1, 0], "two views"),
        (torch.ones(4, 2), [0, 1, 1], "two views"),
        (torch.ones(4, 2), [1, 1, 1, 1], "two classes"),
        (torch.full((4, 2), torch.nan), [0, 1, 1, 0], "finite"),
    ],
)
def test_input_that_is_refused(second: torch.Tensor, labels: list[int], said: str) -> None:
    with pytest.raises(UserError, match=said):
        risk_bound(torch.ones(4, 2), second, labels)
