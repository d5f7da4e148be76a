"""Number of features."""

import numpy as np
import pytest

import evaluation
from evaluation.ranking.inputs.samples import as_sample
from evaluation.transferability.feature_dim import score
from sslkit.errors import UserError


@pytest.mark.parametrize("shape", [(10, 3), (10, 50)])
def test_the_number_of_columns_also_beyond_the_number_of_images(shape: tuple[int, int]) -> None:
    x, y = np.random.default_rng(0).normal(size=shape), np.arange(10) % 2
    assert evaluation.score("feature_dim", x, y) == shape[1]
    assert score(as_sample(x, y).compact).value == shape[1]


def test_features_are_needed() -> None:
    with pytest.raises(UserError, match="feature_dim needs features"):
        evaluation.score("feature_dim", None, [0, 1], model=3)
