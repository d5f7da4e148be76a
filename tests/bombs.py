"""Small files that ask for much: pages, memory, time, other files. Each is an image of 24 x 24 pixels, or looks so."""

import io
import struct
import zlib
from collections.abc import Callable

import numpy as np
import pytest
from image_files import deep_png, dicom, tiff
from PIL import Image

SIDE = 24
ENDLESS = 2**31 - 1


def chunk(kind: bytes, data: bytes) -> bytes:
    return struct.pack(">I", len(data)) + kind + data + struct.pack(">I", zlib.crc32(kind + data))


def endless_png() -> bytes:
    """A PNG whose header tells of frames that are not there."""
    whole = deep_png(7)
    return whole[:33] + chunk(b"acTL", struct.pack(">II", ENDLESS, 0)) + whole[33:]


def endless_dicom() -> bytes:
    return dicom(np.full((16, 16, 1), 9, np.uint16), NumberOfFrames=ENDLESS)


def directory(tags: dict[int, int], after: int, more: bytes = b"") -> bytes:
    """A page's directory of a TIFF, all of whose values are short enough for it."""
    entries = b"".join(struct.pack("<HHII", tag, 4, 1, value) for tag, value in sorted(tags.items()))
    return struct.pack("<H", len(tags)) + entries + struct.pack("<I", after) + more


def pages_of_tiff(count: int, last: int = 0) -> bytes:
    """Pages of one pixel that share it. last: where the last one leads."""
    size = len(directory(dict.fromkeys(range(8), 0), 0))
    tags = {256: 1, 257: 1, 258: 8, 259: 1, 262: 1, 273: 8, 277: 1, 279: 1}
    found = [b"II*\0" + struct.pack("<I", 10) + b"\x80\0"]
    for page in range(count):
        found.append(directory(tags, 10 + (page + 1) * size if page < count - 1 else last))
    return b"".join(found)


def circle_of_tiff() -> bytes:
    return pages_of_tiff(3, last=10)


def ome(attributes: str, more: str = "") -> bytes:
    """A TIFF of five pages with a description by the Open Microscopy Environment."""
    text = f"""<?xml version="1.0"?><OME xmlns="http://www.openmicroscopy.org/Schemas/OME/2016-06">
<Image ID="Image:0">
<Pixels DimensionOrder="XYCZT" ID="Pixels:0" SizeX="24" SizeY="24" Type="uint16" {attributes}>
{more}</Pixels></Image></OME>"""
    pages = np.zeros((5, SIDE, SIDE), np.uint16)
    return tiff(pages, photometric="minisblack", description=text, metadata=None)


def endless_ome() -> bytes:
    return ome('SizeC="1" SizeZ="100000" SizeT="100000"', '<TiffData IFD="0" PlaneCount="1"/>')


def ome_of_others(path: str) -> bytes:
    one = f'<TiffData FirstC="0" FirstZ="0" FirstT="0" IFD="0" PlaneCount="1"><UUID FileName="{path}">urn:uuid:1</UUID>'
    return ome('SizeC="1" SizeZ="5" SizeT="1"', f"{one}</TiffData>")


def huge_jpeg_2000(side: int = 13_000) -> bytes:
    """A JPEG 2000 of about a hundred bytes: of its one tile every packet is empty, which means zeros."""
    imagecodecs = pytest.importorskip("imagecodecs")
    content = bytearray(imagecodecs.jpeg2k_encode(np.zeros((SIDE, SIDE), np.uint8), codecformat="j2k", level=0))
    place = content.find(b"\xff\x4f\xff\x51") + 8
    content[place : place + 8] = struct.pack(">II", side, side)
    content[place + 16 : place + 24] = struct.pack(">II", side, side)
    style = content.find(b"\xff\x52")
    (layers,), levels = struct.unpack_from(">H", content, style + 6), content[style + 9]
    packets = bytes(layers * (levels + 1))
    tile, data = content.find(b"\xff\x90"), content.find(b"\xff\x93") + 2
    content[tile + 6 : tile + 10] = struct.pack(">I", data - tile + len(packets))
    return bytes(content[:data]) + packets + b"\xff\xd9"


def strip_of_tiff() -> bytes:
    """Pillow leaves this compression to tifffile."""
    code = huge_jpeg_2000()
    tags = {256: SIDE, 257: SIDE, 258: 8, 259: 34712, 262: 1, 273: 8, 277: 1, 278: SIDE, 279: len(code)}
    return b"II*\0" + struct.pack("<I", 8 + len(code)) + code + directory(tags, 0)


def fragment_of_dicom() -> bytes:
    pytest.importorskip("pydicom")
    import pydicom
    from pydicom.encaps import encapsulate
    from pydicom.uid import JPEG2000Lossless

    about = pydicom.dcmread(io.BytesIO(dicom(np.zeros((16, 16, 1), np.uint8))))
    about.file_meta.TransferSyntaxUID = JPEG2000Lossless
    about.PixelData = encapsulate([huge_jpeg_2000()])
    content = io.BytesIO()
    about.save_as(content)
    return content.getvalue()


def frames_of_gif(count: int) -> bytes:
    first = io.BytesIO()
    Image.new("P", (1, 1)).save(first, "GIF")
    whole = first.getvalue()
    start = whole.index(b"\x2c", 13)
    return whole[:start] + whole[start:-1] * count + b"\x3b"


BOMBS: dict[str, Callable[[], bytes]] = {
    "animation.png": endless_png,
    "study.dcm": endless_dicom,
    "circle.tif": circle_of_tiff,
    "pages.tif": lambda: pages_of_tiff(20_000),
    "ome.tif": endless_ome,
    "strip.tif": strip_of_tiff,
    "fragment.dcm": fragment_of_dicom,
    "frames.gif": lambda: frames_of_gif(20_000),
}
