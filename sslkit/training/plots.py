"""The pictures of a run: its views, its loss terms over time, and the embedding."""

from collections.abc import Sequence
from pathlib import Path

import matplotlib
import numpy as np
import torch
from matplotlib.figure import Figure
from PIL import Image
from torch import Tensor

from sslkit.data.cropped import CroppedImages
from sslkit.data.crops import Crops
from sslkit.data.sources import Images
from sslkit.data.views import contact_sheet
from sslkit.figures import reduced, save_figure, scatter, tsne
from sslkit.files import write_whole
from sslkit.method import Method

matplotlib.use("Agg")

FILMS, SHOWN_FRAMES = 3, 8  # videos, and frames of each, in the picture of clip views


def save_views(method: Method, images: Images | CroppedImages, path: Path) -> None:
    """Save the first eight images with views of the kind used in training, side by side; for clips see `clip_sheet`.

    images: crops need `whole`.
    """
    of_clips = method.backbone.frames is not None
    rows = images.__getitems__(list(range(min(len(images), FILMS if of_clips else 8))))
    device = next(method.parameters()).device
    views = method.make_views(rows["images"].to(device), rows["aspect"].to(device))
    whole = rows["images"].whole if isinstance(rows["images"], Crops) else rows["images"]
    sheet = (clip_sheet if of_clips else contact_sheet)(whole, [view.cpu() for view in views])
    larger = max(1, 96 // method.image_size)
    with write_whole(path) as partial:
        sheet.resize((sheet.width * larger, sheet.height * larger), Image.Resampling.NEAREST).save(
            partial, format="png"
        )


def clip_sheet(clips: Tensor, views: Sequence[Tensor]) -> Image.Image:
    """One row for each full-size view of each video: on the left the clip's first frame, then the view's frames.

    clips: (N, R, C, T, H, W). views: from `augment_clips`, view v of clip v % R. At most eight frames are shown, evenly
    spaced.
    """
    per_video, frames = clips.shape[1], clips.shape[3]
    whole = torch.stack([view for view in views if view.shape[-1] == views[0].shape[-1]], 1)  # (N, V, C, T, S, S)
    shown = torch.linspace(0, frames - 1, min(frames, SHOWN_FRAMES)).round().long().tolist()
    first = clips[:, [v % per_video for v in range(whole.shape[1])], :, shown[0]]
    return contact_sheet(
        first.flatten(0, 1), [whole[:, :, :, t].flatten(0, 1) for t in shown], rows=len(first) * len(whole[0])
    )


def plot_terms(rows: list[dict[str, float]], terms: list[str], path: Path) -> None:
    """One panel per loss term over the steps, and one for kNN and probe if there are labels."""
    noted = [r for r in rows if "knn" in r]
    panels = [*terms, *(["accuracy"] if noted else [])]
    figure = Figure(figsize=(3.6 * len(panels), 3.2), layout="constrained")
    for axis, name in zip(np.atleast_1d(figure.subplots(1, len(panels))), panels, strict=True):
        if name == "accuracy":
            for key, label in (("knn", "kNN"), ("probe", "online probe")):
                axis.plot([r["step"] for r in noted], [100 * r[key] for r in noted], marker="o", label=label)
            axis.set(title="held-out accuracy, %", xlabel="step")
            axis.legend(frameon=False)
        else:
            points = [(r["step"], r[name]) for r in rows if name in r]
            axis.plot(*zip(*points, strict=True), color="#1f5fa8")
            axis.set(title=name, xlabel="step")
        axis.spines[["top", "right"]].set_visible(False)
    save_figure(figure, path)


def plot_embedding(x: Tensor, y: Tensor, classes: list[str] | None, path: Path, *, seed: int, title: str) -> None:
    """t-SNE of features, coloured by class if there are labels. Distances between points mean nothing.

    x: (N, F) features. y: (N,) labels, -1 for none. Raises NoMap if all rows are equal, after a collapse.
    """
    flat, _ = tsne(reduced(x.numpy(), seed), seed, iterations=500)
    figure = Figure(figsize=(6.4, 5.2), layout="constrained")
    axis = figure.subplots()
    if classes is None:
        axis.scatter(*flat.T, s=5, alpha=0.7, linewidths=0)
    else:
        shown = [c for c in range(len(classes)) if (y == c).any()][:20]
        colours = matplotlib.colormaps["tab10" if len(shown) <= 10 else "tab20"]
        names = {c: classes[c] for c in shown}
        points = {"s": 6, "alpha": 0.75, "linewidths": 0}
        scatter(axis, flat, y.numpy(), names, [colours(i) for i in range(len(shown))], **points)
    axis.set(title=title, xticks=[], yticks=[])
    axis.spines[:].set_visible(False)
    save_figure(figure, path)
