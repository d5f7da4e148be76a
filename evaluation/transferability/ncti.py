"""NCTI: distance of a model's features from neural collapse on the task, in three parts scaled over a zoo."""

import math
import warnings
from collections.abc import Mapping, Sequence

import numpy as np

from evaluation.transferability._threads import one_blas_thread
from evaluation.transferability.base import Sample, Score
from evaluation.transferability.etran import minmax
from sslkit.errors import UserError

DIMS, TEMPERED = 64, 32  # principal components that are kept, and those that set the shrinkage
LEAST = 1e-10  # shrinkage below which there is none
PARTS = ("seli", "ncc", "vc")


def fit_discriminant(x: np.ndarray, y: np.ndarray, shrinkage: float) -> tuple[np.ndarray, np.ndarray, bool]:
    """Discriminant coordinates (N, min(C - 1, K)) and posteriors (N, C) of rows x (N, K), and whether shrunk.

    By an SVD without shrinkage if that is at most LEAST, or if the shrunk within-class covariance is singular.
    """
    from sklearn.discriminant_analysis import LinearDiscriminantAnalysis

    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # of collinear columns and of classes of one image
        if shrinkage > LEAST:
            try:
                shrunk = LinearDiscriminantAnalysis(solver="eigen", shrinkage=shrinkage)
                return shrunk.fit_transform(x, y), shrunk.predict_proba(x), True
            except np.linalg.LinAlgError:
                pass
        plain = LinearDiscriminantAnalysis(solver="svd")
        return plain.fit_transform(x, y), plain.predict_proba(x), False


def nuclear(x: np.ndarray) -> float:
    """Sum of the singular values of x (N, K)."""
    return float(np.linalg.svd(x, compute_uv=False).sum())


def over_zoo(parts: Sequence[Mapping[str, float]]) -> list[float]:
    """minmax(seli) + minmax(ncc) - minmax(vc) for each model, from its `parts`."""
    seli, ncc, vc = (minmax([scores[name] for scores in parts]) for name in PARTS)
    return [s + n - v for s, n, v in zip(seli, ncc, vc, strict=True)]


def score(sample: Sample) -> Score:
    """minmax(seli) + minmax(ncc) - minmax(vc), each scaled to [0, 1] over the models of a zoo.

    From a linear discriminant analysis on the first 64 principal components, shrunk by exp(- the variance of the first
    32): seli is the nuclear norm of its centred coordinates, ncc the mean posterior of the true class, vc the logarithm
    of the sum over classes of the nuclear norms of their posteriors. A single model has no score (nan), only `parts`.
    Range: -1 to 2 within a zoo. Higher is better. Cost: O(N D^2 + D^3), shared with others, and O(N C^2).
    Source: Wang et al., How Far Pre-trained Models Are from Neural Collapse on the Target Dataset Informs their
    Transferability, ICCV 2023, eq. 5 to 8, as in the authors' code.
    Not for: comparing scores of different zoos, zoos of one or two models, or models whose features differ in scale:
    the shrinkage is the exponential of a variance.
    """
    with one_blas_thread():  # small products, one after the other
        return _score(sample)


def _score(sample: Sample) -> Score:
    y = sample.labels.cpu().numpy()
    x = sample.principal_coordinates(min(DIMS, len(sample) - 1, sample.x.shape[1])).cpu().numpy()
    shrinkage = math.exp(-x.var(0, ddof=1)[:TEMPERED].sum())
    if not sample.moments.varies.any():  # nothing to discriminate: the shares of the classes
        low, posterior, shrunk = 0 * x, np.tile(sample.moments.shares.cpu().numpy(), (len(y), 1)), True
    elif not sample.moments.variances.any():
        raise UserError("ncti: all features of a class are equal: no variance within classes to measure distances in")
    else:
        low, posterior, shrunk = fit_discriminant(x, y, shrinkage)
    classes = [posterior[y == c] for c in range(sample.n_classes)]
    parts = {
        "seli": nuclear(low - low.mean(0)),
        "ncc": float(posterior[np.arange(len(y)), y].mean()),
        "vc": math.log(sum(map(nuclear, classes))),
    }
    notes = ()
    if shrinkage > LEAST and not shrunk:
        notes = ("the shrunk covariance within classes is singular: ncti took none",)
    return Score(math.nan, {"shrinkage": shrinkage if shrunk else 0.0}, notes, parts=parts)
