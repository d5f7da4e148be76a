"""Types and ranges of DSA's options, and the replacements of removed options."""

import math
from typing import Any, Literal, get_args

from sslkit.errors import UserError
from sslkit.members import Former
from sslkit.regularizers.dsa.arranging import one_of

Variant = Literal["paper", "code"]
Arranger = Literal["mlp", "cosine"]
Mode = Literal["cached", "view"]
Neighbours = Literal["auto", "batch", "dataset", "none"]

LEAST_TAU = 1e-3  # distances of unit vectors are rounded to 3e-4, their squares to 1e-7
CHOICES = {"variant": Variant, "arranger": Arranger, "mode": Mode, "neighbours": Neighbours}
_CODE = "variant=code has the public code's form; in Python the argument of that name of "
FORMER = {
    "phi": Former("relu", "in Python: ArrangingMLP(phi=...)"),
    "normalise": Former("row", "in Python: ArrangingMLP(normalise=...) and prior_matrix(normalise=...)"),
    "inputs": Former("concat", f"{_CODE}ArrangingMLP"),
    "kernel": Former("auto", "in Python: ArrangingMLP(kernel=...)"),
    "squared": Former(False, "in Python: arrange_loss(squared=...)"),
    "reduction": Former("sum", f"{_CODE}arrange_loss"),
    "score_mode": Former("outside", f"{_CODE}arrange_loss"),
    "include_self": Former(False, "in Python: arrange_loss(include_self=...)"),
    "rule": Former("threshold", "in Python: connectivity_score(rule=...)"),
    "include_direct": Former(False, "in Python: connectivity_score(include_direct=...)"),
    "prior_squared": Former(True, "variant=code has the plain distance; in Python: prior_matrix(squared=...)"),
    "center": Former(False, "in Python: prior_matrix(center=...), or a function as prior that centres its features"),
    "frobenius": Former("squared", f"{_CODE}consistency_loss"),
    "detach_regulator": Former(False, "in Python: arrange_loss(z, m.detach())"),
    "detach_embedding": Former(False, "in Python: ArrangingMLP(...)(z.detach())"),
    "where": Former("projection", "in Python: DSA(width).terms(dataclasses.replace(e, z=e.h), images)"),
    "width": Former(None, "in Python: DSA(width).terms(dataclasses.replace(e, z=e.h), images)"),
    "ddp": Former("gathered", "variant=code pairs the images of each process separately"),
    "nu_warmup": Former(0, "in Python: nu is read in every step, so a training loop may change it"),
}


def check(given: dict[str, Any]) -> None:
    """Raises UserError for the first option that is out of range, by name."""
    for name, known in CHOICES.items():
        one_of(f"dsa.{name}", given[name], get_args(known))
    for name in ("nu", "upsilon", "mu"):
        if not given[name] >= 0:
            raise UserError(f"dsa.{name} must be at least 0, got {given[name]}")
    for name in ("gamma", "hidden", "eta"):
        if not given[name] > 0:
            raise UserError(f"dsa.{name} must be above 0, got {given[name]}")
    tau = given["tau"]
    if tau != "auto" and not (isinstance(tau, (int, float)) and tau >= LEAST_TAU):
        raise UserError(f"dsa.tau must be a number of at least {LEAST_TAU}, or auto, got {tau!r}")
    if given["arranger"] == "cosine" and given["variant"] == "code":
        raise UserError("dsa.arranger=cosine (Table X) needs dsa.variant=paper")
    prior = given["prior"]
    if given["mode"] == "view" and isinstance(prior, str) and prior.startswith("features:"):
        raise UserError("dsa.prior=features:FILE has features of clean images only: use method.dsa.mode=cached")


def parse_alpha(alpha: float | str) -> tuple[float, bool]:
    """Parse a number, or "relative:C" as C / number of rows; "relative" is C = 2: pairs above uniform attract."""
    text = str(alpha)
    relative = text.startswith("relative")
    number = text.removeprefix("relative").removeprefix(":") or "2" if relative else text
    try:
        threshold = float(number)
    except ValueError:
        threshold = math.nan
    if not math.isfinite(threshold):
        raise UserError(f"dsa.alpha must be a number or relative:C, for C / n, got {alpha!r}")
    return threshold, relative
