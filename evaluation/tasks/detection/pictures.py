"""Draw images with their ground truth and, beside it, a detector's predictions."""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from evaluation.tasks.detection.datasets.boxes import Boxes
from sslkit.numerics.figures import SMALL, class_styles, save_figure, write_title

if TYPE_CHECKING:
    from matplotlib.axes import Axes

SURE = 0.5  # score from which a detection is drawn: a convention
SIDE = 2.4  # inches of an image
ROWS_ACROSS = 2  # images side by side, each with its ground truth and its predictions


def draw_predictions(
    data: Boxes, found: Sequence[Mapping[str, Any]], path: Path, *, title: str = "", least: float = SURE
) -> None:
    """Write a PNG of the first images of a data set: each with its ground truth and with its predictions.

    found: predictions of the first n images, see `evaluation.detection.predictions`. least: smallest score that is
    drawn; if an image has none, its best prediction is drawn dashed.
    """
    from matplotlib.figure import Figure

    lines = -(-len(found) // ROWS_ACROSS)
    figure = Figure(figsize=(SIDE * 2 * ROWS_ACROSS, SIDE * lines + 0.6), layout="constrained")
    axes = figure.subplots(lines, 2 * ROWS_ACROSS, squeeze=False)
    for axis in axes.flat:
        axis.axis("off")
    for row, prediction in enumerate(found):
        line, column = divmod(row, ROWS_ACROSS)
        image, target = data[row]
        truth, guess = axes[line, 2 * column], axes[line, 2 * column + 1]
        _show(truth, image, f"{data.ids[row]}: truth")
        _objects(truth, target, data.classes, np.arange(len(target["labels"])))
        scores = prediction["scores"].numpy()
        sure = np.flatnonzero(scores >= least)
        _show(guess, image, f"found (score from {least:g})" if len(sure) else "nothing sure; the best guess")
        _objects(guess, prediction, data.classes, sure if len(sure) else np.arange(len(scores))[:1], not len(sure))
    write_title(figure, title)
    save_figure(figure, path)


def _show(axis: "Axes", image: Any, title: str) -> None:
    axis.imshow(image.permute(1, 2, 0).numpy())
    axis.set_title(title, fontsize=SMALL, parse_math=False)


def _objects(
    axis: "Axes", objects: Mapping[str, Any], classes: Sequence[str], rows: np.ndarray, dashed: bool = False
) -> None:
    """Draw boxes with names and scores, and masks if there are any."""
    from matplotlib.colors import to_rgb
    from matplotlib.patches import Rectangle

    styles = class_styles(classes)
    for row in rows:
        label = int(objects["labels"][row])
        colour = to_rgb(styles[label - 1][0])
        x0, y0, x1, y1 = objects["boxes"][row].tolist()
        style = {"edgecolor": colour, "linewidth": 1.5, "linestyle": "--" if dashed else "-"}
        axis.add_patch(Rectangle((x0 - 0.5, y0 - 0.5), x1 - x0, y1 - y0, fill=False, **style))
        score = f" {float(objects['scores'][row]):.2f}" if "scores" in objects else ""
        text = {"fontsize": 6, "color": "white", "backgroundcolor": (*colour, 0.7), "va": "bottom"}
        axis.text(x0, max(y0, 6), f"{classes[label - 1]}{score}", parse_math=False, **text)
        if "masks" in objects:
            mask = objects["masks"][row].numpy().astype(bool)
            layer = np.zeros((*mask.shape, 4))
            layer[mask] = (*colour, 0.4)
            axis.imshow(layer)
