"""The optimiser of every method: its groups of parameters, learning rates and weight decay over the run."""

import math
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from functools import partial

import torch
from torch import nn

from sslkit.composition.method import Method
from sslkit.errors import UserError
from sslkit.numerics.schedules import cosine
from sslkit.training.config import Config, OptimizerConfig
from sslkit.training.lars import LARS

IMAGES = 256  # of a step, for which optimizer.lr is given when it is scaled
LAYER_DECAY = 0.75  # of given weights, as BEiT's fine-tuning (Bao et al. 2022, 2106.08254) of a ViT-B; not tuned


def make_optimizer(
    method: Method, config: OptimizerConfig, lr: float, *, fused: bool | None = None, heads_first: int = 0
) -> torch.optim.Optimizer:
    """AdamW, SGD or LARS over the trained parameters of a method, in `parameter_groups`. lr: at the peak.

    fused: whether AdamW moves all weights in one kernel; None: as PyTorch chooses, on a GPU a few for all. SGD's one
    kernel fails for weights whose first gradient comes later than that of others, such as prototypes.
    heads_first: steps that the network is held, see `unfreezing`; its groups are marked "late" then.
    LARS scales the step of matrices and kernels by |w| / |gradient|, with and without weight decay; biases and norms
    have the step of SGD, as in SimCLR and BYOL. Raises UserError as `layer_rates` does.
    """
    decay, network = layer_decay(method, config), set(method.backbone.parameters())
    rates = {} if decay is None else layer_rates(method, decay)
    if config.head_lr is not None:
        rates |= {p: config.head_lr / config.lr for p in method.parameters() if p not in network}
    late = network if heads_first else ()
    groups = parameter_groups(method, config.weight_decay, method.objective.constant_lr(), rates, late)
    for group in groups:
        group["lr"] = lr * group.pop("rate")
    if config.name == "adamw":
        return torch.optim.AdamW(groups, lr=lr, fused=fused)
    if config.name == "sgd":
        return torch.optim.SGD(groups, lr=lr, momentum=config.momentum)
    return LARS(groups, lr=lr, momentum=config.momentum)


def parameter_groups(
    module: nn.Module,
    weight_decay: float,
    constant: Iterable[nn.Parameter] = (),
    rates: Mapping[nn.Parameter, float] | None = None,
    late: Collection[nn.Parameter] = (),
) -> list[dict]:
    """Parameter groups: weight decay for matrices and kernels, none for biases and norms.

    constant: parameters for groups of their own, marked "constant_lr". rates: factors of the learning rate, 1 for
    parameters that are not in it; the largest come first. late: likewise marked "late", after all others.
    """
    apart, rates = {id(p) for p in constant}, rates or {}
    groups: dict[tuple[bool, bool, float, bool], list[nn.Parameter]] = {}
    for p in module.parameters():
        if p.requires_grad:
            kind = id(p) in apart, p in late, -rates.get(p, 1.0), p.dim() <= 1
            groups.setdefault(kind, []).append(p)
    return [
        {
            "params": params,
            "weight_decay": 0.0 if bare else weight_decay,
            "constant_lr": fixed,
            "late": is_late,
            "rate": -rate,
        }
        for (fixed, is_late, rate, bare), params in sorted(groups.items(), key=lambda item: item[0])
    ]


def layer_decay(method: Method, config: OptimizerConfig) -> float | None:
    """The factor from layer to layer: as set, or `LAYER_DECAY` for given weights of a network that names its layers."""
    body = method.backbone
    is_given = body.recipe.origin is not None and hasattr(body.net, "group_matcher")
    return LAYER_DECAY if config.layer_decay is None and is_given else config.layer_decay


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


def images_of_step(config: Config, batches: int | None = None) -> int:
    """The images of an optimiser step: of trainer.accumulate batches, at most of all `batches` of an epoch.

    batch_size counts the images of all processes. The last step of an epoch may have fewer.
    """
    accumulated = config.trainer.accumulate
    return config.batch_size * (accumulated if batches is None else min(accumulated, max(batches, 1)))


def peak_lr(config: Config, batches: int | None = None) -> float:
    """The peak learning rate: `optimizer.lr`, times the images of an optimiser step / 256 or the root of that.

    Linear scaling is Goyal et al.'s (2017, 1706.02677). batches: of an epoch, as for `images_of_step`.
    """
    ratio = images_of_step(config, batches) / IMAGES
    return config.optimizer.lr * {"none": 1.0, "linear": ratio, "sqrt": math.sqrt(ratio)}[config.optimizer.lr_scaling]


def warmup_cosine(step: int, steps: int, warmup: float) -> float:
    """Factor of the learning rate: rises linearly over the first `warmup` share, then falls to 0 along a cosine."""
    rising = max(round(steps * warmup), 1)
    if step < rising:
        return (step + 1) / rising
    return cosine(step - rising, max(steps - rising, 1))


def warmup_drops(step: int, steps: int, warmup: float, drops: Sequence[float], factor: float) -> float:
    """Factor of the learning rate: rises linearly over the first `warmup` share, then is multiplied at each drop.

    drops: in steps before the end. Song et al. 2024 (2407.13541, VI-B): by 0.2 at 50 and 25 epochs before the end.
    """
    rising = max(round(steps * warmup), 1)
    fallen = sum(step >= steps - round(drop) for drop in drops)
    return min((step + 1) / rising, 1.0) * factor**fallen


def make_schedule(
    optimizer: torch.optim.Optimizer, config: OptimizerConfig, steps: int, epochs: float, heads_first: int = 0
) -> torch.optim.lr_scheduler.LambdaLR:
    """The schedule of `config` for every group not marked "constant_lr". steps, epochs: of the whole run.

    heads_first: steps after which that of the groups marked "late" begins, with its own warm-up.
    """
    drops = [epoch * steps / epochs for epoch in config.drops]

    def moving(begin: int) -> Callable[[int], float]:
        left = max(steps - begin, 1)
        warmup = config.warmup if config.warmup < 1 else min(config.warmup / left, 1.0)
        factor = partial(warmup_cosine, steps=left, warmup=warmup)
        if config.schedule == "step":
            factor = partial(warmup_drops, steps=left, warmup=warmup, drops=drops, factor=config.drop)
        return lambda step: factor(step - begin) if step >= begin else 0.0

    kinds = {"constant": lambda step: 1.0, "late": moving(heads_first), "whole": moving(0)}
    names = ["constant" if g["constant_lr"] else "late" if g.get("late") else "whole" for g in optimizer.param_groups]
    return torch.optim.lr_scheduler.LambdaLR(optimizer, [kinds[name] for name in names])


def set_weight_decay(optimizer: torch.optim.Optimizer, config: OptimizerConfig, step: int, steps: int) -> None:
    """Set the weight decay of a step, on its cosine from `weight_decay` to `weight_decay_end`; none if that is None.

    As in DINO's code (Caron et al. 2021, 2104.14294, section 3.2: from 0.04 to 0.4); biases and norms have none.
    """
    if config.weight_decay_end is None:
        return
    left = cosine(step, steps)
    now = left * config.weight_decay + (1 - left) * config.weight_decay_end
    for group in optimizer.param_groups:
        if group["params"][0].dim() > 1:
            group["weight_decay"] = now
