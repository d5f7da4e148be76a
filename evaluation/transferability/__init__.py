"""Transferability metrics: one file each, found by its name, with a function `score(sample, *, options) -> Score`.

Higher is always better. The keyword arguments of a file's `score` are the metric's options. A file may also define

    NEEDS: of "features" (the default), "source_probs", "model", "untrained", "boxes", the required inputs;
    READS_FEATURES: False if the metric needs features but does not depend on their values;
    TAKES_NUMBERS: True if labels may be numbers (N, K): several labels per image, regression;
    wrapped(sample, inner, *, options) -> Score: a wrapper, written before a `+` (`ped+logme`); inner(sample) -> Score;
    over_zoo(parts) -> list[float]: the scores of a whole zoo, for metrics that give only parts for a single model.
"""

from evaluation.transferability.base import find, names, wrappers

__all__ = ["find", "names", "wrappers"]
