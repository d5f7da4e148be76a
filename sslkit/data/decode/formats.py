"""The formats of image files: by their extensions, and by the first bytes of their content."""

import re

from PIL import Image

from sslkit.data.decode import dicom

# Of the pictures that Pillow opens. Not eps and ps, for which it runs another program, nor what it cannot decode or is
# no raster image: wmf and emf (drawings), mpg (films), bufr, grib and hdf (data), iim (texts about a picture). Nor rare
# ones that mostly mean something else: pcd (point clouds), gbr (circuits), fit (sports), rgb (bytes), vst (diagrams);
# where the content of such a file is certainly a picture's, it is read.
EXTENSIONS = (
    "jpg", "jpeg", "png", "webp", "tif", "tiff", "bmp", "gif", "jfif", "jpe", "jp2", "j2k", "jpc", "jpf", "jpx", "j2c",
    "avif", "avifs", "apng", "ppm", "pgm", "pbm", "pnm", "pfm", "dib", "ico", "cur", "icns", "tga", "psd", "qoi", "dds",
    "sgi", "pcx", "dcx", "fits", "fli", "flc", "msp", "pxr", "ras", "xbm", "xpm", "blp", "ftc", "ftu",
    "dcm", "dicom", "heic", "heif", "hif",  # which other packages read
)  # fmt: skip
_NO_PICTURES = ("BUFR", "EPS", "GRIB", "HDF5", "IPTC", "MPEG", "WMF")
_UNSURE = ("DIB", "GBR", "IMT", "MCIDAS", "PCX")  # begin like many other files: only their extensions tell
_IMAGE_IN_LETTERS = re.compile(rb"P[1-6fF]\s|SIMPLE  =|/\* XPM ")  # how the images that begin like a text do
_TEXT = re.compile(rb"[\t\n\r\x20-\x7e]*")
_PILLOWS = 16  # bytes that Pillow looks at
START = max(_PILLOWS, dicom.LENGTH)  # bytes of a file that tell its format
_HEIF = (b"heic", b"heix", b"hevc", b"hevx", b"heim", b"heis", b"mif1", b"msf1")  # brands


def looks_like_an_image(start: bytes) -> bool:
    """Return whether a file with these first `START` bytes is a picture, by the signatures of the formats."""
    if dicom.is_dicom(start) or is_heif(start):
        return True
    start = start[:_PILLOWS]
    if not start or (_TEXT.fullmatch(start) and not _IMAGE_IN_LETTERS.match(start)):
        return False
    Image.init()
    return any(_accepts(name, start) for name in Image.OPEN if name not in (*_NO_PICTURES, *_UNSURE))


def _accepts(name: str, start: bytes) -> bool:
    accept = Image.OPEN[name][1]
    try:
        return accept is not None and accept(start) in (True, 1)  # a text: the reason why this Pillow cannot read it
    except Exception:  # a start that is too short
        return False


def is_heif(start: bytes) -> bool:
    """Return whether a file with these first bytes is HEIC or HEIF."""
    return start[4:8] == b"ftyp" and start[8:12] in _HEIF
