"""What a model says of every image of a source, in a file, with a sheet of the surest and the least sure."""

import heapq
import math
import sys
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from PIL import Image

from sslkit.data.image_options import FileOptions, ReadOptions
from sslkit.data.images import Images
from sslkit.data.thumbnails import shorten, small, thumbnail
from sslkit.errors import UserError
from sslkit.files.writing import name_of, write_csv, write_whole_folder
from sslkit.models.answers import Answers, Overlay, check_ending, write_all
from sslkit.models.loading import Loading
from sslkit.models.passes import Rows, open_all, tell_of_unreadable
from sslkit.models.predictions import Predictions
from sslkit.numerics.figures import palette, save_figure
from sslkit.options.settings import setting
from sslkit.runtime.callers import public
from sslkit.runtime.context import Runtime
from sslkit.runtime.device import device_of
from sslkit.terminal import say
from sslkit.terminal.say import counted

STDIN = "-"  # as data: paths, a line each
DRAWN, COLUMNS = 12, 6  # images of each half of the sheet, and of a row of it: a page
SIDE = 128  # pixels of a drawn image
LETTERS = 24  # of its name
LISTED = 12  # most classes that are counted in the summary
LEGEND = "classes.csv"  # beside the pictures of masks
READ = ("root", "counts", "range", "opacity", "fill", "columns", "channels", "pages", "every", "max_pixels")
SHARED = (*READ, "image_size", "trust", "batch_size", "workers", "precision", "device", "progress", "cache")


@dataclass(frozen=True, kw_only=True)
class Options:
    """What `predict` reads and writes."""

    split: str | None = setting(None, "of the data; null: all its splits")
    out: str | Path = setting("predictions.csv", "file of the predictions, .csv or .parquet")
    pictures: bool = setting(
        True, "beside it a sheet, .png, of the images of the highest and the lowest probability, or number"
    )


@dataclass
class Predicted:
    """What `predict` has written: print() tells it in a few lines.

    out: the file. sheet: the picture beside it, or None. images: number of them. counts: images by class; of a detector
    boxes by class and under "" images without one, of a segmenter the sum of the shares of each class.
    confidence: mean of how sure the model is of an image, its highest probability or score; None of numbers.
    numbers: {name: (mean, least, largest)}. unreadable: paths of images left out. masks: folder of the pictures of
    masks, or None. kind: of what was predicted.
    """

    out: Path
    images: int = 0
    counts: Counter = field(default_factory=Counter)
    sheet: Path | None = None
    confidence: float | None = None
    unreadable: tuple[str, ...] = ()
    masks: Path | None = None
    kind: type[Answers] = Predictions
    numbers: dict[str, tuple[float, float, float]] = field(default_factory=dict)

    def __str__(self) -> str:
        lines = [f"predicted {counted(self.images, 'image')}: {self.out}"]
        lines += self.kind.tell(self.counts, self.confidence, self.images, LISTED)
        for name, (mean, least, largest) in self.numbers.items():
            lines.append(f"numbers   {name}: mean {mean:.4g}, from {least:.4g} to {largest:.4g}")
        lines += [f"masks     {self.masks}"] if self.masks else []
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
    """Predict the classes, numbers, boxes or masks of every image of a source, and write them.

    A batch at a time is in memory, of a detector or a segmenter an image.

        print(sslkit.predict("runs/zoo/NAME", "path/to/images", out="predictions.csv"))

    checkpoint: see `sslkit.load`; a model with a classifier, a detector or a segmenter. data: of `sslkit.open_images`,
        the path of an image, or "-" for paths from standard input, a line each.
    The file has a row for each image that can be read: path, class, probability, and a column for each class; of
    several classes those that are likelier than not, with | between them; of numbers their columns alone, and where
    they are known the ends of intervals that hold 90 % of new images.
    Of a detector it has a row for each box: path, class, score, and x0, y0, x1, y1 in pixels of the image as it is
    shown, upright, from its upper left corner; of a segmenter a row for each image, with the share of each class.
    Masks are pictures .png in the folder NAME-masks beside NAME.csv: at each pixel the number of a class, or an object.
    Raises UserError before anything is computed for a model that has none of these, and for what cannot be opened.
    """
    out = Path(options.out)
    check_ending(out)
    model = loading.load(checkpoint)
    model.check_predicting()
    model.to(device_of(runtime.device))
    source = _read_typed_paths() if isinstance(data, str) and data == STDIN else data
    tally = _Tally(Predicted(out))
    opened = open_all(model, source, options.split, reading, files, runtime.cache)
    with ExitStack() as stack:
        write_all(write_masks(tally.watch(model.predict_parts(opened, runtime)), tally.done, stack), out)
        done = tally.result()
    if options.pictures and tally.extremes():
        done.sheet = out.with_suffix(".png")
        draw_sheet(tally.extremes(), done.sheet, tally.digits)
    tell_of_unreadable(done.unreadable)
    if done.masks:
        _tell_of_other_masks(done.masks, done.images)
    return done


def _tell_of_other_masks(folder: Path, images: int) -> None:
    """Warn of masks in the folder that are of another call. images: that have a mask of this one."""
    if (others := len(list(folder.glob("*.png"))) - images) > 0:
        say.warning(f"{folder} also has {counted(others, 'mask')} of an earlier call: the table names those of this")


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
    """An image of the sheet. sure: how sure the model is. order: of all. label: what it says. overlay: drawn on it."""

    sure: float
    order: int
    label: str = field(compare=False)
    name: str = field(compare=False)
    images: Images = field(compare=False)
    row: int = field(compare=False)
    overlay: Overlay | None = field(compare=False)


class _Tally:
    """Counts what passes, and holds the surest and the least sure images, or those of the largest and smallest number.

    digits: format of what is drawn of an image.
    """

    def __init__(self, done: Predicted) -> None:
        self.done, self._sum = done, 0.0
        self.digits, self._titles = ".3f", ("surest", "least sure")
        self._most: list[Drawn] = []
        self._least: list[tuple[float, int, Drawn]] = []

    def watch(self, parts: Iterable[tuple[Answers, Rows]]) -> Iterator[Answers]:
        for batch, rows in parts:
            if (sure := batch.sure) is not None:
                self._add(batch, rows, sure.tolist())
            elif len(batch):
                self._add_numbers(batch, rows)
            self.done.images += len(batch)
            self.done.unreadable += batch.unreadable
            self.done.kind = type(batch)
            yield batch

    def _add(self, batch: Answers, rows: Rows, sure: list[float]) -> None:
        self._sum += sum(sure)
        self.done.counts.update(batch.counts)
        self._hold(batch, rows, sure, batch.captions)

    def _add_numbers(self, batch: Predictions, rows: Rows) -> None:
        """The sheet is of the first number."""
        self.digits, self._titles = ".4g", ("largest", "smallest")
        for name, values in zip(batch.classes, batch.values.T.astype(float), strict=True):
            total, least, largest = self.done.numbers.get(name, (0.0, math.inf, -math.inf))
            ends = min(least, float(values.min())), max(largest, float(values.max()))
            self.done.numbers[name] = total + float(values.sum()), *ends
        self._hold(batch, rows, batch.values[:, 0].tolist(), batch.classes[:1] * len(batch))

    def _hold(self, batch: Answers, rows: Rows, sure: list[float], captions: Sequence[str]) -> None:
        for k, (value, label, row) in enumerate(zip(sure, captions, rows.rows.tolist(), strict=True)):
            order = -(self.done.images + k)
            drawn = Drawn(value, order, label, batch.ids[k], rows.images, row, batch.overlay(k))
            _keep(self._most, drawn)
            _keep(self._least, (-value, order, drawn))

    def result(self) -> Predicted:
        """What was counted. Raises UserError where no image could be read."""
        if not self.done.images:
            raise UserError("no image can be read")
        numbers, images = self.done.numbers, self.done.images
        self.done.confidence = self._sum / images if self._most and not numbers else None
        self.done.numbers = {name: (total / images, *ends) for name, (total, *ends) in numbers.items()}
        return self.done

    def extremes(self) -> dict[str, list[Drawn]]:
        """The surest and the least sure, from the end; of numbers the largest and the smallest."""
        least = [drawn for *_, drawn in sorted(self._least, reverse=True)]
        return dict(zip(self._titles, (sorted(self._most, reverse=True), least), strict=True)) if self._most else {}


def _keep(heap: list[Any], entry: Any) -> None:
    (heapq.heappush if len(heap) < DRAWN else heapq.heappushpop)(heap, entry)


def write_masks(parts: Iterable[Answers], done: Predicted, stack: ExitStack) -> Iterator[Answers]:
    """The same, with the names of the pictures of their masks, which are written to a folder beside `done.out`.

    done: has counted their images. stack: when it is left, the folder is whole. LEGEND names the numbers of classes.
    """
    for batch in parts:
        if (pictures := batch.pictures) is None:
            yield batch
            continue
        if done.masks is None:
            done.masks = done.out.with_name(f"{done.out.stem}-masks")
            partial = stack.enter_context(write_whole_folder(done.masks, LEGEND))
            if batch.legend:
                write_csv(partial / LEGEND, [("number", "class"), *enumerate(batch.legend)])
            colours = (255 * palette(batch.legend or tuple(map(str, range(256))))).round().astype("uint8").tobytes()
        first = done.images - len(batch)
        names = [f"{first + k:06}-{name_of(Path(name).stem)}.png" for k, name in enumerate(batch.ids)]
        for name, picture in zip(names, pictures, strict=True):
            image = Image.fromarray(picture)
            image.putpalette(colours)
            image.save(partial / name)
        yield replace(batch, files=[f"{done.masks.name}/{name}" for name in names])


def draw_sheet(groups: dict[str, list[Drawn]], path: Path, digits: str) -> None:
    """Draw images below each other by group, each with what is said of it, as a PNG. digits: format of numbers."""
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
            picture = thumbnail(images, drawn.row, SIDE)
            axis.imshow(picture)
            if drawn.overlay is not None:
                drawn.overlay.draw(axis, picture.shape)
            caption = f"{shorten(drawn.label, LETTERS)} {drawn.sure:{digits}}\n{shorten(drawn.name, LETTERS)}"
            style = {"ha": "center", "va": "top", "transform": axis.transAxes}
            axis.text(0.5, -0.02, caption, fontsize=7, parse_math=False, **style)
    save_figure(figure, path)
