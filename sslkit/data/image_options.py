"""The options by which a source of images is read."""

from collections.abc import Sequence
from dataclasses import dataclass
from math import isfinite
from pathlib import Path
from typing import Any

from sslkit.data.columns import Columns
from sslkit.data.decode import fill
from sslkit.data.decode.fill import Fill
from sslkit.data.decode.scale import AUTO, Range, Scale
from sslkit.errors import UserError
from sslkit.options.settings import iter_settings, setting
from sslkit.runtime.context import CACHE

FITS = ("squash", "crop")
INTERPOLATIONS = ("bilinear", "bicubic")
ON_ERROR = ("skip", "raise")
COUNTS = ("raise", "warn")
ROOT = "data"
PAGES = ("first", "all")
MOST_PIXELS = 4096  # of a side: 48 MB an image of 8 bits, above any published network's
VALUES = ("range", "opacity", "fill")  # the options by which stored values become bytes


def parse_range(given: Any) -> Range | str | None:
    """The option `range`: two numbers, "auto" or None. Raises UserError for anything else."""
    if given is None or given == AUTO:
        return given
    is_pair = isinstance(given, Sequence) and not isinstance(given, str) and len(given) == 2
    if not is_pair or not all(isinstance(end, (int, float)) and isfinite(end) for end in given) or given[0] >= given[1]:
        raise UserError(f"range={given!r} must be two numbers that rise, such as [0,4095], auto or null")
    return float(given[0]), float(given[1])


def parse_fill(given: Any) -> Fill:
    """The option `fill`: a number, or a word. Raises UserError for anything else."""
    if given in fill.WORDS:
        return given
    if isinstance(given, bool) or not isinstance(given, (int, float)) or not isfinite(given):
        raise UserError(f"fill={given!r} must be a number, auto, tagged or none")
    return float(given)


@dataclass(frozen=True, kw_only=True)
class ReadOptions:
    """How any source is read: the same words in training, in evaluation and in Python."""

    root: str | Path = setting(ROOT, "folder of the published data sets")
    counts: str = setting(
        "raise", "a published set with another number of images than published: raise, or warn", choices=COUNTS
    )
    on_error: str = setting(
        "skip", "an image that cannot be read: skip (counted and reported at the end), or raise", choices=ON_ERROR
    )
    range: Sequence[float] | str | None = setting(
        None,
        "pixels of more than 8 bits: [low,high], the values that become 0 and 255, in all images; auto: the least and "
        "the greatest of all training images; null: as in the training of the model, else whole bits ([0,4095], ...) "
        "by a sample",
        choices=(AUTO,),
    )
    opacity: bool | None = setting(
        None,
        "the plane behind gray or RGB: true, opacity; false, a channel like the others; null: as in the training of "
        "the model, else opacity where the file declares it and a sample is mostly 0 or full",
    )
    fill: Fill = setting(
        fill.AUTO,
        "pixels of more than 8 bits: the value that stands for none, beside those that the files' tags name; tagged: "
        "those of the tags; none: not even these; auto: as in the training of the model, else one apart at an end of "
        "the range, in a sample",
        choices=fill.WORDS,
    )
    columns: Columns = Columns()

    def __post_init__(self) -> None:
        parse_range(self.range)

    @property
    def values(self) -> dict[str, Any]:
        """The options of `VALUES`, as keywords."""
        return {name: getattr(self, name) for name in VALUES}

    @property
    def scale(self) -> Scale:
        """The parts of the images' scale that are given."""
        return ImageOptions(**self.values).scale


@dataclass(frozen=True, kw_only=True)
class DataOptions(ReadOptions):
    """How a data set is read that views are made of."""

    mirror: bool | None = setting(
        None,
        "whether a mirror image keeps its class, for what is trained on views; null: yes, unless names of classes "
        "differ by left and right",
    )


@dataclass(frozen=True, kw_only=True)
class FileOptions:
    """What is read of each file."""

    channels: int | None = setting(
        None,
        "1 gray, 3 RGB, 4 RGBA, or the number of those of a TIFF, also where each is a page; null: those of arrays; of "
        "files 3 if any of 32 is coloured, else 1",
        least=1,
        most=1024,
    )
    pages: str = setting(
        "first", "files of several pages: first, or all: each page is an image, NAME#1, NAME#2 and so on", choices=PAGES
    )
    every: float | None = setting(None, "frames: seconds between two frames of a video; null: 1", above=0)
    max_pixels: int | None = setting(
        None, "pixels of an image file that is read; null: 179 million", least=1, most=10**12
    )


@dataclass(frozen=True, kw_only=True)
class ImageOptions(ReadOptions, FileOptions):
    """Options of `sslkit.open_images`."""

    split: str = setting("train", "of the source, see `splits`")
    image_size: int | None = setting(
        None, "pixels of a side; null: of arrays their larger side, of files 256", least=1, most=MOST_PIXELS
    )
    fit: str = setting(
        "squash",
        "squash resizes the whole image to the square and returns its aspect; crop resizes its shorter side and keeps "
        "the centre, for evaluation",
        choices=FITS,
    )
    resize: int | None = setting(
        None,
        "pixels of the shorter side, or of both, before image_size are cut out at the centre; null: image_size",
        least=1,
        most=2 * MOST_PIXELS,
    )
    interpolation: str = setting("bilinear", "bilinear or bicubic, both antialiased", choices=INTERPOLATIONS)
    cache: str | Path | None = setting(CACHE, "folder of the index of files and shards; null: it is built anew")

    def __post_init__(self) -> None:
        for option in iter_settings(self):
            if option.help:
                option.check(option.default)
        object.__setattr__(self, "range", parse_range(self.range))
        object.__setattr__(self, "fill", parse_fill(self.fill))
        if self.resize is not None and self.resize < (self.image_size or self.resize):
            raise UserError(f"resize={self.resize} is less than the square of {self.image_size} pixels that is cut out")

    @property
    def scale(self) -> Scale:
        """The parts of the scale that are given; of two channels the second is meant as one."""
        opacity = False if self.channels == 2 and self.opacity is None else self.opacity
        range = self.range if isinstance(self.range, tuple) else None
        return Scale(range, opacity, None if self.fill == fill.AUTO else self.fill)


AS_FOUND = ImageOptions()  # nothing is given
