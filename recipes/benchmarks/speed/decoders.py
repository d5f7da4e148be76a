"""CPU time of rare formats that are decoded by processes with limits, beside decoding in this process alone.

    python recipes/benchmarks/speed/run.py decoders

Pieces of scikit-learn's two photographs of 500 x 375, as files of each format, read by `open_images` as squares of 224
pixels, one thread. CPU time is that of this process and of the decoders. Repeats alternate. JPEG, PNG and
these TIFFs are plain: both ways decode them here, and their ratio shows the noise.
"""

import os
import warnings
from collections.abc import Callable
from contextlib import suppress
from functools import partial
from io import BytesIO
from pathlib import Path
from statistics import median
from tempfile import TemporaryDirectory
from unittest import mock

import cli
import numpy as np
import psutil
import pydicom
import tifffile
import torch
from PIL import Image
from pydicom.dataset import FileDataset, FileMetaDataset
from results import about, path_of, write
from sklearn.datasets import load_sample_images
from turns import shown, summary, take_turns

from sslkit.data.decode import opening
from sslkit.data.sources.named import open_images

COUNT, WIDTH, HEIGHT, SIDE = 32, 500, 375, 224
TIMES = 4  # that a repeat reads each file: the system counts CPU time in steps of 10 ms
SLICE = 512  # pixels of a side of a slice of tomography


def _saved(format: str, **options: object) -> Callable[[np.ndarray], bytes]:
    def encode(pixels: np.ndarray) -> bytes:
        file = BytesIO()
        Image.fromarray(pixels).save(file, format, **options)
        return file.getvalue()

    return encode


def _deep_tiff(pixels: np.ndarray) -> bytes:
    file = BytesIO()
    tifffile.imwrite(file, pixels.astype(np.uint16) * 257, photometric="rgb", compression="zlib")
    return file.getvalue()


def _slice(pixels: np.ndarray) -> bytes:
    """A slice of 12 bits in 16, as a scanner writes it."""
    gray = Image.fromarray(pixels).convert("L").resize((SLICE, SLICE))
    file, head = BytesIO(), FileMetaDataset()
    head.TransferSyntaxUID = pydicom.uid.ExplicitVRLittleEndian
    head.MediaStorageSOPClassUID, head.MediaStorageSOPInstanceUID = (
        pydicom.uid.CTImageStorage,
        pydicom.uid.generate_uid(),
    )
    data = FileDataset(file, {}, file_meta=head, preamble=b"\0" * 128)
    data.Rows = data.Columns = SLICE
    data.SamplesPerPixel, data.PhotometricInterpretation, data.PixelRepresentation = 1, "MONOCHROME2", 0
    data.BitsAllocated, data.BitsStored, data.HighBit = 16, 12, 11
    data.PixelData = (np.asarray(gray).astype(np.uint16) * 16).tobytes()
    data.save_as(file, enforce_file_format=True)
    return file.getvalue()


FORMATS = {
    "JPEG": ("jpg", _saved("JPEG", quality=92)),
    "PNG": ("png", _saved("PNG")),
    "TIFF of 8 bits, LZW": ("tif", _saved("TIFF", compression="tiff_lzw")),
    "TIFF of 16 bits, RGB, deflate": ("tif", _deep_tiff),
    "DICOM of 12 bits, 512 x 512": ("dcm", _slice),
    "GIF": ("gif", _saved("GIF")),
    "JPEG 2000": ("jp2", _saved("JPEG2000")),
}


def write_files(folder: Path, ending: str, encode: Callable[[np.ndarray], bytes]) -> Path:
    photos = load_sample_images().images
    folder.mkdir()
    for number in range(COUNT):
        left, top = 7 * number % 140, 5 * number % 52
        pixels = photos[number % 2][top : top + HEIGHT, left : left + WIDTH]
        (folder / f"{number:02}.{ending}").write_bytes(encode(np.ascontiguousarray(pixels)))
    return folder


def cpu_seconds() -> float:
    """Return the CPU time (s) of this process and of those that it has started, the ended ones included."""
    own, total = psutil.Process(), 0.0
    for process in (own, *own.children(recursive=True)):
        with suppress(psutil.NoSuchProcess):
            total += sum(process.cpu_times()[:4])
    return total


def read(folder: Path, *, here: bool) -> None:
    """Read all files. here: in this process, whatever their format."""
    kind_of = (lambda *_: None) if here else opening.kind_of
    with mock.patch.object(opening, "kind_of", kind_of):
        open_images(folder, image_size=SIDE, cache=None).__getitems__(TIMES * list(range(COUNT)))


def main() -> None:
    parser = cli.parser(__doc__)
    parser.add_argument("--repeats", type=int, default=15, help="measured repeats, which alternate")
    given = parser.parse_args()
    torch.set_num_threads(1)
    warnings.simplefilter("ignore")  # each repeat opens the files anew and says their range
    numbers = {}
    with TemporaryDirectory() as scratch:
        for number, (name, (ending, encode)) in enumerate(FORMATS.items()):
            folder = write_files(Path(scratch, str(number)), ending, encode)
            ways = {way: partial(read, folder, here=way == "here") for way in ("limited", "here")}
            times = take_turns(ways, given.repeats, clock=cpu_seconds)
            ratios = [a / b for a, b in zip(times["limited"], times["here"], strict=True)]
            milliseconds = {way: 1000 * median(seconds) / COUNT / TIMES for way, seconds in times.items()}
            numbers[name] = {"ratio": summary(ratios), **milliseconds}
            print(f"{name:32}{milliseconds['here']:8.2f} ms here{shown(numbers[name]['ratio']):>24} times with limits")
    write(path_of("speed/decoders"), {**about(), "threads": 1, "files": COUNT, "cpu": numbers, "load": os.getloadavg()})
