"""A file of every line of the table of formats in sslkit/README.md, for `tests/data/test_formats.py`."""

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from image_files import (
    bands,
    compressed,
    deep_png,
    dicom,
    fits,
    flat,
    heic,
    holes,
    lab,
    large,
    pages,
    pillow,
    ten_bits,
    tiff,
    twelve_bits,
)

OPAQUE, BAND = {"opacity": True}, {"opacity": False, "channels": 4}
RANGE = r"range=\[0,4095\]"


@dataclass
class Case:
    """line: of the table, its first column. make: returns the file. pixels: of the middle, in each channel.

    said: pattern of the only warning. options: of `open_images`. near: levels that a lossy format may be away.
    """

    line: str
    name: str
    make: Callable[[], bytes]
    pixels: list[int]
    said: str = ""
    options: dict[str, Any] = field(default_factory=dict)
    near: int = 0

    def __str__(self) -> str:
        return f"{self.line}: {self.name}"


ONE, MANY, MORE = (
    "TIFF, 16-bit RGB",
    "TIFF, any number of channels, marked as gray",
    "TIFF, more than three channels, marked as RGB",
)
HALF = "PNG whose fourth plane is neither 0 nor full"
TRANSPARENT, DEEP_PNG = "PNG with transparency", "PNG, 16-bit colours, also with transparency"
PAGES, PER_PAGE = "several pages (GIF, WebP, APNG, TIFF)", "TIFF, one channel per page"
INSIDE, PLAIN, INTEGERS = (
    "TIFF, compressed by LZW, ZSTD or JPEG 2000",
    "WebP, BMP, GIF, AVIF, JPEG 2000",
    "TIFF, 32-bit integers, signed or not",
)
NODATA = "TIFF with GDAL's nodata, a number or NaN"
FITS = "FITS, integers or floats"
LEVELS = ([0, 1000, 2000, 3000, 4095], [0, 62, 125, 187, 255])
SAID_PAGES = "1 of 1 file looked at have several pages"
CASES = [
    Case(
        "JPEG, gray or colour",
        "a.jpg",
        lambda: pillow(flat("u1", 10, 20, 30), "JPEG", quality=100),
        [10, 20, 30],
        near=2,
    ),
    Case(
        "JPEG, CMYK",
        "a.jpg",
        lambda: pillow(flat("u1", 200, 100, 50), "JPEG", "CMYK", quality=100),
        [200, 100, 50],
        near=3,
    ),
    Case(
        "JPEG with further pictures (MPO)",
        "a.jpg",
        lambda: pages("MPO", quality=100),
        [10],
        options={"channels": 1},
        near=1,
    ),
    Case("PNG, 8 bits", "a.png", lambda: pillow(flat("u1", 10, 20, 30), "PNG"), [10, 20, 30]),
    Case("PNG, 8 bits", "gray.png", lambda: pillow(flat("u1", 7), "PNG"), [7]),
    Case("PNG, 1 bit", "a.png", lambda: pillow(flat("u1", 255), "PNG", "1"), [255]),
    Case("PNG, palette", "a.png", lambda: pillow(flat("u1", 255, 0, 0), "PNG", "P"), [255, 0, 0]),
    Case("PNG, palette", "hole.png", lambda: pillow(flat("u1", 9), "PNG", "P", transparency=9), [255, 255, 255]),
    Case(TRANSPARENT, "a.png", lambda: pillow(flat("u1", 200, 100, 0, 0), "PNG"), [255, 255, 255], "laid over white"),
    Case(TRANSPARENT, "full.png", lambda: pillow(flat("u1", 7, 255), "PNG"), [7], "an image has opacity"),
    Case(
        TRANSPARENT, "4.png", lambda: pillow(flat("u1", 9, 8, 7, 255), "PNG"), [9, 8, 7, 255], "kept", {"channels": 4}
    ),
    Case(HALF, "a.png", lambda: pillow(flat("u1", 200, 100, 0, 51), "PNG"), [200, 100, 0], "above 0 0% are full"),
    Case(HALF, "told.png", lambda: pillow(flat("u1", 200, 100, 0, 51), "PNG"), [244, 224, 204], "", {"opacity": True}),
    Case(
        HALF,
        "4.png",
        lambda: pillow(flat("u1", 200, 100, 0, 51), "PNG"),
        [200, 100, 0, 51],
        "like the others, and read",
        {"channels": 4},
    ),
    Case(HALF, "gray.png", lambda: pillow(flat("u1", 100, 51), "PNG"), [100], "by data.channels=2"),
    Case(HALF, "2.png", lambda: pillow(flat("u1", 100, 51), "PNG"), [100, 51], "", {"channels": 2}),
    Case("PNG, 16-bit gray", "a.png", lambda: deep_png(2048), [128], RANGE),
    Case(DEEP_PNG, "a.png", lambda: deep_png(0, 1000, 4095), [0, 62, 255], RANGE),
    Case(DEEP_PNG, "4.png", lambda: deep_png(0, 1000, 4095, 13107), [0, 62, 255, 51], RANGE, {"channels": 4} | OPAQUE),
    Case(DEEP_PNG, "over.png", lambda: deep_png(0, 1000, 4095, 0), [255, 255, 255], RANGE, OPAQUE),
    Case(DEEP_PNG, "gray.png", lambda: deep_png(4000, 65535), [249], RANGE, OPAQUE),
    Case(DEEP_PNG, "band.png", lambda: deep_png(0, 1000, 4095, 2048), [0, 62, 255, 128], RANGE, BAND),
    *(
        Case(
            PLAIN,
            f"a.{name}",
            lambda name=name, more=more: pillow(flat("u1", 10, 20, 30), name, **more),
            [10, 20, 30],
            near=2,
        )
        for name, more in (
            ("webp", {"lossless": True}),
            ("bmp", {}),
            ("gif", {}),
            ("avif", {"quality": 100}),
            ("jpeg2000", {}),
        )
    ),
    Case("AVIF of 10 bits", "a.avif", ten_bits, [128, 64, 255], near=2),
    Case(
        "JPEG 2000, 16-bit gray",
        "a.jp2",
        lambda: pillow(flat("u2", 2048).repeat(4, 0).repeat(4, 1), "JPEG2000"),
        [128],
        RANGE,
    ),
    Case("JPEG 2000, colours of more than 8 bits", "a.jp2", twelve_bits, [128, 64, 255], RANGE),
    Case(
        "PGM of 12 bits",
        "a.pgm",
        lambda: b"P5 16 16 4095\n" + flat(">u2", 2048).tobytes(),
        [128],
        r"range=\[0,65535\]",
    ),
    Case("PPM of 12 bits", "a.ppm", lambda: b"P6 16 16 4095\n" + flat(">u2", 2048, 0, 4095).tobytes(), [128, 0, 255]),
    Case("PFM, floats", "a.pfm", lambda: b"Pf\n16 16\n-1.0\n" + flat("<f4", 0.5).tobytes(), [128], r"range=\[0,1\]"),
    Case(FITS, "a.fits", lambda: fits(16, 2048, ">i2"), [128], RANGE),
    Case(FITS, "minus.fits", lambda: fits(16, -2, ">i2"), [128], options={"range": [-4, 0]}),
    Case(FITS, "shifted.fits", lambda: fits(16, -30720, ">i2", BZERO=32768), [128], RANGE),
    Case(FITS, "float.fits", lambda: fits(-32, 0.5, ">f4"), [128], r"range=\[0,1\]"),
    Case(FITS, "double.fits", lambda: fits(-64, 1, ">f8", BSCALE=0.5), [128], r"range=\[0,1\]"),
    *(
        Case(PAGES, f"a.{name}", lambda name=name, more=more: pages(name, **more), [10, 10, 10], SAID_PAGES)
        for name, more in (("gif", {}), ("webp", {"lossless": True}), ("png", {}), ("tiff", {}))
    ),
    Case(PAGES, "all.gif", lambda: pages("gif"), [10, 10, 10], options={"pages": "all"}),
    Case("TIFF, 8-bit gray or RGB, BigTIFF", "a.tif", lambda: pillow(flat("u1", 10, 20, 30), "TIFF"), [10, 20, 30]),
    Case("TIFF, 8-bit gray or RGB, BigTIFF", "big.tif", lambda: pillow(flat("u1", 7), "TIFF", big_tiff=True), [7]),
    Case(
        "TIFF, CMYK or LAB of 8 bits",
        "a.tif",
        lambda: pillow(flat("u1", 200, 100, 50), "TIFF", "CMYK"),
        [200, 100, 50],
        near=3,
    ),
    Case("TIFF, CMYK or LAB of 8 bits", "lab.tif", lab, [119, 119, 119], near=4),
    Case("TIFF, 16-bit gray, either byte order", "a.tif", lambda: pillow(flat("u2", 2048), "TIFF"), [128], RANGE),
    Case(
        "TIFF, 16-bit gray, either byte order",
        "b.tif",
        lambda: tiff(flat("u2", 2048)[..., 0], byteorder=">"),
        [128],
        RANGE,
    ),
    Case(ONE, "a.tif", lambda: bands("u2", 0, 1000, 4095, photometric="rgb"), [0, 62, 255], RANGE),
    Case(ONE, "b.tif", lambda: bands("u2", 0, 1000, 4095, photometric="rgb", byteorder=">"), [0, 62, 255], RANGE),
    Case(
        ONE,
        "alpha.tif",
        lambda: bands("u2", 0, 1000, 4095, 0, photometric="rgb", extrasamples=["unassalpha"]),
        [255] * 3,
        RANGE,
        OPAQUE,
    ),
    Case(
        ONE,
        "band.tif",
        lambda: bands("u2", 0, 1000, 4095, 2048, photometric="rgb", extrasamples=["unassalpha"]),
        [0, 62, 255, 128],
        RANGE,
        BAND,
    ),
    Case(INTEGERS, "a.tif", lambda: pillow(flat("i4", 2**19), "TIFF"), [128], r"\[0,1048575\]"),
    Case(INTEGERS, "minus.tif", lambda: pillow(flat("i4", -2), "TIFF"), [128], "", {"range": [-4, 0]}),
    Case(INTEGERS, "unsigned.tif", lambda: tiff(flat("u4", 2**31)[..., 0]), [128], r"\[0,4294967295\]"),
    Case("TIFF, 32-bit floats", "a.tif", lambda: pillow(flat("f4", 0.5), "TIFF"), [128], r"range=\[0,1\]"),
    Case(NODATA, "a.tif", lambda: holes(-9999.0, 0.5), [128], r"range=\[0,1\]"),
    Case(NODATA, "nan.tif", lambda: holes(np.nan, 0.5), [128], r"range=\[0,1\]"),
    Case(NODATA, "none.tif", lambda: holes(0.5, 0.5, 0.25), [0], r"range=\[0,1\]"),
    Case(
        "TIFF, 16-bit gray, white is zero",
        "a.tif",
        lambda: tiff(flat("u2", 4095)[..., 0], photometric="miniswhite"),
        [0],
        RANGE,
    ),
    Case("TIFF, 64-bit floats", "a.tif", lambda: tiff(flat("f8", 0.5)[..., 0]), [128], r"range=\[0,1\]"),
    Case("TIFF, 64-bit floats", "half.tif", lambda: tiff(flat("f2", 0.5)[..., 0]), [128], r"range=\[0,1\]"),
    Case(
        "TIFF, 16-bit RGB in planes",
        "a.tif",
        lambda: tiff(flat("u2", 0, 1000, 4095).transpose(2, 0, 1).copy(), photometric="rgb", planarconfig="separate"),
        [0, 62, 255],
        RANGE,
    ),
    Case(MANY, "a.tif", lambda: bands("u1", 10, 20, 30, 40, 50), [10, 20, 30, 40, 50]),
    Case(MANY, "2.tif", lambda: bands("u1", 10, 20), [10, 20]),
    Case(
        MANY,
        "13.tif",
        lambda: bands("u2", *range(0, 13 * 300, 300)),
        [round(n * 300 * 255 / 4095) for n in range(13)],
        RANGE,
    ),
    Case(MANY, "float.tif", lambda: bands("f4", 0, 0.25, 0.5, 0.75, 1), [0, 64, 128, 191, 255], r"range=\[0,1\]"),
    Case(
        MANY,
        "planes.tif",
        lambda: tiff(
            flat("u2", *LEVELS[0]).transpose(2, 0, 1).copy(), photometric="minisblack", planarconfig="separate"
        ),
        LEVELS[1],
        RANGE,
    ),
    Case(
        MORE,
        "a.tif",
        lambda: bands("u1", 10, 20, 30, 40, 50, photometric="rgb"),
        [10, 20, 30],
        "of 5 channels 3 are read: data.channels=5",
    ),
    Case(
        MORE,
        "5.tif",
        lambda: bands("u1", 10, 20, 30, 40, 50, photometric="rgb"),
        [10, 20, 30, 40, 50],
        options={"channels": 5},
    ),
    Case(
        MORE,
        "4.tif",
        lambda: bands("u1", 10, 20, 30, 40, photometric="rgb", extrasamples=["unspecified"]),
        [10, 20, 30, 40],
        options={"channels": 4},
    ),
    Case(
        PER_PAGE,
        "a.tif",
        lambda: tiff(flat("u1", 10, 20, 30, 40, 50).transpose(2, 0, 1).copy(), photometric="minisblack"),
        [10],
        "1 of 1 file",
    ),
    Case(
        PER_PAGE,
        "5.tif",
        lambda: tiff(flat("u1", 10, 20, 30, 40, 50).transpose(2, 0, 1).copy(), photometric="minisblack"),
        [10, 20, 30, 40, 50],
        options={"channels": 5},
    ),
    Case(INSIDE, "lzw.tif", lambda: pillow(flat("u2", 2048), "TIFF", compression="tiff_lzw"), [128], RANGE),
    Case(INSIDE, "zstd.tif", lambda: compressed("zstd"), [128], RANGE),
    Case(INSIDE, "jp2.tif", lambda: compressed("jpeg2000"), [128], RANGE),
    Case("HEIC", "a.heic", lambda: heic(10, 20, 30), [10, 20, 30], near=2),
    Case("DICOM", "a.dcm", lambda: dicom(flat("u2", 2048)), [128], RANGE),
    Case(
        "DICOM",
        "units.dcm",
        lambda: dicom(flat("u2", 2048), RescaleSlope="2", RescaleIntercept="-1024"),
        [128],
        "",
        {"range": [0, 6144]},
    ),
    Case("DICOM", "deflated.dcm", lambda: dicom(flat("u2", 2048), deflated=True), [128], RANGE),
    Case("DICOM", "inverted.dcm", lambda: dicom(flat("u2", 4095), "MONOCHROME1"), [0], RANGE),
    Case("DICOM", "rgb.dcm", lambda: dicom(flat("u1", 10, 20, 30), "RGB"), [10, 20, 30]),
    Case("more than 179 million pixels", "a.png", large, [0], "", {"max_pixels": 200_000_000}),
]
