"""Optimizers of fine-tuning: SGD or AdamW, and which parameters decay."""

from collections.abc import Collection, Iterable, Mapping
from typing import Any

import torch
from torch import nn

OPTIMIZERS = ("sgd", "adamw")
_NORMS = (nn.modules.batchnorm._NormBase, nn.LayerNorm, nn.GroupNorm)


def make_optimizer(
    name: str,
    groups: Iterable[Mapping[str, Any]],
    *,
    nesterov: bool = True,
    fused: bool = False,
) -> torch.optim.Optimizer:
    """Return "sgd" with momentum 0.9, or "adamw" with PyTorch's betas.

    groups: {"params", "lr", "weight_decay"}; empty ones are left out.
    fused: AdamW in one kernel, which saves a tenth of a step of a small network on a CPU and rounds otherwise. On a
        GPU it is.
    """
    trained = [dict(group) for group in groups if group["params"]]
    if name == "adamw":
        return torch.optim.AdamW(trained, fused=fused or all(p.is_cuda for group in trained for p in group["params"]))
    return torch.optim.SGD(trained, momentum=0.9, nesterov=nesterov)


def groups_by_decay(
    module: nn.Module, lr: float, weight_decay: float, undecayed: Collection[str] = ()
) -> list[dict[str, Any]]:
    """Return a group of the trained parameters with weight decay, and one of those without.

    Without are those of normalisation layers, and those whose names end with one of `undecayed`.
    """
    spared = {id(p) for layer in module.modules() if isinstance(layer, _NORMS) for p in layer.parameters(recurse=False)}
    spared |= {id(p) for name, p in module.named_parameters() if name.endswith(tuple(undecayed))}
    trained = [p for p in module.parameters() if p.requires_grad]
    return [
        {"params": [p for p in trained if id(p) not in spared], "lr": lr, "weight_decay": weight_decay},
        {"params": [p for p in trained if id(p) in spared], "lr": lr, "weight_decay": 0.0},
    ]
