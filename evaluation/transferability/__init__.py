"""Transferability metrics: one file each, found by its name, with a function `score(sample, *, options) -> Score`.

Higher is always better. The keyword arguments of a file's `score` are the metric's options. A file may also define

    NEEDS: of "features" (the default), "source_probs", "model", the required inputs;
    READS_FEATURES: False if the metric needs features but does not depend on their values;
    TAKES_NUMBERS: True if labels may be numbers (N, K): several labels per image, regression;
    wrapped(sample, inner, *, options) -> Score: a wrapper, written before a `+` (`ped+logme`); inner(sample) -> Score;
    over_zoo(parts) -> list[float]: the scores of a whole zoo, for metrics that give only parts for a single model.
"""

import importlib
from types import ModuleType

from sslkit import members
from sslkit.errors import UserError


def names() -> tuple[str, ...]:
    """Return the names of all metrics."""
    return members.names(__name__)


def find(name: str) -> ModuleType:
    """Return the module of a metric. Raises UserError for an unknown name and suggests the nearest."""
    if name not in names():
        raise UserError(f"there is no transferability metric {name!r}: {members.nearest(name, names())}")
    return importlib.import_module(f"{__name__}.{name}")


def wrappers() -> tuple[str, ...]:
    """Return the metrics that can be written before a `+`."""
    return tuple(name for name in names() if hasattr(find(name), "wrapped"))
