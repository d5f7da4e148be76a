"""Plots of features: a map with its trustworthiness, and a confusion matrix."""

import json
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np

from evaluation.features.table import Features, as_features
from sslkit.data.held_out import draw_keys
from sslkit.errors import UserError
from sslkit.numerics.figures import (
    NAMED,
    NEIGHBOURS,
    PERPLEXITY,
    SMALL,
    NoMap,
    largest,
    map_size,
    neighbours,
    neighbours_said,
    reduce,
    save_figure,
    scatter,
    tsne,
    write_notes,
    write_title,
)
from sslkit.options.members import nearest
from sslkit.runtime.callers import process_kept
from sslkit.runtime.context import Computing

MAPS = {"tsne": "t-SNE", "umap": "UMAP"}
MOST_LEFT_OUT = 3  # classes that the caption names
WITH_NUMBERS, WITH_NAMES = 20, 100  # most classes with numbers in the cells of a confusion matrix, with names beside it


@dataclass(frozen=True)
class Map:
    """A map of features in two dimensions. Its distances and areas have no meaning, these numbers do.

    method: "tsne" or "umap". flat: (n, 2). y: (n,) index into classes, which are shown. left_out: the others.
    ids: (n,) the images.
    kl: the final KL divergence of t-SNE, None for UMAP.
    trustworthiness: 1 if the 10 neighbours in the map are also neighbours in the features (Venna & Kaski 2001).
    purity: share of the 10 neighbours in the map that are of the same class; purity_features: the same in the features
    (cosine); chance: the same for random neighbours.
    """

    path: Path
    method: str
    seed: int
    classes: list[str]
    left_out: list[str]
    kl: float | None
    trustworthiness: float
    purity: float
    purity_features: float
    chance: float
    flat: np.ndarray = field(repr=False)
    y: np.ndarray = field(repr=False)
    ids: np.ndarray = field(repr=False)

    @property
    def caption(self) -> str:
        """Return the caption to print with the picture."""
        kl = "" if self.kl is None else f"KL divergence {self.kl:.2f}, "
        return (
            f"{self._describe_classes()}, {len(self.y):,} images; {kl}trustworthiness {self.trustworthiness:.3f}, "
            f"seed {self.seed}. {neighbours_said(self.purity, self.purity_features, self.chance)} "
            "Distances and sizes in the map mean nothing."
        )

    def _describe_classes(self) -> str:
        """The classes of the map, and those that it leaves out."""
        shown, left_out = len(self.classes), len(self.left_out)
        if not left_out:
            return f"All {shown} classes"
        more = left_out - MOST_LEFT_OUT
        names = ", ".join(self.left_out[:MOST_LEFT_OUT]) + (f" and {more:,} more" if more > 0 else "")
        return f"The {shown} of {shown + left_out:,} classes with the most images (without {names})"


@process_kept()
def plot_features(
    features: Any,
    path: str | Path,
    *,
    method: str = "tsne",
    n_classes: int = NAMED,
    per_class: int = 250,
    seed: int = Computing.seed,
    title: str | None = None,
) -> Map:
    """Draw a map as a PNG with its caption; classes and seed are also in the file's metadata.

    features: Features or (x, y), one label an image. method: "tsne": l2-normalised rows, 50 principal components,
        perplexity 30, started from them; "umap": the same components, 15 neighbours, if umap-learn is installed.
    n_classes: those with the most images, all if there are fewer. per_class: maximum number of images per class, drawn
        by (seed, image name). title: None: the names of the features' model and data.
    Raises UserError for an unknown method, UMAP not installed, more than 12 classes, too few images.
    """
    features = as_features(features)
    _check_map(features, method, n_classes, per_class)
    chosen = _chosen(features, n_classes, per_class, seed)
    labels, y = np.unique(chosen.y, return_inverse=True)
    names = list(map(str, features.classes))
    classes = [names[label] for label in labels]
    left_out = [names[label] for label in np.setdiff1d(features.y[features.y >= 0], labels)]
    z = reduce(np.asarray(chosen.x, dtype=np.float32), seed)
    flat, kl = tsne(z, seed) if method == "tsne" else (umap_map(z, seed), None)
    trust = _trust(chosen.x, flat, y)
    drawing = Map(Path(path), method, seed, classes, left_out, kl, **trust, flat=flat, y=y, ids=chosen.ids)
    title = title or " · ".join(filter(None, (features.model, features.data, MAPS[method])))
    _draw_map(drawing, chosen.y, names, title)
    return drawing


@process_kept()
def plot_confusion(
    truth: np.ndarray, predicted: np.ndarray, classes: Sequence[str], path: str | Path, *, title: str = ""
) -> np.ndarray:
    """Draw the confusion matrix as a PNG and return it (K, K): row k has the predictions for class k, with sum 1.

    truth, predicted: (N,) indices into classes. A class without an image has a row of NaN, drawn grey.
    Cells have percentages up to 20 classes, names are shown up to 100; the most frequent confusions are listed.
    Raises UserError for different lengths and for indices outside the classes.
    """
    truth, predicted = np.asarray(truth), np.asarray(predicted)
    k = len(classes)
    if truth.shape != predicted.shape or truth.ndim != 1 or not len(truth):
        raise UserError(f"truth and predicted must be (N,) of one length, not {truth.shape} and {predicted.shape}")
    if min(truth.min(), predicted.min()) < 0 or max(truth.max(), predicted.max()) >= k:
        raise UserError(f"truth and predicted must be indices into the {k} classes, from 0 to {k - 1}")
    counts = np.bincount(truth * k + predicted, minlength=k * k).reshape(k, k)
    images = counts.sum(1, keepdims=True)
    shares = np.where(images > 0, counts / np.maximum(images, 1), np.nan)
    _draw_confusion(shares, list(map(str, classes)), Path(path), title)
    return shares


def _check_map(features: Features, method: str, n_classes: int, per_class: int) -> None:
    if method not in MAPS:
        raise UserError(f"there is no map {method!r}: {nearest(method, MAPS)}")
    if features.y.ndim != 1:
        raise UserError("a map shows images of one class each; these have several labels an image")
    if not 1 <= n_classes <= NAMED:
        raise UserError(f"n_classes={n_classes}: must be from 1 to {NAMED}, the number of colours")
    if per_class < 2 or len(features) < 3 * NEIGHBOURS:
        raise NoMap(f"a map needs at least {3 * NEIGHBOURS} images and per_class=2, not {len(features)} images")


def _chosen(features: Features, n_classes: int, per_class: int, seed: int) -> Features:
    """Return the rows to show, in an order that does not depend on the listing."""
    keys = draw_keys(features.ids, seed, "images of the map")
    rows = []
    for label in largest(features.y, n_classes):
        members = np.flatnonzero(features.y == label)
        rows.append(members[np.argsort(keys[members], kind="stable")[:per_class]])
    chosen = features.take(np.concatenate(rows))
    if len(chosen) < 3 * NEIGHBOURS:
        raise NoMap(f"the classes drawn have {len(chosen)} images together; a map needs {3 * NEIGHBOURS}")
    return chosen


def umap_map(z: np.ndarray, seed: int) -> np.ndarray:
    """Return the UMAP map (n, 2) of rows z (n, F), of 15 neighbours. Raises UserError if umap-learn is missing."""
    check_umap()
    import umap

    return umap.UMAP(n_neighbors=min(15, len(z) - 1), min_dist=0.1, random_state=seed).fit_transform(z)


def check_umap() -> None:
    """Raises UserError if umap-learn is not installed."""
    try:
        import umap  # noqa: F401
    except ImportError as error:
        raise UserError("UMAP is not installed: pip install umap-learn, or use t-SNE") from error


def _trust(x: np.ndarray, flat: np.ndarray, y: np.ndarray) -> dict[str, float]:
    """Return the trust numbers of a map. x: (n, D) its features, compared by cosine."""
    from sklearn.manifold import trustworthiness

    z = x / np.maximum(np.linalg.norm(x, axis=1, keepdims=True), 1e-12)
    trusted = float(trustworthiness(z, flat, n_neighbors=NEIGHBOURS))
    return {"trustworthiness": trusted, **neighbours(x, flat, y)}


def _draw_map(found: Map, labels: np.ndarray, names: list[str], title: str) -> None:
    """labels: (n,) index into the names of all classes, by which they have their colours."""
    from matplotlib.figure import Figure

    figure = Figure(figsize=map_size(found.flat, found.classes), layout="constrained")
    scatter(figure.subplots(), found.flat, labels, names)
    write_title(figure, title)
    write_notes(figure, [found.caption])
    about = {"seed": found.seed, "classes": found.classes, "method": found.method, "perplexity": PERPLEXITY}
    save_figure(figure, found.path, {"Title": title, "Description": found.caption, "Comment": json.dumps(about)})


def _draw_confusion(shares: np.ndarray, classes: list[str], path: Path, title: str) -> None:
    from matplotlib import colormaps
    from matplotlib.colors import PowerNorm
    from matplotlib.figure import Figure

    k = len(classes)
    side = 3.2 + 0.42 * min(k, WITH_NUMBERS) if k <= WITH_NUMBERS else 12.0
    figure = Figure(figsize=(side + 3.2, side), layout="constrained")
    axis, listed = figure.subplots(1, 2, width_ratios=(side, 2.4))
    colours = colormaps["Blues"].with_extremes(bad="#cccccc")
    drawn = axis.imshow(100 * shares, cmap=colours, norm=PowerNorm(0.5, 0, 100), interpolation="nearest")
    _name_axes(axis, classes)
    if k <= WITH_NUMBERS:
        _write_percents(axis, shares)
    axis.set(xlabel="predicted class", ylabel="true class")
    write_title(figure, title)
    figure.colorbar(drawn, ax=axis, shrink=0.6, pad=0.02, ticks=[0, 5, 20, 50, 100]).set_label(
        "% of the class's images; square-root scale", fontsize=SMALL
    )
    listed.axis("off")
    listed.text(0, 1, confusions(shares, classes), va="top", fontsize=8, transform=listed.transAxes)
    save_figure(figure, path)


def _name_axes(axis: Any, classes: list[str]) -> None:
    k = len(classes)
    if k > WITH_NAMES:
        return
    short = [name if len(name) <= 18 else f"{name[:17]}…" for name in classes]
    size = 8 if k <= 40 else 5
    axis.set_xticks(range(k), short, rotation=90, fontsize=size)
    axis.set_yticks(range(k), short, fontsize=size)


def _write_percents(axis: Any, shares: np.ndarray) -> None:
    for (row, column), share in np.ndenumerate(shares):
        if share > 0.005:
            colour = "white" if share > 0.3 else "black"
            axis.text(column, row, f"{100 * share:.0f}", ha="center", va="center", fontsize=7, color=colour)


def confusions(shares: np.ndarray, classes: Sequence[str], most: int = 12) -> str:
    """Return the most frequent confusions, one per line: "37 % of shirt as T-shirt". shares: see `plot_confusion`."""
    off = np.where(np.eye(len(shares), dtype=bool), 0, np.nan_to_num(shares))
    order = np.argsort(-off, axis=None, kind="stable")[:most]
    pairs = [divmod(int(cell), len(shares)) for cell in order if off.flat[cell] > 0]
    lines = [f"{100 * off[pair]:3.0f} % of {classes[pair[0]]}\n       as {classes[pair[1]]}" for pair in pairs]
    return "\n".join(["most frequent confusions", "", *lines]) if lines else "no confusion"
