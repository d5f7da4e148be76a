"""Pictures whose file is decoded by another process, below limits: one of Pillow, or planes."""

from typing import Any

import numpy as np
from PIL import Image, ImagePalette

from sslkit.data.decode.large import Source
from sslkit.data.decode.pages import Pages
from sslkit.data.decode.planes import Planes
from sslkit.data.decode.sandbox.messages import Message
from sslkit.data.decode.sandbox.session import Session
from sslkit.data.decode.tiff import ORIENTATION
from sslkit.data.decode.unreadable import UnreadableImage

_MOST_TIMES = 2  # bytes of pixels over those that the description tells: rows may be padded, colours unpacked


class _Proxy:
    """Common methods. A page is sought as in Pillow's images, faster with the place that `pages` gives."""

    _session: Session

    def pages(self) -> Pages:
        """The pages of the file. Raises UnreadableImage."""
        answer = self._session.ask("pages")
        content = self._session.read_into(16 * answer["pages"])
        return Pages(np.frombuffer(content, np.int64).reshape(-1, 2), answer["total"])

    def seek(self, page: int, place: int = 0) -> None:
        self._describe(self._session.turn(page, place))

    def _describe(self, description: Message) -> None:
        raise NotImplementedError

    def close(self) -> None:
        self._session.close()


class PlanesProxy(_Proxy, Planes):
    """The planes of a file."""

    def __init__(self, session: Session) -> None:
        self._session = session
        self._describe(session.description)

    def _describe(self, description: Message) -> None:
        for name, value in description["planes"].items():
            setattr(self, name, _tuples(value))
        self._held = None
        self._session.values = self.count * self.size[0] * self.size[1]

    def _read_planes(self) -> np.ndarray:
        answer = self._session.ask_pixels(None)
        dtype, shape = np.dtype(answer["dtype"]), tuple(answer["shape"])
        length = int(np.prod(shape)) * dtype.itemsize
        if dtype.kind not in "biuf" or len(shape) != 3 or int(np.prod(shape)) > self._session.values:
            raise UnreadableImage(f"pixels of shape {shape} in place of {self.count} x {self.size}")
        return np.frombuffer(self._session.read_into(length), dtype).reshape(shape)


class ImageProxy(_Proxy, Image.Image):
    """An image that Pillow opens."""

    def __init__(self, session: Session) -> None:
        super().__init__()
        self._session = session
        self._describe(session.description)

    def _describe(self, description: Message) -> None:
        facts = description["image"]
        self._im, self._mode, self._size = None, facts["mode"], tuple(facts["size"])
        self.palette = None
        if facts["palette"]:
            self.palette = ImagePalette.raw(facts["palette"][0], bytes(facts["palette"][1]))
            self.palette.mode = facts["palette"][0]
        self.format, self._orientation = facts["format"], facts["orientation"]
        self.info = {name: _value(value) for name, value in facts["info"].items()}
        self.tag_v2 = {int(tag): _value(value) for tag, value in facts["tags"].items()}
        self.tile, self._tile_mode = [("", (), 0, facts["tile"])] if facts["tile"] else [], facts["tile"]
        self._session.values = len(self.getbands()) * self.size[0] * self.size[1]

    def load(self) -> Any:
        if self._im is None:
            mode = self.tile[0][3] if self.tile and self.tile[0][3] != self._tile_mode else None
            answer = self._session.ask_pixels(mode)
            if answer["length"] > _MOST_TIMES * 4 * self._session.values:
                raise UnreadableImage(f"{answer['length']:,} bytes in place of {self.size}")
            content = self._session.read_into(answer["length"])
            self._describe(answer)
            self.tile = []
            self._im = Image.frombytes(self.mode, self.size, content).im
            if palette := answer["image"]["palette"]:
                self.putpalette(palette[1], palette[0])
        return super().load()

    def getexif(self) -> Image.Exif:
        """The orientation; no other tag is read here."""
        if self._orientation is None:
            self.load()
        exif = Image.Exif()
        if self._orientation != 1:
            exif[ORIENTATION] = self._orientation
        return exif

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        _Proxy.close(self)
        Image.Image.close(self)


def _tuples(value: Any) -> Any:
    return tuple(map(_tuples, value)) if isinstance(value, list) else value


def _value(value: Any) -> Any:
    """Read a value that `worker._text` wrote."""
    if isinstance(value, list):
        return value[0].encode("latin-1") if len(value) == 1 and isinstance(value[0], str) else tuple(value)
    return value


def open_in_sandbox(source: Source, kind: str, how: Message) -> PlanesProxy | ImageProxy:
    """Open a file, or its content, in a decoder process. Raises UnreadableImage, MissingPackage, and OSError."""
    session = Session(source, kind, how)
    return (PlanesProxy if "planes" in session.description else ImageProxy)(session)
