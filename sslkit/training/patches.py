"""What the patches of a run from given weights tell apart, at its start and over time; see `models.patches`."""

from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from sslkit.composition.method import Method
from sslkit.data.loader import evenly
from sslkit.data.thumbnails import captions_of
from sslkit.errors import UserError
from sslkit.models.patches import MEASURED, PICTURE, SHOWN, components, draw_patches, maps_of, structure_of
from sslkit.numerics.dense_structure import LOCAL
from sslkit.runtime.loop import Hook, Loop
from sslkit.runtime.waiting import together
from sslkit.training.data import Data
from sslkit.training.monitor import History

COLUMNS = 8  # networks of the picture: the start, and the newest
NOTE = "The first three principal components of each network's own patches; colours compare within a column."


class Patches(Hook):
    """Measures patches at the start and every `every` epochs, notes `dse` in the history and writes the picture.

    Networks whose last map has fewer than four places, and those of clips, have none.
    """

    def __init__(self, data: Data, history: History, folder: Path, every: int) -> None:
        self.data, self.history, self.folder, self.every = data, history, folder, every
        self.columns: dict[str, Tensor] = {}

    def begin(self, loop: Loop) -> None:
        with together("the picture of the patches"):
            if loop.is_main and not self.columns:
                self._measure(loop, "start")

    def epoch_end(self, loop: Loop) -> None:
        is_last = loop.epoch + 1 == loop.epochs
        if not is_last and (loop.epoch + 1) % self.every:
            return
        with together("the picture of the patches"):
            if loop.is_main and self.columns:
                value = self._measure(loop, f"epoch {loop.epoch + 1}")
                self.history.noted |= {} if value is None else {"dse": value}

    def _measure(self, loop: Loop, name: str) -> float | None:
        """Add a column to the picture, and return the number; None where patches have none."""
        images = self.data.train.clean(self.data.image_size)
        batch = images.__getitems__(evenly(len(images), MEASURED))
        maps = map_of(loop.module.method, batch["images"])
        if maps is None or maps.shape[2] * maps.shape[3] <= LOCAL:
            return None
        first, *others = [*self.columns, name]
        shown = evenly(len(maps), SHOWN)
        self.columns |= {name: components(maps[shown])}
        self.columns = {key: self.columns[key] for key in (first, *others[1 - COLUMNS :])}
        self._draw(batch["images"][shown], captions_of(images, batch["index"][shown].tolist()))
        structure = structure_of(maps)
        return structure and structure.value

    def _draw(self, images: Tensor, rows: list[str]) -> None:
        draw_patches(images, self.columns, rows, self.folder / PICTURE, name=self.folder.name, note=NOTE)

    def state(self) -> dict[str, Any]:
        return {"columns": dict(self.columns)}

    def restore(self, state: dict[str, Any]) -> None:
        self.columns = state["columns"]


def map_of(method: Method, images: Tensor) -> Tensor | None:
    """The places' features (N, F, H, W) of clean images, uint8, in eval mode; None of networks without."""
    device, training = next(method.parameters()).device, method.training
    method.eval()
    try:
        with torch.no_grad():
            return maps_of(method.backbone, method.normalize_pixels(images.to(device).float() / 255))
    except UserError:  # clips, and networks that are not of timm
        return None
    finally:
        method.train(training)
