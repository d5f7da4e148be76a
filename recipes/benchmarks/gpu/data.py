"""Section `data` of run.py: JPEG files into views, decoded by CPU workers or on the GPU, and how long a run waits."""

import csv
import os
import time
from collections.abc import Callable
from pathlib import Path
from statistics import median
from typing import Any

import torch
from gpu.fast import wait
from speed.files import write_files
from torchvision.io import decode_jpeg, read_file
from torchvision.transforms import v2

import sslkit
from sslkit.data.loader import make_loader
from sslkit.data.views.cropped import CroppedImages
from sslkit.data.views.recipe import SIMCLR
from sslkit.runtime.context import Runtime

COPIES = 128  # of the 32 files
SIDE = 224


def write(folder: Path, *, copies: int = COPIES) -> list[Path]:
    """JPEG files of 500 x 375: those of speed/files.py, `copies` times each."""
    folder.mkdir(parents=True)
    first = write_files(folder)
    found = list(first)
    for number in range(1, copies):
        for path in first:
            found.append(folder / f"{number:04}-{path.name}")
            os.link(path, found[-1])
    return found


def rates(folder: Path, paths: list[Path], runtime: Runtime, *, batch: int = 256) -> dict[str, float]:
    """Images a second into two views' crops: of CPU workers, one for each core but one, and of nvJPEG on the GPU."""
    ways: dict[str, Callable[[], int]] = {"CPU workers": _with_workers(folder, batch)}
    if runtime.device.type == "cuda":
        ways["nvJPEG"] = _with_nvjpeg(paths, batch, runtime)
    found = {}
    for name, read in ways.items():
        read()
        seconds = []
        for _ in range(3):
            wait(runtime)
            start = time.perf_counter()
            count = read()
            wait(runtime)
            seconds.append((time.perf_counter() - start) / count)
        found[name] = round(1 / median(seconds), 1)
    return found


def _with_workers(folder: Path, batch: int) -> Callable[[], int]:
    images = CroppedImages(sslkit.open_images(folder), SIMCLR, SIDE)
    loader = make_loader(images, batch_size=batch, seed=0)

    def read() -> int:
        return sum(len(found["index"]) for found in loader)

    return read


def _with_nvjpeg(paths: list[Path], batch: int, runtime: Runtime) -> Callable[[], int]:
    crop = v2.RandomResizedCrop(SIDE, (0.08, 1.0), antialias=True)

    def read() -> int:
        for start in range(0, len(paths), batch):
            images = decode_jpeg([read_file(str(path)) for path in paths[start : start + batch]], device=runtime.device)
            for _ in range(2):
                torch.stack([crop(image) for image in images])
        return len(paths)

    return read


def run(folder: Path, out: Path, runtime: Runtime, *, backbone: str, batch: int, epochs: int = 3) -> dict[str, Any]:
    """A run from the files: images a second and the share of time that it waits for them, medians of later epochs."""
    config = {
        "method": "byol",
        "data": {"source": str(folder), "batch_size": batch, "image_size": SIDE},
        "backbone": backbone,
        "epochs": epochs,
        "out": str(out),
        "name": "run",
        "eval": {"every": 1000, "tsne": 0},
        "trainer": {"progress": False, "accelerator": "gpu" if runtime.device.type == "cuda" else "cpu"},
    }
    entry = sslkit.pretrain(config)
    rows = list(csv.DictReader((entry.folder / "metrics.csv").read_text().splitlines()))
    whole = [row for row in rows if row["images_per_second"]][1:]
    return {key: round(median(float(row[key]) for row in whole), 3) for key in ("images_per_second", "waiting")}
