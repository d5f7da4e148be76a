"""Results as a table for a terminal or a README: each number with its interval, kind and recipe."""

import sys
from collections.abc import Mapping, Sequence

from evaluation.results import unseen
from evaluation.results.result import Result
from evaluation.results.statistics import Estimate
from sslkit.errors import UserError
from sslkit.options.members import nearest
from sslkit.terminal.say import columns as columns_of_terminal
from sslkit.terminal.say import fold
from sslkit.terminal.tables import align, markdown

STYLES = ("text", "markdown")
COLUMNS = ("model", "data", "protocol", "metric", "value", "n", "interval", "recipe", "flags")
ALIGNED_RIGHT = ("value", "n")
# ends that differ by less than this share of the half width are written as one ±: two digits would not show it
SYMMETRIC = 0.02
DROPPED = ("left_out", "dropped", "classes_of_one_image")  # details that count left-out items
HIGHER = ("distance", "rank", "ratio", "silhouette")  # units, of which higher is better
LOWER = ("squared distance", "squared error", "nats")
UP, DOWN = "↑", "↓"


def table(results: Sequence[Result], style: str = "text") -> str:
    """Return rows of model, data, protocol, metric, value with 95 % interval, n, kind of interval, recipe, flags.

    results: of `evaluation.evaluate` or of single protocols, in the order of the rows.
    style: "text", aligned columns, or "markdown". Empty columns are left out. A text that is wider than the terminal
    (80 columns where there is none) has model and data as headings and the recipes below the table.
    Fractions are shown in percent, other numbers in their unit. Flags: leaky (see `Result`), not converged,
    and counts of left-out items. Below a text stand the notes of each data set, see `notes_of`.
    Raises UserError for an empty list and for an unknown style.
    """
    if style not in STYLES:
        raise UserError(f"there is no table style {style!r}: {nearest(style, STYLES)}")
    if not results:
        raise UserError("there is no result to show")
    rows = [_cells(result, style == "markdown") for result in results]
    columns = [name for name in COLUMNS if any(row[name] for row in rows)]
    lines = [list(columns), *([row[name] for name in columns] for row in rows)]
    right = [columns.index(name) for name in ALIGNED_RIGHT if name in columns]
    if style == "markdown":
        return markdown(lines, right)
    wide = align(lines, right, sys.maxsize)
    fits = max(map(len, wide.splitlines())) <= columns_of_terminal()
    below = [*_legend(results), *notes_of(results)]
    return "\n".join([wide if fits else _fold(rows), *([""] if below else []), *map(fold, below)])


def _fold(rows: Sequence[Mapping[str, str]]) -> str:
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
    below = [fold(f"{number} {text}") for text, number in numbers.items()]
    used = [i for i, name in enumerate(lines[0]) if any(line[i] for line in lines[1:] if len(line) > 1)]
    lines = [line if len(line) == 1 else [line[i] for i in used] for line in lines]
    right = [lines[0].index("n")] if "n" in lines[0] else []
    return "\n".join([align(lines, right), *([""] if below else []), *below])


def with_interval(estimate: Estimate) -> str:
    """ "78.5 % ± 1.8", "78.5 % (76.5 to 80.1)" where the ends are not alike, "0.538 distance ± 0.070"."""
    scale, suffix = (100.0, " %") if estimate.unit == "fraction" else (1.0, f" {estimate.unit}".rstrip())
    value = scale * estimate.value
    if estimate.interval is None:
        return f"{_format_number(value, _digits(value, estimate.unit))}{suffix}"
    low, high = (scale * end for end in estimate.interval)
    half = (high - low) / 2
    digits = _digits(half, estimate.unit)
    shown = f"{_format_number(value, digits)}{suffix}"
    ends = [_format_number(value - half, digits), _format_number(value + half, digits)]
    if abs((low + high) / 2 - value) <= SYMMETRIC * half or ends == [
        _format_number(low, digits),
        _format_number(high, digits),
    ]:
        return f"{shown} ± {_format_number(half, digits)}"
    return f"{shown} ({_format_number(low, digits)} to {_format_number(high, digits)})"


def value_of(result: Result) -> str:
    """Return the value with its interval; where test images were trained on, also the value without these."""
    return with_interval(result.estimate) + unseen.describe(result, with_interval)


def flags(result: Result) -> list[str]:
    """Return the warnings to show beside a number."""
    warnings = ["leaky: test data were used"] if result.leaky else []
    warnings += ["not converged"] if result.converged is False else []
    return warnings + [counted for name in DROPPED if (counted := _count(result, name))]


def notes_of(results: Sequence[Result]) -> list[str]:
    """Return a line for each data set: the accuracy without a look at the images, and what holds for all its results.

    What holds for some of its models only names these.
    """
    lines = []
    for data in dict.fromkeys(result.data for result in results):
        of_data = [result for result in results if result.data == data]
        models = dict.fromkeys(result.model for result in of_data)
        models_of: dict[str, dict[str, None]] = {}
        for result in of_data:
            for note in _notes(result):
                models_of.setdefault(note, {})[result.model] = None
        notes = [note if len(of) == len(models) else f"{note} ({', '.join(of)})" for note, of in models_of.items()]
        lines += [": ".join(filter(None, (data, "; ".join(notes))))] if notes else []
    return lines


def _notes(result: Result) -> list[str]:
    """Return what a result says about its data set rather than about itself."""
    largest = result.details.get("largest_class")
    always = f"always the largest class: {100 * largest:.1f} %" if largest else ""
    levels = result.details.get("chance") or {}
    random = ", ".join(f"{name} {100 * value:.1f} %" for name, value in levels.items())
    always = f"random scores: {random}" if random else always
    return [
        note for note in (always, _count(result, "unreadable"), *result.details.get("notes", "").split("; ")) if note
    ]


def _count(result: Result, name: str) -> str:
    count = result.details.get(name)
    count = len(count) if isinstance(count, (list, tuple)) else count
    return f"{count} {name.replace('_', ' ')}" if count else ""


def direction(number: Result | Estimate) -> str:
    """Return an arrow for the better direction of a number that is no share, "" where it is not known."""
    return UP if number.unit in HIGHER else DOWN if number.unit in LOWER else ""


def _legend(results: Sequence[Result]) -> list[str]:
    arrows = set(map(direction, results))
    words = [f"{arrow} {word}" for arrow, word in ((UP, "higher"), (DOWN, "lower")) if arrow in arrows]
    return [f"{', '.join(words)} is better"] if words else []


def _cells(result: Result, whole: bool) -> dict[str, str]:
    return {
        "model": result.model,
        "data": result.data,
        "protocol": result.protocol,
        "metric": f"{result.metric} {direction(result)}".rstrip(),
        "value": value_of(result),
        "n": f"{result.n:,}" if result.n else "",
        "interval": result.kind,
        "recipe": result.recipe,
        "flags": "; ".join([*flags(result), *(_notes(result) if whole else [])]),
    }


def _digits(size: float, unit: str) -> int:
    """Return the number of decimals: one for percent, else two significant digits of the interval."""
    if unit == "fraction":
        return 1
    digits = 0
    while digits < 6 and 0 < abs(size) * 10**digits < 9.5:
        digits += 1
    return digits


def _format_number(value: float, digits: int) -> str:
    return f"{value:,.{digits}f}"
