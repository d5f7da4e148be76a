"""A metric of one file, as a user writes one."""

OWN_METRIC = '''"""The distance of class means, times a factor."""

from evaluation.transferability.base import Sample, Score


def score(sample: Sample, *, times: int = 2) -> Score:
    """The spread of the class means.

    times: factor of the score.
    """
    return Score(times * sample.moments.means.std(0).mean().item())
'''
