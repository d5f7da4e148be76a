"""Section `nccl` of run.py: a run on two GPUs against the same run on one; with --dry two processes on the CPU."""

import csv
import tempfile
from pathlib import Path
from typing import Any

import torch
from gpu.jobs import Asked, Job
from gpu.resume import accelerator, largest, start, wait_for, weights

METHODS = ("simclr", "byol+dsa", "dino")


def jobs(asked: Asked) -> dict[str, Job]:
    if asked.on_gpu and torch.cuda.device_count() < 2:
        print("nccl: one GPU is seen, two are needed")
        return {}
    methods = METHODS[:1] if asked.dry else METHODS
    return {f"{method} | {asked.device.type}": lambda method=method: one_and_two(method, asked) for method in methods}


def one_and_two(method: str, asked: Asked) -> dict[str, Any]:
    """The largest difference of a weight after an epoch, and images a second, by the number of devices."""
    weights_by_devices, rates = {}, {}
    with tempfile.TemporaryDirectory() as scratch:
        for devices in (1, 2):
            out = Path(scratch) / str(devices)
            config = {
                "method": method,
                "batch_size": 64,
                "data": {"source": "digits"},
                "epochs": 1,
                "out": str(out),
                "name": "run",
                "optimizer": {"name": "sgd"},
                "eval": {"every": 1000, "tsne": 0},
                "progress": False,
                "device": accelerator(asked),
                "trainer": {"devices": devices},
            }
            wait_for(start(config))
            weights_by_devices[devices] = weights(out / "run")
            rows = list(csv.DictReader((out / "run" / "metrics.csv").read_text().splitlines()))
            rates[str(devices)] = float(next(row["images_per_second"] for row in rows if row["images_per_second"]))
    return {"difference": largest(weights_by_devices[1], weights_by_devices[2]), "images_per_second": rates}
