"""The style of all pictures: colours and markers of classes and of lines, sizes of text, titles and notes."""

import textwrap
from collections.abc import Sequence
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

# Any two differ under normal sight and under each of three colour blindnesses, and each has a contrast of at least
# 2.6 on white and 2.3 on the dark page: tests/numerics/test_style.py measures both.
COLOURS = (
    "#2e78fd", "#fd650c", "#46594a", "#d073c9", "#a8120f", "#1ba6ff",
    "#930aa7", "#8ea87a", "#5b27e8", "#b45c30", "#985bbc", "#6c8279",
)  # fmt: skip
MARKERS = "os^DvPX<>*"
DASHES = ("-", "--", ":")
OTHERS = "#c4c9cf"  # classes without a colour of their own, in the background
INK, QUIET, GUIDE, PAPER = "#1c2127", "#515b66", "#d3d9df", "#ffffff"
FIRST, SECOND = "#1f5fa8", "#a8480a"  # of two lines; the first also of what has no class
REFERENCE = "#8a949e"  # random weights, the state before training, numbers that are no measurement of their own
TITLE, PANEL, SMALL = 11, 10, 8  # points: of the picture, of a panel, of all other text
LETTERS = 13  # of small text in an inch


def class_styles(classes: Sequence[str]) -> list[tuple[str, str]]:
    """The colour and the marker of each class, by its name among the names of the data set.

    classes: all classes of the data set, in any order: every picture of it gives a class the same two. Twelve have
    colours of their own; more share colours, but up to 120 no two have the same colour and marker.
    """
    places = {name: place for place, name in enumerate(sorted(set(map(str, classes))))}
    return [_style(places[str(name)]) for name in classes]


def _style(place: int) -> tuple[str, str]:
    return COLOURS[place % len(COLOURS)], MARKERS[(place + place // len(COLOURS)) % len(MARKERS)]


def line_style(place: int) -> dict[str, str]:
    """Colour, marker and dashes of a line among several."""
    colour, marker = _style(place)
    return {"color": colour, "marker": marker, "linestyle": DASHES[place // len(COLOURS) % len(DASHES)]}


def titled(figure: "Figure", title: str) -> None:
    """Write the title of a picture, wrapped to its width."""
    lines = textwrap.wrap(title, int(0.7 * LETTERS * figure.get_figwidth()), break_on_hyphens=False)
    figure.suptitle("\n".join(lines), fontsize=TITLE, color=INK, parse_math=False)


def noted(figure: "Figure", notes: Sequence[str]) -> None:
    """Write notes below a picture, each on lines of its own."""
    letters = int(LETTERS * figure.get_figwidth())
    lines = [line for note in notes for line in textwrap.wrap(note, letters)]
    figure.supxlabel("\n".join(lines), fontsize=SMALL, color=QUIET, parse_math=False)


def panel(axis: "Axes", title: str, words: str = "", lines: int = 1) -> None:
    """Write the title of a panel at its left, and lines of small words below it; leave two sides open."""
    axis.set_title(title, fontsize=PANEL, loc="left", pad=6 + 11 * lines * bool(words), color=INK, parse_math=False)
    if words:
        place = {"xy": (0, 1), "xytext": (0, 4), "xycoords": "axes fraction", "textcoords": "offset points"}
        axis.annotate(words, va="bottom", fontsize=SMALL, color=QUIET, parse_math=False, **place)
    axis.spines[["top", "right"]].set_visible(False)
    axis.tick_params(labelsize=SMALL)


def better(higher: bool = True) -> str:
    """The direction of an axis."""
    return "higher is better" if higher else "lower is better"
