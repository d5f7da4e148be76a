"""Ridge regression of numbers on standardised features, its strength chosen in folds of the training images.

fit_ridge(x, y, folds).layers  # of plain features
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace

import numpy as np
from torch import nn

from evaluation.learners.linear_heads import Scaling
from evaluation.results.choice import lowest_of
from sslkit.errors import UserError

# strengths of |w|^2 beside the sum of squared errors, for each row: from hardly any to nearly the mean
STRENGTHS = tuple(10.0 ** (half / 2) for half in range(-10, 9))


@dataclass(frozen=True, eq=False)
class Ridge:
    """A linear function of scaled features.

    weight: (D,), bias: of scaled features. strength: times the rows it is the factor of |w|^2 beside the squared error.
    Where it was chosen, tried: {strength: mean squared error over the folds}; held_out: (N,) the prediction of each row
    by the fit of the other folds.
    """

    weight: np.ndarray
    bias: float
    scaling: Scaling
    strength: float
    tried: dict[float, float] = field(default_factory=dict)
    held_out: np.ndarray | None = None

    @property
    def layers(self) -> nn.Sequential:
        """Layers of plain features (N, D) -> (N, 1)."""
        return self.scaling.fold(self.weight[None], np.array([self.bias]))

    def predict(self, x: np.ndarray) -> np.ndarray:
        """Return numbers (n,) of features (n, D)."""
        return self.scaling(x) @ self.weight + self.bias


def fit_ridge(x: np.ndarray, y: np.ndarray, folds: np.ndarray) -> Ridge:
    """Fit all rows with the strength of the lowest squared error over the folds; of equal ones the strongest.

    x: (N, D). y: (N,). folds: (N,) the fold of each row, of which there are at least two.
    Each fold standardises by the rows that it learns from.
    Raises UserError for a single fold.
    """
    numbers = np.unique(folds)
    if len(numbers) < 2:
        raise UserError("all images are of one group, so that none can be held out to choose the strength of the ridge")
    held_out = np.empty((len(STRENGTHS), len(y)))
    for number in numbers:
        learned, judged = np.flatnonzero(folds != number), np.flatnonzero(folds == number)
        path = _Path(x, y, learned)
        held_out[:, judged] = [fitted @ path.scaling(x[judged]).T + path.bias for fitted in path.weights(STRENGTHS)]
    errors = np.square(held_out - y).mean(1)
    chosen = int(lowest_of(errors)[-1])
    tried = dict(zip(STRENGTHS, errors.tolist(), strict=True))
    return replace(fit_strength(x, y, STRENGTHS[chosen]), tried=tried, held_out=held_out[chosen])


def fit_strength(x: np.ndarray, y: np.ndarray, strength: float) -> Ridge:
    """Fit all rows with one strength; x, y: see `fit_ridge`."""
    path = _Path(x, y, np.arange(len(y)))
    (weight,) = path.weights([strength])
    return Ridge(weight, path.bias, path.scaling, strength)


class _Path:
    """The fits of some rows for several strengths, from one decomposition of the smaller of rows and features."""

    def __init__(self, x: np.ndarray, y: np.ndarray, rows: np.ndarray) -> None:
        self.scaling = Scaling.measure(x, rows, "standardize")
        self.bias = float(y[rows].mean())
        self._x, self._y = self.scaling(x[rows]), y[rows] - self.bias
        self._is_wide = self._x.shape[1] > len(rows)
        gram = self._x @ self._x.T if self._is_wide else self._x.T @ self._x
        self._values, self._vectors = np.linalg.eigh(gram)

    def weights(self, strengths: Sequence[float]) -> Iterator[np.ndarray]:
        """Yield the weights (D,) for each strength."""
        target = self._vectors.T @ (self._y if self._is_wide else self._x.T @ self._y)
        for strength in strengths:
            solved = self._vectors @ (target / (np.maximum(self._values, 0) + strength * len(self._y)))
            yield self._x.T @ solved if self._is_wide else solved
