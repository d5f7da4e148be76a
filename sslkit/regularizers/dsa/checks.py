"""Types and ranges of DSA's options."""

import math
from typing import Any, Literal, get_args

from torch import Tensor

from sslkit.errors import UserError, check_one_of, format_value
from sslkit.regularizers.base import Place

Variant = Literal["paper", "code"]
Arranger = Literal["mlp", "cosine"]
Neighbours = Literal["auto", "batch", "dataset", "none"]

LEAST_TAU = 1e-3  # distances of unit vectors are rounded to 3e-4, their squares to 1e-7
CHOICES = {"variant": Variant, "reads": Place, "arranger": Arranger, "neighbours": Neighbours}


def check_choices(*, prior: Any, **given: str) -> None:
    """Raises UserError for the first of `CHOICES` with another value, by name, and for two that exclude each other."""
    for name, choices in CHOICES.items():
        check_one_of(f"dsa.{name}", given[name], get_args(choices))
    if given["arranger"] == "cosine" and given["variant"] == "code":
        raise UserError("dsa.arranger=cosine (Table X) needs dsa.variant=paper")
    if given["neighbours"] == "dataset" and prior == "self":
        raise UserError("dsa.prior=self changes in every step: its neighbours are those of the batch, neighbours=batch")


def check_numbers(*, tau: float | str, **given: float) -> None:
    """Raises UserError for the first number out of range, by name."""
    for name in ("nu", "upsilon", "mu"):
        if not given[name] >= 0:
            raise UserError(f"dsa.{name} must be at least 0, got {given[name]}")
    for name in ("gamma", "hidden", "eta"):
        if not given[name] > 0:
            raise UserError(f"dsa.{name} must be above 0, got {given[name]}")
    if tau != "auto" and not (isinstance(tau, (int, float)) and tau >= LEAST_TAU):
        raise UserError(f"dsa.tau must be a number of at least {LEAST_TAU}, or auto, got {format_value(tau)}")


def fitting(x: Tensor, dim: int, place: str) -> Tensor:
    """Return the embeddings (V, N, D) of a place. Raises UserError for another width than DSA was made for."""
    if x.shape[-1] != dim:
        raise UserError(
            f"dsa was made for {dim} dimensions, and {place} has {x.shape[-1]}: give it that width, or dsa.reads"
        )
    return x


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
        raise UserError(f"dsa.alpha must be a number or relative:C, for C / n, got {format_value(alpha)}")
    return threshold, relative
