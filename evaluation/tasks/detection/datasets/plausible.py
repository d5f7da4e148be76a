"""Boxes, areas and masks that cannot be right, found before anything is trained: the same rules for every reader.

In a set of one's own they are refused; in a published one, of which some are known, they are counted in one line.
"""

from collections.abc import Iterator

import numpy as np

from evaluation.tasks.detection.datasets.boxes import LEAST_SIDE, Boxes
from sslkit.errors import UserError
from sslkit.terminal import say

EDGE = 1.0  # pixels by which a box may pass its image, and an area or a mask its box: tools round in several ways
APART = 0.5  # IoU of a box and the extent of its mask below which they are not of one object: half, as for a detection
LOOKED_AT = 64  # images of a set whose masks have no run lengths: drawing a mask costs milliseconds
FEWEST = 20  # boxes from which on it is no chance that all widths exceed the left edges

Flaw = tuple[np.ndarray, str]  # (M,) bool, and what the objects have


def flaws(
    boxes: np.ndarray, sizes: np.ndarray, area: np.ndarray, crowd: np.ndarray, extents: np.ndarray | None = None
) -> Iterator[Flaw]:
    """Yield what some of M objects have that cannot be right.

    boxes: (M, 4) xyxy in pixels. sizes: (M, 2) height and width of each one's image. area: (M,). crowd: (M,) bool.
    extents: (M, 4) xyxy of the outlines, nan where they are not known.
    """
    if not len(boxes):
        return
    width, height = (boxes[:, 2:] - boxes[:, :2]).T
    is_relative = boxes.max() <= 1 and sizes.min() > 2
    yield np.full(len(boxes), is_relative), "coordinates from 0 to 1, as all of the file, which are shares of an image"
    yield ~(np.minimum(width, height) >= LEAST_SIDE), f"no area, a width or height below {LEAST_SIDE} pixels"
    outside = (boxes[:, :2] < -EDGE).any(1) | (boxes[:, 2:] > sizes[:, ::-1] + EDGE).any(1)
    yield outside, "a box outside its image"
    yield ~(area > 0), "an area of 0 or less"
    yield area > (width + 2 * EDGE) * (height + 2 * EDGE), "an area larger than its box"
    if extents is not None:
        has_outline = np.isfinite(extents).all(1) & ~crowd
        yield has_outline & (_iou(boxes, extents) < APART), "an outline that lies elsewhere than its box"


def are_corners(boxes: np.ndarray) -> np.ndarray:
    """Return (M,) bool: boxes whose width and height would also be a right and a lower edge. boxes: (M, 4) xyxy."""
    return (boxes[:, 2:] - boxes[:, :2] > boxes[:, :2]).all(1)


def corners_line(boxes: np.ndarray, where: str) -> str:
    """Return a line if all boxes away from the edges could be corners in the place of sizes, "" otherwise."""
    inner = boxes[(boxes[:, :2] >= 1).all(1)]
    if len(inner) < FEWEST or not are_corners(inner).all():
        return ""
    return (
        f"{where}: every width and height of {len(inner):,} boxes is larger than their left and upper edge, as corners "
        "are: bbox is [x, y, width, height]; if these are [left, top, right, bottom], convert them"
    )


def check_plausible(data: Boxes, *, refuse: bool) -> None:
    """Raises UserError for objects that cannot be right, or warns of their number. Nothing of the images is read."""
    objects, counts = data.instances, data.instances.counts
    sizes, image = np.repeat(data.sizes, counts, axis=0), np.repeat(np.arange(len(data)), counts)
    for wrong, flaw in flaws(objects.boxes.astype(np.float64), sizes, objects.area, objects.iscrowd, _extents(data)):
        rows = np.flatnonzero(wrong)
        if not len(rows):
            continue
        left, top, right, bottom = objects.boxes[rows[0]].tolist()
        height, width = sizes[rows[0]].tolist()
        message = (
            f"{data.name} ({data.split}): {len(rows):,} of {len(wrong):,} objects have {flaw}, the first in "
            f"{data.ids[image[rows[0]]]} of {width} x {height}: x {left:g} to {right:g}, y {top:g} to {bottom:g}, "
            f"area {objects.area[rows[0]]:g}"
        )
        if refuse:
            raise UserError(message)
        say.warn(message, stacklevel=3)


def _extents(data: Boxes) -> np.ndarray | None:
    """(M, 4) xyxy of the masks, nan of those that were not looked at; None without masks."""
    if data.outlines is None:
        return None
    sizes = np.repeat(data.sizes, data.instances.counts, axis=0)
    if hasattr(data.outlines, "extents"):
        return data.outlines.extents(sizes)
    extents = np.full((len(sizes), 4), np.nan)
    for row in np.unique(np.linspace(0, len(data) - 1, min(LOOKED_AT, len(data)), dtype=int)).tolist():
        first, last = data.instances.ends[row : row + 2]
        masks = data.outlines.masks(np.arange(first, last), *map(int, data.sizes[row]))
        for number, mask in enumerate(masks, first):
            rows, columns = np.flatnonzero(mask.any(1)), np.flatnonzero(mask.any(0))
            if len(rows):
                extents[number] = columns[0], rows[0], columns[-1] + 1, rows[-1] + 1
    return extents


def _iou(one: np.ndarray, other: np.ndarray) -> np.ndarray:
    """(M,) intersection over union of boxes (M, 4), of which other may have nan; a box without area has 0."""
    low, high = np.maximum(one[:, :2], other[:, :2]), np.minimum(one[:, 2:], other[:, 2:])
    inner = (high - low).clip(min=0).prod(1)
    union = sum((box[:, 2:] - box[:, :2]).clip(min=0).prod(1) for box in (one, other)) - inner
    return np.divide(inner, union, out=np.zeros(len(one)), where=union > 0)
