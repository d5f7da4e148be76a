"""Captions around a grid of small pictures."""

import textwrap
from collections.abc import Sequence
from functools import cache
from pathlib import Path

from PIL import Image, ImageDraw, ImageFont

from sslkit.numerics.figures import INK, PAPER, QUIET

SIZE, TITLE_SIZE = 13, 16  # pixels
GAP = 8  # pixels
ROW_WIDTH = 168  # most pixels of the captions at the left
LEAST = 480  # pixels: width of a picture that title and note are to fit in


def caption(
    grid: Image.Image, columns: Sequence[str], rows: Sequence[str], *, title: str = "", note: str = ""
) -> Image.Image:
    """Return the grid on white: the title above, a caption over each column, one left of each row, the note below.

    grid: equal cells, as many as columns times rows. Captions may have several lines, and long ones are wrapped.
    """
    font, large = _font(SIZE), _font(TITLE_SIZE)
    cell = grid.width // len(columns), grid.height // len(rows)
    row_lines = [_wrap(row, font, ROW_WIDTH)[: max(1, cell[1] // _height(font))] for row in rows]
    column_lines = [_wrap(column, font, cell[0] - 4) for column in columns]
    left = GAP + max((round(font.getlength(line)) for lines in row_lines for line in lines), default=0) + GAP
    width = max(left + grid.width + GAP, LEAST)
    head, foot = (_wrap(text, face, width - 2 * GAP) for text, face in ((title, large), (note, font)))
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


def _wrap(text: str, font: ImageFont.FreeTypeFont, width: int) -> list[str]:
    """The lines of a text of at most `width` pixels; a file name may have bytes that are no text."""
    lines: list[str] = []
    for paragraph in text.encode(errors="replace").decode().split("\n") if text else ():
        broken, letters = [paragraph], max(1, int(len(paragraph) * width / max(font.getlength(paragraph), 1)))
        while letters and any(font.getlength(line) > width for line in broken):
            broken, letters = textwrap.wrap(paragraph, letters), letters - 1
        lines += broken
    return lines


def _height(font: ImageFont.FreeTypeFont) -> int:
    return round(1.3 * font.size)


@cache
def _font(size: int) -> ImageFont.FreeTypeFont:
    """Matplotlib's own font, which is there wherever matplotlib is."""
    import matplotlib  # half a second that a command without pictures is spared

    return ImageFont.truetype(Path(matplotlib.get_data_path(), "fonts", "ttf", "DejaVuSans.ttf"), size)
