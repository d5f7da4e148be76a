"""A segmentation set as a task for metrics of classification: windows of its images, each with the class in its middle.

split = open_windows("clipart_boxes")
evaluation.rank("runs/zoo", split, ["knn", "logme"])
"""

import numpy as np
import torch

from evaluation.datasets import AS_USUAL, Reading
from evaluation.datasets.base import Split
from evaluation.ranking.inputs.objects import crop
from evaluation.results.statistics import generator
from evaluation.tasks.segmentation.features import class_shares
from evaluation.tasks.segmentation.label_maps import LabelMaps
from evaluation.tasks.segmentation.sources import open_label_maps
from sslkit.data.arrays import ArrayImages
from sslkit.data.held_out import draw_keys
from sslkit.data.images import Identity, ImageOptions
from sslkit.errors import UserError
from sslkit.runtime.context import Computing

PREFIX = "masks:"  # before the name of a segmentation set, where a task is asked for
GRID = 8  # cells along each side of an image: a round number
# side of a window, as a multiple of the cell in its middle (`crop` adds a fifth): a guess, some surroundings and one
# object
REACH = 2.5
# cells drawn of an image, and of all: many images rather than many cells of one; enough to rank in seconds
EACH, MOST = 8, 4000


def open_windows(
    source: str | LabelMaps, split: str, reading: Reading = AS_USUAL, *, seed: int = Computing.seed
) -> Split:
    """Cut windows about cells of the images of a segmentation set; the label is the most frequent class of the cell.

    source, reading: see `evaluation.tasks.segmentation.sources`. The windows are squares of `objects.SIDE` pixels.
    seed: of the images, if there are enough for more than MOST cells, and of the EACH cells of every image: half of
        them of the cells with the image's most frequent class, so that small classes are drawn too.
    To name the class in the middle takes features that see it among its surroundings, as a head of segmentation needs.
    Cells without a pixel that counts are left out. Raises UserError for an unknown set, and for one of a single class.
    """
    maps = open_label_maps(source, split, reading)
    rng = generator(seed, "windows of a segmentation set")
    pixels, labels, names = [], [], []
    order = np.argsort(draw_keys([str(name) for name in maps.ids], seed, "windows"), kind="stable")
    for row in order[: MOST // EACH]:
        image, classes = maps[int(row)]
        share, weight = class_shares(classes, len(maps.classes), (GRID, GRID))
        label = share.argmax(1)
        for cell in _drawn(label, weight > 0, rng):
            pixels.append(crop(image, window(cell, tuple(image.shape[-2:]))))
            labels.append(label[cell])
            names.append(f"{maps.ids[row]} {cell}")
    present, y = np.unique(np.array(labels, dtype=np.int64), return_inverse=True)
    if len(present) < 2:
        raise UserError(
            f"{maps.name}: the windows of its split {split!r} are of {len(present)} classes, two are needed"
        )
    named = [maps.classes[label] for label in present]
    name = f"{PREFIX}{maps.name}"
    images = ArrayImages(np.stack(pixels), Identity(name, None, (split,), y, named), ImageOptions(split=split))
    return Split(images, y, named, np.array(names), "top1", name, split, note=maps.note)


def window(cell: int, size: tuple[int, int]) -> torch.Tensor:
    """Return left, upper, right, lower (4,) of the window about a cell. size: height and width of the image."""
    height, width = (side / GRID for side in size)
    row, column = divmod(cell, GRID)
    half = REACH * max(height, width) / 2
    x, y = (column + 0.5) * width, (row + 0.5) * height
    return torch.tensor([x - half, y - half, x + half, y + half])


def _drawn(label: np.ndarray, counts: np.ndarray, rng: np.random.Generator) -> list[int]:
    """Draw EACH cells, half of them with the most frequent label if the others are enough. counts: (cells,) bool."""
    if not counts.any():
        return []
    frequent = np.bincount(label[counts]).argmax()
    common, rare = (np.flatnonzero(counts & kind) for kind in (label == frequent, label != frequent))
    drawn = rng.permutation(rare)[: EACH // 2]
    return sorted([*drawn.tolist(), *rng.permutation(common)[: EACH - len(drawn)].tolist()])
