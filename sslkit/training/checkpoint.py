"""checkpoints/last.ckpt: written whole after each epoch, then renamed over the one before."""

from pathlib import Path

import pytorch_lightning as pl
from pytorch_lightning.callbacks import Checkpoint

from sslkit.training.history import History
from sslkit.zoo import write_whole


class SaveLast(Checkpoint):
    """Comes after every other callback (Lightning sorts checkpoints last), so it holds all that they did."""

    def __init__(self, folder: Path, history: History) -> None:
        self.path = folder / "checkpoints" / "last.ckpt"
        self.history = history

    def on_train_epoch_end(self, trainer: pl.Trainer, module: pl.LightningModule) -> None:
        self.history.close_epoch(trainer)
        if not trainer.is_global_zero:
            trainer.save_checkpoint(self.path)  # takes part in collecting the state; rank 0 alone writes
            return
        with write_whole(self.path) as partial:
            trainer.save_checkpoint(partial)
