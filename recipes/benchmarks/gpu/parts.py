"""Section `parts` of run.py: where the time of a step goes by the clock of the device, and its launches."""

import statistics
import time
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import torch
from gpu.jobs import Asked, Job, half, in_memory, random_images, wait
from torch import nn
from torch.profiler import ProfilerActivity, profile

import sslkit
from sslkit.training.config import OptimizerConfig
from sslkit.training.optimizers import make_optimizer

CASES = (
    ("byol", "resnet50"),
    ("byol+dsa", "resnet50"),
    ("barlow_twins", "vit_small_patch16_224"),
    ("dino", "vit_small_patch16_224"),
    ("dinov2", "vit_small_patch16_224"),
    ("mae", "vit_small_patch16_224"),
)
# Kinds of kernels by words of their names, the first that fits.
KINDS = {
    "copies between host and device": ("Memcpy HtoD", "Memcpy DtoH"),
    "attention": ("flash", "fmha", "attention"),
    "convolutions": ("conv", "cudnn", "implicit", "wgrad", "dgrad", "fprop", "xmma"),
    "batch and layer norms": ("batch_norm", "bn_", "layer_norm", "LayerNorm", "GammaBeta", "welford"),
    "matrix products": ("gemm", "cutlass", "nvjet", "sm90", "sm80", "splitK"),
    "optimiser and teacher": ("multi_tensor", "foreach", "fused_adam", "lerp"),
    "softmax and sums": ("softmax", "reduce", "Reduce", "logsumexp"),
}


def jobs(asked: Asked) -> dict[str, Job]:
    cases = (("byol", "resnet10t"),) if asked.dry else CASES
    return {
        f"{name} | {network}": lambda name=name, network=network: parts(name, network, asked) for name, network in cases
    }


def parts(name: str, network: str, asked: Asked) -> dict[str, Any]:
    """Milliseconds of each part of a step, launches, kinds of kernels, and the share in which the device works."""
    batch, size = (8, 32) if asked.dry else (256, 224)
    images = random_images(batch, size, asked.device)
    index = torch.arange(batch, device=asked.device)
    method = sslkit.method(name, backbone=network, image_size=size).to(asked.device).train()
    method.prepare(in_memory(images))
    optimizer = make_optimizer(method, OptimizerConfig(name="adamw"), 1e-4)
    clock = Clock(asked)

    def step() -> None:
        method.shares.steps = 1  # no step in which the shares are measured
        with clock.part("forward"), half(asked.device):
            loss = method(images, index)["loss"]
        with clock.part("backward"):
            loss.backward()
        with clock.part("optimiser"):
            optimizer.step()
            optimizer.zero_grad()
        with clock.part("teacher's update"):
            method.after_step(0.5)

    clock.around(method, "make_views", "views")
    clock.around(method.objective, "embed", "networks")
    if isinstance(getattr(method.objective, "teacher", None), nn.Module):
        clock.around_module(method.objective.teacher, "teacher")
    for _ in range(1 if asked.dry else 5):
        step()
    clock.begin()
    for _ in range(1 if asked.dry else 8):
        step()
    milliseconds = clock.read()
    milliseconds["losses"] = milliseconds["forward"] - milliseconds["views"] - milliseconds["networks"]
    whole, kernels = wall(step, asked), profile_kernels(step, asked)
    return {"step_ms": whole, "parts_ms": {name: round(value, 2) for name, value in milliseconds.items()}, **kernels}


def wall(step: Callable[[], None], asked: Asked) -> float:
    """Milliseconds of a step without the profiler; median of rounds."""
    milliseconds, each = [], 1 if asked.dry else 6
    for _ in range(1 if asked.dry else 3):
        wait(asked.device)
        start = time.perf_counter()
        for _ in range(each):
            step()
        wait(asked.device)
        milliseconds.append(1000 * (time.perf_counter() - start) / each)
    return round(statistics.median(milliseconds), 2)


def profile_kernels(step: Callable[[], None], asked: Asked, steps: int = 3) -> dict[str, Any]:
    """Launches of a step, its milliseconds of work by kind, and the slowest kernels. Nothing without a GPU."""
    if not asked.on_gpu:
        return {}
    with profile(activities=[ProfilerActivity.CPU, ProfilerActivity.CUDA]) as profiler:
        for _ in range(steps):
            step()
        wait(asked.device)
    kernels = [row for row in profiler.key_averages() if row.device_type == torch.autograd.DeviceType.CUDA]
    kinds: Counter[str] = Counter()
    for row in kernels:
        kinds[kind_of(row.key)] += row.self_device_time_total / 1000 / steps
    slowest = sorted(kernels, key=lambda row: -row.self_device_time_total)[:12]
    return {
        "launches": round(sum(row.count for row in kernels) / steps),
        "busy_ms": round(sum(kinds.values()), 2),
        "kinds_ms": {name: round(value, 2) for name, value in kinds.most_common()},
        "slowest_ms": {row.key[:90]: round(row.self_device_time_total / 1000 / steps, 2) for row in slowest},
    }


def kind_of(kernel: str) -> str:
    return next(
        (kind for kind, words in KINDS.items() if any(word in kernel for word in words)), "elementwise and others"
    )


class Clock:
    """Times parts of a step by events of the device, so that none of them waits; on the CPU by the host's clock."""

    def __init__(self, asked: Asked) -> None:
        self.asked, self.marks, self.running = asked, [], False

    @contextmanager
    def part(self, name: str) -> Iterator[None]:
        start = self._now()
        yield
        if self.running:
            self.marks.append((name, start, self._now()))

    def around(self, owner: Any, function: str, name: str) -> None:
        """Time each call of a method of `owner`."""
        plain = getattr(owner, function)

        def run_timed(*args: Any, **kwargs: Any) -> Any:
            with self.part(name):
                return plain(*args, **kwargs)

        setattr(owner, function, run_timed)

    def around_module(self, module: nn.Module, name: str) -> None:
        """Time each forward of a module, or of its first part if it is called in parts."""
        for submodule in module.children() if isinstance(module, nn.Sequential) else [module]:
            self.around(submodule, "forward", name)

    def begin(self) -> None:
        wait(self.asked.device)
        self.marks, self.running = [], True

    def read(self) -> dict[str, float]:
        """Milliseconds a step, and stop."""
        wait(self.asked.device)
        self.running = False
        sums: Counter[str] = Counter()
        for name, start, end in self.marks:
            sums[name] += start.elapsed_time(end) if self.asked.on_gpu else 1000 * (end - start)
        steps = sum(name == "backward" for name, *_ in self.marks)
        return {name: value / steps for name, value in sums.items()}

    def _now(self) -> Any:
        if not self.asked.on_gpu:
            return time.perf_counter()
        mark = torch.cuda.Event(enable_timing=True)
        mark.record()
        return mark
