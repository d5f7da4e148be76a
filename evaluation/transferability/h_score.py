"""H-score: spread of the class means in units of the features' total covariance."""

from evaluation.transferability._scatter import Scatter
from evaluation.transferability.base import Sample, Score


def h_score(scatter: Scatter) -> tuple[float, int]:
    """tr(pinv(cov X) cov(g)), g_i = mu_{y_i} (Bao et al. 2019, eq. 1), and the rank of cov X.

    Computed as ||Z||_F^2 of Z = sqrt(n_c) (mu_c - m) in coordinates where the total scatter is the identity.
    """
    varies = scatter.varies
    whitened = scatter.eigenbasis.coordinates(scatter.moments.spread.T)[varies] / scatter.values[varies, None].sqrt()
    return float(whitened.square().sum()), int(varies.sum())


def score(sample: Sample) -> Score:
    """tr(pinv(cov X) cov(g)): between-class covariance in units of the total one.

    Range: 0 to C - 1. Higher is better. Cost: O(N D^2 + D^3), shared with other metrics.
    Source: Bao et al., An Information-Theoretic Approach to Transferability, ICIP 2019, eq. 1.
    Not for: D >= N - 1, where it is C - 1 for every model; use h_score_regularized.
    """
    n = len(sample.labels)
    value, rank = h_score(sample.compact.scatter)
    warnings = ()
    if rank >= n - 1:
        warnings = (f"{rank} independent features for {n} images: H-score is C - 1 whatever the model",)
    return Score(value, {"rank": rank}, warnings)
