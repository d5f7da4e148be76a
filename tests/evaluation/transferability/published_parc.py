"""PARC as the published code computes it: two N x N correlation matrices, and a rank correlation of both."""

import numpy as np
from scipy.stats import spearmanr
from sklearn.decomposition import PCA
from sklearn.preprocessing import StandardScaler


def published(x: np.ndarray, y: np.ndarray, n_dims: int = 32) -> float:
    """x: (N, D). y: (N,) labels. The score, times 100; ties among the labels' distances are broken by rounding."""
    pca = PCA(min(n_dims, len(x)), svd_solver="randomized", iterated_power=1, random_state=1919)
    features = StandardScaler().fit_transform(pca.fit_transform(x))
    one_hot = (y[:, None] == np.unique(y)).astype(np.float64)
    upper = np.triu_indices(len(x), 1)
    unlike = [(1 - np.corrcoef(rows))[upper] for rows in (features, one_hot)]
    return 100 * float(spearmanr(*unlike).statistic)
