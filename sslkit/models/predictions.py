"""What a model says of images: a table of classes with probabilities, or of numbers, to be shown and written."""

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import chain
from pathlib import Path

import numpy as np

from sslkit.errors import UserError
from sslkit.files.writing import write_csv, write_whole
from sslkit.terminal.say import counted
from sslkit.zoo.classifier import IDENTITY, SIGMOID, SOFTMAX

SHOWN = 10  # rows of the table that is printed, a screen of them
ABOVE = 0.5  # a probability from which an image has one of several classes: then it is likelier than not
BETWEEN = "|"  # several classes in a cell, as lists of labels are read
HEAD = {SOFTMAX: ("path", "class", "probability"), SIGMOID: ("path", "classes"), IDENTITY: ("path",)}
ENDINGS = (".csv", ".parquet")


@dataclass(frozen=True, eq=False)
class Predictions:
    """The predictions of N images, which `Model.predict` returns.

    ids: the path of each image, or its number where it is in no file. classes: the names of the K classes or numbers.
    link: "softmax" (one class an image), "sigmoid" (several) or "identity" (numbers).
    values: (N, K) float32, probabilities or numbers. unreadable: paths of images that were left out.
    print() shows the first; `write` writes all.
    """

    ids: Sequence[str]
    classes: tuple[str, ...]
    link: str
    values: np.ndarray
    unreadable: tuple[str, ...] = ()

    @property
    def probabilities(self) -> np.ndarray:
        """(N, K) float32. Raises UserError for numbers, which are in `values`."""
        if self.link == IDENTITY:
            raise UserError("this model tells numbers, not classes: they are in `values`")
        return self.values

    @property
    def labels(self) -> list[str]:
        """The likeliest class of each image, or those that are likelier than not, with | between them."""
        return [label for label, *_ in map(self._cells, self.probabilities)]

    @classmethod
    def join(cls, parts: Iterable["Predictions"]) -> "Predictions":
        """The predictions of all parts; there is at least one."""
        parts = list(parts)
        ids = [name for batch in parts for name in batch.ids]
        bad = tuple(name for batch in parts for name in batch.unreadable)
        return replace(parts[0], ids=ids, values=np.concatenate([batch.values for batch in parts]), unreadable=bad)

    def __len__(self) -> int:
        return len(self.ids)

    def __str__(self) -> str:
        head = [*HEAD[self.link], *(self.classes if self.link == IDENTITY else ())]
        shown = zip(self.ids[:SHOWN], self.values[:SHOWN], strict=True)
        rows = [head, *([str(name), *map(_format_cell, self._cells(row))] for name, row in shown)]
        widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
        lines = ["  ".join(map(str.ljust, row, widths)).rstrip() for row in rows]
        left = len(self) - SHOWN
        return "\n".join([*lines, *([f"... and {counted(left, 'image')} more"] if left > 0 else [])])

    def _cells(self, row: np.ndarray) -> list[str | float]:
        """What stands between an image's path and its probabilities: (K,) of the image."""
        if self.link == SOFTMAX:
            return [self.classes[row.argmax()], float(row.max())]
        if self.link == SIGMOID:
            return [BETWEEN.join(name for name, value in zip(self.classes, row, strict=True) if value > ABOVE)]
        return [float(value) for value in row]

    def write(self, path: str | Path) -> None:
        """Write all as .csv or .parquet, whole or not at all: path, class, and a column for each class.

        Raises UserError for another ending, for .parquet without pyarrow, and if the file cannot be written.
        """
        write_all([self], Path(path))

    def columns(self) -> list[str]:
        """The names of the file's columns; a class that is called as one of the first gets a _ behind it."""
        head = HEAD[self.link]
        return [*head, *(f"{name}_" if name in head else name for name in self.classes)]

    def lines(self) -> Iterator[list[str | float]]:
        """The cells of each image's line in the file."""
        for name, row in zip(self.ids, self.values, strict=True):
            first = [] if self.link == IDENTITY else self._cells(row)
            cells = (cell if isinstance(cell, str) else float(f"{cell:.7g}") for cell in (*first, *row))
            yield [name, *cells]  # with the digits that float32 has


def _format_cell(cell: str | float) -> str:
    return cell if isinstance(cell, str) else f"{cell:.3g}"


def check_ending(path: Path) -> None:
    """Raises UserError for a file that is no .csv or .parquet, and for .parquet without pyarrow."""
    if path.suffix.lower() not in ENDINGS:
        raise UserError(f"out={path} must end with .csv or .parquet")
    if path.suffix.lower() == ENDINGS[1]:
        try:
            import pyarrow  # noqa: F401
        except ImportError as error:
            raise UserError(f"out={path} needs the package pyarrow: pip install pyarrow, or write a .csv") from error


def write_all(parts: Iterable[Predictions], path: Path) -> None:
    """Write the predictions of a model part by part, of which one is held in memory; there is at least one."""
    check_ending(path)
    path.parent.mkdir(parents=True, exist_ok=True)
    first, parts = peek(parts)
    if path.suffix.lower() == ENDINGS[0]:
        write_csv(path, chain([first.columns()], chain.from_iterable(batch.lines() for batch in parts)))
        return
    import pyarrow
    from pyarrow import parquet

    texts = len(HEAD[first.link]) - (first.link == SOFTMAX)  # the columns before the first number
    kinds = [pyarrow.string() if column < texts else pyarrow.float32() for column in range(len(first.columns()))]
    schema = pyarrow.schema(zip(first.columns(), kinds, strict=True))
    with write_whole(path) as partial, parquet.ParquetWriter(partial, schema) as file:
        for batch in parts:
            cells = map(list, zip(*batch.lines(), strict=True)) if len(batch) else [[] for _ in schema]
            file.write_table(pyarrow.table(list(cells), schema=schema))


def peek(parts: Iterable[Predictions]) -> tuple[Predictions, Iterable[Predictions]]:
    """The first part, and all of them."""
    parts = iter(parts)
    first = next(parts)
    return first, chain([first], parts)
