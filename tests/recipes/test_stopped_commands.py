"""Commands that a signal stops inside an epoch, or a kill a moment after a checkpoint, and that are typed again."""

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

import numpy as np
import psutil
import pytest
import torch

from sslkit.data.sources.named import open_images

RECIPES = Path(__file__).parents[2] / "recipes"
BATCHES = 48  # of an epoch: seconds, in which a signal finds it
TRAIN = [
    "data=clothes.npz",
    "batch_size=32",
    "epochs=2",
    "eval.tsne=0",
    "eval.k=3",
    "out=zoo",
    "device=cpu",
    "progress=false",
    "trainer.log_every=5",
    "save_seconds=0.1",
]
METHODS = ["byol+dsa", "dino", "mae+guide"]
NIGHTLY = pytest.mark.nightly  # a minute each
pytestmark = pytest.mark.slow


@pytest.fixture(scope="module")
def place(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with pictures of clothes, 28 x 28, with labels."""
    folder, arrays = tmp_path_factory.mktemp("stopped"), {}
    for split, n in (("train", 32 * BATCHES), ("test", 40)):
        batch = open_images("fashion_mnist", split=split).__getitems__(list(range(n)))
        arrays |= {f"x_{split}": batch["images"][:, 0].numpy(), f"y_{split}": batch["label"].numpy()}
    np.savez(folder / "clothes.npz", **arrays)
    return folder


def begun(place: Path, recipe: str, words: list[str]) -> subprocess.Popen:
    """The command, as a shell starts it: with the handlers of signals that Python has by itself."""
    call = [sys.executable, str(RECIPES / f"{recipe}.py"), *words]
    environment = {**os.environ, "OMP_NUM_THREADS": "1", "OMP_WAIT_POLICY": "passive"}
    return subprocess.Popen(
        call, cwd=place, env=environment, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True
    )


def done(place: Path, recipe: str, words: list[str]) -> str:
    running = begun(place, recipe, words)
    said = running.communicate(timeout=1800)[0]
    assert running.returncode == 0, said
    return said


def broken(place: Path, recipe: str, words: list[str], number: int, is_inside: Callable[[psutil.Process], bool]) -> str:
    """What a command says that gets a signal as soon as it is inside."""
    running = begun(place, recipe, words)
    while not is_inside(psutil.Process(running.pid)):
        assert running.poll() is None, running.communicate()[0]
        time.sleep(0.02)
    others = psutil.Process(running.pid).children(recursive=True)
    running.send_signal(number)
    said = running.communicate(timeout=300)[0]
    assert running.returncode == (143 if number == signal.SIGTERM else -number), said
    psutil.wait_procs(others, timeout=60)
    return said


def batch_of(folder: Path) -> int:
    """The batch inside its epoch at which a run goes on; 0 without a checkpoint and between epochs."""
    path = folder / "checkpoints" / "last.ckpt"
    return torch.load(path, weights_only=True)["batch"] % BATCHES if path.is_file() else 0


def weights(folder: Path) -> bytes:
    return (folder / "backbone.safetensors").read_bytes()


def check_resumed(place: Path, words: list[str], number: int, name: str) -> None:
    """The run is stopped by the signal, goes on by the command that was printed, and ends as the unbroken one."""
    folder = place / "zoo" / name
    said = broken(place, "train", [*words, f"name={name}"], number, lambda _: 0 < batch_of(folder) < BATCHES // 2)
    assert batch_of(folder) > 0 and not (folder / "card.json").exists(), "it was stopped at the end of an epoch"
    if number == signal.SIGTERM:
        line = f"stopped; the same command with resume=true continues zoo/{name}"
        assert line in " ".join(said.split()), said
    done(place, "train", [*words, f"name={name}", "resume=true"])
    assert weights(folder) == weights(place / "zoo" / "unbroken")


@pytest.mark.parametrize("method", [METHODS[0], *(pytest.param(method, marks=NIGHTLY) for method in METHODS[1:])])
def test_a_training_goes_on_inside_the_epoch(method: str, place: Path) -> None:
    out = place / method
    out.mkdir()
    (out / "clothes.npz").symlink_to(place / "clothes.npz")
    words = [f"method={method}", *TRAIN]
    done(out, "train", [*words, "name=unbroken"])
    check_resumed(out, words, signal.SIGTERM, "ended")
    check_resumed(out, words, signal.SIGKILL, "killed")


@NIGHTLY
@pytest.mark.parametrize("strategy", ["auto", "fsdp"])
def test_two_processes_go_on_inside_the_epoch(strategy: str, place: Path) -> None:
    out = place / f"two-{strategy}"
    out.mkdir()
    (out / "clothes.npz").symlink_to(place / "clothes.npz")
    method = "mae" if strategy == "fsdp" else "byol+dsa"
    words = [f"method={method}", *TRAIN, "trainer.devices=2", f"trainer.strategy={strategy}"]
    done(out, "train", [*words, "name=unbroken"])
    check_resumed(out, words, signal.SIGTERM, "ended")


STEPS = 200
FINE_TUNE = [
    "protocols=[fine_tune]",
    "data=clothes.npz",
    "fine_tune.grid={lr: [0.01, 0.001]}",
    "fine_tune.extend=false",
    "fine_tune.seeds=[0,1]",
    f"fine_tune.steps={STEPS}",
    "fine_tune.batch_size=16",
    "cache=cache",
    "device=cpu",
]


def runs(out: Path) -> dict[str, dict]:
    """The finished runs of fine-tuning, but for their times."""
    path = next(out.glob("**/fine_tune.jsonl"), None)
    records = [json.loads(line) for line in path.read_text().splitlines()] if path else []
    return {one["run"]: {name: value for name, value in one.items() if name != "seconds"} for one in records}


class Inside:
    """Whether a fine-tuning has computed for half a second since its first run was finished: it is in its second."""

    def __init__(self, out: Path) -> None:
        self.out, self.since = out, None

    def __call__(self, process: psutil.Process) -> bool:
        used = process.cpu_times().user
        if self.since is None and runs(self.out) and not list(self.out.glob("**/.fine_tune-*.ckpt")):
            self.since = used
        return self.since is not None and used > self.since + 0.5


@pytest.mark.parametrize("number", [signal.SIGTERM, pytest.param(signal.SIGKILL, marks=NIGHTLY)])
def test_a_fine_tuning_goes_on(number: int, place: Path) -> None:
    """At SIGTERM inside the run; after a kill, which comes before its first checkpoint, with that run anew."""
    words = ["checkpoint=random:narrow_resnet", "image_size=28", *FINE_TUNE]
    whole, out = place / f"whole-{number}", place / f"broken-{number}"
    done(place, "evaluate", [*words, f"out={whole}"])
    said = broken(place, "evaluate", [*words, f"out={out}"], number, Inside(out))
    assert len(runs(out)) < 4
    if number == signal.SIGTERM:
        assert "stopped; the same command goes on: what was finished is kept" in " ".join(said.split())
        (checkpoint,) = out.glob("**/.fine_tune-*.ckpt")
        assert 0 < torch.load(checkpoint, weights_only=True)["step"] < STEPS
    done(place, "evaluate", [*words, f"out={out}"])
    assert runs(out) == runs(whole) and len(runs(out)) == 4 and not list(out.glob("**/.fine_tune-*.ckpt"))
    numbers = [sorted(path.name for path in one.glob("**/outcomes/*.npy")) for one in (whole, out)]
    assert numbers[0] == numbers[1] and numbers[0]
