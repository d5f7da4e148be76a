"""Share of the time of a training step inside the backbone, forward and backward, and outside."""

import statistics
import time
from typing import Any

import torch
from torch import Tensor, nn

import sslkit
from sslkit.backbones.base import Backbone

STEPS, WARMUP = 12, 3


class BackboneClock:
    """Seconds inside the children of every backbone of a method, including the teacher's.

    The backward pass of the backbone starts at the first gradient of its last layers, when those of the heads are
    finished.
    """

    def __init__(self, method: nn.Module) -> None:
        self.forward = 0.0
        self.reached: float | None = None
        self._start = 0.0
        for body in (m for m in method.modules() if isinstance(m, Backbone)):
            for child in body.net.children():
                child.register_forward_pre_hook(self._enter)
                child.register_forward_hook(self._leave)

    def reset(self) -> None:
        self.forward, self.reached = 0.0, None

    def _enter(self, module: nn.Module, inputs: Any) -> None:
        self._start = time.perf_counter()

    def _leave(self, module: nn.Module, inputs: Any, output: Any) -> None:
        self.forward += time.perf_counter() - self._start
        if isinstance(output, Tensor) and output.requires_grad:
            output.register_hook(self._arrive)

    def _arrive(self, grad: Tensor) -> None:
        self.reached = self.reached or time.perf_counter()


def profile(name: str, *, batch_size: int, **options: Any) -> dict[str, float]:
    """Medians over a few steps on real images: ms per step, and the share outside the backbone."""
    images = sslkit.open_images("fashion_mnist")
    method = sslkit.method(name, image_size=28, in_chans=1, **options)
    method.prepare(images)
    optimizer = torch.optim.AdamW([p for p in method.parameters() if p.requires_grad], 1e-3)
    clock = BackboneClock(method)
    totals, shares = [], []
    for step in range(WARMUP + STEPS):
        rows = torch.arange(batch_size) + step * batch_size
        batch = images.__getitems__(rows.tolist())
        method.epoch = 2  # after the epochs with frozen layers
        clock.reset()
        start = time.perf_counter()
        method(batch["images"], batch["index"], labels=batch["label"])["loss"].backward()
        backward = time.perf_counter() - (clock.reached or time.perf_counter())
        optimizer.step()
        optimizer.zero_grad()
        method.after_step(0.5)
        totals.append(time.perf_counter() - start)
        shares.append(1 - (clock.forward + backward) / totals[-1])
    return {
        "ms": round(1e3 * statistics.median(totals[WARMUP:]), 1),
        "not_backbone": round(statistics.median(shares[WARMUP:]), 3),
    }
