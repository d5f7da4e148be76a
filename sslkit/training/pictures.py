"""The picture of a run at its start: views of some images."""

import textwrap
from collections.abc import Sequence
from functools import cache
from pathlib import Path

import matplotlib
import numpy as np
import torch
from PIL import Image, ImageDraw, ImageFont
from torch import Tensor
from torch.nn import functional

from sslkit.composition.method import Method
from sslkit.data.decoded_images import DecodedImages
from sslkit.data.images import Images
from sslkit.data.loader import EpochRows
from sslkit.data.views.augmentation import contact_sheet, view_generator
from sslkit.data.views.cropped import CroppedImages
from sslkit.data.views.crops import Crops
from sslkit.data.views.sheet import CELL, Sheet
from sslkit.files.writing import write_whole
from sslkit.numerics.figures import INK, PAPER, QUIET
from sslkit.objectives.base import Hidden

LETTERS = 60  # of a path
HIDDEN = 0.82  # brightness of hidden patches
BLANK = 2 / 255  # largest difference of the pixels of a blank view
SIZE, TITLE_SIZE = 13, 16  # pixels
GAP = 8  # pixels
ROW_WIDTH = 168  # most pixels of the captions at the left
LEAST = 480  # pixels: width of a picture that title and note are to fit in


def save_views(method: Method, images: Images | CroppedImages, path: Path) -> None:
    """Save some images with views of the kind used in training, side by side and with captions.

    They are of as many classes as there is room for, as the first ones of a folder are all of one class.
    images: crops need `whole`. path: in the folder of the run, whose name is the title.
    """
    source = images.images if isinstance(images, CroppedImages) else images
    most = source.sheet.most(method.image_size)
    asked = over_classes(source.labels, len(images), most)
    batch = images.__getitems__(EpochRows(asked, method.seed, 0))
    device = next(method.parameters()).device
    views = [view.cpu() for view in method.make_views(batch["images"].to(device), batch["aspect"])]
    whole = batch["images"].whole if isinstance(batch["images"], Crops) else batch["images"]
    sheet = source.sheet.of_views(whole, views, batch["aspect"], captions_of(source, batch["index"].tolist()))
    add_hidden(sheet, method, views)
    grid = contact_sheet(sheet.whole, sheet.views, rows=len(sheet.rows))
    larger = max(1, round(CELL / method.image_size))
    grid = grid.resize((grid.width * larger, grid.height * larger), Image.Resampling.NEAREST)
    blank = blank_views(views)
    _mark(grid, sheet.cells(blank), len(sheet.columns), len(sheet.rows))
    sample = "evenly spaced" if source.labels is None else "over the classes"
    channels, notes = sheet.whole.shape[1], [*sheet.notes]
    notes += [f"{len(blank)} of {len(asked) * len(views)} views are blank, of one colour."] if blank else []
    notes += [f"The first of {channels} channels is shown in gray."] if channels not in (1, 3) else []
    notes += [f"{most:,} of {len(images):,} are shown, {sample}."] if most < len(images) else []
    title, note = f"Views of {path.parent.name}", " ".join(notes)
    with write_whole(path) as partial:
        caption(grid, sheet.columns, sheet.rows, title=title, note=note).save(partial, format="png")


def spread(n: int, most: int) -> list[int]:
    """Rows of n, at most `most` of them, evenly spaced from the first."""
    return [number * n // most for number in range(most)] if n > most else list(range(n))


def over_classes(labels: np.ndarray | None, n: int, most: int) -> list[int]:
    """Rows of n, at most `most` of them, of as many classes as possible and evenly spaced within each.

    labels: (n,) or None; unlabelled rows are a class of their own.
    """
    kinds = [] if labels is None else np.unique(labels)
    if len(kinds) < 2 or n <= most:
        return spread(n, most)
    chosen = [kinds[number] for number in spread(len(kinds), most)]
    rows = []
    for number, kind in enumerate(chosen):
        members = np.flatnonzero(labels == kind)
        share = most // len(chosen) + (number < most % len(chosen))
        rows += [int(members[row]) for row in spread(len(members), share)]
    return sorted(rows)


def blank_views(views: Sequence[Tensor]) -> list[tuple[int, int]]:
    """Row and view of the views (N, C, ..., S, S) that are of one colour."""
    flat = [view.flatten(2) for view in views]
    blank = torch.stack([(view.amax(-1) - view.amin(-1)).amax(1) <= BLANK for view in flat], 1)
    return [tuple(index) for index in blank.nonzero().tolist()]


def _mark(grid: Image.Image, cells: Sequence[tuple[int, int]], columns: int, rows: int) -> None:
    """Write "blank" into these cells, each by row and column."""
    draw, font = ImageDraw.Draw(grid), ImageFont.load_default(13)
    width, height = grid.width / columns, grid.height / rows
    for row, column in cells:
        middle = round((column + 0.5) * width), round((row + 0.5) * height)
        dark = sum(grid.getpixel(middle)) < 3 * 128
        draw.text(middle, "blank", fill="#ffffff" if dark else "#000000", font=font, anchor="mm")


def captions_of(images: Images, index: Sequence[int]) -> list[str]:
    """The caption of each row: the path of its file or its row in the data, and its class if that is known."""
    captions = []
    for row in index:
        label = -1 if images.labels is None else int(images.labels[row])
        kind = images.classes[label] if images.classes and 0 <= label < len(images.classes) else ""
        name = _ending(images.path(row), 1 if kind else 2) if isinstance(images, DecodedImages) else f"row {row}"
        captions.append(f"{name}\n{f'class {kind}' if kind.isdigit() else kind}".rstrip())
    return captions


def add_hidden(sheet: Sheet, method: Method, views: Sequence[Tensor]) -> None:
    """Add what the masks of an objective leave of the views (N, C, S, S)."""
    hidden = method.objective.hidden(len(views[0]), view_generator(method.seed, 0, 0))
    if hidden:
        sheet.columns.extend(hidden)
        sheet.notes.extend(_on_masks(hidden))
        sheet.views.extend(gray_out(method, views[entry.view], entry.mask) for entry in hidden.values())


def _on_masks(hidden: dict[str, Hidden]) -> list[str]:
    """Sentences on the gray patches."""
    seen = [100 * (1 - entry.mask.float().mean().item()) for entry in hidden.values() if not entry.predicted]
    shares = " and ".join(dict.fromkeys(f"{share:.0f} %" for share in seen))
    notes = [f"The network sees the patches that are not gray, {shares} of a view, other ones in each step."]
    if asked := [name for name, entry in hidden.items() if entry.predicted]:
        notes.append(f"Of {', '.join(asked)} it predicts those that are not gray.")
    return notes


def gray_out(method: Method, view: Tensor, mask: Tensor) -> Tensor:
    """The view (N, C, S, S) with gray in the place of the masked patches (N, L)."""
    rows, columns = method.backbone.net.patch_embed.grid_size
    p, q = method.backbone.net.patch_embed.patch_size
    seen = (~mask).float().unflatten(1, (rows, columns)).repeat_interleave(p, 1).repeat_interleave(q, 2)
    seen = functional.pad(seen, (0, view.shape[-1] - columns * q, 0, view.shape[-2] - rows * p))[:, None]
    return torch.where(seen > 0, view, HIDDEN)


def _ending(path: str, parts: int) -> str:
    """The last parts of a path, at most 60 letters: its end tells files apart."""
    short = "/".join(Path(path).parts[-parts:])
    return short if len(short) <= LETTERS else f"…{short[1 - LETTERS :]}"


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
    return ImageFont.truetype(Path(matplotlib.get_data_path(), "fonts", "ttf", "DejaVuSans.ttf"), size)
