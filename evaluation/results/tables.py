"""Results as a table for a terminal or a README: each number with its interval, kind and recipe."""

import sys
from collections.abc import Mapping, Sequence

from evaluation.results.result import Result
from evaluation.results.statistics import Estimate
from sslkit.errors import UserError
from sslkit.options.members import nearest
from sslkit.terminal.say import columns as columns_of_terminal
from sslkit.terminal.say import folded
from sslkit.terminal.tables import aligned, markdown

STYLES = ("text", "markdown")
COLUMNS = ("model", "data", "protocol", "metric", "value", "n", "interval", "recipe", "flags")
ALIGNED_RIGHT = ("value", "n")
SYMMETRIC = 0.02  # ends that differ by less than this share of the half width are written as one ±
DROPPED = ("in_train", "unreadable", "left_out", "dropped", "classes_of_one_image")  # details that count left-out items


def table(results: Sequence[Result], style: str = "text") -> str:
    """Return rows of model, data, protocol, metric, value with 95 % interval, n, kind of interval, recipe, flags.

    results: of `evaluation.evaluate` or of single protocols, in the order of the rows.
    style: "text", aligned columns, or "markdown". Empty columns are left out. A text that is wider than the terminal
    (80 columns where there is none) has model and data as headings and the recipes below the table.
    Fractions are shown in percent, other numbers in their unit. Flags: leaky (chosen on test data), not converged,
    and counts of left-out items.
    Raises UserError for an empty list and for an unknown style.
    """
    if style not in STYLES:
        raise UserError(f"there is no table style {style!r}: {nearest(style, STYLES)}")
    if not results:
        raise UserError("there is no result to show")
    rows = [_cells(result) for result in results]
    columns = [name for name in COLUMNS if any(row[name] for row in rows)]
    lines = [list(columns), *([row[name] for name in columns] for row in rows)]
    right = [columns.index(name) for name in ALIGNED_RIGHT if name in columns]
    if style == "markdown":
        return markdown(lines, right)
    wide = aligned(lines, right, sys.maxsize)
    return wide if max(map(len, wide.splitlines())) <= columns_of_terminal() else _folded(rows)


def _folded(rows: Sequence[Mapping[str, str]]) -> str:
    """The rows under their model and data, flags on a line of their own, and the recipes by number below the table."""
    lines, above = [["  protocol", "metric", "value", "n", "recipe"]], ""
    recipes = [  # of each row, and what its interval is over
        "; ".join(filter(None, (row["recipe"], row["interval"] and f"95 % interval: {row['interval']}")))
        for row in rows
    ]
    numbers = {text: f"[{number}]" for number, text in enumerate(filter(None, dict.fromkeys(recipes)), 1)}
    for row, text in zip(rows, recipes, strict=True):
        heading = " on ".join(filter(None, (row["model"], row["data"])))
        lines += [[heading]] if heading not in ("", above) else []
        above = heading
        lines += [[f"  {row['protocol']}", row["metric"], row["value"], row["n"], numbers.get(text, "")]]
        lines += [[f"    {row['flags']}"]] if row["flags"] else []
    below = [folded(f"{number} {text}") for text, number in numbers.items()]
    kept = [i for i, name in enumerate(lines[0]) if any(line[i] for line in lines[1:] if len(line) > 1)]
    lines = [line if len(line) == 1 else [line[i] for i in kept] for line in lines]
    right = [lines[0].index("n")] if "n" in lines[0] else []
    return "\n".join([aligned(lines, right), *([""] if below else []), *below])


def with_interval(estimate: Estimate) -> str:
    """ "78.5 % ± 1.8", "78.5 % (76.5 to 80.1)" where the ends are not alike, "0.538 distance ± 0.070"."""
    scale, suffix = (100.0, " %") if estimate.unit == "fraction" else (1.0, f" {estimate.unit}".rstrip())
    value = scale * estimate.value
    if estimate.interval is None:
        return f"{_rounded(value, _digits(value, estimate.unit))}{suffix}"
    low, high = (scale * end for end in estimate.interval)
    half = (high - low) / 2
    digits = _digits(half, estimate.unit)
    shown = f"{_rounded(value, digits)}{suffix}"
    ends = [_rounded(value - half, digits), _rounded(value + half, digits)]
    if abs((low + high) / 2 - value) <= SYMMETRIC * half or ends == [_rounded(low, digits), _rounded(high, digits)]:
        return f"{shown} ± {_rounded(half, digits)}"
    return f"{shown} ({_rounded(low, digits)} to {_rounded(high, digits)})"


def flags(result: Result) -> list[str]:
    """Return the warnings to show beside a number."""
    warnings = ["leaky: test data were used"] if result.leaky else []
    warnings += ["not converged"] if result.converged is False else []
    for name in DROPPED:
        count = result.details.get(name)
        count = len(count) if isinstance(count, (list, tuple)) else count
        warnings += [f"{count} {name.replace('_', ' ')}"] if count else []
    return warnings + ([result.details["notes"]] if result.details.get("notes") else [])


def _cells(result: Result) -> dict[str, str]:
    return {
        "model": result.model,
        "data": result.data,
        "protocol": result.protocol,
        "metric": result.metric,
        "value": with_interval(result.estimate),
        "n": f"{result.n:,}" if result.n else "",
        "interval": result.kind,
        "recipe": result.recipe,
        "flags": "; ".join(flags(result)),
    }


def _digits(size: float, unit: str) -> int:
    """Return the number of decimals: one for percent, else two significant digits of the interval."""
    if unit == "fraction":
        return 1
    digits = 0
    while digits < 6 and 0 < abs(size) * 10**digits < 9.5:
        digits += 1
    return digits


def _rounded(value: float, digits: int) -> str:
    return f"{value:,.{digits}f}"
