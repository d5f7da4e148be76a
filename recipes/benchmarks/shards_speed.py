"""Images of shards against the same images as files: reading, decoding, and opening the source.

    cd recipes/benchmarks
    python shards_speed.py                (writes results/shards_speed.json; wants an idle machine)
    python shards_speed.py --table        (print the committed results)

JPEG files of 500 x 375 in ten class folders, and the shards that `recipes/shards.py` makes of them. read: the bytes of
random rows; decode: random rows as squares of 256 pixels; one process, in turns. warm: all is in the system's cache;
cold: it was dropped from it before each turn (posix_fadvise). open: `open_images` of a new process's first call, with
the index of the shards made, and kept already.
"""

import argparse
import os
import shutil
import tempfile
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from statistics import median

os.environ.setdefault("OMP_WAIT_POLICY", "passive")

import numpy as np
from file_views import write_files
from results import keep, load

import sslkit
from sslkit.data.decoded import DecodedImages
from sslkit.data.sources.folder import FolderImages
from sslkit.data.sources.shard_writer import write_shards

RESULTS = "shards_speed"
CLASSES = 10


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--images", type=int, default=10_000)
    parser.add_argument("--rows", type=int, default=1_000, help="that a turn reads, or a quarter of them decodes")
    parser.add_argument("--repeats", type=int, default=9)
    parser.add_argument("--folder", type=Path, help="on the disk to measure; default: the system's temporary one")
    parser.add_argument("--table", action="store_true", help="print the results and exit")
    args = parser.parse_args()
    if not args.table:
        with tempfile.TemporaryDirectory(dir=args.folder) as scratch:
            for name, row in measured(Path(scratch), args.images, args.rows, args.repeats).items():
                keep(RESULTS, name, row | {"images": args.images})
    print(table(load(RESULTS)["runs"]))


def measured(scratch: Path, images: int, rows: int, repeats: int) -> dict[str, dict[str, float]]:
    """Images a second of files and shards, and the median of their ratio, by what is done; seconds for open."""
    write_tree(scratch / "files", images)
    write_shards(scratch / "files", scratch / "shards", progress=False)
    sources = {"files": str(scratch / "files"), "shards": f"shards:{scratch / 'shards'}"}
    opened = {name: sslkit.open_images(source, cache=scratch / "cache") for name, source in sources.items()}
    places = {"files": scratch / "files", "shards": scratch / "shards"}
    found = {}
    for temperature in ("warm", "cold"):
        for what, count, work in (("read", rows, read), ("decode", rows // 4, decode)):
            found[f"{what}, {temperature}"] = in_turns(opened, places, work, count, repeats, temperature == "cold")
    found["open"] = {name: opening(source, scratch / "cache", repeats) for name, source in sources.items()}
    found["open, index not made"] = {"shards": opening(sources["shards"], scratch / "cache", repeats, new=True)}
    return found


def write_tree(folder: Path, count: int) -> None:
    """`count` JPEG files in class folders: copies, not links, so that each has its own place on the disk."""
    folder.mkdir(parents=True)
    with tempfile.TemporaryDirectory() as scratch:
        first = write_files(Path(scratch))
        for number in range(count):
            path = folder / f"{number % CLASSES}" / f"{number:06}.jpg"
            path.parent.mkdir(exist_ok=True)
            shutil.copyfile(first[number % len(first)], path)


def in_turns(
    opened: dict[str, DecodedImages],
    places: dict[str, Path],
    work: Callable[[DecodedImages, np.ndarray], None],
    count: int,
    repeats: int,
    cold: bool,
) -> dict[str, float]:
    rates: dict[str, list[float]] = {name: [] for name in opened}
    draw = np.random.default_rng(0)
    for repeat in range(repeats + 1):
        rows = draw.choice(len(opened["files"]), count, replace=False)
        for name in sorted(opened, reverse=repeat % 2 == 1):
            if cold:
                drop_from_cache(places[name])
            start = time.perf_counter()
            work(opened[name], rows)
            if repeat:  # the first is a warm-up
                rates[name].append(count / (time.perf_counter() - start))
    ratios = [a / b for a, b in zip(rates["shards"], rates["files"], strict=True)]
    ends = {"least": min(ratios), "most": max(ratios)}
    medians = {name: median(found) for name, found in rates.items()} | {"ratio": median(ratios)}
    return {name: round(value, 3) for name, value in (medians | ends).items()}


def read(images: DecodedImages, rows: np.ndarray) -> None:
    for row in rows.tolist():
        if isinstance(images, FolderImages):
            Path(images.path(row)).read_bytes()
        else:
            shard = images.index.shards[images.index.shard[row]].name
            images.files.read(shard, int(images.index.offset[row]), int(images.index.size[row]))


def decode(images: DecodedImages, rows: np.ndarray) -> None:
    images.__getitems__(rows.tolist())


def drop_from_cache(folder: Path) -> None:
    for path in files_below(folder):
        handle = os.open(path, os.O_RDONLY)
        try:
            os.fsync(handle)  # what is not written yet stays in the cache
            os.posix_fadvise(handle, 0, 0, os.POSIX_FADV_DONTNEED)
        finally:
            os.close(handle)


def files_below(folder: Path) -> Iterator[Path]:
    return (path for path in folder.rglob("*") if path.is_file())


def opening(source: str, cache: Path, repeats: int, *, new: bool = False) -> float:
    """Median seconds of `open_images`. new: without a kept index."""
    seconds = []
    for _ in range(repeats):
        if new:
            shutil.rmtree(cache)
        start = time.perf_counter()
        sslkit.open_images(source, cache=cache)
        seconds.append(time.perf_counter() - start)
    return round(median(seconds), 4)


def table(runs: dict[str, dict[str, float]]) -> str:
    lines = ["| | files, images/s | shards, images/s | shards over files (least to most) |", "|---|--:|--:|--:|"]
    for name, row in runs.items():
        if "ratio" in row:
            spread = f"{row['ratio']:.2f} ({row['least']:.2f} to {row['most']:.2f})"
            lines.append(f"| {name} | {row['files']:,.0f} | {row['shards']:,.0f} | {spread} |")
    opens = ", ".join(
        f"{name} of {kind} {row[kind]:.2f} s"
        for name, row in runs.items()
        for kind in ("files", "shards")
        if "ratio" not in row and kind in row
    )
    images = next(iter(runs.values()))["images"] if runs else 0
    return "\n".join([*lines, "", f"{images:,} images; {opens}."])


if __name__ == "__main__":
    main()
