"""Two quick evaluations of features, k nearest neighbours and a linear probe, and the interval of a share."""

import warnings

import torch
from torch import Tensor

from sslkit.errors import UserError
from sslkit.numerics.diagnostics import EPS, unit_rows


def knn_accuracy(
    bank: Tensor, bank_y: Tensor, query: Tensor, query_y: Tensor, *, k: int = 10, temperature: float = 0.07
) -> float:
    """kNN accuracy: cosine similarity, votes weighted by exp(s / T).

    bank: (N, D), bank_y: (N,), query: (M, D), query_y: (M,). k is at most N. In float64: among equal votes, and among
    equally similar images for the k-th place, the smaller class wins, and rounding decides neither.
    """
    if k > len(bank):
        raise UserError(f"eval.k={k} neighbours, but only {len(bank)} images; lower eval.k")
    classes, bank_class = bank_y.unique(return_inverse=True)
    order = bank_class.argsort(stable=True)
    bank, bank_class = unit_rows(bank[order]), bank_class[order]
    rounding = (bank.shape[1] + 4) * EPS  # of a float64 cosine
    right = 0
    for rows, y in zip(query.split(256), query_y.split(256), strict=True):
        similarity, nearest = _nearest(unit_rows(rows) @ bank.T, k, rounding)
        votes = torch.zeros(len(rows), len(classes), dtype=similarity.dtype, device=rows.device)
        # Subtracting 1 changes no winner and keeps the exponential finite.
        votes.scatter_add_(1, bank_class[nearest], ((similarity - 1) / temperature).exp())
        equal = 1 - (k + 4) * EPS - 2 * rounding / temperature
        winner = (votes >= votes.amax(1, keepdim=True) * equal).int().argmax(1)
        right += (classes[winner] == y).sum().item()
    return right / len(query)


def _nearest(similarity: Tensor, k: int, rounding: float) -> tuple[Tensor, Tensor]:
    """The k largest of (M, N) and their places, each (M, k); among those tied for the k-th place the first ones."""
    last = similarity.topk(k, dim=1).values[:, -1:]
    tied = (similarity - last).abs() <= rounding
    places = torch.arange(similarity.shape[1], device=similarity.device)
    # Cosines lie in [-1, 1]: 2 is added above the k-th, and the tied ones get 0 to -1 by their place.
    keys = torch.where(tied, -places / len(places), similarity + torch.where(similarity > last, 2.0, -3.0))
    nearest = keys.topk(k, dim=1).indices
    return similarity.gather(1, nearest), nearest


def probe_accuracy(bank: Tensor, bank_y: Tensor, query: Tensor, query_y: Tensor, *, c: float = 1.0) -> float:
    """Accuracy of a logistic regression trained on the bank's standardised features (scikit-learn)."""
    from sklearn.exceptions import ConvergenceWarning
    from sklearn.linear_model import LogisticRegression
    from sklearn.pipeline import make_pipeline
    from sklearn.preprocessing import StandardScaler

    probe = make_pipeline(StandardScaler(), LogisticRegression(C=c, max_iter=300, tol=1e-3))
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ConvergenceWarning)  # after 300 steps within 0.1 points of the optimum
        probe.fit(bank.numpy(), bank_y.numpy())
    return float(probe.score(query.numpy(), query_y.numpy()))


def scale_of(x: Tensor) -> tuple[Tensor, Tensor]:
    """Mean and standard deviation (F,) of features (N, F); inf for a dead unit, which varies only by rounding.

    Rounding: float32 deviations from a mean have an error of about 2^-24 of it; 1e-6 is sixteen times that.
    """
    std, mean = torch.std_mean(x, 0)
    return mean, std.where(std > 1e-6 * mean.abs(), torch.inf)


def wilson(share: float, n: int) -> float:
    """Half the width of the 95 % Wilson interval of a share of n images."""
    z = 1.959964
    return z / (1 + z * z / n) * (share * (1 - share) / n + z * z / (4 * n * n)) ** 0.5


def wilson_interval(share: float, n: int) -> tuple[float, float]:
    """The 95 % Wilson interval of a share of n images, which is not symmetric about it."""
    z = 1.959964
    middle, half = (share + z * z / (2 * n)) / (1 + z * z / n), wilson(share, n)
    return max(middle - half, 0.0), min(middle + half, 1.0)


def with_interval(share: float, n: int) -> str:
    """A share of n images in percent with its 95 % Wilson interval: "78.8 % ± 1.8", "100.0 % (75.8 to 100.0)".

    The ± stands only for ends that are right to 0.1 % and lie from 0 to 100 %.
    """
    low, high = wilson_interval(share, n)
    half = wilson(share, n)
    is_even = abs((low + high) / 2 - share) < 0.001 and half <= min(share, 1 - share)
    ends = f"± {100 * half:.1f}" if is_even else f"({100 * low:.1f} to {100 * high:.1f})"
    return f"{100 * share:.1f} % {ends}"
