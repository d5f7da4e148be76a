"""Section `waits` of run.py: PyTorch's check for calls that wait for the GPU, on the third step of each method.

The first steps compile and allocate.
"""

import os
import warnings
from typing import Any

import torch
from gpu.correct import in_order, prepare
from gpu.jobs import Asked, Job


def jobs(asked: Asked) -> dict[str, Job]:
    return {name: lambda name=name: {"waits": waiting_calls(name, asked)} for name in in_order(asked)}


def waiting_calls(name: str, asked: Asked) -> list[str]:
    """File and line of each call in a step that waits for the device; none is seen without a GPU."""
    method, batch = prepare(name, 32)
    method = method.to(asked.device)
    optimizer = torch.optim.AdamW([p for p in method.parameters() if p.requires_grad], 1e-3)
    images, index, label = (batch[key].to(asked.device) for key in ("images", "index", "label"))
    labels: dict[str, Any] = {"labels": label} if method.objective.needs_labels else {}

    def step() -> None:
        method.shares.steps = 1  # not one of the steps in which the shares are measured
        method(images, index, **labels)["loss"].backward()
        optimizer.step()
        optimizer.zero_grad()
        method.after_step(0.5)

    step()
    step()
    if not asked.on_gpu:
        return []
    torch.cuda.set_sync_debug_mode("warn")
    try:
        with warnings.catch_warnings(record=True) as caught:
            warnings.simplefilter("always")
            step()
    finally:
        torch.cuda.set_sync_debug_mode("default")
    waits = [warning for warning in caught if "synchroniz" in str(warning.message)]
    return sorted({f"{os.path.basename(warning.filename)}:{warning.lineno}" for warning in waits})
