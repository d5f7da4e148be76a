"""Small image files of every format that sslkit reads, for `tests/format_cases.py`."""

import io
import struct
import zlib
from typing import Any

import numpy as np
import pytest
from PIL import Image

SIDE = 16


def flat(dtype: str, *values: float) -> np.ndarray:
    """(SIDE, SIDE, C), every pixel the same."""
    return np.broadcast_to(np.array(values, dtype), (SIDE, SIDE, len(values))).copy()


def pillow(values: np.ndarray, format: str, mode: str | None = None, **options: Any) -> bytes:
    image = Image.fromarray(values[..., 0] if values.shape[-1] == 1 else values)
    content = io.BytesIO()
    (image.convert(mode) if mode else image).save(content, format, **options)
    return content.getvalue()


def tiff(values: np.ndarray, **options: Any) -> bytes:
    tifffile = pytest.importorskip("tifffile")
    content = io.BytesIO()
    tifffile.imwrite(content, values, **options)
    return content.getvalue()


def bands(dtype: str, *values: float, **options: Any) -> bytes:
    return tiff(flat(dtype, *values), **{"photometric": "minisblack", "planarconfig": "contig", **options})


def deep_png(*values: int) -> bytes:
    """PNG of 16 bits, written here: no library of the tests writes several channels."""

    def chunk(kind: bytes, data: bytes) -> bytes:
        return struct.pack(">I", len(data)) + kind + data + struct.pack(">I", zlib.crc32(kind + data))

    rows = b"".join(b"\0" + row.tobytes() for row in flat(">u2", *values))
    kind = {1: 0, 2: 4, 3: 2, 4: 6}[len(values)]
    head = struct.pack(">IIBBBBB", SIDE, SIDE, 16, kind, 0, 0, 0)
    return b"\x89PNG\r\n\x1a\n" + chunk(b"IHDR", head) + chunk(b"IDAT", zlib.compress(rows)) + chunk(b"IEND", b"")


def fits(bits: int, value: float, dtype: str, **more: float) -> bytes:
    cards = (f"SIMPLE  = {'T':>20}", f"BITPIX  = {bits:>20}", f"NAXIS   = {2:>20}")
    cards += (f"NAXIS1  = {SIDE:>20}", f"NAXIS2  = {SIDE:>20}")
    cards += (*(f"{name:<8}= {number:>20} / comment" for name, number in more.items()), "END")
    head = "".join(card.ljust(80) for card in cards).ljust(2880)
    return head.encode() + flat(dtype, value).tobytes().ljust(2880, b"\0")


def heic(*values: int) -> bytes:
    pillow_heif = pytest.importorskip("pillow_heif")
    content = io.BytesIO()
    pillow_heif.from_pillow(Image.fromarray(flat("u1", *values).repeat(4, 0).repeat(4, 1))).save(content, quality=-1)
    return content.getvalue()


def dicom(values: np.ndarray, kind: str = "MONOCHROME2", *, deflated: bool = False, **fields: Any) -> bytes:
    pytest.importorskip("pydicom")
    from pydicom.dataset import Dataset, FileMetaDataset
    from pydicom.uid import (
        DeflatedExplicitVRLittleEndian,
        ExplicitVRLittleEndian,
        SecondaryCaptureImageStorage,
        generate_uid,
    )

    about, meta = Dataset(), FileMetaDataset()
    meta.TransferSyntaxUID = DeflatedExplicitVRLittleEndian if deflated else ExplicitVRLittleEndian
    meta.MediaStorageSOPClassUID, meta.MediaStorageSOPInstanceUID = SecondaryCaptureImageStorage, generate_uid()
    about.file_meta, about.PhotometricInterpretation = meta, kind
    about.Rows, about.Columns, about.SamplesPerPixel = SIDE, SIDE, values.shape[-1]
    about.BitsAllocated = about.BitsStored = 8 * values.dtype.itemsize
    about.HighBit, about.PixelRepresentation = about.BitsStored - 1, int(values.dtype.kind == "i")
    if values.shape[-1] > 1:
        about.PlanarConfiguration = 0
    about.PixelData = values.tobytes()
    for name, value in fields.items():
        setattr(about, name, value)
    content = io.BytesIO()
    about.save_as(content, enforce_file_format=True)
    return content.getvalue()


def pages(format: str, **options: Any) -> bytes:
    images = [Image.new("RGB", (SIDE, SIDE), (gray,) * 3) for gray in (10, 200)]
    content = io.BytesIO()
    images[0].save(content, format, save_all=True, append_images=images[1:], **options)
    return content.getvalue()


def ten_bits() -> bytes:
    imagecodecs = pytest.importorskip("imagecodecs")
    return imagecodecs.avif_encode(flat("u2", 512, 256, 1023), bitspersample=10, level=100)


def twelve_bits() -> bytes:
    imagecodecs = pytest.importorskip("imagecodecs")
    values = flat("u2", 2048, 1024, 4095).repeat(4, 0).repeat(4, 1)
    return imagecodecs.jpeg2k_encode(values, bitspersample=12, reversible=True, codecformat="jp2")


def lab() -> bytes:
    content = io.BytesIO()
    Image.new("LAB", (SIDE, SIDE), (128, 128, 128)).save(content, "TIFF")
    return content.getvalue()


def holes(none: float, value: float, corner: float | None = None) -> bytes:
    values = flat("f4", value)[..., 0]
    values[0, 0] = none if corner is None else corner
    return tiff(values, extratags=[(42113, "s", 0, str(none), True)])


def compressed(name: str) -> bytes:
    pytest.importorskip("imagecodecs")
    return tiff(flat("u2", 2048).repeat(4, 0).repeat(4, 1)[..., 0], compression=name)


def large() -> bytes:
    content = io.BytesIO()
    Image.new("1", (13_400, 13_400)).save(content, "PNG")
    return content.getvalue()
