"""Seconds before the first step with 200,000 image files, and of reading the judges' images in every epoch.

    python recipes/benchmarks/start_up.py

Start-up: what train.py does with a folder before it makes the network: list the files, find the classes, choose the
judges' images, and identify the files by size and time of change. In class folders (1,000) and flat; the files are
links to a few JPEGs of 500 x 375 and lie in the page cache. Judges: clean images of such JPEGs, read as before (each
epoch again, by the main process), in a run's first epoch (with worker processes, keeping them), and in later epochs,
kept in memory and on the disk; and the whole evaluation of an epoch at 64 pixels, features of the default network and
both judges. Also the time that starting one worker takes. Repeats alternate. CPU seconds include the workers'.
"""

import argparse
import json
import os
import resource
import time
from collections.abc import Callable
from pathlib import Path
from statistics import median
from tempfile import TemporaryDirectory

os.environ.setdefault("OMP_WAIT_POLICY", "passive")

import numpy as np
import torch
from file_views import write_files
from ranking_study import commit
from views_speed import machine

import sslkit
from sslkit.data import in_order
from sslkit.data.images import Images
from sslkit.data.in_order import batches_in_order
from sslkit.data.kept import KeptImages, Room
from sslkit.data.sources.named import open_images
from sslkit.training.config import Config
from sslkit.training.data import open_data
from sslkit.training.features import features, knn_accuracy
from sslkit.training.monitor import Probe, scale_of

RESULTS = Path(__file__).with_name("results") / "start_up.json"
CLASSES, JUDGED, SIZES = 1000, 10, (64, 224)


def linked(photos: list[Path], folder: Path, count: int, classes: int) -> Path:
    """A folder of `count` links to the photos, in class folders; in none for classes = 0."""
    for number in range(count):
        path = folder / (f"class{number % classes:04}" if classes else "") / f"{number:06}.jpg"
        if number < max(classes, 1):
            path.parent.mkdir(parents=True)
        os.link(photos[number % len(photos)], path)
    return folder


def used() -> float:
    """CPU seconds of this process and of its ended children."""
    both = (resource.getrusage(who) for who in (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN))
    return sum(one.ru_utime + one.ru_stime for one in both)


def measured(ways: dict[str, Callable[[], object]], repeats: int) -> dict[str, dict[str, float]]:
    """Wall and CPU seconds of each way, in turns, without a first turn."""
    seconds: dict[str, list[tuple[float, float]]] = {name: [] for name in ways}
    for repeat in range(repeats + 1):
        for name, way in ways.items():
            start, cpu = time.perf_counter(), used()
            way()
            if repeat:
                seconds[name].append((time.perf_counter() - start, used() - cpu))
    return {name: spread(values) for name, values in seconds.items()}


def spread(values: list[tuple[float, float]]) -> dict[str, float]:
    found = {}
    for kind, several in zip(("wall", "cpu"), zip(*values, strict=True), strict=True):
        found |= {kind: median(several), f"{kind}_min": min(several), f"{kind}_max": max(several)}
    return found


def start_up(folder: Path) -> Callable[[], object]:
    config = Config.from_mapping({"data": str(folder), "out": str(folder / "runs")})
    return lambda: open_data(config).train.digest


def read(clean: KeptImages) -> None:
    for _ in clean.batches(256):
        pass


def judges(folder: Path, size: int, places: dict[str, Room]) -> dict[str, Callable[[], object]]:
    """Ways to read the judges' images once."""
    images = open_images(folder, image_size=size, channels=3, fit="crop")
    rows = np.arange(len(images))
    alone = images.at(image_size=size, channels=3, fit="crop")
    alone.workers = 0
    kept = {name: KeptImages(images, rows, room=room) for name, room in places.items()}
    for clean in kept.values():
        read(clean)
    cache = places["disk"].folder
    ways = {
        "before": lambda: read(KeptImages(alone, rows)),
        "first epoch": lambda: read(KeptImages(images, rows, room=Room(cache))),
        "first epoch, disk": lambda: read(KeptImages(images, rows, room=Room(cache, 0))),
    }
    return ways | {f"later, {name}": lambda clean=clean: read(clean) for name, clean in kept.items()}


def evaluations(folder: Path, cache: Path) -> dict[str, Callable[[], object]]:
    """Ways to judge an epoch at 64 pixels: half of the images to train the judges, half to test them."""
    method = sslkit.method("simclr", backbone="narrow_resnet", image_size=64, seed=0)
    images = open_images(folder, image_size=64, channels=3, fit="crop")
    images.labels, images.classes = np.arange(len(images)) % JUDGED, [str(label) for label in range(JUDGED)]
    alone = images.at(image_size=64, channels=3, fit="crop")
    alone.workers = 0
    halves = np.array_split(np.random.default_rng(0).permutation(len(images)), 2)
    room = Room(cache)
    kept = [KeptImages(images, np.sort(half), room=room) for half in halves]

    def judge(parts: list[KeptImages]) -> None:
        (x, y), (query, query_y) = (features(method, part) for part in parts)
        mean, std = scale_of(x)
        probe = Probe(x.shape[1], JUDGED)
        probe.learn((x - mean) / std, y)
        probe.accuracy((query - mean) / std, query_y)
        knn_accuracy(x, y, query, query_y)

    before = [KeptImages(alone, part.rows) for part in kept]
    return {"before": lambda: judge(before), "later epochs": lambda: judge(kept)}


def one_worker(images: Images) -> Callable[[], object]:
    """Start a worker, read one image and end it."""
    return lambda: list(batches_in_order(images, [0], 1, workers=1))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--files", type=int, default=200_000, help="of the start-up")
    parser.add_argument("--judged", type=int, default=2_000, help="images that the judges read")
    parser.add_argument("--repeats", type=int, default=5, help="measured repeats, which alternate")
    parser.add_argument("--output", type=Path, default=RESULTS)
    given = parser.parse_args()
    torch.set_num_threads(1)
    result = {"machine": machine(), "commit": commit()}
    result |= {"files": given.files, "judged": given.judged, "repeats": given.repeats}
    with TemporaryDirectory() as name:
        folder = Path(name)
        (folder / "photos").mkdir()
        photos = write_files(folder / "photos")
        many = {
            "class folders": linked(photos, folder / "classes", given.files, CLASSES),
            "flat": linked(photos, folder / "flat", given.files, 0),
        }
        result["start_up"] = measured({kind: start_up(place) for kind, place in many.items()}, given.repeats)
        judged = linked(photos, folder / "judged", given.judged, 0)
        for size in SIZES:
            places = {"memory": Room(folder / "cache"), "disk": Room(folder / "cache", 0)}
            result[f"reading_{size}"] = measured(judges(judged, size, places), given.repeats)
        result["evaluation_64"] = measured(evaluations(judged, folder / "cache"), given.repeats)
        in_order.FEWEST = 1
        few = open_images(judged, image_size=64, channels=3)
        result["one_worker"] = measured({"one worker": one_worker(few)}, given.repeats)
    for part, ways in result.items():
        for way, row in ways.items() if isinstance(ways, dict) and part != "machine" else ():
            print(
                f"{part:15}{way:20}{row['wall']:8.3f} s ({row['wall_min']:.3f} to {row['wall_max']:.3f})"
                f"{row['cpu']:10.3f} CPU s ({row['cpu_min']:.3f} to {row['cpu_max']:.3f})"
            )
    given.output.parent.mkdir(parents=True, exist_ok=True)
    given.output.write_text(json.dumps(result, indent=1) + "\n")


if __name__ == "__main__":
    main()
