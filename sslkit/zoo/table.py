"""A zoo: the readable entries of a folder, and a table of them with results from their cards or by evaluation."""

import json
import math
import sys
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from sslkit.decision import LARGEST, RAW, START, Decision, decide_shares
from sslkit.errors import UserError
from sslkit.numerics.wilson import units_of, with_interval
from sslkit.terminal.say import columns, counted, fold
from sslkit.terminal.tables import align
from sslkit.zoo import weights
from sslkit.zoo.entry import CARD, WEIGHTS, ZooEntry

RESULTS = "results.jsonl"  # written by evaluation
MADE = ("method", "data", "epochs")  # how an entry was made; a usual name says it
QUICK, EVALUATED = ("quick kNN", "quick probe"), ("kNN", "linear")
BEFORE = "before"  # the quick probe of the weights that the run began with
MEASURED = (*QUICK, BEFORE, *EVALUATED, "RankMe")
COLUMNS = ("name", *MADE, *MEASURED, "M params", "MB", "date")
NUMBERS = ("epochs", *MEASURED, "M params", "MB")  # aligned right
STATISTICS = ("running_mean", "running_var", "num_batches_tracked")  # of batch norm: buffers, not parameters
NOTES = {"*": "by evaluation, on the same data", "^": "at the end of training, on training images"}
ORIGIN = {
    QUICK: "quick: measured in seconds at the end of training, with its 95 % interval",
    (BEFORE,): "before: the quick probe of the weights that the run began with",
    EVALUATED: "kNN, linear: by evaluation",
}


@dataclass(frozen=True)
class Number:
    """A measured number: its value, the card's key for it ("" if the card lacks it), and the mark of its note, "" for
    the end of training. n: images that its interval is over; 0 where that is not known.
    """

    value: float
    key: str
    mark: str = ""
    n: int = 0


def rows(zoo: Iterable[ZooEntry]) -> list[dict[str, Any]]:
    """One mapping per entry from the columns to plain values, None for unknown ones; sorted by name.

    Accuracies are fractions. A value with a note in `NOTES` has its mark under the column's name + "_mark", one with an
    interval the number of its images under + "_n".
    """
    return [_row(entry) for entry in sorted(zoo, key=lambda entry: entry.folder.name)]


class Zoo(list[ZooEntry]):
    """The readable entries of a folder, by name; its `str()` is a table.

    damaged: the fault of each entry that could not be read, in one line, by its folder.
    """

    def __init__(self, entries: Iterable[ZooEntry] = (), damaged: dict[Path, str] | None = None):
        super().__init__(entries)
        self.damaged = damaged or {}

    def table(self) -> str:
        """The rows as aligned text, what the numbers are, and one line for each damaged entry.

        Name, method, data, epochs, accuracies, RankMe, size and date of each; numbers that no entry has are left out.
        A text that is wider than the terminal (80 columns where there is none) has the numbers below the name.
        """
        entries = rows(self)
        filled_columns = [
            name for name in COLUMNS if name not in MEASURED or any(row[name] is not None for row in entries)
        ]
        text = [_align(entries, filled_columns, sys.maxsize)]
        if max(map(len, text[0].splitlines())) > columns():
            shown = [{**row, "name": _in_words(row)} for row in entries]
            text = [_align(shown, [name for name in filled_columns if name not in MADE], columns())]
        text += [origin for names, origin in ORIGIN.items() if set(names) & set(filled_columns)]
        marks = {row[key] for row in entries for key in row if key.endswith("_mark")}
        text += [f"{mark} {note}" for mark, note in NOTES.items() if mark in marks - {"*"}]
        if self.damaged:
            text += ["", f"left out, {len(self.damaged)} that cannot be read:"]
            text += [fold(f"  {folder.name}: {reason}") for folder, reason in sorted(self.damaged.items())]
        return "\n".join(text)

    __str__ = __repr__ = table

    @property
    def decision(self) -> Decision | None:
        """Which entry to take by the quick probe; None unless all that have one were judged on the same images."""
        cards = {entry.folder.name: entry.card for entry in self if _finite(entry.card.get("after", {}).get("probe"))}
        judged_on = {(card.get("data", {}).get("source"), units_of(card["after"])) for card in cards.values()}
        if len(judged_on) != 1 or not (n := judged_on.pop()[1]):
            return None
        shares = {name: card["after"]["probe"] for name, card in cards.items()}
        first = cards[max(shares, key=shares.__getitem__)]
        nulls = {
            RAW: first.get("pixels", {}).get("probe"),
            START: first.get("before", {}).get("probe"),
            LARGEST: first["after"].get("largest"),
        }
        return decide_shares(shares, n, {name: share for name, share in nulls.items() if _finite(share)})


def open(folder: str | Path) -> Zoo:
    """Every finished entry below a folder, by name; damaged ones are listed in `.damaged` and hide no other.

        zoo = sslkit.zoo.open("runs/zoo")
        print(zoo)  # a table; zoo[0] is a ZooEntry

    Damaged: a card that cannot be read or does not fit, or weights whose file is missing or not whole.
    Raises UserError if the folder does not exist.
    """
    folder = Path(folder)
    if not folder.is_dir():
        raise UserError(f"there is no zoo folder {folder}; recipes/train.py makes runs/zoo")
    entries, damaged = [], {}
    for card in sorted(folder.glob(f"*/{CARD}")):
        try:
            entry = ZooEntry.load(card.parent)
            weights.shapes(entry.folder / WEIGHTS)
            entries.append(entry)
        except UserError as error:
            damaged[card.parent] = str(error)
    return Zoo(entries, damaged)


def _align(entries: Iterable[Mapping[str, Any]], known: Sequence[str], width: int) -> str:
    cells = [[_cell(name, row) for name in known] for row in entries]
    return align([known, *cells], [known.index(name) for name in NUMBERS if name in known], width)


def _in_words(row: Mapping[str, Any]) -> str:
    """The name of an entry, and how it was made where the name does not begin with it."""
    name, method, data, epochs = (row[key] for key in ("name", *MADE))
    if method is None or (name.startswith(f"{method}-") and f"-e{epochs}-" in name):
        return name
    return f"{name}: {method}, {counted(epochs, 'epoch')} on {data}"


def measure(entry: ZooEntry) -> dict[str, Number]:
    """The quick evaluations of training, kNN and linear of evaluation, and RankMe, where they were measured."""
    card = entry.card
    after, trained_on = card.get("after", {}), card.get("data", {}).get("held_out") is False
    evaluated = _latest_top1(entry)
    keys = zip(QUICK, ("knn", "probe"), strict=True)
    mark = "^" if trained_on else ""
    n = units_of(after)
    numbers = {name: Number(after[key], key, mark, n) for name, key in keys if _finite(after.get(key))}
    if _finite(before := card.get("before", {}).get("probe")):
        numbers[BEFORE] = Number(before, "")
    pairs = zip(EVALUATED, ("knn", "linear"), strict=True)
    numbers |= {name: Number(evaluated[protocol], "", "*") for name, protocol in pairs if protocol in evaluated}
    if _finite(rank := card.get("diagnostics", {}).get("rankme")):
        numbers["RankMe"] = Number(rank, "rankme")
    return numbers


def _row(entry: ZooEntry) -> dict[str, Any]:
    card, numbers = entry.card, measure(entry)
    parameters, size = _size(entry)
    row = {
        "name": entry.folder.name,
        "method": card.get("method"),
        "data": card.get("data", {}).get("source"),
        "epochs": card.get("epochs"),
        **{name: numbers[name].value if name in numbers else None for name in MEASURED},
        "M params": parameters,
        "MB": size,
        "date": card.get("date"),
    }
    row |= {f"{name}_n": number.n for name, number in numbers.items() if number.n}
    return row | {f"{name}_mark": number.mark for name, number in numbers.items() if number.mark}


def _cell(name: str, row: Mapping[str, Any]) -> str:
    value = row[name]
    if value is None:
        return "-"
    if name in (*QUICK, BEFORE, *EVALUATED):
        n = row.get(f"{name}_n")
        share = with_interval(value, n) if n else f"{100 * value:.1f} %"
        return f"{share}{row.get(f'{name}_mark', '') if name in QUICK else ''}"
    if name in ("M params", "MB"):
        return f"{value:.2f}" if value < 10 else f"{value:.1f}"
    if name == "RankMe":
        return f"{value:.1f}"
    return value[:10] if name == "date" else str(value)


def _latest_top1(entry: ZooEntry) -> dict[str, float]:
    """Latest top-1 of each protocol on the training data set; leaky results are ignored."""
    path, data = entry.folder / RESULTS, entry.card.get("data", {}).get("source")
    top1: dict[str, float] = {}
    for line in path.read_text(errors="replace").splitlines() if path.is_file() else ():
        try:
            record = json.loads(line)
        except ValueError:  # cut off by a kill; evaluation repairs the file at its next write
            continue
        if not isinstance(record, dict) or not _finite(record.get("value")):
            continue
        if (record.get("data"), record.get("metric"), record.get("leaky")) == (data, "top1", False):
            top1[str(record.get("protocol", ""))] = record["value"]
    return top1


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
