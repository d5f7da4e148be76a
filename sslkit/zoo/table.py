"""The zoo as a table: one row per entry, with results from its card, or from evaluation results in its folder."""

import json
import math
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from sslkit.errors import UserError
from sslkit.text_tables import aligned
from sslkit.zoo import weights
from sslkit.zoo.entry import WEIGHTS, ZooEntry

RESULTS = "results.jsonl"  # written by evaluation
COLUMNS = ("name", "method", "data", "epochs", "kNN", "linear", "RankMe", "M params", "MB", "date")
RIGHT = range(3, 9)  # columns of numbers
STATISTICS = ("running_mean", "running_var", "num_batches_tracked")  # of batch norm: buffers, not parameters
NOTES = {"*": "by evaluation, on the same data", "^": "at the end of training, on training images"}


@dataclass(frozen=True)
class Number:
    """A measured number: its value, the card's key for it, and the mark of its note, "" for the end of training."""

    value: float
    key: str
    mark: str = ""


def rows(zoo: Iterable[ZooEntry]) -> list[dict[str, Any]]:
    """One mapping per entry from the columns to plain values, None for unknown ones; sorted by name.

    kNN and linear are fractions. A value with a note in `NOTES` has its mark under the column's name + "_mark".
    """
    return [_row(entry) for entry in sorted(zoo, key=lambda entry: entry.folder.name)]


def table(zoo: Iterable[ZooEntry], damaged: Mapping[Path, str]) -> str:
    """The rows as aligned text, the notes that apply, and one line for each damaged entry.

    damaged: the fault of each entry that could not be read, by its folder.
    """
    found = rows(zoo)
    cells = [[_cell(name, row) for name in COLUMNS] for row in found]
    text = [aligned([COLUMNS, *cells], RIGHT)]
    marks = {row[key] for row in found for key in row if key.endswith("_mark")}
    text += [f"{mark} {said}" for mark, said in NOTES.items() if mark in marks]
    if damaged:
        text += ["", f"left out, {len(damaged)} that cannot be read:"]
        text += [f"  {folder.name}: {reason}" for folder, reason in sorted(damaged.items())]
    return "\n".join(text)


def measured(entry: ZooEntry) -> dict[str, Number]:
    """kNN, linear and RankMe, if they were measured."""
    card = entry.card
    after, trained_on = card.get("after", {}), card.get("data", {}).get("held_out") is False
    evaluated = _evaluated(entry)
    found = {}
    for name, protocol, key in (("kNN", "knn", "knn"), ("linear", "linear", "probe")):
        if protocol in evaluated:
            found[name] = Number(evaluated[protocol], key, "*")
        elif _finite(after.get(key)):
            found[name] = Number(after[key], key, "^" if trained_on else "")
    if _finite(rank := card.get("diagnostics", {}).get("rankme")):
        found["RankMe"] = Number(rank, "rankme")
    return found


def _row(entry: ZooEntry) -> dict[str, Any]:
    card, numbers = entry.card, measured(entry)
    parameters, size = _size(entry)
    row = {
        "name": entry.folder.name,
        "method": card.get("method"),
        "data": card.get("data", {}).get("source"),
        "epochs": card.get("epochs"),
        **{name: numbers[name].value if name in numbers else None for name in ("kNN", "linear", "RankMe")},
        "M params": parameters,
        "MB": size,
        "date": card.get("date"),
    }
    return row | {f"{name}_mark": number.mark for name, number in numbers.items() if number.mark}


def _cell(name: str, row: dict[str, Any]) -> str:
    value = row[name]
    if value is None:
        return "-"
    if name in ("kNN", "linear"):
        return f"{100 * value:.1f} %{row.get(f'{name}_mark', ' ')}"
    if name in ("M params", "MB"):
        return f"{value:.2f}" if value < 10 else f"{value:.1f}"
    if name == "RankMe":
        return f"{value:.1f}"
    return value[:10] if name == "date" else str(value)


def _evaluated(entry: ZooEntry) -> dict[str, float]:
    """Latest top-1 of each protocol on the training data set; leaky results are ignored."""
    path, data = entry.folder / RESULTS, entry.card.get("data", {}).get("source")
    found: dict[str, float] = {}
    for line in path.read_text(errors="replace").splitlines() if path.is_file() else ():
        try:
            record = json.loads(line)
        except ValueError:  # cut off by a kill; evaluation repairs the file at its next write
            continue
        if not isinstance(record, dict) or not _finite(record.get("value")):
            continue
        if (record.get("data"), record.get("metric"), record.get("leaky")) == (data, "top1", False):
            found[record.get("protocol", "")] = record["value"]
    return found


def _size(entry: ZooEntry) -> tuple[float | None, float | None]:
    """Millions of parameters and megabytes of the weights file, from its header; None for a damaged file."""
    path = entry.folder / WEIGHTS
    try:
        shapes = weights.shapes(path)
    except UserError:
        return None, None
    count = sum(math.prod(shape) for name, shape in shapes.items() if not name.endswith(STATISTICS))
    return count / 1e6, path.stat().st_size / 1e6


def _finite(value: Any) -> bool:
    return isinstance(value, (int, float)) and math.isfinite(value)
