"""The ridge is scikit-learn's on standardised features, and its strength that of the lowest error over the folds."""

import numpy as np
import pytest
import torch
from sklearn.linear_model import Ridge
from sklearn.model_selection import PredefinedSplit, cross_val_predict
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler

from evaluation.learners.ridge import STRENGTHS, fit_ridge
from sslkit.errors import UserError


@pytest.mark.parametrize(("rows", "features"), [(60, 8), (30, 90)])  # more rows than features, and fewer
def test_it_is_that_of_scikit_learn(rows: int, features: int) -> None:
    rng = np.random.default_rng(0)
    x = rng.standard_normal((rows, features)) * rng.uniform(0.1, 9, features) + 5
    x[:, 0] = 7.0  # constant
    y = 300 + 20 * (x[:, 1] - x[:, 2] + 3 * rng.standard_normal(rows))
    folds = np.arange(rows) % 5
    fitted = fit_ridge(x, y, folds)
    learned = rows * 4 // 5  # of each fold
    errors = []
    for strength in STRENGTHS:
        model = make_pipeline(StandardScaler(), Ridge(alpha=strength * learned))
        errors.append(np.square(cross_val_predict(model, x, y, cv=PredefinedSplit(folds)) - y).mean())
    np.testing.assert_allclose(list(fitted.tried.values()), errors, rtol=1e-6)
    assert fitted.strength == STRENGTHS[int(np.argmin(errors))]
    whole = make_pipeline(StandardScaler(), Ridge(alpha=fitted.strength * rows)).fit(x, y)
    new = rng.standard_normal((7, features)) + 5
    np.testing.assert_allclose(fitted.predict(new), whole.predict(new), rtol=1e-8)
    np.testing.assert_allclose(
        fitted.layers(torch.from_numpy(new).float())[:, 0].numpy(), whole.predict(new), rtol=1e-4
    )


def test_one_group_is_refused() -> None:
    with pytest.raises(UserError, match="all images are of one group"):
        fit_ridge(np.eye(12), np.arange(12.0), np.zeros(12, int))
