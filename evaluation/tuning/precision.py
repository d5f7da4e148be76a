"""Precision of a network: float32, or bfloat16 autocast."""

from contextlib import AbstractContextManager, nullcontext

import torch
from torch import Tensor

PRECISIONS = ("float32", "bfloat16")
FABRIC = {"float32": "32-true", "bfloat16": "bf16-mixed"}  # Fabric's names


def autocast(precision: str, x: Tensor) -> AbstractContextManager:
    """Return bfloat16 autocast on the device of `x` if requested, else no context."""
    return torch.autocast(x.device.type, torch.bfloat16) if precision == "bfloat16" else nullcontext()
