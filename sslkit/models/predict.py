"""Classes and probabilities of every image of a source, in a file, with a sheet of the surest and the least sure."""

import heapq
import sys
from collections import Counter
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np

from sslkit.data.image_options import FileOptions, ReadOptions
from sslkit.data.images import Images
from sslkit.data.thumbnails import shorten, small, thumbnail
from sslkit.errors import UserError
from sslkit.models.loading import Loading
from sslkit.models.passes import Rows, open_all, tell_of_unreadable
from sslkit.models.predictions import Predictions, check_ending, write_all
from sslkit.numerics.figures import save_figure
from sslkit.options.settings import setting
from sslkit.runtime.callers import public
from sslkit.runtime.context import Runtime
from sslkit.runtime.device import device_of
from sslkit.terminal.say import and_so_on, counted
from sslkit.zoo.classifier import IDENTITY, SIGMOID

STDIN = "-"  # as data: paths, a line each
DRAWN, COLUMNS = 12, 6  # images of each half of the sheet, and of a row of it: a page
SIDE = 128  # pixels of a drawn image
LETTERS = 24  # of its name
LISTED = 12  # most classes that are counted in the summary
READ = ("root", "counts", "range", "opacity", "fill", "columns", "channels", "pages", "max_pixels")
SHARED = (*READ, "image_size", "trust", "batch_size", "workers", "precision", "device", "progress", "cache")


@dataclass(frozen=True, kw_only=True)
class Options:
    """What `predict` reads and writes."""

    split: str | None = setting(None, "of the data; null: all its splits")
    out: str | Path = setting("predictions.csv", "file of the predictions, .csv or .parquet")
    pictures: bool = setting(True, "beside it a sheet, .png, of the images of the highest and the lowest probability")


@dataclass
class Predicted:
    """What `predict` has written: print() tells it in a few lines.

    out: the file. sheet: the picture beside it, or None. images: number of rows. counts: images by class.
    confidence: mean probability of the predicted class; None of numbers. unreadable: paths of images left out.
    """

    out: Path
    images: int = 0
    counts: Counter = field(default_factory=Counter)
    sheet: Path | None = None
    confidence: float | None = None
    unreadable: tuple[str, ...] = ()

    def __str__(self) -> str:
        lines = [f"predicted {counted(self.images, 'image')}: {self.out}"]
        if self.counts:
            told = [f"{name} {count:,}" for name, count in self.counts.most_common()]
            lines.append(f"classes   {and_so_on(told, LISTED)}")
            lines.append(f"sure      mean probability of the predicted class {self.confidence:.3f}")
        lines += [f"left out  {counted(len(self.unreadable), 'image')} that cannot be read"] if self.unreadable else []
        lines += [f"sheet     {self.sheet}"] if self.sheet else []
        return "\n".join(lines)


@public(*SHARED)
def predict(
    checkpoint: Any,
    data: Any,
    *,
    options: Options,
    loading: Loading,
    reading: ReadOptions,
    files: FileOptions,
    runtime: Runtime,
) -> Predicted:
    """Predict the classes or numbers of every image of a source, and write them; a batch at a time is in memory.

        print(sslkit.predict("runs/zoo/NAME", "path/to/images", out="predictions.csv"))

    checkpoint: see `sslkit.load`; a model with a classifier. data: of `sslkit.open_images`, the path of an image, or
        "-" for paths from standard input, a line each.
    The file has a row for each image that can be read: path, class, probability, and a column for each class; of
    several classes those that are likelier than not, with | between them; of numbers their columns alone.
    Raises UserError before anything is computed for a model without a classifier, and for what cannot be opened.
    """
    out = Path(options.out)
    check_ending(out)
    model = loading.load(checkpoint)
    model.check_classifier()
    model.to(device_of(runtime.device))
    source = _read_typed_paths() if isinstance(data, str) and data == STDIN else data
    tally = _Tally(Predicted(out))
    opened = open_all(model, source, options.split, reading, files, runtime.cache)
    write_all(tally.watch(model.predict_parts(opened, runtime)), out)
    done = tally.result()
    if options.pictures and tally.extremes():
        done.sheet = out.with_suffix(".png")
        draw_sheet(tally.extremes(), done.sheet)
    tell_of_unreadable(done.unreadable)
    return done


def _read_typed_paths() -> list[str]:
    paths = [line.rstrip("\r\n") for line in sys.stdin]
    paths = [path for path in paths if path.strip()]
    if not paths:
        raise UserError("data=- reads paths of images from standard input, a line each, and there is none")
    for path in paths:
        if not Path(path).expanduser().is_file():
            raise UserError(f"data=-: there is no file {path}")
    return paths


@dataclass(frozen=True, order=True)
class Drawn:
    """An image of the sheet. sure: the probability. order: of all. label: what was predicted."""

    sure: float
    order: int
    label: str = field(compare=False)
    name: str = field(compare=False)
    images: Images = field(compare=False)
    row: int = field(compare=False)


class _Tally:
    """Counts what passes, and holds the surest and the least sure images."""

    def __init__(self, done: Predicted) -> None:
        self._done, self._sum = done, 0.0
        self._most: list[Drawn] = []
        self._least: list[tuple[float, int, Drawn]] = []

    def watch(self, parts: Iterable[tuple[Predictions, Rows]]) -> Iterator[Predictions]:
        for batch, rows in parts:
            if batch.link != IDENTITY:
                self._add(batch, rows)
            self._done.images += len(batch)
            self._done.unreadable += batch.unreadable
            yield batch

    def _add(self, batch: Predictions, rows: Rows) -> None:
        p, labels = batch.probabilities, batch.labels
        sure = np.maximum(p, 1 - p).mean(1) if batch.link == SIGMOID else p.max(1)
        self._sum += float(sure.sum())
        self._done.counts.update(labels)
        for k, (value, label, row) in enumerate(zip(sure.tolist(), labels, rows.rows.tolist(), strict=True)):
            drawn = Drawn(value, -(self._done.images + k), label, batch.ids[k], rows.images, row)
            _keep(self._most, drawn)
            _keep(self._least, (-value, drawn.order, drawn))

    def result(self) -> Predicted:
        """What was counted. Raises UserError where no image could be read."""
        if not self._done.images:
            raise UserError("no image can be read")
        self._done.confidence = self._sum / self._done.images if self._done.counts else None
        return self._done

    def extremes(self) -> dict[str, list[Drawn]]:
        """The surest and the least sure, from the end; empty of numbers."""
        least = [drawn for *_, drawn in sorted(self._least, reverse=True)]
        return {"surest": sorted(self._most, reverse=True), "least sure": least} if self._most else {}


def _keep(heap: list[Any], entry: Any) -> None:
    (heapq.heappush if len(heap) < DRAWN else heapq.heappushpop)(heap, entry)


def draw_sheet(groups: dict[str, list[Drawn]], path: Path) -> None:
    """Draw images below each other by group, each with its class and probability, as a PNG."""
    from matplotlib.figure import Figure

    lines = [
        (title if start == 0 else "", drawn[start : start + COLUMNS])
        for title, drawn in groups.items()
        for start in range(0, len(drawn), COLUMNS)
    ]
    figure = Figure(figsize=(1.7 * COLUMNS, 2.1 * len(lines)), layout="constrained")
    squares: dict[int, Images] = {}
    for (title, cells), axes in zip(lines, figure.subplots(len(lines), COLUMNS, squeeze=False), strict=True):
        for axis in axes:
            axis.axis("off")
        axes[0].set_title(title, loc="left", fontsize=10, weight="bold")
        for axis, drawn in zip(axes, cells, strict=False):
            images = squares.setdefault(id(drawn.images), small(drawn.images, SIDE))
            axis.imshow(thumbnail(images, drawn.row, SIDE))
            caption = f"{shorten(drawn.label, LETTERS)} {drawn.sure:.3f}\n{shorten(drawn.name, LETTERS)}"
            style = {"ha": "center", "va": "top", "transform": axis.transAxes}
            axis.text(0.5, -0.02, caption, fontsize=7, parse_math=False, **style)
    save_figure(figure, path)
