"""A random number: the baseline at chance level."""

import hashlib

from torch import Tensor

from evaluation.transferability.base import Sample, Score

TAKES_NUMBERS = True
READS_FEATURES = False


def drawn(sample: Sample) -> float:
    """Return a number uniform in [0, 1), a function of seed, features and labels: reproducible, differs by model."""
    digest = hashlib.sha256(f"{sample.seed} {tuple(sample.x.shape)} ".encode())
    for _, block in sample.blocks():
        digest.update(_bytes(block))
    digest.update(_bytes(sample.targets if sample.y is None else sample.y))
    return (int.from_bytes(digest.digest()[:8], "big") >> 11) / 2**53


def score(sample: Sample) -> Score:
    """A uniform number that depends on the seed, the features and the labels only: chance, for comparison.

    Labels may be of any kind.

    Range: 0 to 1. Higher has no meaning, but counts as better. Cost: O(N D).
    Source: none; a baseline.
    Not for: choosing a model. One draw is one ranking: compare with many seeds.
    """
    return Score(drawn(sample))


def _bytes(values: Tensor) -> memoryview:
    return values.cpu().contiguous().numpy().data
