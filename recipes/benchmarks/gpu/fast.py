"""Section `fast` of run.py: images a second of whole steps, beside the bare network and lightly's parts, in turns."""

import copy
import statistics
import time
from collections.abc import Callable, Iterable
from contextlib import AbstractContextManager, nullcontext
from typing import Any

import torch
from torch import Tensor, nn

import sslkit
from sslkit import backbones
from sslkit.runtime.context import Runtime
from sslkit.training.step import compiled_parts

Step = Callable[[], None]


def contestants(network: str, runtime: Runtime, *, size: int, batch: int) -> dict[str, Step]:
    """Steps of SimCLR, BYOL and their plug-ins on `batch` uint8 images that are on the device, two views each.

    bare: forward and backward of the network alone, of as many images as there are views, in one pass. lightly: BYOL
    from its modules on given views, one pass for each view, as in its examples.
    """
    torch.manual_seed(0)
    images = torch.randint(0, 256, (batch, 3, size, size), dtype=torch.uint8).to(runtime.device)
    index = torch.arange(batch, device=runtime.device)
    found = {"bare network": bare(network, images)}
    for name in ("simclr", "byol", "byol+dsa", "byol+guide"):
        found[name] = whole(name, network, images, index)
    found["byol, compiled"] = whole("byol", network, images, index, compiled="default")
    found["lightly's byol, views given"] = lightly(network, images)
    return found


def small_contestants(network: str, runtime: Runtime, *, size: int = 32, batch: int = 256) -> dict[str, Step]:
    """Steps of a small network, which starting the kernels may take longer than the kernels.

    graphs: compiled with CUDA graphs, PyTorch's reduce-overhead.
    """
    torch.manual_seed(0)
    images = torch.randint(0, 256, (batch, 3, size, size), dtype=torch.uint8).to(runtime.device)
    index = torch.arange(batch, device=runtime.device)
    return {
        "bare network": bare(network, images),
        "simclr": whole("simclr", network, images, index),
        "simclr, compiled": whole("simclr", network, images, index, compiled="default"),
        "simclr, graphs": whole("simclr", network, images, index, compiled="reduce-overhead"),
    }


def largest_batch(name: str, network: str, runtime: Runtime, *, size: int, start: int = 256) -> int:
    """The largest batch, doubling from `start`, of which a training step fits into the memory; 0 if not even that."""
    fits, batch = 0, start
    while True:
        images = torch.randint(0, 256, (batch, 3, size, size), dtype=torch.uint8).to(runtime.device)
        try:
            whole(name, network, images, torch.arange(batch, device=runtime.device))()
        except torch.OutOfMemoryError:
            return fits
        finally:
            del images
            torch.cuda.empty_cache()
        fits, batch = batch, 2 * batch


def whole(name: str, network: str, images: Tensor, index: Tensor, *, compiled: str | None = None) -> Step:
    """A training step with everything: views, losses, teacher, optimiser. compiled: the mode of torch.compile."""
    method = sslkit.method(name, backbone=network, image_size=images.shape[-1]).to(images.device)
    method.prepare(Few(images.cpu(), index.cpu()))
    optimizer = torch.optim.AdamW([p for p in method.parameters() if p.requires_grad], 1e-4)
    for owner, function in compiled_parts(method) if compiled else ():
        setattr(owner, function, torch.compile(getattr(owner, function), dynamic=False, mode=compiled))

    def step() -> None:
        method.shares.steps = 1  # no step in which the shares are measured
        with half(images):
            loss = method(images, index)["loss"]
        _update(loss, optimizer)
        method.after_step(0.5)

    return step


def bare(network: str, images: Tensor) -> Step:
    body = backbones.build(network, image_size=images.shape[-1], in_chans=3).to(images.device)
    pixels = (images.float() / 255).repeat(2, 1, 1, 1)

    def step() -> None:
        with half(images):
            h = body(pixels)
        h.float().square().mean().backward()
        body.zero_grad()

    return step


def lightly(network: str, images: Tensor) -> Step:
    from lightly.loss import NegativeCosineSimilarity
    from lightly.models.modules import BYOLPredictionHead, BYOLProjectionHead
    from lightly.models.utils import update_momentum

    body = backbones.build(network, image_size=images.shape[-1], in_chans=3)
    student = nn.Sequential(body, BYOLProjectionHead(body.width, 4096, 256)).to(images.device)
    predictor = BYOLPredictionHead(256, 4096, 256).to(images.device)
    teacher = copy.deepcopy(student).requires_grad_(False)
    optimizer = torch.optim.AdamW([*student.parameters(), *predictor.parameters()], 1e-4)
    loss_of, views = NegativeCosineSimilarity(), [images.float() / 255, images.flip(3).float() / 255]

    def step() -> None:
        with half(images):
            predicted = [predictor(student(view)) for view in views]
            with torch.no_grad():
                targets = [teacher(view) for view in views]
            loss = loss_of(predicted[0], targets[1]) + loss_of(predicted[1], targets[0])
        _update(loss, optimizer)
        update_momentum(student, teacher, m=0.99)

    return step


def rates(steps: dict[str, Step], batch: int, runtime: Runtime, *, rounds: int, each: int) -> dict[str, Any]:
    """Images a second of every contestant, medians of rounds of `each` steps in turns, and GiB of memory at most."""
    for step in steps.values():
        for _ in range(3):
            step()
    seconds: dict[str, list[float]] = {name: [] for name in steps}
    for _ in range(rounds):
        for name, step in steps.items():
            wait(runtime)
            start = time.perf_counter()
            for _ in range(each):
                step()
            wait(runtime)
            seconds[name].append((time.perf_counter() - start) / each)
    return {name: round(batch / statistics.median(found), 1) for name, found in seconds.items()}


def half(images: Tensor) -> AbstractContextManager:
    return torch.autocast("cuda", torch.bfloat16) if images.is_cuda else nullcontext()


def wait(runtime: Runtime) -> None:
    if runtime.device.type == "cuda":
        torch.cuda.synchronize()


def _update(loss: Tensor, optimizer: torch.optim.Optimizer) -> None:
    loss.backward()
    optimizer.step()
    optimizer.zero_grad()


class Few:
    """Images in memory, as `Method.prepare` reads them."""

    decodes, workers = False, 0

    def __init__(self, images: Tensor, index: Tensor) -> None:
        self.images, self.index = images, index
        self.name, self.digest, self.labels = "random", "random", None
        self.channels, self.image_size = images.shape[1], images.shape[2]

    def __len__(self) -> int:
        return len(self.images)

    def __getitems__(self, rows: Iterable[int]) -> dict[str, Tensor]:
        rows = list(rows)
        return {"images": self.images[rows], "index": self.index[rows]}
