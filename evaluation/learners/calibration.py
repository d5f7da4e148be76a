"""Calibration of a classifier by one temperature (Guo et al. 2017, arXiv 1706.04599), and how well calibrated it is.

How well is said by the negative log-likelihood, Brier's score and the expected calibration error.

beta = inverse_temperature(scores, y)  # on held-out images; the probabilities of beta * scores are as sure as right
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
from torch import Tensor, nn

from evaluation.results.statistics import Estimate, bias_corrected, bootstrap_mean
from sslkit.runtime.context import Computing

BETAS = (1e-3, 1e3)  # bounds of the search, wider than any network of ours needs
NATS, SQUARES = "nats", "squared error"  # units
HALVINGS = 60  # of the search, to the last digit of a float64
BINS = 15  # of confidence, as there; of equally many images, so that none rests on a few


def inverse_temperature(scores: np.ndarray, y: np.ndarray) -> float:
    """Return the factor of the scores with the lowest negative log-likelihood.

    scores: (N, K) of held-out images. y: (N,) int64, or (N, K) of 1, -1, 0 (does not count).
    Of a label only the share (N + 1) / (N + 2) counts for its class (Platt 1999), or images that are all right would
    make every prediction certain.
    """
    scores = scores.astype(np.float64)
    slope = _softmax_slope(scores, y) if y.ndim == 1 else _sigmoid_slope(scores[y != 0], y[y != 0])
    low, high = np.log(BETAS)
    for _ in range(HALVINGS):
        middle = (low + high) / 2
        low, high = (low, middle) if slope(np.exp(middle)) > 0 else (middle, high)
    return float(np.exp((low + high) / 2))


def _softmax_slope(scores: np.ndarray, y: np.ndarray) -> Callable[[float], float]:
    """The derivative of the smoothed mean negative log-likelihood by the factor: it rises."""
    n, k = scores.shape
    share = (n + 1) / (n + 2)
    right = scores[np.arange(n), y]
    wanted = float((share * right + (1 - share) * (scores.sum(1) - right) / max(k - 1, 1)).mean())
    return lambda beta: float((softmax(beta * scores) * scores).sum(1).mean()) - wanted


def _sigmoid_slope(scores: np.ndarray, y: np.ndarray) -> Callable[[float], float]:
    share = (len(y) + 1) / (len(y) + 2)
    wanted = float((np.where(y > 0, share, 1 - share) * scores).mean()) if len(y) else 0.0
    return lambda beta: float((scores / (1 + np.exp(-np.clip(beta * scores, -500, 500)))).mean()) - wanted


def softmax(scores: np.ndarray) -> np.ndarray:
    """Return probabilities (N, K) of scores (N, K)."""
    powers = np.exp(scores - scores.max(1, keepdims=True))
    return powers / powers.sum(1, keepdims=True)


def likelihood(scores: np.ndarray, y: np.ndarray) -> float:
    """Return the mean negative log-likelihood of labels; see `inverse_temperature`."""
    scores = scores.astype(np.float64)
    if y.ndim == 1:
        return float(_log_losses(scores, y).mean())
    counts = y != 0
    return float(np.logaddexp(0, -y[counts] * scores[counts]).mean())


def _log_losses(scores: np.ndarray, y: np.ndarray) -> np.ndarray:
    return np.logaddexp.reduce(scores, axis=1) - scores[np.arange(len(y)), y]


def measure_probabilities(
    scores: np.ndarray, y: np.ndarray, groups: np.ndarray | None = None, seed: int = Computing.seed
) -> dict[str, Estimate]:
    """Return nll, brier and ece of the probabilities of scores, each with its interval.

    scores: (N, K). y: (N,) int64. groups: (N,) of images that are drawn together. nll: negative log-likelihood, in
    nats. brier: sum over classes of the squared error, from 0 to 2 (Brier 1950, Monthly Weather Review 78:1). ece: see
    `calibration_error`; finite images make it too large, and its interval is around the value less that.
    """
    scores = scores.astype(np.float64)
    probabilities = softmax(scores)
    errors = np.square(probabilities - np.eye(scores.shape[1])[y]).sum(1)
    means = {
        name: bootstrap_mean(values, seed=seed, unit=unit, groups=groups)
        for name, values, unit in (("nll", _log_losses(scores, y), NATS), ("brier", errors, SQUARES))
    }
    sure, right = probabilities.max(1), probabilities.argmax(1) == y
    rows, every = np.arange(len(y)), np.ones((len(y), 1), bool)
    ece = bias_corrected(rows, lambda drawn: _gap(sure[drawn], right[drawn]), every, fewest=1, seed=seed, groups=groups)
    return {**means, "ece": ece}


def calibration_error(scores: np.ndarray, y: np.ndarray) -> float:
    """Return the expected calibration error: the mean distance of accuracy and confidence over bins of confidence.

    `BINS` of equally many images; equal confidences share one (Naeini et al. 2015, AAAI; Guo et al. 2017). Of one class
    an image, of the most probable class; of several, of every class that counts.
    """
    if y.ndim == 1:
        probabilities = softmax(scores.astype(np.float64))
        sure, right = probabilities.max(1), probabilities.argmax(1) == y
    else:
        yes = 1 / (1 + np.exp(-np.clip(scores[y != 0].astype(np.float64), -500, 500)))
        sure, right = np.maximum(yes, 1 - yes), (yes > 0.5) == (y[y != 0] > 0)
    return _gap(sure, right)


def _gap(sure: np.ndarray, right: np.ndarray) -> float:
    bins = np.searchsorted(np.sort(sure), sure) * BINS // len(sure)
    return float(np.abs(np.bincount(bins, right - sure, BINS)).sum() / len(sure))


def scale_outputs(layer: nn.Linear, factor: float) -> nn.Linear:
    """Return the layer with its outputs times a factor."""
    scaled = nn.utils.skip_init(nn.Linear, layer.in_features, layer.out_features)
    bias: Tensor = layer.weight.new_zeros(layer.out_features) if layer.bias is None else layer.bias
    scaled.weight, scaled.bias = (
        nn.Parameter((values.detach().double() * factor).float().cpu(), requires_grad=False)
        for values in (layer.weight, bias)
    )
    return scaled.eval()


@dataclass(frozen=True)
class Calibration:
    """The change by a temperature on images that it was not fitted to, each number before and after.

    beta: the factor of the outputs. fitted_on: images that it was fitted to. loss: negative log-likelihood. error: see
    `calibration_error`. n: images of both.
    """

    beta: float
    fitted_on: str
    loss: tuple[float, float]
    error: tuple[float, float]
    n: int

    @classmethod
    def measure(cls, beta: float, fitted_on: str, scores: np.ndarray, y: np.ndarray) -> "Calibration":
        """scores: (N, K) before, of images that took no part. y: see `inverse_temperature`."""
        loss, error = zip(
            *((likelihood(values, y), calibration_error(values, y)) for values in (scores, beta * scores)), strict=True
        )
        return cls(beta, fitted_on, loss, error, len(y))

    @classmethod
    def of_card(cls, about: Mapping[str, Any]) -> "Calibration":
        """Read the fields that a card keeps, `vars` of one."""
        return cls(**{name: tuple(value) if isinstance(value, list) else value for name, value in about.items()})

    def __str__(self) -> str:
        loss, error = (
            "{:.3f} -> {:.3f}".format(*self.loss),
            "{:.1f} -> {:.1f} %".format(*(100 * e for e in self.error)),
        )
        return (
            f"temperature {1 / self.beta:.2f}, fitted on {self.fitted_on}; on the {self.n:,} test images, which took "
            f"no part: log-likelihood loss {loss}, calibration error {error}"
        )
