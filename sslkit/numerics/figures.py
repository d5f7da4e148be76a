"""Pictures: the t-SNE map of features, its points by class, a grid with captions, files written whole or not at all."""

import textwrap
from collections.abc import Sequence
from functools import cache
from itertools import cycle
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from PIL import Image, ImageDraw, ImageFont

from sslkit.errors import UserError
from sslkit.files.writing import write_whole

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure
    from torch import Tensor

SAME = 1e-6  # spread of unit rows that are equal up to rounding
COMPONENTS = 50  # principal components in the input of a map
PERPLEXITY = 30
# Of a grid of pictures, in pixels; ROW_WIDTH is the most of the captions at the left, LEAST of title and note.
INK, QUIET, PAPER = "#1c2127", "#515b66", "#ffffff"
SIZE, TITLE_SIZE = 13, 16
GAP = 8
ROW_WIDTH = 168
LEAST = 480
NAMED, OTHERS = 20, -2  # classes with a colour in the embedding; label of the others


class NoMap(UserError):
    """Raised for features that t-SNE cannot map."""


def reduced(x: np.ndarray, seed: int) -> np.ndarray:
    """(N, min(F, 50)): l2-normalised rows, reduced to 50 principal components if there are more than 50 rows.

    x: (N, F).
    """
    from sklearn.decomposition import PCA

    z = x / np.maximum(np.linalg.norm(x, axis=1, keepdims=True), 1e-12)
    return PCA(COMPONENTS, random_state=seed).fit_transform(z) if z.shape[1] > COMPONENTS < len(z) else z


def tsne(z: np.ndarray, seed: int, iterations: int = 1000) -> tuple[np.ndarray, float]:
    """The t-SNE map (N, 2) and its KL divergence (van der Maaten & Hinton 2008), started from principal components.

    z: (N, F) from `reduced`. Perplexity 30, or a third of the rows if there are few; scikit-learn's "auto" learning
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


def scatter(
    axis: "Axes",
    flat: np.ndarray,
    y: np.ndarray,
    names: dict[int, str],
    colours: Sequence[Any],
    markers: str = "o",
    **style: Any,
) -> None:
    """Draw the points of a map by class, with a legend at the right.

    flat: (N, 2). y: (N,) labels. names: label -> name of the labels to show, in order. colours: one each.
    markers: repeated in turn. style: of the points.
    """
    for (label, name), colour, marker in zip(names.items(), colours, cycle(markers), strict=False):
        axis.scatter(*flat[y == label].T, color=colour, marker=marker, label=name, **style)
    axis.legend(loc="center left", bbox_to_anchor=(1, 0.5), frameon=False, markerscale=3)


def save_figure(figure: "Figure", path: Path, metadata: dict[str, str] | None = None) -> None:
    """Write a PNG, whole or not at all. metadata: text stored inside the file."""
    with write_whole(path) as partial:
        figure.savefig(partial, format="png", dpi=130, metadata=metadata)


def plot_embedding(x: "Tensor", y: "Tensor", classes: list[str] | None, path: Path, *, seed: int, title: str) -> None:
    """t-SNE of features, coloured by class if there are labels. Distances between points mean nothing.

    x: (N, F) features. y: (N,) labels, -1 for none. Raises NoMap if all rows are equal, after a collapse.
    """
    from matplotlib.figure import Figure

    flat, _ = tsne(reduced(x.numpy(), seed), seed, iterations=500)
    figure = Figure(figsize=(6.4, 5.2), layout="constrained")
    axis = figure.subplots()
    if classes is None:
        axis.scatter(*flat.T, s=5, alpha=0.7, linewidths=0)
    else:
        _draw_classes(axis, flat, y.numpy(), classes)
    axis.set_title(title, fontsize=11, parse_math=False)
    axis.set(xticks=[], yticks=[])
    axis.spines[:].set_visible(False)
    save_figure(figure, path)


def _draw_classes(axis: "Axes", flat: np.ndarray, y: np.ndarray, classes: list[str]) -> None:
    """Draw the points by class: twenty have a colour, the others are gray."""
    import matplotlib

    present = [int(c) for c in np.unique(y) if c >= 0]
    shown, others = present[:NAMED], present[NAMED:]
    colours = matplotlib.colormaps["tab10" if len(shown) <= 10 else "tab20"]
    names = {c: classes[c] for c in shown}
    drawn = [colours(i) for i in range(len(shown))]
    if others:
        y = np.where(np.isin(y, others), OTHERS, y)
        names, drawn = {OTHERS: f"{len(others)} other classes", **names}, ["#cccccc", *drawn]  # below the named ones
    scatter(axis, flat, y, names, drawn, s=6, alpha=0.75, linewidths=0)


def captioned(
    grid: Image.Image, columns: Sequence[str], rows: Sequence[str], *, title: str = "", note: str = ""
) -> Image.Image:
    """Return the grid on white: the title above, a caption over each column, one left of each row, the note below.

    grid: equal cells, as many as columns times rows. Captions may have several lines, and long ones are wrapped.
    """
    font, large = _font(SIZE), _font(TITLE_SIZE)
    cell = grid.width // len(columns), grid.height // len(rows)
    row_lines = [_wrapped(row, font, ROW_WIDTH)[: max(1, cell[1] // _height(font))] for row in rows]
    column_lines = [_wrapped(column, font, cell[0] - 4) for column in columns]
    left = GAP + max((round(font.getlength(line)) for lines in row_lines for line in lines), default=0) + GAP
    width = max(left + grid.width + GAP, LEAST)
    head, foot = (_wrapped(text, one, width - 2 * GAP) for text, one in ((title, large), (note, font)))
    top = GAP + len(head) * _height(large) + GAP
    start = top + max(map(len, column_lines)) * _height(font) + GAP // 2
    sheet = Image.new("RGB", (width, start + grid.height + GAP + len(foot) * _height(font) + GAP), PAPER)
    sheet.paste(grid, (left, start))
    draw = ImageDraw.Draw(sheet)
    _write(draw, head, (GAP, GAP), large)
    for k, lines in enumerate(column_lines):
        bottom = start - GAP // 2 - len(lines) * _height(font)
        _write(draw, lines, (left + (2 * k + 1) * cell[0] // 2, bottom), font, anchor="ma")
    for k, lines in enumerate(row_lines):
        middle = start + (2 * k + 1) * cell[1] // 2 - len(lines) * _height(font) // 2
        _write(draw, lines, (left - GAP, middle), font, anchor="ra")
    _write(draw, foot, (GAP, start + grid.height + GAP), font, fill=QUIET)
    return sheet


def _write(draw: ImageDraw.ImageDraw, lines: Sequence[str], place: tuple[int, int], font, *, anchor="la", fill=INK):
    for k, line in enumerate(lines):
        draw.text((place[0], place[1] + k * _height(font)), line, fill=fill, font=font, anchor=anchor)


def _wrapped(text: str, font: ImageFont.FreeTypeFont, width: int) -> list[str]:
    """The lines of a text of at most `width` pixels; a file name may have bytes that are no text."""
    text = text.encode(errors="replace").decode()
    return [line for part in text.split("\n") for line in _broken(part, font, width)] if text else []


def _broken(text: str, font: ImageFont.FreeTypeFont, width: int) -> list[str]:
    if font.getlength(text) <= width:
        return [text]
    letters = max(1, int(len(text) * width / font.getlength(text)))
    while letters > 1:
        lines = textwrap.wrap(text, letters)
        if all(font.getlength(line) <= width for line in lines):
            return lines
        letters -= 1
    return textwrap.wrap(text, 1)


def _height(font: ImageFont.FreeTypeFont) -> int:
    return round(1.3 * font.size)


@cache
def _font(size: int) -> ImageFont.FreeTypeFont:
    """Matplotlib's own font, which is there wherever matplotlib is."""
    import matplotlib

    return ImageFont.truetype(Path(matplotlib.get_data_path(), "fonts", "ttf", "DejaVuSans.ttf"), size)
