"""How far clusters agree with classes, and what each image adds to that."""

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

Agreed = tuple[float, np.ndarray]  # a value, and (N,) that of each image to first order, whose mean is the value


@dataclass(frozen=True)
class Contingency:
    """Shares of images by class and cluster. cell: (N,) place of each image in the P cells that have any.

    joint: (P,) shares of these. y, cluster: (N,) numbers. of_class, of_cluster: shares by number.
    """

    cell: np.ndarray
    joint: np.ndarray
    y: np.ndarray
    cluster: np.ndarray
    of_class: np.ndarray
    of_cluster: np.ndarray

    @classmethod
    def count(cls, y: np.ndarray, cluster: np.ndarray) -> "Contingency":
        y, cluster = (np.unique(labels, return_inverse=True)[1] for labels in (y, cluster))
        _, cell, counts = np.unique(y * (cluster.max() + 1) + cluster, return_inverse=True, return_counts=True)
        shares = (np.bincount(labels) / len(y) for labels in (y, cluster))
        return cls(cell, counts / len(y), y, cluster, *shares)

    def by_image(self) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        """Return (N,) shares of each image's cell, class and cluster."""
        return self.joint[self.cell], self.of_class[self.y], self.of_cluster[self.cluster]


def mutual_information(table: Contingency) -> Agreed:
    """Normalised by the mean of both entropies (NMI, as scikit-learn's)."""
    joint, of_class, of_cluster = table.by_image()
    information, entropy = np.log(joint / (of_class * of_cluster)), -np.log(of_class * of_cluster) / 2
    scale = entropy.mean()
    if scale == 0:  # one class and one cluster
        return 1.0, np.ones(len(joint))
    value = float(information.mean() / scale)
    return value, value + (information - value * entropy) / scale


def rand_index(table: Contingency) -> Agreed:
    """Pairs of images on which both agree, less those by chance (ARI, Hubert & Arabie 1985)."""
    n, shares = len(table.y), table.by_image()
    together, in_class, in_cluster = ((n * share.mean() - 1) / (n - 1) for share in shares)
    expected, most = in_class * in_cluster, (in_class + in_cluster) / 2
    if most == expected:  # one class and one cluster, or as many of each as images
        return 1.0, np.ones(n)
    value = float((together - expected) / (most - expected))
    change = [2 * (share - share.mean()) for share in shares]
    of_expected = in_class * change[2] + in_cluster * change[1]
    of_most = (change[1] + change[2]) / 2
    return value, value + (change[0] - of_expected - value * (of_most - of_expected)) / (most - expected)


def matching_accuracy(table: Contingency) -> Agreed:
    """Share of images whose cluster is matched with their class, one to one, so that most are right (Kuhn 1955)."""
    from scipy.optimize import linear_sum_assignment

    counts = np.zeros((len(table.of_class), len(table.of_cluster)))
    np.add.at(counts, (table.y, table.cluster), 1)
    rows, columns = linear_sum_assignment(counts, maximize=True)
    class_of = np.full(counts.shape[1], -1)
    class_of[columns] = rows
    right = (class_of[table.cluster] == table.y).astype(float)
    return float(right.mean()), right


MEASURES: dict[str, Callable[[Contingency], Agreed]] = {
    "nmi": mutual_information,
    "ari": rand_index,
    "cluster_accuracy": matching_accuracy,
}


def k_means(x: np.ndarray, k: int, iterations: int, seed: int, learned: np.ndarray | None = None) -> np.ndarray:
    """Return (N,) clusters of rows x (N, D) float32 by faiss, from k of them that are drawn by the seed.

    learned: (n,) rows that the centres are of; None: all.
    """
    import faiss

    how = {"min_points_per_centroid": 1, "max_points_per_centroid": len(x)}  # no sample of the rows
    solver = faiss.Kmeans(x.shape[1], k, niter=iterations, seed=seed, **how)
    solver.train(x if learned is None else x[learned])
    return solver.index.search(x, 1)[1][:, 0]
