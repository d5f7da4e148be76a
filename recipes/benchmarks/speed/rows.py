"""Single rows of a large data set, as squares of 224 pixels: images per CPU second, beside a small set and others.

    python recipes/benchmarks/speed/run.py rows

The rows of ImageNet, 1,281,167, of a few real files: JPEG files of 500 x 375 under as many names in 1,000 folders (hard
links), a tar file of 1,000 of them under as many names as make 1.28 million rows, and an .npz of 16 x 16 pixels. The
same rows of each kind are read from a set of 10,000. torchvision reads its ImageFolder with Pillow and resizes whole
images, webdataset reads its shards one after the other and decodes alike; sslkit reads random rows. One thread, batches
of 64; repeats alternate, so that other load slows all equally.
"""

import io
import os
import tarfile
import time
from collections.abc import Callable, Iterator
from functools import partial
from itertools import islice
from pathlib import Path
from statistics import median
from tempfile import TemporaryDirectory

import cli
import numpy as np
import torch
import webdataset
from PIL import Image
from results import about, path_of, write
from sklearn.datasets import load_sample_images
from torchvision.datasets import ImageFolder
from torchvision.transforms import v2
from turns import shown, take_turns

from sslkit.data.sources.named import open_images

IMAGENET, SMALL, CLASSES, IN_SHARD = 1_281_167, 10_000, 1_000, 1_000
COUNT, WIDTH, HEIGHT, SIDE, BATCH, TINY = 64, 500, 375, 224, 64, 16
IN_MEMORY = 100  # times as many images of an array, since they take so little time
Read = Callable[[int], object]
_RESIZED = v2.Compose([v2.Resize((SIDE, SIDE), antialias=True), v2.PILToTensor()])


def jpegs() -> list[bytes]:
    """COUNT pieces of scikit-learn's photographs as JPEG files of quality 92."""
    photos = [Image.fromarray(photo) for photo in load_sample_images().images]
    found = []
    for number in range(COUNT):
        left, top, content = 7 * number % 140, 5 * number % 52, io.BytesIO()
        photos[number % 2].crop((left, top, left + WIDTH, top + HEIGHT)).save(content, "jpeg", quality=92)
        found.append(content.getvalue())
    return found


def write_folder(folder: Path, contents: list[bytes], rows: int) -> Path:
    """Hard links to a file of each class: a file can have some 65,000 names."""
    for label in range(CLASSES):
        inside = folder / f"{label:04}"
        inside.mkdir(parents=True)
        names = [inside / f"{row:06}.jpg" for row in range(label, rows, CLASSES)]
        names[0].write_bytes(contents[label % len(contents)])
        for name in names[1:]:
            os.link(names[0], name)
    return folder


def write_shards(folder: Path, contents: list[bytes], rows: int) -> Path:
    """One tar file under all names; the last row is that of a whole shard."""
    folder.mkdir(parents=True)
    names = [folder / f"{shard:06}.tar" for shard in range(-(-rows // IN_SHARD))]
    with tarfile.open(names[0], "w") as opened:
        for row in range(IN_SHARD):
            for kind, content in (("jpg", contents[row % len(contents)]), ("cls", b"%d" % (row % CLASSES))):
                about_it = tarfile.TarInfo(f"{row:06}.{kind}")
                about_it.size = len(content)
                opened.addfile(about_it, io.BytesIO(content))
    for name in names[1:]:
        os.link(names[0], name)
    return folder


def write_npz(file: Path, rows: int) -> Path:
    values = np.random.default_rng(0).integers(0, 256, (rows, TINY, TINY), dtype=np.uint8)
    np.savez(file, x_train=values, y_train=np.arange(rows) % CLASSES)
    return file


def ours(source: str | Path, size: int) -> Read:
    """A reader of so many random rows, others at each call."""
    images, draw = open_images(source, image_size=size, cache=None), np.random.default_rng(0)

    def read(count: int) -> None:
        for _ in range(count // BATCH):
            images.__getitems__(draw.integers(0, len(images), BATCH).tolist())

    return read


def torchvisions(folder: Path) -> Read:
    images, draw = ImageFolder(folder, _RESIZED), np.random.default_rng(0)

    def read(count: int) -> None:
        for _ in range(count // BATCH):
            torch.stack([images[row][0] for row in draw.integers(0, len(images), BATCH).tolist()])

    return read


def webdatasets(folder: Path) -> Read:
    names = sorted(map(str, folder.iterdir()))
    images = webdataset.WebDataset(names, shardshuffle=False).decode("pil").to_tuple("jpg", "cls")
    samples: Iterator[tuple[Image.Image, int]] = iter(images)

    def read(count: int) -> None:
        for _ in range(count // BATCH):
            torch.stack([_RESIZED(image) for image, _ in islice(samples, BATCH)])

    return read


def timed(opened: Callable[[], Read]) -> tuple[Read, float]:
    """A reader, and the CPU seconds that it took to open."""
    start = time.process_time()
    read = opened()
    return read, time.process_time() - start


def main() -> None:
    parser = cli.parser(__doc__)
    parser.add_argument("--repeats", type=int, default=7, help="measured repeats, which alternate")
    parser.add_argument("--rows", type=int, default=IMAGENET, help="rows of the large sets")
    parser.add_argument("--read", type=int, default=256, help="images of a repeat")
    given = parser.parse_args()
    torch.set_num_threads(1)
    with TemporaryDirectory() as scratch:
        folder, contents = Path(scratch), jpegs()
        files, shards, arrays = ({} for _ in range(3))
        for rows in (SMALL, given.rows):
            files[rows] = write_folder(folder / f"files{rows}", contents, rows)
            shards[rows] = write_shards(folder / f"shards{rows}", contents, rows)
            arrays[rows] = write_npz(folder / f"{rows}.npz", rows)
        opened = {
            **{f"sslkit, {rows:,} files": timed(partial(ours, path, SIDE)) for rows, path in files.items()},
            f"torchvision's ImageFolder, {given.rows:,} files": timed(partial(torchvisions, files[given.rows])),
            **{
                f"sslkit, {rows:,} rows of shards": timed(partial(ours, f"shards:{path}", SIDE))
                for rows, path in shards.items()
            },
            f"webdataset, {given.rows:,} rows of shards": timed(partial(webdatasets, shards[given.rows])),
            **{f"sslkit, {rows:,} rows of .npz": timed(partial(ours, path, TINY)) for rows, path in arrays.items()},
        }
        counts = {name: given.read * (IN_MEMORY if ".npz" in name else 1) for name in opened}
        contestants = {name: partial(read, counts[name]) for name, (read, _) in opened.items()}
        times = take_turns(contestants, given.repeats, clock=time.process_time)
    numbers = {}
    for name, seconds in times.items():
        rates = [counts[name] / one for one in seconds]
        numbers[name] = {"median": median(rates), "min": min(rates), "max": max(rates), "opened": opened[name][1]}
        print(f"{name:48}{shown(numbers[name], 0):>28} images per CPU second, opened in {opened[name][1]:.1f} CPU s")
    write(path_of("speed/rows"), {**about(), "threads": 1, "rows": given.rows, "images_per_cpu_second": numbers})
