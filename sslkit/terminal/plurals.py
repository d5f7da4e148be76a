"""A number with its noun, and the first names of a long list."""

from collections.abc import Sequence


def counted(number: int, noun: str) -> str:
    """Return `1 epoch`, `6 epochs`, `8,000 images`, `2 classes`."""
    ending = "" if number == 1 else "es" if noun.endswith("s") else "s"
    return f"{number:,} {noun}{ending}"


def and_more(names: Sequence[object], most: int = 3) -> str:
    """Return `a, b, c`, or for more than `most` names `a, b, c and 2 more`."""
    return ", ".join(map(str, names[:most])) + (f" and {len(names) - most} more" if len(names) > most else "")


def and_so_on(names: Sequence[str], most: int) -> str:
    """Return `a, b, c`, or for more than `most` names `a, b, c, ...`."""
    return ", ".join(names[:most]) + (", ..." if len(names) > most else "")


def lasting(seconds: float) -> str:
    """A time in words: `40 s`, `12 min`, `3.5 h`, `2.5 days`."""
    for size, unit in ((86_400, "days"), (3_600, "h")):
        if seconds >= 1.5 * size:
            return f"{seconds / size:.1f} {unit}"
    return f"{seconds / 60:.0f} min" if seconds >= 90 else f"{seconds:.0f} s"
