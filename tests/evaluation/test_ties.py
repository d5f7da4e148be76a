"""Choices between values that are equal but for rounding."""

import numpy as np
import pytest
import torch

from evaluation.ties import equal_scores, first_largest, grouped, last_least


def test_the_first_of_the_largest() -> None:
    scores = torch.tensor([[1.0, 1.0 + 1e-12, 0.5], [0.0, 1.0, 1.0 - 1e-12], [3.0, 2.0, 3.0], [-1.0, -2.0, 0.0]])
    assert first_largest(scores.double(), 1e-9).tolist() == [0, 1, 0, 2]
    assert first_largest(torch.tensor([[1.0, 1.1]]), 0.0).tolist() == [1]


@pytest.mark.parametrize(
    ("values", "rounding", "expected"),
    [
        ([1.0, 1.0, 2.0], [0.0] * 3, 1),
        ([1.0, 1.0 + 1e-9, 2.0], [1e-8, 1e-10, 0.0], 1),  # the first is not known to be less
        ([1.0, 1.0 + 1e-9, 2.0], [1e-10, 1e-10, 0.0], 0),
        ([0.0, 0.0], [0.1, 0.1], 1),
        ([3.0, 1.0, 2.0], [1e-3] * 3, 1),
    ],
)
def test_the_last_that_may_be_the_least(values: list[float], rounding: list[float], expected: int) -> None:
    assert last_least(values, rounding) == expected


def test_groups_of_equal_scores() -> None:
    scores = np.array([3.0, 1.0 + 1e-13, -2.0, 1.0, 3.0 - 1e-12, 1.0 - 1e-13, 0.0, 0.0])
    assert grouped(scores).tolist() == [3 - 1e-12, 1 - 1e-13, -2.0, 1 - 1e-13, 3 - 1e-12, 1 - 1e-13, 0.0, 0.0]
    assert grouped(np.array([1.0, 1 + 1e-6, 1e300])).tolist() == [1.0, 1 + 1e-6, 1e300]


def test_scores_that_rounding_parts_are_equal() -> None:
    assert equal_scores(1.0, 1.0 + 1e-12) and equal_scores(0.0, 0.0) and equal_scores(-1e30, -1e30 - 1e15)
    assert not equal_scores(1.0, 1.0 + 1e-6) and not equal_scores(0.0, 1e-300)
