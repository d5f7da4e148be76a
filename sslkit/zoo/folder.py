"""A folder of entries: the readable ones, and the faults of the others."""

from collections.abc import Iterator
from pathlib import Path

from sslkit.errors import UserError
from sslkit.zoo import table, weights
from sslkit.zoo.entry import CARD, WEIGHTS, ZooEntry


class Zoo(list[ZooEntry]):
    """The readable entries of a folder, by name; its `str()` is a table.

    damaged: the fault of each entry that could not be read, in one line, by its folder.
    """

    def __init__(self, entries: Iterator[ZooEntry] | list[ZooEntry] = (), damaged: dict[Path, str] | None = None):
        super().__init__(entries)
        self.damaged = damaged or {}

    def table(self) -> str:
        """Name, method, data, epochs, accuracies, RankMe, size and date of each entry; see table.py."""
        return table.table(self, self.damaged)

    __str__ = __repr__ = table


def open(folder: str | Path) -> Zoo:
    """Every finished entry below a folder, by name; damaged ones are listed in `.damaged` and hide no other.

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
