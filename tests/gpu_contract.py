"""The contract of a step on a GPU: the waits that are allowed, and the operations that each objective launches.

`python tests/gpu_contract.py` measures the launches anew and writes gpu_launches.csv.
"""

import csv
import sys
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from functools import cache
from pathlib import Path
from typing import Any
from unittest import mock

import torch
from contract import PLUGINS, batch, build, enough
from pretended_device import Pretended, Seen
from torch import Tensor

import sslkit
from sslkit import objectives, regularizers
from sslkit.data.images import Images
from sslkit.data.sources.named import open_images
from sslkit.runtime.loop import Loop
from sslkit.training.config import OptimizerConfig
from sslkit.training.loading import to_device
from sslkit.training.optimizers import make_optimizer
from sslkit.training.step import Pretraining

GPU = torch.device("cuda", 0)
LAUNCHES = Path(__file__).with_name("gpu_launches.csv")
SLACK = 1.1  # of the measured launches: another version of torch divides some operations in another way

# Waits for the device in a training step, by file and function, or by a library's file, each with its reason.
ALLOWED = {
    "sslkit/priors/sift.py SiftPrior.extract": "OpenCV computes on the CPU; cached features of clean images need none",
    "evaluation/tuning/loop.py History._mean_loss": "each so many steps of a fine-tuning: its line and a NaN",
}


def check(gpu: Pretended) -> None:
    """Nothing was seen that CUDA refuses, and no wait but the allowed ones."""
    assert not gpu.faults and not unexpected(gpu), gpu.report()


def unexpected(gpu: Pretended) -> list[Seen]:
    """The waits that are not allowed."""
    return [one for one in gpu.waits if not {one.place, one.through.partition(":")[0]} & ALLOWED.keys()]


def names() -> Iterator[str]:
    """Every objective, plain, with each regulariser and with all."""
    return (f"{name}{plugin and '+' + plugin}" for name in objectives.names() for plugin in ("", *PLUGINS))


def quick() -> list[str]:
    """Each objective and each regulariser once, and all of these together."""
    plugins = [*regularizers.names(), "+".join(regularizers.names())]
    return [*objectives.names(), *(f"byol+{one}" for one in plugins), "mae+guide"]


@cache
def clean() -> Images:
    """A few images for `prepare`."""
    return open_images(batch(48)[0])


def images_of(method: sslkit.Method, n: int = 6) -> dict[str, Any]:
    """A batch as the loader makes it, on the CPU."""
    images, index = batch(enough(method, n))
    return {"images": images, "index": index, "label": index % 5, "aspect": torch.ones(len(index))}


def pinned(given: Mapping[str, Any]) -> dict[str, Any]:
    return {key: part.pin_memory() if hasattr(part, "pin_memory") else part for key, part in given.items()}


def trained(
    method: sslkit.Method, given: Mapping[str, Any], optimizer: str = "adamw", *, shares: bool = False
) -> tuple[Pretended, dict[str, Tensor]]:
    """The report on the second step of a method, and its terms. given: a batch on the CPU.

    shares: whether the regularisers' shares are measured in it. Faults are those of both steps.
    """
    method.epoch = 2  # after the epochs with frozen layers
    with Pretended() as gpu:
        module = Pretraining(method).to(GPU).train()
        moved = make_optimizer(method, OptimizerConfig(name=optimizer), 1e-3)
        for number in range(2):
            method.shares.steps = 64 if shares else 1
            gpu.clear()
            found = module(to_device(pinned(given), GPU), number)
            moved.zero_grad()
            found["loss"].backward()
            moved.step()
            method.after_step(0.5)
        _check_places(method)
    return gpu, found["terms"]


def _check_places(method: sslkit.Method) -> None:
    """All that the network has is on the device."""
    state = {**dict(method.named_parameters()), **dict(method.named_buffers())}
    grads = {f"{name}.grad": p.grad for name, p in method.named_parameters() if p.grad is not None}
    elsewhere = [name for name, x in (state | grads).items() if x.device != GPU]
    assert not elsewhere, f"not on the GPU: {elsewhere}"


@contextmanager
def steps_watched(gpu: Pretended) -> Iterator[None]:
    """Count only waits between a batch's arrival and the end of what is done with it, in every `Loop`."""
    tell, gpu.watching = Loop._tell, False

    def watched(loop: Loop, event: str, *given: Any) -> None:
        gpu.watching = event in ("batch_begin", "before_step", "after_step", "batch_end")
        tell(loop, event, *given)
        gpu.watching = gpu.watching and event != "batch_end"

    with mock.patch.object(Loop, "_tell", watched):
        yield


def measured() -> dict[str, int]:
    """Launches of a step by method, of gpu_launches.csv."""
    with LAUNCHES.open() as file:
        return {row["method"]: int(row["launches"]) for row in csv.DictReader(file)}


def launches(name: str) -> int:
    """Operations of a step on the device now."""
    method = build(name)
    method.prepare(clean())
    return sum(trained(method, images_of(method))[0].launches.values())


def main() -> None:
    with LAUNCHES.open("w", newline="") as file:
        rows = csv.writer(file, lineterminator="\n")
        rows.writerow(["method", "launches"])
        for name in quick():
            rows.writerow([name, launches(name)])
            print(name, file=sys.stderr)


if __name__ == "__main__":
    main()
