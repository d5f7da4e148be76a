"""A detection set as a task for metrics of classification: crops of its objects, and of what is beside them.

split = open_objects("clipart_boxes")
evaluation.rank("runs/zoo", split, ["knn", "logme"])
"""

import numpy as np
import torch
from torch import Tensor
from torch.nn.functional import interpolate

from evaluation.datasets import AS_USUAL, Reading
from evaluation.datasets.base import Split
from evaluation.results.statistics import generator
from evaluation.tasks.detection.datasets.boxes import EMPTY, Boxes
from evaluation.tasks.detection.datasets.sources import boxes_of
from sslkit.data.arrays import ArrayImages
from sslkit.data.held_out import draw_keys
from sslkit.data.images import Identity, ImageOptions
from sslkit.errors import UserError
from sslkit.runtime.context import Computing

PREFIX = "boxes:"  # before the name of a detection set, where a task is asked for
BACKGROUND = "background"
SIDE = 96  # pixels of a crop: a guess, more than small objects have and little memory for MOST of them
# side of a crop, as a multiple of the longer side of its box: a tenth of surroundings at each end, a guess
CONTEXT = 1.2
MOST = 2000  # objects, a round number: enough to rank models in seconds
NEAR, FAR = (0.1, 0.4), (0.0, 0.1)  # IoU with the objects of a box that misses one, and of one elsewhere
TRIES = 20  # positions tried for such a box: in an image full of objects there may be none


def open_objects(source: str | Boxes, split: str, reading: Reading = AS_USUAL, *, seed: int = Computing.seed) -> Split:
    """Crop the objects of a detection set, each with a near miss and a place without object, both "background".

    source, and root and values of the reading: see `evaluation.tasks.detection.datasets.sources.open_boxes`. The crops
        are squares of SIDE pixels.
    seed: of the images, if there are more than MOST objects, and of the background.
    To tell a near miss from its object takes features that know where it ends, as a detector's do; the metrics then
    rank by the classes and the background together. Objects of a crowd and difficult ones are left out.
    Raises UserError for an unknown set, and for one without objects.
    """
    boxes = boxes_of(source, split, reading, masks=False, empty=EMPTY[0])
    rng = generator(seed, "background of objects")
    pixels, labels, names, where, objects = [], [], [], [], 0
    order = np.argsort(draw_keys([str(name) for name in boxes.ids], seed, "objects"), kind="stable")
    for row in order:
        target = boxes.target(int(row))
        usable = (~target["iscrowd"] & ~target["difficult"]).nonzero()[:, 0]
        if not len(usable):
            continue
        image = boxes.pixels[int(row)]
        for k in usable.tolist():
            places = [(target["boxes"][k], int(target["labels"][k]) - 1)]
            for overlap, reach in ((NEAR, 0.75), (FAR, None)):
                beside = _beside(target["boxes"], k, image.shape[-2:], overlap, reach, rng)
                places += [] if beside is None else [(beside, len(boxes.classes))]
            for number, (box, label) in enumerate(places):
                pixels.append(crop(image, box))
                labels.append(label)
                names.append(f"{boxes.ids[row]} {k} {number}")
                where.append(shares(box, image) if label < len(boxes.classes) else [np.nan] * 4)
        objects += len(usable)
        if objects >= MOST:
            break
    if not labels:
        raise UserError(f"{boxes.name} has no objects in its split {split!r}")
    return _split(boxes, np.stack(pixels), np.array(labels), np.array(names), np.array(where))


def crop(image: Tensor, box: Tensor) -> np.ndarray:
    """Return the square (3, SIDE, SIDE) uint8 about a box. image: (3, H, W) uint8; its edge goes on outside of it.

    box: (4,) left, upper, right, lower.
    """
    left, upper, right, lower = box.tolist()
    half = max(right - left, lower - upper) * CONTEXT / 2
    rows, columns = (
        torch.arange(round(middle - half), max(round(middle + half), round(middle - half) + 1)).clamp(0, size - 1)
        for middle, size in (((upper + lower) / 2, image.shape[-2]), ((left + right) / 2, image.shape[-1]))
    )
    square = image[:, rows][:, :, columns].float()
    resized = interpolate(square[None], (SIDE, SIDE), mode="bilinear", antialias=True, align_corners=False)[0]
    return resized.round().clamp(0, 255).byte().numpy()


def _beside(
    boxes: Tensor,
    k: int,
    size: tuple[int, int],
    overlap: tuple[float, float],
    reach: float | None,
    rng: np.random.Generator,
) -> Tensor | None:
    """Return a box (4,) of the size of box k with this IoU with the objects, or None if none is found.

    boxes: (n, 4). size: height and width of the image. reach: of the move, in sides of the box; None: anywhere.
    """
    from torchvision.ops import box_iou

    width, height = (boxes[k, 2:] - boxes[k, :2]).tolist()
    for _ in range(TRIES):
        if reach is None:
            left, upper = rng.uniform(0, max(size[1] - width, 1)), rng.uniform(0, max(size[0] - height, 1))
        else:
            left, upper = (boxes[k, :2].numpy() + rng.uniform(-reach, reach, 2) * (width, height)).tolist()
        box = torch.tensor([left, upper, left + width, upper + height], dtype=boxes.dtype)
        if overlap[0] <= float(box_iou(box[None], boxes).max()) <= overlap[1]:
            return box
    return None


def shares(box: Tensor, image: Tensor) -> list[float]:
    """Return left, upper, right, lower of a box (4,) as shares of the image (3, H, W)."""
    height, width = image.shape[-2:]
    return (box.double() / torch.tensor([width, height, width, height])).tolist()


def _split(boxes: Boxes, pixels: np.ndarray, y: np.ndarray, names: np.ndarray, where: np.ndarray) -> Split:
    present, y = np.unique(y, return_inverse=True)
    classes = [(*boxes.classes, BACKGROUND)[label] for label in present]
    name = f"{PREFIX}{boxes.name}"
    identity = Identity(name, None, (boxes.split,), y, classes, boxes.licence or None)
    images = ArrayImages(pixels, identity, ImageOptions(split=boxes.split))
    return Split(images, y, classes, names, "top1", name, boxes.split, note=boxes.note, boxes=where)
