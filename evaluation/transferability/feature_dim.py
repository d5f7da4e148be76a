"""Number of features: the baseline that looks at a model's width only."""

from evaluation.transferability.base import Sample, Score

TAKES_NUMBERS = True
READS_FEATURES = False


def score(sample: Sample) -> Score:
    """D, the number of features: a metric that mostly follows it says little of the features themselves.

    Range: at least 1. Higher is better. Cost: none. Labels must be given, as to every metric, and
    may be of any kind: neither they nor the values say anything here.
    Source: none; a baseline.
    Not for: models of one architecture, which all get the same number.
    """
    return Score(float(sample.dim))
