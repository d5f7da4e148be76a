"""Number of features: a baseline that uses only a model's width."""

from evaluation.transferability.base import Sample, Score

TAKES_NUMBERS = True
READS_FEATURES = False


def score(sample: Sample) -> Score:
    """D, the number of features: a metric that mostly follows it carries little information about the features.

    Range: at least 1. Higher is better. Cost: none. Labels of any kind are required, as for every metric, but
    neither they nor the feature values are used.
    Source: none; a baseline.
    Not for: models of one architecture, which all get the same number.
    """
    return Score(float(sample.dim))
