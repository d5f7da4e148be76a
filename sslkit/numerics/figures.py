"""The style of all pictures, their files, and maps of features: t-SNE, the points by class, how far to trust them."""

import textwrap
from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from sslkit.errors import UserError
from sslkit.files.writing import write_whole

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure
    from torch import Tensor

# Any two differ under normal sight and under each of three colour blindnesses, and each has a contrast of at least
# 2.6 on white and 2.3 on the dark page: tests/numerics/test_style.py measures both.
COLOURS = (
    "#2e78fd", "#fd650c", "#46594a", "#d073c9", "#a8120f", "#1ba6ff",
    "#930aa7", "#8ea87a", "#5b27e8", "#b45c30", "#985bbc", "#6c8279",
)  # fmt: skip
MARKERS = "os^DvPX<>*"
STYLES = [(COLOURS[k % 12], MARKERS[(k + k // 12) % 10]) for k in range(120)]  # each pair of the two once
DASHES = ("-", "--", ":")
OTHERS = "#c4c9cf"  # classes without a colour of their own, in the background
INK, QUIET, GUIDE, PAPER = "#1c2127", "#515b66", "#d3d9df", "#ffffff"
FIRST, SECOND = "#1f5fa8", "#a8480a"  # of two lines; the first also of what has no class
REFERENCE = "#8a949e"  # random weights, the state before training, numbers that are no measurement of their own
TITLE, PANEL, SMALL = 11, 10, 8  # points: of the picture, of a panel, of all other text
PER_INCH = 13  # letters of small text

SAME = 1e-6  # spread of unit rows that are equal up to rounding
COMPONENTS = 50  # principal components in the input of a map, as van der Maaten and Hinton 2008 advise (30 there)
PERPLEXITY = 30  # of the t-SNE, scikit-learn's default
NAMED = 12  # classes with a colour in a map
NEIGHBOURS = 10  # of a point, for the numbers below a map
SIDE = 6.4  # inches of a map
LETTERS = 28  # of a class in the legend


class NoMap(UserError):
    """Raised for features that t-SNE cannot map."""


def class_styles(classes: Sequence[str]) -> list[tuple[str, str]]:
    """The colour and the marker of each class, by its name among the names of the data set.

    classes: all classes of the data set, in any order: every picture of it gives a class the same two. Twelve have
    colours of their own; more share colours, but up to 120 no two have the same colour and marker.
    """
    places = {name: number for number, name in enumerate(sorted(set(map(str, classes))))}
    return [STYLES[places[str(name)] % len(STYLES)] for name in classes]


def palette(classes: Sequence[str]) -> np.ndarray:
    """(256, 3) colours in [0, 1]: gray for class 0, white for those that are no class, the others as in every picture.

    Beyond twelve classes colours come again half as strong, then a quarter.
    """
    from matplotlib.colors import to_rgb

    colours, seen = np.ones((256, 3)), Counter()
    colours[0] = to_rgb(OTHERS)
    for number, (colour, _) in enumerate(class_styles(classes[1:]), 1):
        colours[number] = 1 - (1 - np.array(to_rgb(colour))) * 0.5 ** (seen[colour] % 3)
        seen[colour] += 1
    return colours


def line_style(place: int) -> dict[str, str]:
    """Colour, marker and dashes of a line among several."""
    colour, marker = STYLES[place % len(STYLES)]
    return {"color": colour, "marker": marker, "linestyle": DASHES[place // len(COLOURS) % len(DASHES)]}


def write_title(figure: "Figure", title: str) -> None:
    """Write the title of a picture, wrapped to its width."""
    lines = textwrap.wrap(title, int(0.7 * PER_INCH * figure.get_figwidth()), break_on_hyphens=False)
    figure.suptitle("\n".join(lines), fontsize=TITLE, color=INK, parse_math=False)


def write_notes(figure: "Figure", notes: Sequence[str]) -> None:
    """Write notes below a picture, each on lines of its own."""
    letters = int(PER_INCH * figure.get_figwidth())
    lines = [line for note in notes for line in textwrap.wrap(note, letters)]
    figure.supxlabel("\n".join(lines), fontsize=SMALL, color=QUIET, parse_math=False)


def panel(axis: "Axes", title: str, words: str = "", lines: int = 1) -> None:
    """Write the title of a panel at its left, and lines of small words below it; leave two sides open."""
    axis.set_title(title, fontsize=PANEL, loc="left", pad=6 + 11 * lines * bool(words), color=INK, parse_math=False)
    if words:
        position = {"xy": (0, 1), "xytext": (0, 4), "xycoords": "axes fraction", "textcoords": "offset points"}
        axis.annotate(words, va="bottom", fontsize=SMALL, color=QUIET, parse_math=False, **position)
    axis.spines[["top", "right"]].set_visible(False)
    axis.tick_params(labelsize=SMALL)


def better(higher: bool = True) -> str:
    """The direction of an axis."""
    return "higher is better" if higher else "lower is better"


def save_figure(figure: "Figure", path: Path, metadata: dict[str, str] | None = None) -> None:
    """Write a PNG, whole or not at all. metadata: text stored inside the file."""
    with write_whole(path) as partial:
        figure.savefig(partial, format="png", dpi=130, metadata=metadata)


def reduce(x: np.ndarray, seed: int) -> np.ndarray:
    """(N, min(F, 50)): l2-normalised rows, reduced to 50 principal components if there are more than 50 rows.

    x: (N, F).
    """
    from sklearn.decomposition import PCA

    z = x / np.maximum(np.linalg.norm(x, axis=1, keepdims=True), 1e-12)
    return PCA(COMPONENTS, random_state=seed).fit_transform(z) if z.shape[1] > COMPONENTS < len(z) else z


def tsne(z: np.ndarray, seed: int, iterations: int = 1000) -> tuple[np.ndarray, float]:
    """The t-SNE map (N, 2) and its KL divergence (van der Maaten & Hinton 2008), started from principal components.

    z: (N, F) from `reduce`. Perplexity 30, or a third of the rows if there are few; scikit-learn's "auto" learning
    rate. Raises NoMap if all rows are equal: scikit-learn would start from NaN and crash.
    """
    from sklearn.manifold import TSNE

    if not np.ptp(z, axis=0).max() > SAME:
        raise NoMap(f"the features of all {len(z)} images are equal: t-SNE cannot map them")

    model = TSNE(
        perplexity=min(PERPLEXITY, (len(z) - 1) / 3),
        init="pca",
        learning_rate="auto",
        random_state=seed,
        max_iter=iterations,
    )
    flat = model.fit_transform(z)
    return flat, float(model.kl_divergence_)


def purity(x: np.ndarray, y: np.ndarray, k: int = NEIGHBOURS) -> float:
    """The share of the k nearest other rows (Euclidean) that are of a row's own class, over all rows.

    x: (n, D). y: (n,) labels.
    """
    from sklearn.neighbors import NearestNeighbors

    near = NearestNeighbors(n_neighbors=min(k, len(x) - 1)).fit(x).kneighbors(return_distance=False)  # not the row
    return float((y[near] == y[:, None]).mean())


def neighbours(x: np.ndarray, flat: np.ndarray, y: np.ndarray) -> dict[str, float]:
    """`purity` of a map, `purity_features` of its features by cosine, and `chance`, that of random neighbours.

    x: (n, D). flat: (n, 2). y: (n,) labels, all known.
    """
    z = x / np.maximum(np.linalg.norm(x, axis=1, keepdims=True), 1e-12)
    counts = np.unique(y, return_counts=True)[1]
    chance = float((counts * (counts - 1)).sum() / (len(y) * (len(y) - 1)))
    return {"purity": purity(flat, y), "purity_features": purity(z, y), "chance": chance}


def neighbours_said(purity: float, purity_features: float, chance: float) -> str:
    """The numbers of `neighbours` in a sentence."""
    return (
        f"Of {NEIGHBOURS} neighbours {100 * purity:.0f} % are of the same class in this map, "
        f"{100 * purity_features:.0f} % in the features, {100 * chance:.0f} % by chance."
    )


def largest(y: np.ndarray, most: int = NAMED) -> np.ndarray:
    """The classes with the most images, at most so many, in ascending order. y: (n,) labels, -1 for none."""
    present, counts = np.unique(y[y >= 0], return_counts=True)
    return np.sort(present[np.argsort(-counts, kind="stable")[:most]])


def scatter(axis: "Axes", flat: np.ndarray, y: np.ndarray, classes: Sequence[str], *, legend: bool = True) -> None:
    """Draw the points of a map by class, with a legend at the right of the picture, in axes of its proportions.

    flat: (n, 2). y: (n,) labels, -1 for none. classes: all of the data set. The twelve classes with the most images
    have colours, the others are gray.
    """
    shown, styles = largest(y), class_styles(classes)
    points = {"s": float(np.clip(16_000 / len(flat), 9, 36)), "linewidths": 0}
    rest = ~np.isin(y, shown)
    others = len(np.unique(y[rest & (y >= 0)]))
    if rest.any():
        name = f"{others} other classes" if others else "no class"
        axis.scatter(*flat[rest].T, color=OTHERS if len(shown) else FIRST, marker="o", alpha=0.7, label=name, **points)
    for label in shown:
        colour, marker = styles[label]
        name = _short(classes[label])
        axis.scatter(*flat[y == label].T, color=colour, marker=marker, alpha=0.8, label=name, **points)
    if legend and len(shown):
        beside(axis.figure, *axis.get_legend_handles_labels())
    frame(axis, flat)


def beside(figure: "Figure", marks: Sequence[Any], names: Sequence[str]) -> None:
    """Add a legend at the right of a picture, with marks of one size."""
    legend = figure.legend(marks, names, loc="outside right center", frameon=False, fontsize=SMALL + 1)
    for handle, text in zip(legend.legend_handles, legend.get_texts(), strict=True):
        if hasattr(handle, "set_sizes"):  # a scatter's, as small as its points
            handle.set_sizes([40])
        text.set_parse_math(False)


def frame(axis: "Axes", flat: np.ndarray) -> None:
    """Give the axes the proportions of a map, with a thin frame around its points."""
    edge = 0.03 * np.ptp(flat, axis=0).max()
    (left, low), (right, high) = flat.min(0) - edge, flat.max(0) + edge
    axis.set(xticks=[], yticks=[], xlim=(left, right), ylim=(low, high), aspect="equal")
    axis.spines[:].set_color(GUIDE)


def map_size(flat: np.ndarray, names: Sequence[str]) -> tuple[float, float]:
    """Width and height in inches of a picture that a map (n, 2) fills, with its legend, title and note."""
    width, height = np.ptp(flat, axis=0)
    ratio = float(np.clip(height / max(width, 1e-12), 0.5, 1.4))
    side = min(SIDE, 1.1 * SIDE / ratio)
    return side + 0.55 + 0.085 * max(map(len, map(_short, names)), default=-6), side * ratio + 1.0


def _short(name: str) -> str:
    return name if len(name) <= LETTERS else f"{name[: LETTERS - 1]}…"


def plot_embedding(
    x: "Tensor", y: "Tensor", classes: list[str] | None, path: Path, *, seed: int, title: str, note: str = ""
) -> None:
    """t-SNE of features, coloured by class if there are labels. Distances between points mean nothing.

    x: (N, F) features. y: (N,) labels, -1 for none. note: on the images, in the caption. Raises NoMap if all rows are
    equal, after a collapse.
    """
    from matplotlib.figure import Figure

    features, labels = x.numpy(), y.numpy() if classes is not None else np.full(len(x), -1)
    flat, _ = tsne(reduce(features, seed), seed, iterations=500)
    labelled = labels >= 0
    notes = [note, "Distances and sizes in the map mean nothing."]
    if labelled.sum() > NEIGHBOURS:
        notes.insert(1, neighbours_said(**neighbours(features[labelled], flat[labelled], labels[labelled])))
    names = [classes[label] for label in largest(labels)] if classes is not None else []
    figure = Figure(figsize=map_size(flat, names), layout="constrained")
    scatter(figure.subplots(), flat, labels, classes or [])
    write_title(figure, title)
    write_notes(figure, [" ".join(filter(None, notes))])
    save_figure(figure, path)
