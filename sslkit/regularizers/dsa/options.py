"""What DSA's options may be."""

import math
from typing import Any

from sslkit.errors import UserError
from sslkit.regularizers.dsa import arranging, scoring
from sslkit.regularizers.dsa.arranging import one_of

CHOICES = {
    "arranger": ("mlp", "cosine"),
    "mode": ("cached", "view"),
    "neighbours": ("auto", "batch", "dataset", "none"),
    "phi": arranging.PHIS,
    "normalise": arranging.NORMALISE,
    "inputs": arranging.INPUTS,
    "reduction": arranging.REDUCTIONS,
    "score_mode": arranging.SCORE_MODES,
    "rule": scoring.RULES,
    "frobenius": scoring.FROBENIUS,
    "where": ("projection", "backbone"),
    "ddp": ("gathered", "local"),
}


def check(given: dict[str, Any]) -> None:
    """Raises UserError for the first option that is out of range, by name."""
    for name, known in CHOICES.items():
        one_of(f"dsa.{name}", given[name], known)
    for name in ("nu", "upsilon", "nu_warmup", "mu"):
        if not given[name] >= 0:
            raise UserError(f"dsa.{name}={given[name]} must not be negative")
    for name in ("gamma", "hidden", "eta"):
        if not given[name] > 0:
            raise UserError(f"dsa.{name}={given[name]} must be above 0")
    tau = given["tau"]
    if tau != "auto" and not (isinstance(tau, (int, float)) and tau > 0):
        raise UserError(f"dsa.tau={tau!r} must be a number above 0, or auto")
    if given["where"] == "backbone" and given["arranger"] == "mlp" and not given["width"]:
        raise UserError("dsa.where=backbone needs dsa.width, the width of the backbone's features (or arranger=cosine)")
    prior = given["prior"]
    if given["mode"] == "view" and isinstance(prior, str) and prior.startswith("features:"):
        raise UserError("dsa.prior=features:FILE knows clean images only: use dsa.mode=cached")


def parse_alpha(alpha: float | str) -> tuple[float, bool]:
    """A number, or "relative:C", C over the number of rows; "relative" alone is C = 2: pairs above uniform attract."""
    text = str(alpha)
    relative = text.startswith("relative")
    number = text.removeprefix("relative").removeprefix(":") or "2" if relative else text
    try:
        threshold = float(number)
    except ValueError:
        threshold = math.nan
    if not math.isfinite(threshold):
        raise UserError(f"dsa.alpha={alpha!r} must be a number or relative:C, for C / n")
    return threshold, relative
