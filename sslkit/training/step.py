"""The training step of every method: its loss, what it checks, what learns in it."""

import hashlib
import math
from collections.abc import Iterator, Mapping
from contextlib import nullcontext
from dataclasses import dataclass
from typing import Any

import torch
from torch import nn

from sslkit.backbones.base import Backbone
from sslkit.composition.method import Method
from sslkit.errors import RunFailed
from sslkit.runtime import distributed
from sslkit.runtime.device import Late, seed_generators
from sslkit.runtime.loop import Hook, Loop
from sslkit.training.config import OptimizerConfig
from sslkit.training.optimizers import set_weight_decay
from sslkit.training.unfreezing import freeze, hold_networks, zero_of

REMEDY = "Lower optimizer.lr, set optimizer.clip=1, or use precision=float32; no checkpoint holds that step"


@dataclass(frozen=True)
class Unchecked:
    """The terms of a step's loss before it is known whether they are finite. steps_done: before this step."""

    values: Late
    names: tuple[str, ...]
    epoch: int
    steps_done: int


class Pretraining(nn.Module):
    """A batch in, the terms of its loss and the first view's embeddings out.

    heads_first: steps in which the network is held and the new parts learn alone, see `unfreezing`.
    """

    def __init__(self, method: Method, heads_first: int = 0) -> None:
        super().__init__()
        self.method = method
        self.heads_first = heads_first
        self.steps_done = 0
        self.is_held = False
        self._unchecked: Unchecked | None = None

    def forward(self, batch: Mapping[str, Any], number: int) -> dict[str, Any]:
        """batch: of the loader, on the device. number: of the batch in its epoch. Raises RunFailed."""
        # Dropout and stochastic depth are seeded by the step, so that a resumed run equals an uninterrupted one.
        key = (self.method.seed, distributed.rank(), self.method.epoch, number)
        seed = int.from_bytes(hashlib.sha256(repr(key).encode()).digest()[:7], "little")
        seed_generators(seed, batch["images"].device)
        aspect = torch.as_tensor(batch["aspect"])
        with freeze(self.method.backbone) if self.is_held else nullcontext([]) as frozen:
            terms, e = self.method.step(batch["images"], batch["index"], aspect=aspect, labels=batch["label"])
        detached = {name: term.detach() for name, term in terms.items()}
        self.check()
        values = Late(torch.stack(list(detached.values())))
        self._unchecked = Unchecked(values, tuple(detached), self.method.epoch, self.steps_done)
        if not values.is_late:
            self.check()
        return {"loss": terms["loss"] + zero_of(frozen), "terms": detached, "z": e.z[0].detach()}

    def constant(self) -> set[str]:
        """Names of the weights of student, teacher and slow network that stay those of `init=`, which is read anew."""
        if self.method.backbone.recipe.origin is None:
            return set()
        names = {name for name, p in self.method.backbone.named_parameters() if not p.requires_grad}
        bodies = [name for name, module in self.named_modules() if isinstance(module, Backbone)]
        return {f"{body}.{name}" for body in bodies for name in names}

    def state_dict(self, *given: Any, prefix: str = "", **more: Any) -> dict[str, Any]:
        """Without the weights that stay."""
        state = super().state_dict(*given, prefix=prefix, **more)
        for name in self.constant():
            del state[prefix + name]
        return state

    def load_state_dict(self, state_dict: Mapping[str, Any], *given: Any, **more: Any) -> Any:
        """Load `state_dict`; the weights that stay are there."""
        now = super().state_dict()
        return super().load_state_dict({**{name: now[name] for name in self.constant()}, **state_dict}, *given, **more)

    def set_step(self, step: int) -> None:
        """Hold the network or let it learn in the next step. step: number of finished ones."""
        self.steps_done = step
        if self.is_held != (step < self.heads_first):
            self.is_held = not self.is_held
            hold_networks(self.method, self.is_held)

    def before_step(self) -> None:
        """Drop the gradients of what does not learn in this step: Adam would count the step, and decay the weight."""
        self.method.before_step()
        for p in self.method.backbone.parameters() if self.is_held else ():
            p.grad = None

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
        self.module.set_step(loop.step)

    def epoch_begin(self, loop: Loop) -> None:
        self.module.method.epoch, self.module.method.batch = loop.epoch, loop.batch

    def before_step(self, loop: Loop) -> None:
        set_weight_decay(loop.optimizer, self.optimizer, loop.step, self.steps)
        self.module.before_step()

    def after_step(self, loop: Loop) -> None:
        self.set_step(loop.step)

    def set_step(self, step: int) -> None:
        """step: number of finished ones."""
        self.module.set_step(step)
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
