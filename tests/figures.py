"""Texts of a matplotlib figure: which overlap another, and which are cut off, by the renderer's boxes."""

from functools import cache
from itertools import combinations
from typing import Any

from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.text import Text


@cache
def texts(figure: Any) -> list[tuple[str, Any]]:
    """Every text that is drawn and its box in pixels, of a figure that does not change any more."""
    FigureCanvasAgg(figure).draw()
    hidden = {one for axis in figure.axes for one in _not_drawn(axis)}
    shown = [one for one in figure.findobj(Text) if one.get_visible() and one.get_text().strip()]
    return [(one.get_text(), one.get_window_extent()) for one in shown if one not in hidden]


def _not_drawn(axes: Any) -> list[Text]:
    """Texts of an axis that is off, and of ticks outside the limits, which matplotlib keeps."""
    if not axes.get_visible():
        return axes.findobj(Text)
    found = []
    for axis in (axes.xaxis, axes.yaxis):
        low, high = sorted(axis.get_view_interval())
        margin = 1e-9 * (high - low)
        for tick in (*axis.get_major_ticks(), *axis.get_minor_ticks()):
            if not axes.axison or not low - margin <= tick.get_loc() <= high + margin:
                found += [tick.label1, tick.label2]
        found += [] if axes.axison else [axis.label]
    return found


def overlapping_texts(figure: Any) -> list[tuple[str, str]]:
    """Pairs of texts that overlap; a pixel at the edges is allowed."""
    return [
        (a, b)
        for (a, first), (b, second) in combinations(texts(figure), 2)
        if min(first.x1, second.x1) - max(first.x0, second.x0) > 1
        and min(first.y1, second.y1) - max(first.y0, second.y0) > 1
    ]


def cut_texts(figure: Any) -> list[str]:
    """Texts that stick out of the picture."""
    box = figure.bbox
    outside = [
        text for text, one in texts(figure) if one.x0 < -1 or one.y0 < -1 or one.x1 > box.x1 + 1 or one.y1 > box.y1 + 1
    ]
    return outside
