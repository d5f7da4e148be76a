"""What any model says of images, part by part: the contract, the table that is printed, the file that is written."""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from itertools import chain, islice
from pathlib import Path
from typing import Any, Protocol

import numpy as np

from sslkit.errors import UserError
from sslkit.files.writing import write_csv, write_whole
from sslkit.terminal.say import counted

SHOWN = 10  # rows of the table that is printed, a screen of them
ENDINGS = (".csv", ".parquet")
AT_ONCE = 4096  # rows of a .parquet file that are written together: a round number, some hundred kilobytes


class Overlay(Protocol):
    """What is drawn on a picture of an image."""

    def draw(self, axis: Any, shape: Sequence[int]) -> None:
        """Draw on an axis with a picture of this shape, (h, w, 3)."""


class Answers:
    """What a model says of N images: the contract of `Predictions`, `Detections` and `Masks`, with what is usual.

    texts: columns of the file, from the first, that hold texts. sure: (N,) how sure it is of each image; None of
    numbers. counts: what is counted, by class. captions: a few words on each image.
    pictures: of each image (H, W) uint8, the number of a class or an object at each pixel; None without masks.
    legend: the classes by number, where the numbers of the pictures are those of classes.
    """

    ids: Sequence[str]
    classes: tuple[str, ...]
    unreadable: tuple[str, ...]
    texts: int
    sure: np.ndarray | None
    counts: Mapping[str, float]
    captions: Sequence[str]
    pictures: Sequence[np.ndarray] | None = None
    legend: Sequence[str] | None = None

    @classmethod
    def join(cls, parts: Iterable["Answers"]) -> "Answers":
        """Those of all parts; there is at least one."""
        raise NotImplementedError

    def __len__(self) -> int:
        """The number of images."""
        return len(self.ids)

    def write(self, path: str | Path) -> None:
        """Write the file as .csv or .parquet, whole or not at all: its columns are `columns`; masks are not in it.

        Raises UserError for another ending, for .parquet without pyarrow, and if the file cannot be written.
        """
        write_all([self], Path(path))

    def columns(self) -> list[str]:
        """The names of the file's columns."""
        raise NotImplementedError

    def lines(self) -> Iterator[list[str | float]]:
        """The cells of each line of the file."""
        raise NotImplementedError

    def overlay(self, image: int) -> Overlay | None:
        """What is drawn on an image; nothing is usual."""

    @staticmethod
    def tell(counts: Mapping[str, float], sure: float, images: int, most: int) -> list[str]:
        """Lines on the counts of all images, at most so many classes named. sure: the mean."""
        raise NotImplementedError


def apart(names: Sequence[str], head: Sequence[str]) -> list[str]:
    """Names of classes as columns: one that is called as a column of `head` gets a _ behind it."""
    return [f"{name}_" if name in head else name for name in names]


def table_of(answers: Answers, rows: int, noun: str, most: int | None) -> str:
    """The first of `rows` lines that are written, as a table. noun: of a line. most: columns that are shown."""
    shown = [list(map(_format_cell, line[:most])) for line in islice(answers.lines(), SHOWN)]
    shown.insert(0, answers.columns()[:most])
    widths = [max(map(len, column)) for column in zip(*shown, strict=True)]
    lines = ["  ".join(map(str.ljust, row, widths)).rstrip() for row in shown]
    return "\n".join([*lines, *([f"... and {counted(rows - SHOWN, noun)} more"] if rows > SHOWN else [])])


def in_digits(values: Iterable[str | float]) -> list[str | float]:
    """Numbers with the digits that float32 has, and texts."""
    return [value if isinstance(value, str) else float(f"{value:.7g}") for value in values]


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


def write_all(parts: Iterable[Answers], path: Path) -> None:
    """Write what a model says part by part, of which one is held in memory; there is at least one."""
    check_ending(path)
    path.parent.mkdir(parents=True, exist_ok=True)
    first, parts = peek(parts)
    lines = chain.from_iterable(batch.lines() for batch in parts)
    if path.suffix.lower() == ENDINGS[0]:
        write_csv(path, chain([first.columns()], lines))
        return
    import pyarrow
    from pyarrow import parquet

    kinds = [pyarrow.string() if column < first.texts else pyarrow.float32() for column in range(len(first.columns()))]
    schema = pyarrow.schema(zip(first.columns(), kinds, strict=True))
    with write_whole(path) as partial, parquet.ParquetWriter(partial, schema) as file:
        while some := list(islice(lines, AT_ONCE)):
            file.write_table(pyarrow.table([list(cells) for cells in zip(*some, strict=True)], schema=schema))


def peek(parts: Iterable[Answers]) -> tuple[Answers, Iterable[Answers]]:
    """The first part, and all of them."""
    parts = iter(parts)
    first = next(parts)
    return first, chain([first], parts)
