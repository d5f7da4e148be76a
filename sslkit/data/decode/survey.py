"""A survey of some images of a data set when it is opened: their depth, their pages, and what of them is not read."""

import json
from collections.abc import Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from math import prod
from pathlib import Path
from typing import Any, Protocol

import numpy as np
from tqdm import tqdm

from sslkit.data.arrays import UNMARKED
from sslkit.data.decode import scale, tiff
from sslkit.data.decode.fill import TAGGED
from sslkit.data.decode.large import TooLarge
from sslkit.data.decode.opacity import Opacity, apply_scale, declares_opacity, opacity_of
from sslkit.data.decode.opening import Picture
from sslkit.data.decode.pages import ONE_PAGE, Pages
from sslkit.data.decode.pixels import is_deep, values_of
from sslkit.data.decode.planes import Planes
from sslkit.data.decode.sandbox.proxies import ImageProxy, PlanesProxy
from sslkit.data.decode.scale import UNKNOWN, Scale, Values
from sslkit.data.decode.unreadable import UnreadableImage
from sslkit.data.file_contents import bar_is_off
from sslkit.data.path_list import PathList
from sslkit.errors import UserError
from sslkit.files.store import Codec, Store
from sslkit.terminal import say
from sslkit.terminal.say import counted

LOOKED_AT = 32  # images of each kind of file: a round number, headers of which are read in milliseconds
MEASURED = 256  # images, for the range of their values: a round number, read in seconds
# pixels that are enough for it, and images that are read in any case: large images take seconds each
_PIXELS, _LEAST = 2**26, 16
_PLAIN = ("jpg", "jpeg", "jpe", "jfif")  # of 8 bits and one page
_FORM = 1  # of what is remembered of a sample: raised when another range would be chosen
_LETTERS = 5  # at the end of a name, for its kind: .tiff has five


class Opened(Protocol):
    """The part of `DecodedImages` that is looked at."""

    name: str
    options: Any
    channels: int

    def __len__(self) -> int: ...
    def path(self, row: int) -> str: ...
    def names(self) -> PathList | None: ...
    def stamps_digest(self) -> str | None: ...
    def _open(self, row: int) -> Picture: ...


@dataclass
class Survey:
    """The images that were opened. deep: how many have more than 8 bits. candidates: rows of files such as these.

    opaque: rows of images with a plane that they call opacity. unmarked: how many may have one without saying so.
    pages: of each that has several. spare: (channels, of them read) of one that is not read whole.
    large: path and reason of one that is too large.
    """

    images: int = 0
    deep: int = 0
    candidates: list[np.ndarray] = field(default_factory=list)
    opaque: list[int] = field(default_factory=list)
    unmarked: int = 0
    pages: list[int] = field(default_factory=list)
    spare: tuple[int, int] | None = None
    large: tuple[str, str] | None = None

    def add(self, row: int, image: Picture, reads_pages: bool) -> None:
        self.images += 1
        self.deep += is_deep(image)
        self.opaque += [row] if declares_opacity(image) else []
        self.unmarked += isinstance(image, Planes) and image.is_unmarked and image.count == 4
        spare = image.spare if isinstance(image, Planes) else tiff.spare_of(image)
        if spare:
            read = image.colours if isinstance(image, Planes) else len(image.getbands())
            self.spare = (read + spare, read)
        if not reads_pages and (pages := pages_of(image).total) > 1:
            self.pages.append(pages)

    def warn(self, name: str) -> None:
        """Say, in a line each, what is not read."""
        if self.pages:
            number = f"{len(self.pages):,} of {counted(self.images, 'file')} looked at"
            _warn(
                f"{name}: {number} have several pages (up to {max(self.pages):,}), of which the first is read: "
                "data.pages=all reads each page as an image"
            )
        if self.spare:
            _warn(
                f"{name}: of {self.spare[0]} channels {self.spare[1]} are read: data.channels={self.spare[0]} reads all"
            )
        if self.large:
            _warn(f"{name}: left out {self.large[0]}: {self.large[1]}")


def survey(images: Opened) -> Survey:
    """Open up to `LOOKED_AT` evenly spaced images of each kind of file, without decoding."""
    seen = Survey()
    for rows in _kinds(images):
        before = seen.deep
        for row in rows[np.unique(np.linspace(0, len(rows) - 1, LOOKED_AT, dtype=int))].tolist():
            try:
                with images._open(row) as image:
                    seen.add(row, image, images.options.pages == "all")
            except TooLarge as error:
                seen.large = seen.large or (images.path(row), str(error))
            except UnreadableImage:  # told of when it is asked for
                continue
        if seen.deep > before:
            seen.candidates.append(rows)
    return seen


def pages_of(image: Picture) -> Pages:
    """The pages of a file, without smaller copies and masks of others. Raises UnreadableImage."""
    return image.pages() if isinstance(image, (ImageProxy, PlanesProxy)) else ONE_PAGE


def scale_of(images: Opened, seen: Survey, known: Scale = UNKNOWN) -> Scale:
    """The scale that a data set is read by; known: parts that are not looked for.

    range: for "auto" from the least to the greatest value of all images; else as of `Values.usual`, of a sample; None
    if no image that was looked at has more than 8 bits. fill: of the sample, see `fill.Ends`; not looked for in a range
    that is given.
    Warns of what was found, and of a range that has no use. Raises UserError for integers among floats.
    """
    requested = images.options.scale
    fixed = requested.or_else(known)
    fixed = replace(fixed, opacity=_opacity(images, seen) if fixed.opacity is None else fixed.opacity)
    if requested.range is not None and not seen.deep and seen.images:
        _warn(scale.line_of_unused_range(requested.range, images.name))
    if not seen.deep and known.range is None:
        return replace(fixed, fill=None)
    return fixed.or_else(Scale(fill=TAGGED)) if fixed.range is not None else _measure_scale(images, seen, fixed)


def _opacity(images: Opened, seen: Survey) -> bool | None:
    """Whether the last plane is opacity: as given, or as the values show that were declared so; None if none were.

    Warns of what was found.
    """
    requested = images.options.scale.opacity
    if requested is not None or not (seen.opaque or seen.unmarked):
        return requested
    opacity = Opacity()
    for row in seen.opaque[:LOOKED_AT]:
        try:
            with images._open(row) as image:
                opacity.add(opacity_of(image))
        except UnreadableImage:
            continue
    if opacity.images:
        _warn(f"{images.name}: {opacity.describe(images.channels)}")
    elif seen.unmarked:
        _warn(UNMARKED.format(name=images.name))
    return opacity.is_shown if opacity.images else False if seen.unmarked else None


def _measure_scale(images: Opened, seen: Survey, fixed: Scale) -> Scale:
    """The known scale with a range, and with what stands for no value, remembered while no file changes; warns of both.

    The cache keeps it for every command that opens the same files: of 256 images of 16 bits it takes seconds.
    """
    store = _scale_store(images, seen, fixed)
    if (measured := store.read()) is None:
        measured = _measure(images, seen, fixed)
        with suppress(UserError):  # a folder that cannot be written forgets it
            store.write(measured)
    decided, line = measured
    if line:
        _warn(line)
    return decided


def _scale_store(images: Opened, seen: Survey, fixed: Scale) -> Store[tuple[Scale, str]]:
    """The file that remembers a scale and its line: by the files' stamps, and by all options that it depends on."""
    options = images.options
    stamps = images.stamps_digest() if options.cache is not None else None
    read_by = (options.range == scale.AUTO, options.channels, options.pages, options.max_pixels, images.channels)
    about = repr((_FORM, images.name, stamps, fixed, read_by, seen.images, seen.deep))
    cache = options.cache if stamps is not None else None
    return Store.open(cache, "scale-{}.json", about, "the range of the images", _SCALE)


def _read_scale(path: Path) -> tuple[Scale, str]:
    limits, opacity, fill, line = json.loads(path.read_text(encoding="utf-8"))
    return Scale(None if limits is None else (float(limits[0]), float(limits[1])), opacity, fill), str(line)


def _write_scale(path: Path, measured: tuple[Scale, str]) -> None:
    decided, line = measured
    path.write_text(json.dumps([decided.range, decided.opacity, decided.fill, line]), encoding="utf-8")


_SCALE = Codec(_read_scale, _write_scale)


def _measure(images: Opened, seen: Survey, fixed: Scale) -> tuple[Scale, str]:
    """The known scale with what the values of images say, and the line on it, "" for none."""
    rows, whole = np.concatenate(seen.candidates), images.options.range == scale.AUTO
    values = _measure_values(images, rows, fixed, whole=whole)
    if fixed.fill is None:
        fill = values.ends.fill()
        fixed = replace(fixed, fill=TAGGED if fill is None else fill)
        values = values if fill is None else _measure_values(images, rows, fixed, whole=whole)
    if not values.images:
        return replace(fixed, range=scale.BYTE), ""
    chosen = values.exact() if whole else values.usual()
    others = seen.images - seen.deep
    plain = f"; {others} of {seen.images} images looked at have 8 bits and stay as they are" if others else ""
    line = (
        f"{images.name}: {values.kind} images ({values.images:,} of {len(images):,} looked at), "
        f"whose {values.describe(chosen, fixed.fill)}{plain}"
    )
    return replace(fixed, range=chosen), line


def _measure_values(images: Opened, rows: np.ndarray, known: Scale, *, whole: bool) -> Values:
    """The values of all rows, or of a sample that is always the same."""
    measured, pixels = Values(), 0
    if not whole:
        rows = np.random.default_rng(0).permutation(rows)[:MEASURED]
    for row in tqdm(rows.tolist(), desc="range", unit="image", delay=2, disable=bar_is_off()):
        try:
            with apply_scale(images._open(row), known) as image:
                if not is_deep(image):
                    continue
                planes = values_of(image, images.channels)
        except UnreadableImage:
            continue
        measured.add_image(planes, prod(image.size))
        pixels += sum(plane.size for plane in planes)
        if not whole and pixels > _PIXELS and measured.images >= _LEAST:
            break
    return measured


def _kinds(images: Opened) -> Iterator[np.ndarray]:
    """The rows of each kind of file that may have more than 8 bits or pages; all together where there are no names."""
    names = images.names()
    if names is None:
        yield np.arange(len(images))
        return
    endings, kinds = _endings(names)
    extensions = [ending.rpartition(b".")[2].decode("ascii", "replace") for ending in endings]
    for name in dict.fromkeys(extensions):
        if name not in _PLAIN:
            yield np.flatnonzero(
                np.isin(kinds, [number for number, extension in enumerate(extensions) if extension == name])
            )


def _endings(names: PathList) -> tuple[Sequence[bytes], np.ndarray]:
    """The last letters that occur, in lower case, and for each name which of them it has, (N,)."""
    block, ends = np.frombuffer(names._block, np.uint8), names._ends
    codes = np.zeros(len(names), np.int64)
    for before in range(_LETTERS, 0, -1):  # one letter of all names at a time takes little memory
        places = ends[1:] - before
        codes = codes << 8 | np.where(places >= ends[:-1], block[np.maximum(places, 0)], np.uint8(ord("/")))
    endings, kinds = np.unique(codes, return_inverse=True)
    return [int(code).to_bytes(_LETTERS, "big").lower() for code in endings], kinds


def _warn(text: str) -> None:
    """Warn from here, whoever opens the images, so that Python shows a text once."""
    say.warn(text, stacklevel=1)
