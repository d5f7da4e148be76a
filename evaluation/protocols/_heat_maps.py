"""Heat maps of the images that defect detection puts in the wrong place, as a PNG."""

from collections.abc import Sequence
from pathlib import Path

import numpy as np
from PIL import Image

from evaluation.datasets.defects import Defects
from sslkit.data.thumbnails import shorten
from sslkit.files.writing import name_of
from sslkit.numerics.figures import save_figure, write_title

COLUMNS, INCHES, LETTERS = 3, 2.0, 30  # images in a line, inches of a picture, letters of a name
HEAT, EDGE = "inferno", "#2ee6ff"  # colours of the map, and of the masks' outline


def most_wrong(score: np.ndarray, is_defect: np.ndarray, count: int) -> np.ndarray:
    """Return rows of images that stand farthest on the wrong side: defects low among all, normal ones high.

    score: (M,). is_defect: (M,) bool. By the share of images of the other kind that are on the wrong side of each.
    """
    wrong = [
        np.mean(score[~is_defect] >= value) if bad else np.mean(score[is_defect] <= value)
        for value, bad in zip(score, is_defect, strict=True)
    ]
    return np.argsort(-np.array(wrong), kind="stable")[:count]


def draw_heat_maps(
    data: Defects,
    score: np.ndarray,
    maps: np.ndarray,
    masks: Sequence[np.ndarray],
    count: int,
    model: str,
    folder: Path,
) -> Path:
    """Draw the most wrong images beside their maps (h, w), with the outline of their masks, as anomaly-OBJECT.png.

    score: (M,). maps: (M, h, w), on one colour scale. Returns the path.
    """
    from matplotlib.figure import Figure

    rows = most_wrong(score, data.is_defect, count)
    lines = -(-len(rows) // COLUMNS)
    figure = Figure(figsize=(2 * COLUMNS * INCHES, lines * (INCHES + 0.35) + 0.4), layout="constrained")
    axes = figure.subplots(lines, 2 * COLUMNS, squeeze=False).reshape(-1, 2)
    high = float(maps.max())
    for (left, right), row in zip(axes, rows, strict=False):
        with Image.open(data.test[row]) as image:
            left.imshow(image.convert("RGB").resize(maps.shape[:0:-1]))
        right.imshow(maps[row], cmap=HEAT, vmin=0, vmax=high)
        if masks[row].any():
            for axis in (left, right):
                axis.contour(masks[row], [0.5], colors=EDGE, linewidths=0.8)
        kind = data.test[row].parent.name
        left.set_title(shorten(f"{kind}/{data.test[row].name}", LETTERS), fontsize=7.5, pad=2)
        below = np.mean(score < score[row])
        right.set_title(f"above {100 * below:.0f} % of the images", fontsize=7.5, pad=2)
    for axis in axes.ravel():
        axis.set(xticks=[], yticks=[])
    for axis in axes[len(rows) :].ravel():
        axis.set_visible(False)
    write_title(figure, f"{model}: {data.name}, the images farthest on the wrong side")
    path = folder / f"anomaly-{name_of(data.name)}.png"
    path.parent.mkdir(parents=True, exist_ok=True)
    save_figure(figure, path)
    return path
