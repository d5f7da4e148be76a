"""The kNN accuracy of every command, and the accuracy of a probe of one strength, on features that are computed."""

from collections.abc import Sequence

import numpy as np
import torch
from torch import Tensor

from sslkit.errors import UserError
from sslkit.numerics.logistic import STRENGTH, softmax_problem
from sslkit.numerics.neighbours import TEMPERATURE, K, Own, neighbours, vote

PROBE_TOL = 1e-3  # within 0.1 points of the optimum's accuracy
QUERIES, VOTES = 4096, 2**22  # rows, and class votes, held in memory at a time


def knn_accuracy(
    bank: Tensor, bank_y: Tensor, query: Tensor, query_y: Tensor, *, k: int = K, temperature: float = TEMPERATURE
) -> float:
    """The share of `knn_hits`."""
    return _share(knn_hits(bank, bank_y, query, query_y, k=k, temperature=temperature))


def knn_hits(
    bank: Tensor, bank_y: Tensor, query: Tensor, query_y: Tensor, *, k: int = K, temperature: float = TEMPERATURE
) -> np.ndarray:
    """(M,) bool: which queries `evaluation.knn` gets right, without its checks.

    bank: (N, D), bank_y: (N,), query: (M, D), query_y: (M,). k is at most N. A row without a direction votes for
    nothing and counts as wrong. Among equal votes, and among equally similar images for the k-th place, the smaller
    class wins, and rounding decides neither.
    """
    if k > len(bank):
        raise UserError(f"eval.k={k} neighbours, but only {len(bank)} images; lower eval.k")
    bank, bank_y, query, query_y = (x.numpy() for x in (bank, bank_y, query, query_y))
    order, asked = np.flatnonzero(bank.any(1)), np.flatnonzero(query.any(1))
    right = np.zeros(len(query), bool)
    if not len(order):
        return right
    order = order[np.argsort(bank_y[order], kind="stable")]
    k = min(k, len(order))
    right[asked] = predict(bank, bank_y, order, query, asked, [k], temperature)[k] == query_y[asked]
    return right


def predict(
    bank: np.ndarray,
    bank_y: np.ndarray,
    order: np.ndarray,
    query: np.ndarray,
    rows: np.ndarray,
    ks: Sequence[int],
    temperature: float,
    own: Own | None = None,
) -> dict[int, np.ndarray]:
    """{k: (n,) predicted label of each of the query's `rows` (n,)}, for each of `ks`; see `neighbours`, `vote`.

    bank: (N, D), bank_y: (N,). order: (m,) its rows that vote, those of a smaller class first. query: (M, D).
    own: of the query's images and the bank's: a row is not compared with those that belong to it.
    """
    classes, label = np.unique(bank_y[order], return_inverse=True)
    labels = {k: np.empty(len(rows), classes.dtype) for k in ks}
    step = min(QUERIES, max(1, VOTES // len(classes)))
    for start in range(0, len(rows), step):
        some = rows[start : start + step]
        hidden = None if own is None else own.at(order, some)
        similarity, position = neighbours(bank, order, query[some], max(ks), hidden, some)
        for k, voted in vote(similarity, label[position], ks, temperature, len(classes)).items():
            labels[k][start : start + step] = classes[voted]
    return labels


def probe_accuracy(bank: Tensor, bank_y: Tensor, query: Tensor, query_y: Tensor, *, c: float = STRENGTH) -> float:
    """The share of `probe_hits`."""
    return _share(probe_hits(bank, bank_y, query, query_y, c=c))


def probe_hits(bank: Tensor, bank_y: Tensor, query: Tensor, query_y: Tensor, *, c: float = STRENGTH) -> np.ndarray:
    """(M,) bool: which queries the regression of `evaluation.linear_probe` gets right, of one strength c, not searched.

    Features are standardised by the bank's. Its objective is within PROBE_TOL of the optimum.
    """
    mean, std = scale_of(bank)
    problem = softmax_problem((bank - mean) / std, bank_y.numpy(), torch.float32)
    probe = problem.fit(c, tol=PROBE_TOL)
    return probe.predict((query - mean) / std) == query_y.numpy()


def _share(hits: np.ndarray) -> float:
    return float(hits.sum() / len(hits))


def scale_of(x: Tensor) -> tuple[Tensor, Tensor]:
    """Mean and standard deviation (F,) of features (N, F); inf for a dead unit, which varies only by rounding.

    Rounding: float32 deviations from a mean have an error of about 2^-24 of it; 1e-6 is sixteen times that.
    """
    std, mean = torch.std_mean(x, 0)
    return mean, std.where(std > 1e-6 * mean.abs(), torch.inf)
