"""Learning rate and weight decay over a run."""

import math

import torch

from sslkit.numerics.schedules import cosine
from sslkit.training.config import Config, OptimizerConfig

IMAGES = 256  # of a step, for which optimizer.lr is given when it is scaled


def images_of_step(config: Config, batches: int | None = None) -> int:
    """The images of an optimiser step: of trainer.accumulate batches, at most of all `batches` of an epoch.

    data.batch_size counts the images of all processes. The last step of an epoch may have fewer.
    """
    accumulated = config.trainer.accumulate
    return config.data.batch_size * (accumulated if batches is None else min(accumulated, max(batches, 1)))


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


def make_schedule(optimizer: torch.optim.Optimizer, steps: int, warmup: float) -> torch.optim.lr_scheduler.LambdaLR:
    """`warmup_cosine` for every group not marked "constant_lr"."""

    def constant(step: int) -> float:
        return 1.0

    def moving(step: int) -> float:
        return warmup_cosine(step, steps, warmup)

    factors = [constant if group["constant_lr"] else moving for group in optimizer.param_groups]
    return torch.optim.lr_scheduler.LambdaLR(optimizer, factors)


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
