"""Checks of arguments shared by many functions of evaluation: ranges, image sizes."""

from collections.abc import Iterable, Mapping, Sequence
from numbers import Integral, Real
from typing import Any

import numpy as np

from sslkit.errors import UserError
from sslkit.options.settings import Declared, Limits


def check_value(name: str, value: Any, kind: Any, **limits: Any) -> Any:
    """Return the value if it has the type `kind`, such as `int | None`, and is within `sslkit.options.settings.Limits`.

    Raises UserError with the name, the allowed values and the value.
    """
    return Declared(name, kind, Limits(**limits), None, "").check(value)


def whole_number(name: str, value: Any, least: int) -> int:
    """Convert an integer of any type (also numpy's) to int. Raises UserError for other values, or below `least`."""
    if not isinstance(value, Integral) or isinstance(value, bool) or value < least:
        raise UserError(f"{name}={value!r} must be a whole number from {least}")
    return int(value)


def as_list(name: str, values: Any) -> list[Any]:
    """A list of at least one value; one number is a list of it. Raises UserError."""
    if isinstance(values, Real) and not isinstance(values, bool):
        return [values]
    if isinstance(values, (str, Mapping)) or not isinstance(values, Iterable) or not (entries := list(values)):
        raise UserError(f"{name}={values!r} must be a list of at least one number")
    return entries


def different_seeds(seeds: int | Sequence[int]) -> list[int]:
    """The seeds as ints; one number is one seed.

    Raises UserError if there are none, one comes twice, or one is no whole number from 0.
    """
    numbers = [whole_number("seeds: a seed", seed, 0) for seed in as_list("seeds", seeds)]
    if len(set(numbers)) < len(numbers):
        raise UserError(f"seeds={seeds!r} must be different whole numbers from 0")
    return numbers


def refuse_holes(values: Any, what: str) -> None:
    """Raises UserError for arrays without a number in each place, whose missing ones NumPy and torch make up."""
    if np.ma.is_masked(values):
        raise UserError(f"{what} are masked in places, where there is no value: leave these rows out")
    if hasattr(values, "toarray") or str(getattr(values, "layout", "torch.strided")) != "torch.strided":
        raise UserError(f"{what} are a sparse array: give a dense one, x.toarray() of SciPy or x.to_dense() of torch")


def is_no_label(label: Any) -> bool:
    """Return whether a label is None, NaN or the missing value of pandas, which cannot be compared."""
    return label is None or type(label).__name__ == "NAType" or label != label


def of_column(y: np.ndarray) -> np.ndarray:
    """Labels (N,) of a column (N, 1), as tables have them; others as they are."""
    return y[:, 0] if y.ndim == 2 and y.shape[1] == 1 else y


def of_one_hot(y: np.ndarray) -> np.ndarray | None:
    """Return the column (N,) of the single 1 of each row (N, K) that has zeros beside it; None for other labels."""
    if y.ndim != 2 or y.shape[1] < 2 or y.dtype.kind not in "fiub":
        return None
    is_one = y == 1
    return is_one.argmax(1) if (is_one.sum(1) == 1).all() and ((y == 0) | is_one).all() else None
