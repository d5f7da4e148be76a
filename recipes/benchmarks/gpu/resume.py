"""Section `resume` of run.py: a run that is killed after its first epoch, and resumed, against unbroken runs."""

import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import torch
from gpu.jobs import Asked, Job

import sslkit
from sslkit.runtime.checkpoint import LAST

TRAIN = Path(__file__).parents[2] / "train.py"
EPOCHS = 4


def jobs(asked: Asked) -> dict[str, Job]:
    methods = ("simclr",) if asked.dry else ("byol+dsa", "mae+guide")
    ways = {"deterministic": True, "as it is": False} if asked.on_gpu else {"as it is": False}
    return {
        f"{method} | {way} | {asked.device.type}": lambda method=method, fixed=fixed: measure_resume(
            method, asked, fixed
        )
        for method in methods
        for way, fixed in ways.items()
    }


def measure_resume(method: str, asked: Asked, deterministic: bool) -> dict[str, Any]:
    with tempfile.TemporaryDirectory() as scratch:
        return compare(method, Path(scratch), asked, deterministic=deterministic)


def compare(method: str, scratch: Path, asked: Asked, *, deterministic: bool) -> dict[str, Any]:
    """Largest difference of a weight: of two unbroken runs, and of a killed and resumed run from the first of them.

    killed_at: the number of epochs that were whole when the run was killed.
    """
    config = {
        "method": method,
        "image_size": 32,
        "batch_size": 64,
        "data": {"source": "digits" if asked.dry else "clipart"},
        "epochs": EPOCHS,
        "name": "run",
        "eval": {"every": 1000, "tsne": 0},
        "progress": False,
        "device": accelerator(asked),
        "trainer": {"devices": 1, "deterministic": deterministic},
    }
    for name in ("first", "second"):
        wait_for(start({**config, "out": str(scratch / name)}))
    broken = {**config, "out": str(scratch / "broken")}
    folder = scratch / "broken" / "run"
    _kill_after_an_epoch(start(broken), folder)
    killed_at = int(torch.load(folder / LAST, weights_only=True, map_location="cpu")["epoch"]) + 1
    wait_for(start({**broken, "resume": True}))
    first, second, resumed = (weights(scratch / name / "run") for name in ("first", "second", "broken"))
    return {"again": largest(first, second), "resumed": largest(first, resumed), "killed_at": killed_at}


def weights(folder: Path) -> dict[str, torch.Tensor]:
    return sslkit.ZooEntry.load(folder).state_dict()


def largest(one: dict[str, torch.Tensor], other: dict[str, torch.Tensor]) -> float:
    """The largest difference of an element, 0 if they are the same bits."""
    return max((one[name].double() - other[name].double()).abs().max().item() for name in one if one[name].numel())


def accelerator(asked: Asked) -> str:
    return "cuda" if asked.on_gpu else "cpu"


def start(config: dict[str, Any]) -> subprocess.Popen:
    """A run by its command, which several devices start again, each for itself."""
    return subprocess.Popen([sys.executable, str(TRAIN), *words(config)], stdout=subprocess.DEVNULL)


def words(config: dict[str, Any], prefix: str = "") -> Iterator[str]:
    """The settings as a command takes them: {"data": {"source": "digits"}} -> data.source=digits."""
    for name, value in config.items():
        if isinstance(value, dict):
            yield from words(value, f"{prefix}{name}.")
        else:
            yield f"{prefix}{name}={value}"


def wait_for(running: subprocess.Popen) -> None:
    """Wait for a run. Raises SystemExit if it failed."""
    if code := running.wait():
        raise SystemExit(f"a run ended with exit code {code}")


def _kill_after_an_epoch(running: subprocess.Popen, folder: Path) -> None:
    while running.poll() is None and not (folder / LAST).is_file():
        time.sleep(0.01)
    if running.poll() is not None:
        raise SystemExit(f"the run in {folder} ended before it could be killed")
    running.kill()
    running.wait()
