"""Section `data` of run.py: JPEG files into views, decoded by CPU workers or on the GPU, and how long a run waits."""

import csv
import os
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from statistics import median

import torch
from gpu.jobs import Asked, Job, wait
from gpu.resume import accelerator
from speed.files import write_files
from torchvision.io import decode_jpeg, read_file
from torchvision.transforms import v2

import sslkit
from sslkit.data.loader import make_loader
from sslkit.data.views.cropped import CroppedImages
from sslkit.data.views.recipe import SIMCLR

COPIES = 128  # of the 32 files
SIDE = 224


# Whole runs: Barlow Twins on a ViT-S/16 is what others have measured.
RUNS = (("byol", "resnet50"), ("barlow_twins", "vit_small_patch16_224"))


def jobs(asked: Asked) -> dict[str, Job]:
    runs = (("byol", "narrow_resnet"),) if asked.dry else RUNS
    jobs_by_name: dict[str, Job] = {f"files | {asked.device.type}": lambda: measure_decoding(asked)}
    for method, network in runs:
        jobs_by_name[f"{method} | {network} | {asked.device.type}"] = lambda method=method, network=network: (
            measure_training(method, network, asked)
        )
    return jobs_by_name


def measure_decoding(asked: Asked) -> dict[str, float]:
    with tempfile.TemporaryDirectory() as scratch:
        folder = Path(scratch) / "files"
        paths = write(folder, copies=2 if asked.dry else COPIES // 4)
        return rates(folder, paths, asked, batch=16 if asked.dry else 256)


def measure_training(method: str, network: str, asked: Asked) -> dict[str, float]:
    with tempfile.TemporaryDirectory() as scratch:
        folder = Path(scratch) / "files"
        write(folder, copies=2 if asked.dry else COPIES)
        how = {"backbone": network, "batch": 16 if asked.dry else 256}
        return run(method, folder, Path(scratch) / "zoo", asked, **how)


def write(folder: Path, *, copies: int = COPIES) -> list[Path]:
    """JPEG files of 500 x 375: those of speed/files.py, `copies` times each."""
    folder.mkdir(parents=True)
    first = write_files(folder)
    paths = list(first)
    for number in range(1, copies):
        for path in first:
            paths.append(folder / f"{number:04}-{path.name}")
            os.link(path, paths[-1])
    return paths


def rates(folder: Path, paths: list[Path], asked: Asked, *, batch: int = 256) -> dict[str, float]:
    """Images a second into two views' crops: of CPU workers, one for each core but one, and of nvJPEG on the GPU."""
    ways: dict[str, Callable[[], int]] = {"CPU workers": _with_workers(folder, batch)}
    if asked.on_gpu:
        ways["nvJPEG"] = _with_nvjpeg(paths, batch, asked)
    per_second = {}
    for name, read in ways.items():
        read()
        seconds = []
        for _ in range(3):
            wait(asked.device)
            start = time.perf_counter()
            count = read()
            wait(asked.device)
            seconds.append((time.perf_counter() - start) / count)
        per_second[name] = round(1 / median(seconds), 1)
    return per_second


def _with_workers(folder: Path, batch: int) -> Callable[[], int]:
    images = CroppedImages(sslkit.open_images(folder), SIMCLR, SIDE)
    loader = make_loader(images, batch_size=batch, seed=0)

    def read() -> int:
        return sum(len(batch["index"]) for batch in loader)

    return read


def _with_nvjpeg(paths: list[Path], batch: int, asked: Asked) -> Callable[[], int]:
    crop = v2.RandomResizedCrop(SIDE, (0.08, 1.0), antialias=True)

    def read() -> int:
        for start in range(0, len(paths), batch):
            images = decode_jpeg([read_file(str(path)) for path in paths[start : start + batch]], device=asked.device)
            for _ in range(2):
                torch.stack([crop(image) for image in images])
        return len(paths)

    return read


def run(
    method: str, folder: Path, out: Path, asked: Asked, *, backbone: str, batch: int, epochs: int = 3
) -> dict[str, float]:
    """A run from the files: images a second and the share of time that it waits for them, medians of later epochs."""
    config = {
        "method": method,
        "batch_size": batch,
        "image_size": 32 if asked.dry else SIDE,
        "data": {"source": str(folder)},
        "backbone": backbone,
        "epochs": epochs,
        "out": str(out),
        "name": "run",
        "eval": {"every": 1000, "tsne": 0},
        "progress": False,
        "device": accelerator(asked),
        "trainer": {"devices": 1},
    }
    entry = sslkit.pretrain(config)
    rows = list(csv.DictReader((entry.folder / "metrics.csv").read_text().splitlines()))
    whole = [row for row in rows if row["images_per_second"]][1:]
    return {key: round(median(float(row[key]) for row in whole), 3) for key in ("images_per_second", "waiting")}
