"""Optimisers and the learning rate over a run."""

import math

import torch
from torch import nn

from sslkit.training.config import OptimizerConfig


def warmup_cosine(step: int, steps: int, warmup: float) -> float:
    """Factor of the learning rate: rises linearly over the first `warmup` share, then falls to 0 along a cosine."""
    rising = max(round(steps * warmup), 1)
    if step < rising:
        return (step + 1) / rising
    return (1 + math.cos(math.pi * (step - rising) / max(steps - rising, 1))) / 2


def parameter_groups(module: nn.Module, weight_decay: float) -> list[dict]:
    """Matrices and kernels decay; biases and norms do not."""
    trained = [p for p in module.parameters() if p.requires_grad]
    return [
        {"params": [p for p in trained if p.dim() > 1], "weight_decay": weight_decay},
        {"params": [p for p in trained if p.dim() <= 1], "weight_decay": 0.0},
    ]


def make_optimizer(module: nn.Module, config: OptimizerConfig) -> torch.optim.Optimizer:
    """AdamW, SGD or lightly's LARS over the trained parameters of a module."""
    groups = [g for g in parameter_groups(module, config.weight_decay) if g["params"]]
    if config.name == "adamw":
        return torch.optim.AdamW(groups, lr=config.lr)
    if config.name == "sgd":
        return torch.optim.SGD(groups, lr=config.lr, momentum=config.momentum)
    from lightly.utils.lars import LARS

    return LARS(groups, lr=config.lr, momentum=config.momentum)
