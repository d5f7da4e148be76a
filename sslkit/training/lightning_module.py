"""A method as a LightningModule, for people who have a Lightning Trainer of their own; `sslkit.pretrain` needs none."""

import math
from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import pytorch_lightning as pl
import torch
from torch import Tensor

from sslkit.composition.method import method
from sslkit.errors import UserError
from sslkit.options.settings import overlaid
from sslkit.runtime import distributed
from sslkit.training.build import RATE
from sslkit.training.config import OptimizerConfig, check_optimizer
from sslkit.training.loading import to_device
from sslkit.training.optimizers import make_optimizer, make_schedule, set_weight_decay
from sslkit.training.step import Pretraining, Progress


class LightningMethod(pl.LightningModule):
    """training_step takes the batches of `sslkit.data.loader.make_loader`: images, index, aspect, label.

    The teacher, the weight decay and the learning rate follow the steps that the Trainer estimates.
    """

    def __init__(self, pretraining: Pretraining, optimizer: OptimizerConfig) -> None:
        super().__init__()
        self.pretraining, self.optimizer = pretraining, optimizer
        self.method = pretraining.method

    def setup(self, stage: str) -> None:
        self.epochs, steps = length_of(self.trainer, self.optimizer)
        self.progress = Progress(self.pretraining, self.optimizer, steps)
        if self.trainer.world_size > 1:
            distributed.synchronize_batch_norm(self.method, self.trainer.strategy.root_device.type)

    def on_train_start(self) -> None:
        # The estimate of the steps sets the loaders up before the checkpoint is read: their places come after it.
        self.trainer.fit_loop._load_combined_loader_states()

    def transfer_batch_to_device(self, batch: dict[str, Any], device: torch.device, _: int) -> dict[str, Any]:
        return to_device(batch, device)

    def training_step(self, batch: Mapping[str, Any], number: int) -> Tensor:
        # Not counted by hooks: the Trainer may go on inside an epoch, and does not begin it again then.
        self.method.epoch, self.method.batch = self.current_epoch, number
        outputs = self.pretraining(batch, number)
        self.log_dict(outputs["terms"])
        return outputs["loss"]

    def optimizer_step(self, *given: Any, **more: Any) -> None:
        set_weight_decay(self.trainer.optimizers[0], self.optimizer, self.global_step, self.progress.steps)
        super().optimizer_step(*given, **more)
        self.progress.set_step(self.global_step + 1)  # Lightning counts the step only after this hook

    def on_before_optimizer_step(self, optimizer: torch.optim.Optimizer) -> None:
        self.method.before_step()

    def on_train_epoch_end(self) -> None:
        self.pretraining.check()
        self.pretraining.check_weights()

    def on_save_checkpoint(self, checkpoint: dict[str, Any]) -> None:
        self.pretraining.check()
        self.pretraining.check_weights()
        if "loops" in checkpoint:  # not where weights alone are saved
            progress = checkpoint["loops"]["fit_loop"]["epoch_loop.batch_progress"]
            for count in progress["total"], progress["current"]:  # counted after the callbacks that save the batch
                count["completed"] = count["processed"]

    def configure_optimizers(self) -> dict[str, Any]:
        optimizer = make_optimizer(self.method, self.optimizer, self.optimizer.lr)
        schedule = make_schedule(optimizer, self.optimizer, self.progress.steps, self.epochs)
        return {"optimizer": optimizer, "lr_scheduler": {"scheduler": schedule, "interval": "step"}}


def length_of(trainer: pl.Trainer, optimizer: OptimizerConfig) -> tuple[float, int]:
    """Epochs and optimiser steps of a run. Raises UserError if they are unknown, or do not fit the schedule."""
    steps, batches = trainer.estimated_stepping_batches, trainer.num_training_batches
    if math.isinf(steps):
        raise UserError("the schedules need the length of the run: give the Trainer max_epochs or max_steps")
    if math.isinf(batches):
        if optimizer.schedule == "step":
            raise UserError("schedule=step counts epochs: give the Trainer max_epochs, and a loader with a length")
        return math.inf, int(steps)
    epochs = steps / math.ceil(batches / trainer.accumulate_grad_batches)
    check_optimizer(optimizer, epochs)
    return epochs, int(steps)


def lightning_module(name: str, *, optimizer: Mapping[str, Any] | None = None, **options: Any) -> LightningMethod:
    """`sslkit.method(name, **options)` as a LightningModule.

        module = sslkit.lightning_module("byol+dsa", backbone="resnet18", image_size=32, optimizer={"lr": 1e-3})
        pytorch_lightning.Trainer(max_epochs=100, use_distributed_sampler=False).fit(module, loader)

    optimizer: settings as of recipes/train.py, {"name": "adamw", "lr": 1e-3, ...}; the rate is taken as it is, 0.002
        without one, and clipping is the Trainer's. Raises UserError as `sslkit.method` does, and for unknown settings.
    """
    settings = overlaid(OptimizerConfig(), optimizer or {})
    check_optimizer(settings, math.inf)
    settings = replace(settings, lr=settings.lr or RATE)
    return LightningMethod(Pretraining(method(name, **options)), settings)
