"""A method as a LightningModule, for people who have a Lightning Trainer of their own; `sslkit.pretrain` needs none."""

from collections.abc import Mapping
from typing import Any

import pytorch_lightning as pl
import torch
from torch import Tensor

from sslkit.composition.method import method
from sslkit.options.settings import overlaid
from sslkit.runtime import distributed
from sslkit.training.build import RATE
from sslkit.training.config import OptimizerConfig
from sslkit.training.data import to_device
from sslkit.training.step import Pretraining, Progress, make_optimizer, make_schedule, set_weight_decay


class LightningMethod(pl.LightningModule):
    """training_step takes the batches of `sslkit.data.loader.make_loader`: images, index, aspect, label.

    The teacher, the weight decay and the learning rate follow the steps that the Trainer estimates.
    """

    def __init__(self, pretraining: Pretraining, optimizer: OptimizerConfig) -> None:
        super().__init__()
        self.pretraining, self.optimizer = pretraining, optimizer
        self.method = pretraining.method

    def setup(self, stage: str) -> None:
        self.progress = Progress(self.pretraining, self.optimizer, int(self.trainer.estimated_stepping_batches))
        if self.trainer.world_size > 1:
            distributed.synchronize_batch_norm(self.method, self.trainer.strategy.root_device.type)

    def on_train_epoch_start(self) -> None:
        self.method.epoch, self.method.batch = self.current_epoch, 0

    def transfer_batch_to_device(self, batch: dict[str, Any], device: torch.device, _: int) -> dict[str, Any]:
        return to_device(batch, device)

    def training_step(self, batch: Mapping[str, Any], number: int) -> Tensor:
        found = self.pretraining(batch, number)
        self.log_dict(found["terms"])
        return found["loss"]

    def optimizer_step(self, *given: Any, **more: Any) -> None:
        set_weight_decay(self.trainer.optimizers[0], self.optimizer, self.global_step, self.progress.steps)
        super().optimizer_step(*given, **more)
        self.progress.moved(self.global_step + 1)  # Lightning counts the step only after this hook

    def on_train_epoch_end(self) -> None:
        self.pretraining.check()

    def on_save_checkpoint(self, checkpoint: dict[str, Any]) -> None:
        self.pretraining.check()

    def configure_optimizers(self) -> dict[str, Any]:
        optimizer = make_optimizer(self.method, self.optimizer, self.optimizer.lr)
        schedule = make_schedule(optimizer, self.optimizer, self.progress.steps, self.trainer.max_epochs)
        return {"optimizer": optimizer, "lr_scheduler": {"scheduler": schedule, "interval": "step"}}


def lightning_module(name: str, *, optimizer: Mapping[str, Any] | None = None, **options: Any) -> LightningMethod:
    """`sslkit.method(name, **options)` as a LightningModule.

        module = sslkit.lightning_module("byol+dsa", backbone="resnet18", image_size=32, optimizer={"lr": 1e-3})
        pytorch_lightning.Trainer(max_epochs=100, use_distributed_sampler=False).fit(module, loader)

    optimizer: settings as of recipes/train.py, {"name": "adamw", "lr": 1e-3, ...}; the rate is taken as it is, 0.002
        without one, and clipping is the Trainer's. Raises UserError as `sslkit.method` does, and for unknown settings.
    """
    own = overlaid(OptimizerConfig(lr=RATE), optimizer or {})
    return LightningMethod(Pretraining(method(name, **options)), own)
