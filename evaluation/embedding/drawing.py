"""A map of all images in two dimensions as a PNG: thumbnails of a few hundred, dots of more."""

import textwrap
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from evaluation.embedding.sources import Part
from evaluation.embedding.table import Embedding
from evaluation.embedding.thumbnails import shortened, thumbnails
from evaluation.features.checks import checked
from evaluation.features.plots import COLOURS, umap_map
from sslkit.errors import UserError
from sslkit.numerics.figures import SAME, NoMap, reduced, save_figure, tsne

if TYPE_CHECKING:
    from matplotlib.axes import Axes

MAPS = {"pca": "PCA", "tsne": "t-SNE", "umap": "UMAP"}
FEWEST = 4  # images of a map
THUMBNAILS = 400  # most images that are drawn as themselves
SIDE = 64  # pixels of a thumbnail
SPARE = 1.6  # cells of the thumbnails' grid per image
NAMED = 20  # most classes with a colour and a line in the legend
OTHERS = "#cccccc"
LETTERS = 28  # of a class in the legend


def draw_map(
    embedding: Embedding, parts: Sequence[Part], path: str | Path, method: str = "tsne", *, seed: int = 0
) -> str:
    """Draw a map of all images of an embedding as a PNG, and return its caption.

    parts: of the embedding, see `open_parts`. method: "pca", the first two principal components of the l2-normalised
    features; "tsne", see `sslkit.numerics.figures.tsne`; "umap", if umap-learn is installed.
    Up to 400 images are drawn as thumbnails on a grid, each in the free cell near its place; more are drawn as dots.
    The 20 largest classes have a colour; without classes all dots are alike.
    Raises UserError for fewer than 4 images and for features that are all equal.
    """
    from matplotlib.figure import Figure

    checked("map", method, str, choices=tuple(MAPS))
    check_enough(len(embedding))
    flat, about_map = flattened(np.asarray(embedding.x, dtype=np.float32), method, seed)
    label, names, colours = coloured(embedding)
    figure = Figure(figsize=(9.5 if len(names) else 7.6, 7.4), layout="constrained")
    axis = figure.subplots()
    if len(embedding) <= THUMBNAILS:
        _draw_thumbnails(axis, flat, thumbnails(parts, embedding.paths, range(len(embedding)), SIDE), label, colours)
        how = "Thumbnails stand in the free cell of a grid that is near their place."
    else:
        _draw_dots(axis, flat, label, colours)
        how = "A dot is an image."
    _legend(axis, names, colours)
    about = embedding.about
    axis.set_title(f"{about['model']} · {about['data']} · {MAPS[method]}", parse_math=False)
    axis.set(xticks=[], yticks=[])
    axis.spines[:].set_visible(False)
    caption = f"{len(embedding):,} images; {about_map} {how}"
    figure.supxlabel("\n".join(textwrap.wrap(caption, 112)), fontsize=8, color="#444444")
    save_figure(figure, Path(path), {"Description": caption})
    return caption


def check_enough(n: int) -> None:
    """Raises UserError if there are too few images for a map."""
    if n < FEWEST:
        raise UserError(f"a map needs at least {FEWEST} images, not {n}")


def flattened(x: np.ndarray, method: str, seed: int) -> tuple[np.ndarray, str]:
    """Return the places (N, 2) of rows x (N, D) and a note on them. Raises NoMap if all rows are equal."""
    from sklearn.decomposition import PCA

    z = reduced(x, seed)
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


def coloured(embedding: Embedding) -> tuple[np.ndarray, list[str], list[str]]:
    """Return (N,) the place of each image in the legend, -1 if it has none; its lines; and their colours.

    The largest classes, of which at most 20 are named, come in the order of their names.
    """
    if embedding.y.ndim > 1 or not (embedding.y >= 0).any():
        return np.full(len(embedding), -1), [], []
    counts = np.bincount(embedding.y[embedding.y >= 0], minlength=len(embedding.classes))
    largest = np.sort(np.argsort(-counts, kind="stable")[: min(NAMED, int((counts > 0).sum()))])
    table = np.full(len(embedding.classes) + 1, -1)  # the last stands for no label
    table[largest] = np.arange(len(largest))
    label = table[embedding.y]
    names = [f"{shortened(str(embedding.classes[k]), LETTERS)} ({counts[k]:,})" for k in largest]
    colours = _palette(len(largest))
    if (label < 0).any():
        hidden = int((counts > 0).sum()) - len(largest)
        label[label < 0] = len(names)
        names.append(f"{hidden} other classes ({(label == len(names)).sum():,})" if hidden else "no class")
        colours.append(OTHERS)
    return label, names, colours


def gridded(flat: np.ndarray) -> tuple[np.ndarray, int]:
    """Return a cell (N, 2) of a square grid for each place, no cell twice and as near as possible, and its side."""
    from scipy.optimize import linear_sum_assignment

    side = int(np.ceil(np.sqrt(SPARE * len(flat))))
    span = np.maximum(np.ptp(flat, axis=0), 1e-12)
    places = (flat - flat.min(0)) / span * (side - 1)
    cells = np.stack(np.meshgrid(np.arange(side), np.arange(side), indexing="ij"), -1).reshape(-1, 2)
    cost = np.square(places[:, None] - cells).sum(-1)
    return cells[linear_sum_assignment(cost)[1]], side


def _draw_thumbnails(
    axis: "Axes", flat: np.ndarray, pictures: Sequence[np.ndarray], label: np.ndarray, colours: Sequence[str]
) -> None:
    from matplotlib.patches import Rectangle

    cells, side = gridded(flat)
    for (x, y), picture, entry in zip(cells, pictures, label, strict=True):
        height, width = (0.42 * length / max(picture.shape[:2]) for length in picture.shape[:2])
        axis.imshow(picture, extent=(x - width, x + width, y - height, y + height), aspect="auto", zorder=2)
        if entry >= 0:
            frame = {"fill": False, "edgecolor": colours[entry], "lw": 1.6, "zorder": 3}
            axis.add_patch(Rectangle((x - 0.47, y - 0.47), 0.94, 0.94, **frame))
    axis.set(xlim=(-0.6, side - 0.4), ylim=(-0.6, side - 0.4), aspect="equal")


def _draw_dots(axis: "Axes", flat: np.ndarray, label: np.ndarray, colours: Sequence[str]) -> None:
    size = float(np.clip(20_000 / len(flat), 1.5, 14))
    for entry in np.unique(label)[::-1]:  # the others first, below the named classes
        colour = colours[entry] if entry >= 0 else "#4477AA"
        axis.scatter(*flat[label == entry].T, s=size, alpha=0.75, linewidths=0, color=colour)


def _legend(axis: "Axes", names: Sequence[str], colours: Sequence[str]) -> None:
    from matplotlib.lines import Line2D

    if names:
        marks = [Line2D([], [], color=one, marker="o", ls="", ms=7) for one in colours]
        legend = axis.legend(marks, names, loc="center left", bbox_to_anchor=(1, 0.5), frameon=False, fontsize=9)
        for text in legend.get_texts():
            text.set_parse_math(False)


def _palette(n: int) -> list[str]:
    """Return n colours that can be told apart: ten for the most common case, else matplotlib's twenty."""
    from matplotlib import colormaps
    from matplotlib.colors import to_hex

    return list(COLOURS[:n]) if n <= len(COLOURS) else [to_hex(one) for one in colormaps["tab20"].colors[:n]]
