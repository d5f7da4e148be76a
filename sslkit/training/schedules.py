"""Optimisers and the learning rate schedule."""

from collections.abc import Iterable

import torch
from torch import nn

from sslkit.schedules import cosine
from sslkit.training.config import OptimizerConfig


def warmup_cosine(step: int, steps: int, warmup: float) -> float:
    """Factor of the learning rate: rises linearly over the first `warmup` share, then falls to 0 along a cosine."""
    rising = max(round(steps * warmup), 1)
    if step < rising:
        return (step + 1) / rising
    return cosine(step - rising, max(steps - rising, 1))


def parameter_groups(module: nn.Module, weight_decay: float, constant: Iterable[nn.Parameter] = ()) -> list[dict]:
    """Parameter groups: weight decay for matrices and kernels, none for biases and norms.

    constant: parameters for groups of their own, marked "constant_lr".
    """
    apart = {id(p) for p in constant}
    groups = []
    for fixed in (False, True):
        own = [p for p in module.parameters() if p.requires_grad and (id(p) in apart) is fixed]
        groups += [
            {"params": [p for p in own if p.dim() > 1], "weight_decay": weight_decay, "constant_lr": fixed},
            {"params": [p for p in own if p.dim() <= 1], "weight_decay": 0.0, "constant_lr": fixed},
        ]
    return [group for group in groups if group["params"]]


def make_optimizer(
    module: nn.Module, config: OptimizerConfig, constant: Iterable[nn.Parameter] = ()
) -> torch.optim.Optimizer:
    """AdamW, SGD or lightly's LARS over the trained parameters of a module, in `parameter_groups`."""
    groups = parameter_groups(module, config.weight_decay, constant)
    if config.name == "adamw":
        return torch.optim.AdamW(groups, lr=config.lr)
    if config.name == "sgd":
        return torch.optim.SGD(groups, lr=config.lr, momentum=config.momentum)
    from lightly.utils.lars import LARS

    return LARS(groups, lr=config.lr, momentum=config.momentum)


def make_schedule(optimizer: torch.optim.Optimizer, steps: int, warmup: float) -> torch.optim.lr_scheduler.LambdaLR:
    """`warmup_cosine` for every group not marked "constant_lr"."""

    def constant(step: int) -> float:
        return 1.0

    def moving(step: int) -> float:
        return warmup_cosine(step, steps, warmup)

    factors = [constant if group["constant_lr"] else moving for group in optimizer.param_groups]
    return torch.optim.lr_scheduler.LambdaLR(optimizer, factors)
