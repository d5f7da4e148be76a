"""Write checkpoints/last.ckpt after each epoch; `checkpoint_files` describes the folder."""

import os
from io import BytesIO
from pathlib import Path

import torch

from sslkit.files.checksums import seal
from sslkit.files.writing import write_whole
from sslkit.runtime.loop import Hook, Loop
from sslkit.training.checkpoint_files import last, previous
from sslkit.training.history import History


class SaveLast(Hook):
    """The last hook of a loop, so that it saves the final state of all others.

    resumed: the checkpoint that the run continues from. Any other last.ckpt is damaged: the next checkpoint
    replaces it, and a whole previous.ckpt is kept.
    """

    def __init__(self, folder: Path, history: History, resumed: Path | None = None) -> None:
        self.path, self.previous = last(folder), previous(folder)
        self.history = history
        self.is_whole = resumed == self.path

    def epoch_end(self, loop: Loop) -> None:
        self.history.close_epoch(loop)
        if not loop.is_main:
            return
        with write_whole(self.path) as partial:
            content = BytesIO()  # torch's own writing of files does not say that a disk is full
            torch.save(loop.state(), content)
            partial.write_bytes(content.getbuffer())
            seal(partial)
            if self.is_whole:
                os.replace(self.path, self.previous)
        self.is_whole = True
