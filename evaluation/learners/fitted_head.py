"""A linear classifier that stands in for a model's source classifier: on labels, or on clusters of the features."""

from collections.abc import Sequence

import numpy as np
from torch import nn
from tqdm import tqdm

from evaluation.learners.linear_heads import Scaling
from evaluation.learners.linear_parts import Part
from evaluation.learners.strengths import fit, problem, scores_of
from sslkit.data.held_out import held_out
from sslkit.errors import UserError
from sslkit.numerics.logistic import Probe
from sslkit.runtime.context import Runtime

HEAD_STRENGTHS = tuple(10.0**power for power in range(-5, 3))  # of the cross-entropy against the penalty
# Half the time of the tolerance of `linear`'s search, and probabilities within 0.01 of it in the mean, summed over the
# classes: a head says what an image looks like, it is no measured accuracy.
FIT = {"tol": 5e-3, "max_iter": 200, "promise": 1e-5}
ROUNDS = 25  # of k-means: a round number; later ones move few rows, and the clusters need not be the best
ON_CPU = Runtime(device="cpu")


def spherical_clusters(x: np.ndarray, k: int) -> np.ndarray:
    """Return the cluster (N,) int64 of each row, of at most k: spherical k-means by faiss, on the rows less their mean.

    x: (N, D) features, N at least k. Rectified features lie in a narrow cone, in which directions from 0 hardly differ.
    """
    import faiss

    centred = np.asarray(x, dtype=np.float64) - np.mean(x, 0, dtype=np.float64)
    lengths = np.linalg.norm(centred, axis=1, keepdims=True)
    rows = np.ascontiguousarray(centred / np.maximum(lengths, np.finfo(np.float32).tiny), dtype=np.float32)
    settings = {"niter": ROUNDS, "seed": 0, "spherical": True, "verbose": False}
    points = {"min_points_per_centroid": 1, "max_points_per_centroid": len(rows)}
    means = faiss.Kmeans(rows.shape[1], k, **settings, **points)
    means.train(rows)
    nearest = means.index.search(rows, 1)[1][:, 0]
    clusters = np.unique(nearest, return_inverse=True)[1].astype(np.int64)
    if clusters.max() < 1:
        raise UserError("all features are in one cluster: they do not differ")
    return clusters


def linear_head(
    x: np.ndarray, y: np.ndarray, ids: Sequence[str], groups: np.ndarray | None = None
) -> tuple[nn.Sequential, float]:
    """Fit a linear classifier and return it, features (N, D) -> logits (N, S), with the strength of its cross-entropy.

    x: (N, D). y: (N,) labels, those that occur become 0 ... S - 1 in order. ids: (N,) names. groups: (N,) of images
    that are held out together, or None.
    Logistic regression on standardised features; the penalty is the one of HEAD_STRENGTHS with the lowest
    cross-entropy on a fifth of each class that is held out by name, so that the probabilities are neither too sharp
    nor too flat. The final fit is to all rows, up to 5e-3 of the objective.
    """
    y = np.unique(y, return_inverse=True)[1].astype(np.int64)
    rows, out = np.arange(len(y)), held_out(y, ids, groups=groups)
    if not out.any():
        raise UserError(
            "no class has two images, so none can be held out to choose the penalty: more images, or fewer clusters"
        )
    scaling = Scaling.measure(x, rows, "standardize")
    learn, judge = (Part(x, rows[mask], y[mask]) for mask in (~out, out))
    regression = problem(learn, scaling, ON_CPU)
    probes: list[Probe] = []
    losses: list[float] = []
    for strength in tqdm(
        HEAD_STRENGTHS, "penalties of the head", leave=False, disable=None
    ):  # None: only on a terminal
        probes.append(fit(regression, strength, start=probes[-1] if probes else None, **FIT))
        losses.append(judge.loss(scores_of(probes[-1], judge, scaling), "top1"))
        if losses[-1] > min(losses):
            break
    chosen = probes[int(np.argmin(losses))]
    probe = fit(problem(Part(x, rows, y), scaling, ON_CPU), chosen.c, start=chosen, **FIT)
    return scaling.fold(probe.weight, probe.bias), probe.c
