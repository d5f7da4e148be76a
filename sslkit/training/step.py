"""The training step of every method: its loss, its optimiser, learning rate and weight decay over the run."""

import hashlib
import math
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

import torch
from torch import nn

from sslkit.backbones.base import Backbone
from sslkit.composition.method import Method
from sslkit.errors import RunFailed, UserError
from sslkit.numerics.schedules import cosine
from sslkit.runtime import distributed
from sslkit.runtime.device import Late, seed_generators
from sslkit.runtime.loop import Hook, Loop
from sslkit.training.config import Config, OptimizerConfig
from sslkit.training.lars import LARS

REMEDY = "Lower optimizer.lr, set optimizer.clip=1, or use precision=float32; no checkpoint holds that step"
IMAGES = 256  # of a step, for which optimizer.lr is given when it is scaled


@dataclass(frozen=True)
class Unchecked:
    """The terms of a step's loss before it is known whether they are finite. steps_done: before this step."""

    values: Late
    names: tuple[str, ...]
    epoch: int
    steps_done: int


class Pretraining(nn.Module):
    """A batch in, the terms of its loss and the first view's embeddings out."""

    def __init__(self, method: Method) -> None:
        super().__init__()
        self.method = method
        self.steps_done = 0
        self._unchecked: Unchecked | None = None

    def forward(self, batch: Mapping[str, Any], number: int) -> dict[str, Any]:
        """batch: of the loader, on the device. number: of the batch in its epoch. Raises RunFailed."""
        # Dropout and stochastic depth are seeded by the step, so that a resumed run equals an uninterrupted one.
        key = (self.method.seed, distributed.rank(), self.method.epoch, number)
        seed = int.from_bytes(hashlib.sha256(repr(key).encode()).digest()[:7], "little")
        seed_generators(seed, batch["images"].device)
        aspect = torch.as_tensor(batch["aspect"])
        terms, e = self.method.step(batch["images"], batch["index"], aspect=aspect, labels=batch["label"])
        detached = {name: term.detach() for name, term in terms.items()}
        self.check()
        values = Late(torch.stack(list(detached.values())))
        self._unchecked = Unchecked(values, tuple(detached), self.method.epoch, self.steps_done)
        if not values.is_late:
            self.check()
        return {"loss": terms["loss"], "terms": detached, "z": e.z[0].detach()}

    def check(self) -> None:
        """Stop at the first non-finite loss and name its step and term; on a GPU one step late, so as not to stall it.

        Called before anything of a step is written. Raises RunFailed.
        """
        last, self._unchecked = self._unchecked, None
        if last is None:
            return
        terms = dict(zip(last.names, last.values.read().tolist(), strict=True))
        if math.isfinite(terms["loss"]):
            return
        guilty = [name for name, value in terms.items() if name != "loss" and not math.isfinite(value)] or ["loss"]
        values = ", ".join(f"{name} = {terms[name]}" for name in guilty)
        raise RunFailed(f"the loss is not finite at epoch {last.epoch}, step {last.steps_done}: {values}. {REMEDY}")

    @torch.no_grad()
    def check_weights(self) -> None:
        """Stop before weights that are not finite are kept: a gradient may be so where the loss is not.

        Raises RunFailed.
        """
        weights = dict(self.method.named_parameters())
        finite = torch.stack([distributed.local(p).isfinite().all() for p in weights.values()]).tolist()
        if broken := [name for name, is_finite in zip(weights, finite, strict=True) if not is_finite]:
            more = f" and {len(broken) - 1} more" if len(broken) > 1 else ""
            raise RunFailed(f"weights are not finite after step {self.steps_done}: {broken[0]}{more}. {REMEDY}")


@dataclass
class Progress(Hook):
    """Tells the method, and the optimiser's weight decay, how far the run is. steps: of the whole run."""

    module: Pretraining
    optimizer: OptimizerConfig
    steps: int

    def begin(self, loop: Loop) -> None:
        self.module.steps_done = loop.step

    def epoch_begin(self, loop: Loop) -> None:
        self.module.method.epoch, self.module.method.batch = loop.epoch, loop.batch

    def before_step(self, loop: Loop) -> None:
        set_weight_decay(loop.optimizer, self.optimizer, loop.step, self.steps)
        self.module.method.before_step()

    def after_step(self, loop: Loop) -> None:
        self.set_step(loop.step)

    def set_step(self, step: int) -> None:
        """step: number of finished ones."""
        self.module.steps_done = step
        self.module.method.after_step(min(step / self.steps, 1.0))

    def before_save(self, loop: Loop) -> None:
        self.module.check()
        self.module.check_weights()

    epoch_end = before_save


def parts_to_compile(module: nn.Module) -> Iterator[tuple[nn.Module, str]]:
    """Yield what is compiled of student's and teacher's network, as modules and the names of their functions.

    Of a ViT each block, since objectives run them on a part of the patches too; of another timm network
    `forward_features`, which objectives on maps call too; otherwise `forward`.
    """
    for body in module.modules():
        if isinstance(body, Backbone) and body.is_vit:
            yield from ((block, "forward") for block in body.net.blocks)
        elif isinstance(body, Backbone):
            yield body.net, "forward_features" if hasattr(body.net, "forward_features") else "forward"


def make_optimizer(
    method: Method, config: OptimizerConfig, lr: float, *, fused: bool | None = None
) -> torch.optim.Optimizer:
    """AdamW, SGD or LARS over the trained parameters of a method, in `parameter_groups`. lr: at the peak.

    fused: whether AdamW moves all weights in one kernel; None: as PyTorch chooses, on a GPU a few for all. SGD's one
    kernel fails for weights whose first gradient comes later than that of others, such as prototypes.
    LARS scales the step of matrices and kernels by |w| / |gradient|, with and without weight decay; biases and norms
    have the step of SGD, as in SimCLR and BYOL. Raises UserError as `layer_rates` does.
    """
    rates = {} if config.layer_decay is None else layer_rates(method, config.layer_decay)
    groups = parameter_groups(method, config.weight_decay, method.objective.constant_lr(), rates)
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
    optimizer: torch.optim.Optimizer, config: OptimizerConfig, steps: int, epochs: float
) -> torch.optim.lr_scheduler.LambdaLR:
    """The schedule of `config` for every group not marked "constant_lr". steps, epochs: of the whole run."""
    warmup = config.warmup if config.warmup < 1 else min(config.warmup / steps, 1.0)
    moving = partial(warmup_cosine, steps=steps, warmup=warmup)
    if config.schedule == "step":
        drops = [epoch * steps / epochs for epoch in config.drops]
        moving = partial(warmup_drops, steps=steps, warmup=warmup, drops=drops, factor=config.drop)
    factors = [(lambda step: 1.0) if group["constant_lr"] else moving for group in optimizer.param_groups]
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
