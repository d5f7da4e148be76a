"""Leave-one-out accuracy of nearest neighbours: the baseline without a fit."""

import numpy as np
import torch
from torch import Tensor

from evaluation.transferability.base import Sample, Score
from sslkit.numerics.neighbours import TEMPERATURE, K, Own, neighbours, unit_rows, vote
from sslkit.options.ranges import Natural, Positive


def knn_right(x: Tensor, y: Tensor, k: int, temperature: float, groups: Tensor | None = None) -> Tensor:
    """Return (N,) 1.0 where the k most similar other rows, weighted by exp(cosine / temperature), vote for the label.

    x: (N, D). y: (N,) int64 from 0. Ties go to the smaller class. Similarities are float32. A row votes for no row that
    is equal to it: a copy of an image would answer for it; but where at most half of the rows are distinct, the model
    maps images to few points, and they vote. k is lowered to the number of the other rows.
    groups: (N,) of rows that do not vote for each other, as images of one object.
    """
    rows, labels = np.arange(len(y)), y.cpu().numpy()
    unit = unit_rows(_in_range(x.cpu().numpy()), "features")
    copies = _copies(x.cpu().numpy())
    excluded = Own.from_rows(copies, copies, None if groups is None else groups.cpu().numpy())
    similarity, position = neighbours(unit, rows, unit, min(k, len(y) - excluded.most), excluded)
    voted = vote(similarity, labels[position], [k], temperature, int(labels.max()) + 1)[k]
    return torch.from_numpy(voted == labels).double().to(y.device)


def _copies(x: np.ndarray) -> np.ndarray:
    """Return groups (N,) of equal rows (N, D); none if most rows have equals: such a model maps images to one point."""
    number: dict[bytes, int] = {}
    groups = np.array([number.setdefault(row.tobytes(), len(number)) for row in x + 0.0])  # + 0.0: no -0.0
    return groups if 2 * len(number) > len(x) else np.arange(len(x))


def _in_range(x: np.ndarray) -> np.ndarray:
    """Scale rows by powers of 2 to a largest magnitude in [1/2, 1): cosines stay bit-identical and within float32's
    range."""
    _, exponent = np.frexp(np.maximum(x.max(1), -x.min(1)))
    return np.ldexp(x, -exponent[:, None])


def score(sample: Sample, *, k: Natural = K, temperature: Positive = TEMPERATURE) -> Score:
    """Share of images whose k nearest others by cosine, weighted by exp(s / temperature), vote for the right class.

    Exact copies, images of equal features, do not vote for each other, if more than half of the rows are distinct; nor
    do images of one group.

    k: neighbours, at most N - 1. temperature: the smaller, the more the nearest count; both as in the `knn` protocol.
    Rows of zeros have no cosine: they count as wrong and are nobody's neighbour, with a warning.
    Range: 0 to 1. Higher is better. Cost: O(N^2 D).
    Source: Wu et al., arXiv 1805.01978, sec. 3.4, with the constants of DINO (arXiv 2104.14294).
    Not for: classes of few images (k reaches past them), or features with a large common offset, where all cosines
    are near 1.
    """
    k = min(k, len(sample) - 1)
    x, y = sample.features, sample.labels
    is_nonzero = x.any(1)
    right = torch.zeros(len(y), dtype=torch.float64, device=y.device)
    if int(is_nonzero.sum()) > 1:
        groups = None if sample.groups is None else sample.groups[is_nonzero]
        right[is_nonzero] = knn_right(
            x[is_nonzero], y[is_nonzero], min(k, int(is_nonzero.sum()) - 1), temperature, groups
        )
    lost = int((~is_nonzero).sum())
    warnings = (f"{lost} of {len(y)} rows of features are all zeros and count as wrong",) if lost else ()
    return Score(float(right.mean()), {"k": k}, warnings, terms=right)
