"""Draw test images with the classes of their pixels and, beside them, those predicted."""

from collections.abc import Sequence
from pathlib import Path

import numpy as np

from evaluation.tasks.segmentation.label_maps import IGNORED, LabelMaps
from sslkit.numerics.figures import SMALL, palette, save_figure, write_title

SHOWN = 6  # images
ACROSS = 2  # images side by side, each with its truth and its prediction
SIDE = 2.0  # inches of an image


def draw_maps(images: LabelMaps, found: Sequence[np.ndarray], path: Path, *, title: str) -> None:
    """Write a PNG of the first images: each as it is, with its truth and with its prediction, and the colours' names.

    found: predicted classes (H, W) of the first images. Ignored pixels are white.
    """
    from matplotlib.figure import Figure
    from matplotlib.patches import Patch

    colours, lines = palette(images.classes), -(-len(found) // ACROSS)
    figure = Figure(figsize=(SIDE * 3 * ACROSS, SIDE * lines + 1.0), layout="constrained")
    axes = figure.subplots(lines, 3 * ACROSS, squeeze=False)
    for axis in axes.flat:
        axis.axis("off")
    seen: set[int] = set()
    for row, guess in enumerate(found):
        line, column = divmod(row, ACROSS)
        image, truth = images[row]
        pictures = (image.permute(1, 2, 0).numpy(), colours[truth.numpy()], colours[guess])
        for axis, picture, name in zip(
            axes[line, 3 * column : 3 * column + 3], pictures, (str(images.ids[row]), "truth", "predicted"), strict=True
        ):
            axis.imshow(picture)
            axis.set_title(name[-24:], fontsize=SMALL, parse_math=False)
        seen |= {int(number) for number in np.unique(np.concatenate([truth.numpy().ravel(), guess.ravel()]))} - {
            IGNORED
        }
    patches = [Patch(color=colours[number], label=images.classes[number]) for number in sorted(seen)[:20]]
    figure.legend(handles=patches, loc="outside lower center", ncols=min(len(patches), 7), fontsize=SMALL)
    write_title(figure, title)
    save_figure(figure, path)
