"""Transferability metrics: one file each, found by its name; `score(sample, *, options) -> Score` is what runs it.

Higher is better, always. The keyword arguments of a file's `score` are the metric's options. A file may also say

    NEEDS: of "features" (the default), "source_probs", "model", what the metric cannot do without;
    READS_FEATURES: False where the score does not depend on the values of the features, though it needs them;
    TAKES_NUMBERS: True where labels may be numbers (N, K): several labels an image, regression;
    wrapped(sample, inner, *, options) -> Score: a wrapper, written before a `+` (`ped+logme`); inner(sample) -> Score;
    over_zoo(parts) -> list[float]: the scores of a whole zoo, of a metric that a single model has only parts of.
"""

import importlib
from types import ModuleType

from sslkit import members
from sslkit.errors import UserError


def names() -> tuple[str, ...]:
    """Every metric."""
    return members.names(__name__)


def find(name: str) -> ModuleType:
    """The file of a metric. Raises UserError for an unknown name, with the nearest."""
    if name not in names():
        raise UserError(f"there is no transferability metric {name!r}: {members.nearest(name, names())}")
    return importlib.import_module(f"{__name__}.{name}")


def wrappers() -> tuple[str, ...]:
    """The metrics that can stand before a `+`."""
    return tuple(name for name in names() if hasattr(find(name), "wrapped"))
