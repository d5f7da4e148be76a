"""What a decoder process, forked by `server`, answers: an image's description, pages, pixels. One image at a time."""

import errno
import io
import os
import socket
from functools import cache
from typing import Any

import numpy as np
from PIL import Image

from sslkit.data.decode import budget, opening, tiff
from sslkit.data.decode.deep import mode_of, with_mode
from sslkit.data.decode.pages import pages_of
from sslkit.data.decode.planes import Planes
from sslkit.data.decode.sandbox.limits import HAS_MEMORY_LIMIT, Limits
from sslkit.data.decode.sandbox.messages import Message, receive, send, write
from sslkit.data.decode.unreadable import MissingPackage, TooLarge, UnreadableImage, unreadable

_TAGS = (254, 258, 259, 262, 274, 277, 284, 338, 339, tiff.NODATA)  # of TIFF: what the pixels are
_PLAIN = (int, float, str, bool, type(None))
_EXIF_BEHIND = ("PNG",)  # the pixels, or before them
_STARVED = (errno.EMFILE, errno.ENFILE)


class _Pointed(io.FileIO):
    """A TIFF from one of its pages on. place: of the page's directory."""

    def __init__(self, file: int, place: int) -> None:
        super().__init__(file, "rb", closefd=False)
        self._head = tiff.point_to(os.pread(file, tiff.HEADER, 0), place)

    def readinto(self, room: Any) -> int:
        start = self.tell()
        count = super().readinto(room)
        if head := self._head[start : start + count]:
            memoryview(room).cast("B")[: len(head)] = head
        return count

    def readall(self) -> bytes:
        start = self.tell()
        content = super().readall()
        return self._head[start:] + content[max(0, len(self._head) - start) :]


class _File:
    """An open file without a name: some packages would open it once more."""

    def __init__(self, raw: io.FileIO) -> None:
        self._buffered = file = io.BufferedReader(raw)
        self.read, self.seek, self.tell, self.readinto = file.read, file.seek, file.tell, file.readinto

    def __getattr__(self, what: str) -> Any:
        if what == "name":
            raise AttributeError(what)
        return getattr(self._buffered, what)


class Worker:
    """pixels: the descriptor of the file that pixels are written to, the last one that is open."""

    def __init__(self, pixels: int) -> None:
        self._pixels = pixels
        self._size = os.open("/proc/self/statm", os.O_RDONLY) if HAS_MEMORY_LIMIT else None
        self._limits = Limits(pixels + 2 + HAS_MEMORY_LIMIT)  # with one for the image
        self._picture: Any = None
        self._how: opening.Opening | None = None
        self._source: _File | None = None
        self._length, self._file = 0, -1

    def serve(self, connection: socket.socket) -> None:
        """Answer until the reader hangs up, or an image breaks its budget."""
        while True:
            try:
                request, files = receive(connection, files=1)
            except (EOFError, OSError):
                return
            answer = self._answer(request, files)
            send(connection, answer)
            if "over" in answer:
                return

    def _answer(self, request: Message, files: list[int]) -> Message:
        values = budget.AT_ONCE if request.get("at_once") else 0
        if request["do"] == "open":
            self._close()
            (self._file,) = files
            self._source, self._length = _File(io.FileIO(self._file, "rb", closefd=False)), os.fstat(self._file).st_size
        elif request["do"] == "read":
            values = self._values()
        memory, seconds = budget.memory(self._length, values), budget.seconds(self._length, values)
        try:
            with self._limits.apply(memory, seconds, self._size):
                return getattr(self, f"_{request.pop('do')}")(**request)
        except MemoryError:
            return {"over": f"{memory // budget.MIB:,} MiB of memory"}
        except Exception as error:
            return _refusal(error)

    def _open(
        self, by_pillow: bool, channels: int | None, max_pixels: int | None, limit: int | None, at_once: bool
    ) -> Message:
        """at_once: read a small image, too, unless it fails: its reader will most likely ask for it next."""
        Image.MAX_IMAGE_PIXELS = limit
        self._how = None if by_pillow else opening.Opening(channels, max_pixels)
        answer = self._open_picture()
        if at_once and self._values() <= budget.AT_ONCE:
            try:
                answer["read"] = self._read(None)
            except MemoryError:
                raise
            except Exception:  # which the reader is told when it asks
                self._open_picture()
        return answer

    def _open_picture(self) -> Message:
        how, source = self._how, self._source
        source.seek(0)
        self._picture = opening.open_by_pillow(source) if how is None else opening.open_as_meant(source, how)
        return _describe(self._picture)

    def _turn(self, page: int, place: int) -> Message:
        picture = self._picture
        if place and getattr(picture, "has_places", False):
            picture.seek(page, place)
            return _describe(picture)
        if place:
            self._source = _File(_Pointed(self._file, place))
            return self._open_picture()
        picture.seek(page)
        return _describe(picture)

    def _pages(self) -> Message:
        pages = pages_of(self._picture, self._source)
        write(self._pixels, np.ascontiguousarray(pages.places, np.int64))
        return {"pages": len(pages.places), "total": pages.total}

    def _read(self, mode: str | None) -> Message:
        """mode: to decode a TIFF of Pillow by, in place of its own."""
        picture = self._picture
        if isinstance(picture, Planes):
            planes = np.ascontiguousarray(picture._read_planes())
            write(self._pixels, planes)
            return {"dtype": planes.dtype.str, "shape": planes.shape}
        if mode is not None:
            if not picture.tile:  # it was read as it is
                self._open_picture()
                picture = self._picture
            picture.tile = [with_mode(tile, mode) for tile in picture.tile]
        picture.load()
        content = picture.tobytes()
        write(self._pixels, content)
        return {**_describe(picture, is_loaded=True), "length": len(content)}

    def _values(self) -> int:
        width, height = self._picture.size
        planes = isinstance(self._picture, Planes)
        return width * height * (self._picture.count if planes else len(self._picture.getbands()))

    def _close(self) -> None:
        if self._picture is not None:
            self._picture.close()
        if self._file >= 0:
            os.close(self._file)
        self._picture, self._source, self._file = None, None, -1


def _describe(picture: Any, is_loaded: bool = False) -> Message:
    return {"planes": _attributes(picture)} if isinstance(picture, Planes) else {"image": _facts(picture, is_loaded)}


def _attributes(planes: Planes) -> Message:
    """All public attributes, with those that the class has, but what `Planes` makes of others."""
    names = {**_values_of(type(planes)), **vars(planes)}
    attributes = {name: getattr(planes, name) for name in names if name[0] != "_"}
    return {name: value for name, value in attributes.items() if _is_plain(value)}


@cache
def _values_of(kind: type) -> dict[str, None]:
    """The names of a class that are neither methods nor what `Planes` makes of others."""
    names = (name for name in dir(kind) if not callable(getattr(kind, name)))
    return {name: None for name in names if not isinstance(getattr(Planes, name, None), property)}


def _is_plain(value: Any) -> bool:
    return isinstance(value, _PLAIN) or (isinstance(value, (tuple, list)) and all(map(_is_plain, value)))


def _facts(image: Image.Image, is_loaded: bool) -> Message:
    knows_exif = is_loaded or image.format not in _EXIF_BEHIND
    tags = getattr(image, "tag_v2", {}) if image.format == "TIFF" else {}
    return {
        "mode": image.mode,
        "size": image.size,
        "format": image.format,
        "tags": {tag: _text(tags.get(tag)) for tag in _TAGS if tag in tags},
        "info": {name: _text(image.info[name]) for name in ("transparency", "exif") if name in image.info},
        "palette": _palette(image),
        "orientation": _orientation(image) if knows_exif else None,
        "tile": mode_of(image.tile[0]) if getattr(image, "tile", None) else "",
    }


def _orientation(image: Image.Image) -> int:
    try:
        return image.getexif().get(tiff.ORIENTATION, 1)
    except Exception:  # a damaged EXIF block; the pixels may be fine
        return 1


def _text(value: Any) -> Any:
    """A value for JSON: bytes as a text of as many letters, in a list."""
    if isinstance(value, bytes):
        return [value.decode("latin-1")]
    return value if _is_plain(value) else str(value)


def _palette(image: Image.Image) -> tuple[str, list[int]] | None:
    if image.palette is None or image.mode not in ("P", "PA"):
        return None
    mode = "RGBA" if image.palette.mode == "RGBA" else "RGB"
    return mode, image.getpalette(mode)


def _refusal(error: Exception) -> Message:
    if isinstance(error, MissingPackage):
        return {"missing": error.asked}
    if getattr(error, "errno", None) in _STARVED:
        error = UnreadableImage("it names another file")
    fault = unreadable(error)
    return {"error": str(fault), "is_too_large": isinstance(fault, TooLarge)}
