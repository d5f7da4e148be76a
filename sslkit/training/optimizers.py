"""The optimiser of pretraining and its parameter groups."""

from collections.abc import Iterable, Mapping
from typing import Any

import torch
from torch import nn

from sslkit.composition.method import Method
from sslkit.errors import UserError
from sslkit.training.config import OptimizerConfig

TINY = 1e-30  # weight decay that changes no bit of a step


def make_optimizer(method: Method, config: OptimizerConfig, lr: float) -> torch.optim.Optimizer:
    """AdamW, SGD or lightly's LARS over the trained parameters of a method, in `parameter_groups`. lr: at the peak.

    LARS scales the step of matrices and kernels by |w| / |gradient|, with and without weight decay; biases and norms
    have the step of SGD, as in SimCLR and BYOL. Raises UserError as `layer_rates` does.
    """
    rates = {} if config.layer_decay is None else layer_rates(method, config.layer_decay)
    groups = parameter_groups(method, config.weight_decay, method.objective.constant_lr(), rates)
    for group in groups:
        group["lr"] = lr * group.pop("rate")
    if config.name == "adamw":
        return torch.optim.AdamW(groups, lr=lr)
    if config.name == "sgd":
        return torch.optim.SGD(groups, lr=lr, momentum=config.momentum)
    from lightly.utils.lars import LARS

    optimizer = LARS(groups, lr=lr, momentum=config.momentum)
    optimizer.register_step_pre_hook(_scale_without_decay)
    return optimizer


def _scale_without_decay(optimizer: torch.optim.Optimizer, *_: Any) -> None:
    """Let lightly's LARS scale the step of matrices and kernels whose weight decay is 0, which it takes for norms."""
    for group in optimizer.param_groups:
        if group["params"][0].dim() > 1:
            group["weight_decay"] = max(group["weight_decay"], TINY)


def parameter_groups(
    module: nn.Module,
    weight_decay: float,
    constant: Iterable[nn.Parameter] = (),
    rates: Mapping[nn.Parameter, float] | None = None,
) -> list[dict]:
    """Parameter groups: weight decay for matrices and kernels, none for biases and norms.

    constant: parameters for groups of their own, marked "constant_lr". rates: factors of the learning rate, 1 for
    parameters that are not in it; the largest come first.
    """
    apart, rates = {id(p) for p in constant}, rates or {}
    groups: dict[tuple[bool, float, bool], list[nn.Parameter]] = {}
    for p in module.parameters():
        if p.requires_grad:
            groups.setdefault((id(p) in apart, -rates.get(p, 1.0), p.dim() <= 1), []).append(p)
    return [
        {"params": params, "weight_decay": 0.0 if bare else weight_decay, "constant_lr": fixed, "rate": -rate}
        for (fixed, rate, bare), params in sorted(groups.items(), key=lambda item: item[0])
    ]


def layer_rates(method: Method, decay: float) -> dict[nn.Parameter, float]:
    """Factors of the learning rate for the network's parameters: 1 in its last layer, x decay in each before it.

    timm divides its networks into layers (Bao et al. 2022, BEiT, 2106.08254). Raises UserError for others.
    """
    from timm.optim import param_groups_layer_decay

    body = method.backbone
    if not hasattr(body.net, "group_matcher"):
        raise UserError(f"optimizer.layer_decay={decay}: backbone {body.recipe.name} does not say what its layers are")
    groups = param_groups_layer_decay(body.net, layer_decay=decay)
    return {p: group["lr_scale"] for group in groups for p in group["params"]}
