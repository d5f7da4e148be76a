"""Section `resume` of run.py: a run that is killed after its first epoch, and resumed, against unbroken runs."""

import json
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import torch

import sslkit
from sslkit.runtime.checkpoint import LAST
from sslkit.runtime.context import Runtime

RUN = "import json, sys, sslkit; sslkit.pretrain(json.loads(sys.argv[1]))"
EPOCHS = 4


def compare(method: str, scratch: Path, runtime: Runtime, *, deterministic: bool) -> dict[str, Any]:
    """Largest difference of a weight: of two unbroken runs, and of a killed and resumed run from the first of them.

    killed_at: the number of epochs that were whole when the run was killed.
    """
    config = {
        "method": method,
        "data": {"source": "clipart", "image_size": 32, "batch_size": 64},
        "epochs": EPOCHS,
        "name": "run",
        "eval": {"every": 1000, "tsne": 0},
        "trainer": {"progress": False, "accelerator": _accelerator(runtime), "deterministic": deterministic},
    }
    for name in ("first", "second"):
        _start({**config, "out": str(scratch / name)}).wait()
    broken = {**config, "out": str(scratch / "broken")}
    folder = scratch / "broken" / "run"
    _kill_after_an_epoch(_start(broken), folder)
    killed_at = _whole_epochs(folder)
    _start({**broken, "resume": True}).wait()
    first, second, resumed = (weights(scratch / name / "run") for name in ("first", "second", "broken"))
    return {"again": largest(first, second), "resumed": largest(first, resumed), "killed_at": killed_at}


def weights(folder: Path) -> dict[str, torch.Tensor]:
    return sslkit.ZooEntry.load(folder).state_dict()


def largest(one: dict[str, torch.Tensor], other: dict[str, torch.Tensor]) -> float:
    """The largest difference of an element, 0 if they are the same bits."""
    return max((one[name].double() - other[name].double()).abs().max().item() for name in one if one[name].numel())


def _accelerator(runtime: Runtime) -> str:
    return "gpu" if runtime.device.type == "cuda" else "cpu"


def _start(config: dict[str, Any]) -> subprocess.Popen:
    return subprocess.Popen([sys.executable, "-c", RUN, json.dumps(config)], stdout=subprocess.DEVNULL)


def _kill_after_an_epoch(running: subprocess.Popen, folder: Path) -> None:
    while running.poll() is None and not (folder / LAST).is_file():
        time.sleep(0.01)
    if running.poll() is not None:
        raise SystemExit(f"the run in {folder} ended before it could be killed")
    running.kill()
    running.wait()


def _whole_epochs(folder: Path) -> int:
    state = torch.load(folder / LAST, weights_only=True, map_location="cpu")
    return int(state["epoch"]) + 1
