"""A map of all images in two dimensions as a PNG: thumbnails of a few hundred, dots of more."""

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from evaluation.embedding.sources import Part
from evaluation.embedding.table import Embedding
from evaluation.embedding.thumbnails import thumbnails
from evaluation.features.checks import check_value
from evaluation.features.plots import umap_map
from sslkit.data.thumbnails import shorten
from sslkit.errors import UserError
from sslkit.numerics.figures import (
    FIRST,
    GUIDE,
    OTHERS,
    PAPER,
    SAME,
    NoMap,
    beside,
    class_styles,
    frame,
    map_size,
    reduce,
    save_figure,
    tsne,
    write_notes,
    write_title,
)

if TYPE_CHECKING:
    from matplotlib.axes import Axes

MAPS = {"pca": "PCA", "tsne": "t-SNE", "umap": "UMAP"}
FEWEST = 4  # images of a map
THUMBNAILS = 400  # most images that are drawn as themselves: more would be too small on a page to be told apart
SIDE = 64  # pixels of a thumbnail
SPARE = 1.6  # cells of the thumbnails' grid per image: with fewer, images are pushed far from their points
NAMED = 20  # most classes with a colour and a line in the legend: more colours are not told apart
LETTERS = 28  # of a class in the legend


def draw_map(embedding: Embedding, parts: Sequence[Part], path: str | Path, method: str = "tsne", *, seed: int) -> str:
    """Draw a map of all images of an embedding as a PNG, and return its caption.

    parts: of the embedding, see `open_parts`. method: "pca", the first two principal components of the l2-normalised
    features; "tsne", see `sslkit.numerics.figures.tsne`; "umap", if umap-learn is installed.
    Up to 400 images are drawn as thumbnails on a grid, each in the free cell near its place; more are drawn as dots.
    The 20 largest classes have a colour and a marker; without classes all dots are alike.
    Raises UserError for fewer than 4 images and for features that are all equal.
    """
    from matplotlib.figure import Figure

    check_value("map", method, str, choices=tuple(MAPS))
    check_enough(len(embedding))
    flat, about_map = map_to_plane(np.asarray(embedding.x, dtype=np.float32), method, seed)
    label, names, styles = build_legend(embedding)
    figure = Figure(figsize=_size(flat, names, len(embedding) <= THUMBNAILS), layout="constrained")
    axis = figure.subplots()
    if len(embedding) <= THUMBNAILS:
        _draw_thumbnails(axis, flat, thumbnails(parts, embedding.paths, range(len(embedding)), SIDE), label, styles)
        how = "Thumbnails stand in the free cell of a grid that is near their place."
    else:
        _draw_dots(axis, flat, label, styles)
        how = "A dot is an image."
    _legend(axis, names, styles)
    about = embedding.about
    write_title(figure, f"{about['model']} · {about['data']} · {MAPS[method]}")
    caption = f"{len(embedding):,} images; {about_map} {how}"
    write_notes(figure, [caption])
    save_figure(figure, Path(path), {"Description": caption})
    return caption


def check_enough(n: int) -> None:
    """Raises UserError if there are too few images for a map."""
    if n < FEWEST:
        raise UserError(f"a map needs at least {FEWEST} images, not {n}")


def map_to_plane(x: np.ndarray, method: str, seed: int) -> tuple[np.ndarray, str]:
    """Return the places (N, 2) of rows x (N, D) and a note on them. Raises NoMap if all rows are equal."""
    from sklearn.decomposition import PCA

    z = reduce(x, seed)
    if not np.ptp(z, axis=0).max() > SAME:
        raise NoMap(f"the features of all {len(z)} images are equal: there is no map of them")
    if method == "pca":
        model = PCA(2, random_state=seed)
        flat = model.fit_transform(z)
        return flat, f"the two components have {100 * model.explained_variance_ratio_.sum():.0f} % of the variance."
    if method == "tsne":
        flat, kl = tsne(z, seed)
        return flat, f"KL divergence {kl:.2f}, seed {seed}. Distances and areas mean nothing."
    return umap_map(z, seed), f"seed {seed}. Distances and areas mean nothing."


def build_legend(embedding: Embedding) -> tuple[np.ndarray, list[str], list[tuple[str, str]]]:
    """Return (N,) the place of each image in the legend, -1 if it has none; its lines; their colours and markers.

    The largest classes, of which at most 20 are named, come in the order of their names.
    """
    if embedding.y.ndim > 1 or not (embedding.y >= 0).any():
        return np.full(len(embedding), -1), [], []
    counts = np.bincount(embedding.y[embedding.y >= 0], minlength=len(embedding.classes))
    largest = np.sort(np.argsort(-counts, kind="stable")[: min(NAMED, int((counts > 0).sum()))])
    table = np.full(len(embedding.classes) + 1, -1)  # the last stands for no label
    table[largest] = np.arange(len(largest))
    label = table[embedding.y]
    names = [f"{shorten(str(embedding.classes[k]), LETTERS)} ({counts[k]:,})" for k in largest]
    every = class_styles(embedding.classes)
    styles = [every[k] for k in largest]
    if (label < 0).any():
        hidden = int((counts > 0).sum()) - len(largest)
        label[label < 0] = len(names)
        names.append(f"{hidden} other classes ({(label == len(names)).sum():,})" if hidden else "no class")
        styles.append((OTHERS, "o"))
    return label, names, styles


def snap_to_grid(flat: np.ndarray) -> tuple[np.ndarray, int]:
    """Return a cell (N, 2) of a square grid for each place, no cell twice and as near as possible, and its side."""
    from scipy.optimize import linear_sum_assignment

    side = int(np.ceil(np.sqrt(SPARE * len(flat))))
    span = np.maximum(np.ptp(flat, axis=0), 1e-12)
    places = (flat - flat.min(0)) / span * (side - 1)
    cells = np.stack(np.meshgrid(np.arange(side), np.arange(side), indexing="ij"), -1).reshape(-1, 2)
    cost = np.square(places[:, None] - cells).sum(-1)
    return cells[linear_sum_assignment(cost)[1]], side


def _size(flat: np.ndarray, names: Sequence[str], square: bool) -> tuple[float, float]:
    """Width and height of the picture in inches, filled by the thumbnails' square or by the map of dots."""
    return map_size(np.array([[0, 0], [1, 1]]) if square else flat, names)


def _draw_thumbnails(
    axis: "Axes", flat: np.ndarray, pictures: Sequence[np.ndarray], label: np.ndarray, styles: Sequence[tuple[str, str]]
) -> None:
    from matplotlib.patches import Rectangle

    cells, side = snap_to_grid(flat)
    for (x, y), picture, entry in zip(cells, pictures, label, strict=True):
        height, width = (0.42 * length / max(picture.shape[:2]) for length in picture.shape[:2])
        axis.imshow(picture, extent=(x - width, x + width, y - height, y + height), aspect="auto", zorder=2)
        if entry >= 0:
            edge = {"fill": False, "edgecolor": styles[entry][0], "lw": 1.6, "zorder": 3}
            axis.add_patch(Rectangle((x - 0.47, y - 0.47), 0.94, 0.94, **edge))
    for entry, (colour, marker) in enumerate(styles):  # at a corner, as more than twelve classes share colours
        corners = (cells[label == entry] + [-0.4, 0.4]).T
        axis.scatter(*corners, color=colour, marker=marker, s=22, linewidths=0.5, edgecolors=PAPER, zorder=4)
    axis.set(xticks=[], yticks=[], xlim=(-0.6, side - 0.4), ylim=(-0.6, side - 0.4), aspect="equal")
    axis.spines[:].set_color(GUIDE)


def _draw_dots(axis: "Axes", flat: np.ndarray, label: np.ndarray, styles: Sequence[tuple[str, str]]) -> None:
    size = float(np.clip(20_000 / len(flat), 1.5, 30))
    for entry in np.unique(label)[::-1]:  # the others first, below the named classes
        colour, marker = styles[entry] if entry >= 0 else (FIRST, "o")
        axis.scatter(*flat[label == entry].T, s=size, alpha=0.8, linewidths=0, color=colour, marker=marker)
    frame(axis, flat)


def _legend(axis: "Axes", names: Sequence[str], styles: Sequence[tuple[str, str]]) -> None:
    from matplotlib.lines import Line2D

    if names:
        marks = [Line2D([], [], color=colour, marker=marker, ls="", ms=7) for colour, marker in styles]
        beside(axis.figure, marks, names)
