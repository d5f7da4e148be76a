"""The LightningModule of every method."""

import hashlib
from collections.abc import Mapping
from typing import Any

import pytorch_lightning as pl
import torch
from torch import Tensor

from sslkit.composition.method import Method
from sslkit.errors import RunFailed, UserError
from sslkit.runtime import distributed
from sslkit.training.config import OptimizerConfig
from sslkit.training.optimizers import make_optimizer
from sslkit.training.schedules import make_schedule, set_weight_decay


class Pretraining(pl.LightningModule):
    """method: the trained method. lr: learning rate at the peak. steps: optimiser steps of the whole run."""

    def __init__(self, method: Method, optimizer: OptimizerConfig, *, lr: float, steps: int) -> None:
        super().__init__()
        self.method = method
        self.optimizer = optimizer
        self.lr = lr
        self.steps = steps
        self._pending: dict[str, Tensor] | None = None

    def setup(self, stage: str) -> None:
        if self.trainer.world_size > 1:
            distributed.synchronize_batch_norm(self.method, self.trainer.strategy.root_device.type)

    def load_state_dict(self, state_dict: Mapping[str, Any], strict: bool = True, assign: bool = False) -> Any:
        """Load as torch does. Raises UserError for the state of another network or method."""
        try:
            return super().load_state_dict(state_dict, strict, assign)
        except (RuntimeError, AttributeError, TypeError, ValueError) as error:
            said = " ".join(str(error).split())[:300]
            raise UserError(f"the checkpoint is of another network or method: {said}; start a new run") from error

    def on_train_epoch_start(self) -> None:
        self.method.epoch, self.method.batch = self.current_epoch, 0

    def training_step(self, batch: dict[str, Any], batch_idx: int) -> dict[str, Tensor]:
        # Dropout and stochastic depth are seeded by the step, so that a resumed run equals an uninterrupted one.
        torch.manual_seed(_mix(self.method.seed, self.global_rank, self.current_epoch, batch_idx))
        terms, e = self.method.step(batch["images"], batch["index"], aspect=batch["aspect"], labels=batch["label"])
        self.check_finite(terms)
        return {
            "loss": terms["loss"] * self._share(batch_idx),
            "terms": {k: v.detach() for k, v in terms.items()},
            "z": e.z[0].detach(),
        }

    def _share(self, batch_idx: int) -> float:
        """Factor by which the gradient of an optimiser step is the mean over its batches.

        Lightning divides each loss by trainer.accumulate, also in the last step of an epoch, which may have fewer.
        """
        most = self.trainer.accumulate_grad_batches
        first = batch_idx - batch_idx % most
        return most / min(most, self.trainer.num_training_batches - first)

    def check_finite(self, terms: dict[str, Tensor]) -> None:
        """Stop at the first non-finite loss and name its term; on a GPU one step late, so as not to stall it."""
        now = {k: v.detach() for k, v in terms.items()}
        late = now["loss"].is_cuda and not self.trainer.is_last_batch
        due, self._pending = (self._pending, now) if late else (now, None)
        if due is None or due["loss"].isfinite():
            return
        guilty = [k for k, v in due.items() if k != "loss" and not v.isfinite()] or ["loss"]
        values = ", ".join(f"{k} = {due[k].item()}" for k in guilty)
        raise RunFailed(
            f"the loss is not finite at epoch {self.current_epoch}, step {self.global_step}: {values}. "
            "Lower optimizer.lr, set optimizer.clip=1, or use trainer.precision=32-true; the last checkpoint is whole"
        )

    def optimizer_step(self, *args: Any, **kwargs: Any) -> None:
        set_weight_decay(self.trainer.optimizers[0], self.optimizer, self.trainer.global_step, self.steps)
        super().optimizer_step(*args, **kwargs)
        # Lightning counts the step only after this hook.
        self.method.after_step(min((self.trainer.global_step + 1) / self.steps, 1.0))

    def configure_optimizers(self) -> dict[str, Any]:
        optimizer = make_optimizer(self.method, self.optimizer, self.lr)
        schedule = make_schedule(optimizer, self.steps, self.optimizer.warmup)
        return {"optimizer": optimizer, "lr_scheduler": {"scheduler": schedule, "interval": "step"}}


def _mix(*numbers: int) -> int:
    digest = hashlib.sha256(repr(numbers).encode()).digest()
    return int.from_bytes(digest[:7], "little")
