"""The training step of every method, and what a method needs to know of the run."""

import hashlib
from collections.abc import Mapping
from typing import Any

import torch
from torch import Tensor, nn

from sslkit.composition.method import Method
from sslkit.errors import RunFailed
from sslkit.runtime import distributed
from sslkit.runtime.loop import Hook, Loop
from sslkit.training.config import OptimizerConfig
from sslkit.training.schedules import set_weight_decay


class Pretraining(nn.Module):
    """A batch in, the terms of its loss and the first view's embeddings out."""

    def __init__(self, method: Method) -> None:
        super().__init__()
        self.method = method
        self.steps_done = 0
        self._pending: dict[str, Tensor] | None = None

    def forward(self, batch: Mapping[str, Any], number: int) -> dict[str, Any]:
        """batch: of the loader, on the device. number: of the batch in its epoch. Raises RunFailed."""
        # Dropout and stochastic depth are seeded by the step, so that a resumed run equals an uninterrupted one.
        torch.manual_seed(_mix(self.method.seed, distributed.rank(), self.method.epoch, number))
        terms, e = self.method.step(batch["images"], batch["index"], aspect=batch["aspect"], labels=batch["label"])
        self._check({name: term.detach() for name, term in terms.items()})
        return {
            "loss": terms["loss"],
            "terms": {name: term.detach() for name, term in terms.items()},
            "z": e.z[0].detach(),
        }

    def _check(self, now: dict[str, Tensor]) -> None:
        """Stop at the first non-finite loss and name its term; on a GPU one step late, so as not to stall it."""
        due, self._pending = (self._pending, now) if now["loss"].is_cuda else (now, None)
        self._refuse(due)

    def check_last(self) -> None:
        """Check the step that is not checked yet. Raises RunFailed."""
        due, self._pending = self._pending, None
        self._refuse(due)

    def _refuse(self, terms: dict[str, Tensor] | None) -> None:
        if terms is None or terms["loss"].isfinite():
            return
        guilty = [name for name, term in terms.items() if name != "loss" and not term.isfinite()] or ["loss"]
        values = ", ".join(f"{name} = {terms[name].item()}" for name in guilty)
        raise RunFailed(
            f"the loss is not finite at epoch {self.method.epoch}, step {self.steps_done}: {values}. "
            "Lower optimizer.lr, set optimizer.clip=1, or use trainer.precision=32-true; the last checkpoint is whole"
        )


class Progress(Hook):
    """Tells the method, and the optimiser's weight decay, how far the run is. steps: of the whole run."""

    def __init__(self, module: Pretraining, optimizer: OptimizerConfig, steps: int) -> None:
        self.module, self.optimizer, self.steps = module, optimizer, steps

    def begin(self, loop: Loop) -> None:
        self.module.steps_done = loop.step

    def epoch_begin(self, loop: Loop) -> None:
        self.module.method.epoch, self.module.method.batch = loop.epoch, 0

    def before_step(self, loop: Loop) -> None:
        self.set_decay(loop.optimizer, loop.step)

    def after_step(self, loop: Loop) -> None:
        self.moved(loop.step)

    def set_decay(self, optimizer: torch.optim.Optimizer, step: int) -> None:
        """step: number of finished ones."""
        set_weight_decay(optimizer, self.optimizer, step, self.steps)

    def moved(self, step: int) -> None:
        """step: number of finished ones."""
        self.module.steps_done = step
        self.module.method.after_step(min(step / self.steps, 1.0))

    def epoch_end(self, loop: Loop) -> None:
        self.module.check_last()


def _mix(*numbers: int) -> int:
    digest = hashlib.sha256(repr(numbers).encode()).digest()
    return int.from_bytes(digest[:7], "little")
