"""What the patches of a run from given weights tell apart, at its start and over time: a number and a picture.

patches.png has the first three principal components of the patches as red, green and blue.
"""

from pathlib import Path
from typing import Any

import numpy as np
import torch
from PIL import Image
from torch import Tensor

from sslkit.composition.method import Method
from sslkit.data.loader import evenly
from sslkit.errors import UserError
from sslkit.files.writing import write_whole
from sslkit.numerics.dense_structure import LOCAL, dense_structure
from sslkit.runtime.loop import Hook, Loop
from sslkit.runtime.waiting import together
from sslkit.training.data import Data
from sslkit.training.monitor import History
from sslkit.training.pictures import caption, captions_of

PICTURE = "patches.png"
MEASURED, SHOWN, COLUMNS = 64, 8, 8  # images of the number and the picture; its networks: the start, and the newest
CELL = 96  # pixels
TAIL = 0.02  # of a component's values at each end that are cut off


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
        try:
            return dense_structure(maps.flatten(2).transpose(1, 2)).value
        except UserError:  # all alike: the collapse has a warning of its own
            return None

    def _draw(self, images: Tensor, rows: list[str]) -> None:
        gray = images if images.shape[1] == 3 else images[:, :1].expand(-1, 3, -1, -1)
        columns = {"image": gray.permute(0, 2, 3, 1), **self.columns}
        grid = Image.new("RGB", (CELL * len(columns), CELL * len(rows)))
        for x, (name, cells) in enumerate(columns.items()):
            how = Image.Resampling.BILINEAR if name == "image" else Image.Resampling.NEAREST
            for y, cell in enumerate(cells):
                grid.paste(Image.fromarray(cell.contiguous().numpy()).resize((CELL, CELL), how), (CELL * x, CELL * y))
        title = f"Patches of {self.folder.name}"
        note = "The first three principal components of each network's own patches; colours compare within a column."
        with write_whole(self.folder / PICTURE) as partial:
            caption(grid, [*columns], rows, title=title, note=note).save(partial, format="png")

    def state(self) -> dict[str, Any]:
        return {"columns": dict(self.columns)}

    def restore(self, state: dict[str, Any]) -> None:
        self.columns = state["columns"]


@torch.no_grad()
def map_of(method: Method, images: Tensor) -> Tensor | None:
    """The last map (N, F, H, W) of clean images, uint8, in eval mode; None of networks without."""
    device, training = next(method.parameters()).device, method.training
    method.eval()
    try:
        pixels = method.normalize_pixels(images.to(device).float() / 255)
        return torch.cat([method.backbone.feature_map(some)[0].float().cpu() for some in pixels.split(SHOWN)])
    except UserError:  # clips, and networks that are not of timm
        return None
    finally:
        method.train(training)


def components(maps: Tensor) -> Tensor:
    """The first three principal components of maps (N, F, H, W) as colours (N, H, W, 3), uint8.

    A component's sign is that by which its largest weight is positive; its middle 96 % of values span the colour.
    """
    n, _, height, width = maps.shape
    x = torch.nn.functional.normalize(maps.double(), dim=1).permute(0, 2, 3, 1).flatten(0, 2)
    x = x - x.mean(0)
    axes = torch.linalg.svd(x, full_matrices=False).Vh[:3]
    axes = axes * axes.gather(1, axes.abs().argmax(1, keepdim=True)).sign()
    shown = np.zeros((len(x), 3))
    shown[:, : len(axes)] = (x @ axes.T).numpy()
    low, high = np.quantile(shown, [TAIL, 1 - TAIL], axis=0)
    scaled = np.clip((shown - low) / np.maximum(high - low, 1e-12), 0, 1)
    return torch.from_numpy((255 * scaled).round().astype(np.uint8)).view(n, height, width, 3)
