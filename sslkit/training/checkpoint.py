"""Write checkpoints/last.ckpt after each epoch; `checkpoint_files` describes the folder."""

import os
from pathlib import Path

import pytorch_lightning as pl
from pytorch_lightning.callbacks import Checkpoint

from sslkit.files.checksums import seal
from sslkit.files.writing import write_whole
from sslkit.training.checkpoint_files import last, previous
from sslkit.training.history import History


class SaveLast(Checkpoint):
    """Runs after every other callback (Lightning sorts checkpoints last), so it saves their final state.

    resumed: the checkpoint that the run continues from. Any other last.ckpt is damaged: the next checkpoint
    replaces it, and a whole previous.ckpt is kept.
    """

    def __init__(self, folder: Path, history: History, resumed: Path | None = None) -> None:
        self.path, self.previous = last(folder), previous(folder)
        self.history = history
        self.is_whole = resumed == self.path

    def on_train_epoch_end(self, trainer: pl.Trainer, module: pl.LightningModule) -> None:
        self.history.close_epoch(trainer)
        if not trainer.is_global_zero:
            trainer.save_checkpoint(self.path)  # every rank helps to collect the state; only rank 0 writes
            return
        with write_whole(self.path) as partial:
            trainer.save_checkpoint(partial)
            seal(partial)
            if self.is_whole:
                os.replace(self.path, self.previous)
        self.is_whole = True
