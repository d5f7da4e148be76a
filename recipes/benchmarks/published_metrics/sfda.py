"""SFDA as published: a covariance for each class, a generalised eigenproblem in each of two stages."""

import numpy as np


def published(x: np.ndarray, y: np.ndarray) -> float:
    x = x.astype(np.float64)
    classes = int(y.max()) + 1
    first, g = _posterior(x, y, classes, None)
    soft = np.exp(first) / np.exp(first).sum(1, keepdims=True)
    means = np.stack([x[y == c].mean(0) for c in range(classes)])
    others = (means.sum(0) - means) / (classes - 1)
    q = soft[np.arange(len(y)), y][:, None]
    second, _ = _posterior(q * x + (1 - q) * others[y], y, classes, g)
    return float(second[np.arange(len(y)), y].mean())


def _posterior(x: np.ndarray, y: np.ndarray, classes: int, g: float | None) -> tuple[np.ndarray, float]:
    """(N, C) of the regularised discriminant, and the shrinkage (computed where it is not given)."""
    from scipy.linalg import eigh

    d = x.shape[1]
    shares = np.bincount(y, minlength=classes) / len(y)
    means = np.stack([x[y == c].mean(0) for c in range(classes)])
    within = np.zeros((d, d))
    for c in range(classes):
        within += shares[c] * np.cov(x[y == c].T, bias=True)
    if g is None:
        g = max(float(np.exp(-5 * leading(within))), 1e-10)
    total = np.cov(x.T, bias=True)
    a, t = (shrunk(s, g) for s in (within, total))
    _, vectors = eigh(t - a, a)
    weights = means @ vectors @ vectors.T
    logits = x @ weights.T - np.diag(means @ weights.T) / 2 + np.log(shares)
    p = np.exp(logits - logits.max(1, keepdims=True))
    return p / p.sum(1, keepdims=True), g


def leading(s: np.ndarray) -> float:
    v = s.sum(1)
    for _ in range(3):
        u = s @ v
        u /= np.linalg.norm(u)
        v = s @ u
        v /= np.linalg.norm(v)
    return float(v @ s @ u)


def shrunk(s: np.ndarray, g: float) -> np.ndarray:
    return (1 - g) * s + g * np.trace(s) / len(s) * np.eye(len(s))
