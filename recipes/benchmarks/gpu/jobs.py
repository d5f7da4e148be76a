"""Common parts of the sections of run.py: the question, images in memory, and times in turns."""

import statistics
import time
from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from sslkit.data.arrays import ArrayImages
from sslkit.data.images import Identity, ImageOptions
from sslkit.runtime.context import Runtime

Job = Callable[[], dict[str, Any]]
Step = Callable[[], None]


@dataclass(frozen=True)
class Asked:
    """The device and the size of a measurement. A section is a module with `jobs(asked)`: its jobs by name, not begun.

    dry: tiny sizes, each job in seconds on a CPU.
    """

    runtime: Runtime
    dry: bool = False

    @property
    def on_gpu(self) -> bool:
        return self.runtime.device.type == "cuda"

    @property
    def device(self) -> torch.device:
        return torch.device(self.runtime.device)


def in_memory(images: Tensor) -> ArrayImages:
    """Images in memory, as `Method.prepare` reads them."""
    return ArrayImages(images.cpu().numpy(), Identity("random"), ImageOptions())


def random_images(n: int, size: int, device: torch.device) -> Tensor:
    """(n, 3, size, size) uint8, the same on every machine."""
    generator = torch.Generator().manual_seed(0)
    return torch.randint(0, 256, (n, 3, size, size), dtype=torch.uint8, generator=generator).to(device)


def half(device: torch.device) -> AbstractContextManager:
    """bf16 autocast on a GPU."""
    return torch.autocast("cuda", torch.bfloat16) if device.type == "cuda" else nullcontext()


def wait(device: torch.device) -> None:
    if device.type == "cuda":
        torch.cuda.synchronize(device)


def seconds_in_turns(steps: dict[str, Step], device: torch.device, *, rounds: int, each: int) -> dict[str, float]:
    """Seconds of every contestant, medians of rounds of `each` steps in turns, after three steps of each."""
    for step in steps.values():
        for _ in range(3 if device.type == "cuda" else 1):
            step()
    seconds: dict[str, list[float]] = {name: [] for name in steps}
    for _ in range(rounds):
        for name, step in steps.items():
            wait(device)
            start = time.perf_counter()
            for _ in range(each):
                step()
            wait(device)
            seconds[name].append((time.perf_counter() - start) / each)
    return {name: statistics.median(samples) for name, samples in seconds.items()}


def memory_of(step: Step, device: torch.device, held: int) -> float:
    """GiB at most in two steps. held: bytes that were in use before the contestant was built."""
    if device.type != "cuda":
        return 0.0
    step()
    torch.cuda.reset_peak_memory_stats(device)
    step()
    return round((torch.cuda.max_memory_allocated(device) - held) / 2**30, 2)


def in_use(device: torch.device) -> int:
    return torch.cuda.memory_allocated(device) if device.type == "cuda" else 0
