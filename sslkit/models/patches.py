"""What the patches of a network tell apart, without labels: a number and a picture, of a run and of an evaluation.

patches.png has the first three principal components of the patches as red, green and blue.
"""

from collections.abc import Mapping, Sequence
from pathlib import Path

import numpy as np
import torch
from PIL import Image
from torch import Tensor

from sslkit.backbones.base import Backbone
from sslkit.errors import UserError
from sslkit.files.writing import write_whole
from sslkit.models.places import place_features
from sslkit.numerics.captions import caption
from sslkit.numerics.dense_structure import LOCAL, DenseStructure, dense_structure

PICTURE = "patches.png"
MEASURED, SHOWN = 64, 8  # images of the number, which depends on how many there are, and of the picture
CELL = 96  # pixels
TAIL = 0.02  # of a component's values at each end that are cut off


@torch.no_grad()
def maps_of(backbone: Backbone, pixels: Tensor) -> Tensor:
    """The places' features (N, F, H, W) of normalised images (N, C, S, S), on the CPU. backbone: in eval mode."""
    return torch.cat([place_features(backbone, some, 1).cpu() for some in pixels.split(SHOWN)])


def structure_of(maps: Tensor) -> DenseStructure | None:
    """The dense structure of maps (N, F, H, W); None of patches that are too few or all alike, where it has none."""
    try:
        return dense_structure(maps.flatten(2).transpose(1, 2)) if maps[0, 0].numel() > LOCAL else None
    except UserError:  # all alike: the collapse has a warning of its own
        return None


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


def draw_patches(
    images: Tensor, columns: Mapping[str, Tensor], rows: Sequence[str], path: Path, *, name: str, note: str
) -> None:
    """Draw images (N, C, S, S) uint8 beside the colours (N, H, W, 3) of each column.

    rows: N captions. name: of the network, for the title.
    """
    gray = images if images.shape[1] == 3 else images[:, :1].expand(-1, 3, -1, -1)
    columns = {"image": gray.permute(0, 2, 3, 1), **columns}
    grid = Image.new("RGB", (CELL * len(columns), CELL * len(rows)))
    for x, (column, cells) in enumerate(columns.items()):
        how = Image.Resampling.BILINEAR if column == "image" else Image.Resampling.NEAREST
        for y, cell in enumerate(cells):
            grid.paste(Image.fromarray(cell.contiguous().numpy()).resize((CELL, CELL), how), (CELL * x, CELL * y))
    with write_whole(path) as partial:
        caption(grid, [*columns], rows, title=f"Patches of {name}", note=note).save(partial, format="png")
