"""GBC as published: a full singular value decomposition for 64 components, then a loop over all pairs of classes."""

import numpy as np


def published(x: np.ndarray, y: np.ndarray, dims: int = 64, floor: float = 1e-4) -> float:
    from sklearn.decomposition import PCA

    z = PCA(min(dims, *x.shape), svd_solver="full").fit_transform(x.astype(np.float32))
    classes = np.unique(y)
    means = [z[y == c].mean(0) for c in classes]
    variances = [np.full(z.shape[1], np.maximum(z[y == c].var(0), floor).mean()) for c in classes]
    total = 0.0
    for i in range(len(classes)):
        for j in range(len(classes)):
            if i != j:
                total += np.exp(-_distance(means[i], means[j], variances[i], variances[j]))
    return -float(total)


def _distance(m: np.ndarray, n: np.ndarray, v: np.ndarray, w: np.ndarray) -> float:
    """Bhattacharyya distance; the logarithm of a spherical variance is counted once, as published."""
    between = (v + w) / 2
    far = ((m - n) ** 2 / between).sum() / 8
    return float(far + (np.log(between[0]) - np.log(v[0]) / 2 - np.log(w[0]) / 2) / 2)
