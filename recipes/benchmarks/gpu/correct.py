"""Section `correct` of run.py: what a GPU computes, against the CPU, and in half precision against single."""

import copy
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass
from functools import partial
from typing import Any

import torch
from gpu.jobs import Asked, Job
from objectives.settings import settings
from torch import Tensor

import sslkit
from sslkit import objectives, regularizers
from sslkit.data.views.augmentation import Views
from sslkit.runtime.context import Runtime

SIDE, BATCH = 32, 32
# What a comparison may differ by: the loss as a share of the terms' sizes, the gradient as a share of its norm. In
# float32 rounding turns a few ReLUs of a step on or off: the CPU's own gradient then differs from float64's by up to
# 2e-2. So the bound that shows a fault is that of float64.
BOUNDS = {"float64": (1e-6, 1e-4), "float32": (1e-4, 5e-2), "bfloat16": (3e-2, 0.6)}
LEAST = 0.1  # size of the terms: MEC's loss begins at 6e-4, less than what rounding does to it
VIEWS = 2e-5  # of pixels in [0, 1]
# Different in kind: compared first, and the only ones of a dry run.
SPREAD = ("simclr", "byol+dsa", "mae+guide", "dino")


@dataclass(frozen=True)
class Gap:
    """How far a step is from the reference. loss, gradient: relative; views: the largest difference of a pixel."""

    loss: float
    gradient: float
    views: float

    def within(self, precision: str) -> bool:
        loss, gradient = BOUNDS[precision]
        return self.loss <= loss and self.gradient <= gradient and self.views <= VIEWS


def jobs(asked: Asked) -> dict[str, Job]:
    precisions = BOUNDS if asked.on_gpu else ("bfloat16",)
    return {
        f"{name} | {precision} | {asked.device.type}": lambda name=name, precision=precision: measure_gap(
            name, precision, asked.runtime
        )
        for name in in_order(asked)
        for precision in precisions
    }


def in_order(asked: Asked) -> list[str]:
    """The methods: a spread, every objective plain, then the others; a dry run has the spread alone."""
    rest = [] if asked.dry else sorted(names(), key=lambda name: ("+" in name, -name.count("+")))
    return list(dict.fromkeys([*SPREAD, *rest]))


def names() -> Iterator[str]:
    """Every objective, plain, with each regulariser, and with all of them."""
    for name in objectives.names():
        yield name
        yield from (f"{name}+{plugin}" for plugin in regularizers.names())
        yield "+".join([name, *regularizers.names()])


def measure_gap(name: str, precision: str, runtime: Runtime) -> dict[str, Any]:
    gap = compare(name, runtime, precision)
    return {"loss": gap.loss, "gradient": gap.gradient, "views": gap.views, "within": gap.within(precision)}


def compare(name: str, runtime: Runtime, precision: str, *, size: int = BATCH) -> Gap:
    """The gap of one training step on the device from the same step on the CPU, in float64 or float32.

    The random numbers of the views are drawn on the CPU, so that both steps see the same ones. With bfloat16 the
    reference is float32 on the device itself.
    """
    method, batch = prepare(name, size)
    cpu = Runtime(device=torch.device("cpu"))
    reference, single = (runtime, "float32") if precision == "bfloat16" else (cpu, precision)
    want = one_step(copy.deepcopy(method), batch, reference, single)
    got = one_step(method, batch, runtime, precision)
    scale = sum(abs(value) for key, value in want["terms"].items() if key != "loss")
    return Gap(
        loss=abs(got["terms"]["loss"] - want["terms"]["loss"]) / max(scale, LEAST),
        gradient=((got["gradient"] - want["gradient"]).norm() / want["gradient"].norm().clamp_min(1e-12)).item(),
        views=max((a - b).abs().max().item() for a, b in zip(got["views"], want["views"], strict=True)),
    )


def prepare(name: str, size: int) -> tuple[sslkit.Method, dict[str, Tensor]]:
    """A method that has read its images, and a batch of them, on the CPU."""
    images = sslkit.open_images("clipart", image_size=SIDE)
    method = sslkit.method(name, image_size=SIDE, **settings(name.partition("+")[0]))
    method.prepare(images)
    method.epoch = 2  # after the epochs with frozen layers
    method.shares.steps = 1  # no step in which the shares are measured: the factors would be rounded too
    return method, images.__getitems__(list(range(max(size, method.objective.least_images))))


def one_step(method: sslkit.Method, batch: dict[str, Tensor], runtime: Runtime, precision: str) -> dict[str, Any]:
    """Terms, gradient (of all parameters, one vector) and views of a training step, on the CPU."""
    method = method.to(runtime.device).train()
    if precision == "float64":
        method.double()
        method.make_views = partial(make_double_views, method.make_views)
    images, index = batch["images"].to(runtime.device), batch["index"].to(runtime.device)
    views = [view.float().cpu() for view in method.make_views(images)]
    labels = {"labels": batch["label"].to(runtime.device)} if method.objective.needs_labels else {}
    with autocast(runtime, precision):
        terms = method(images, index, **labels)
    terms["loss"].backward()
    gradients = [
        parameter.grad.flatten().double().cpu() for parameter in method.parameters() if parameter.grad is not None
    ]
    return {
        "terms": {key: value.item() for key, value in terms.items()},
        "gradient": torch.cat(gradients),
        "views": views,
    }


def make_double_views(make_views: Callable[..., Views], *args: Any, **options: Any) -> Views:
    """The views in float64, from which the rest of the step then is computed."""
    views = make_views(*args, **options)
    return Views((view.double() for view in views), views.boxes)


def autocast(runtime: Runtime, precision: str) -> AbstractContextManager:
    return torch.autocast(runtime.device.type, torch.bfloat16) if precision == "bfloat16" else nullcontext()
