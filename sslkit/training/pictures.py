"""The picture of a run at its start: views of some images."""

from collections.abc import Sequence
from pathlib import Path

import numpy as np
import torch
from PIL import Image, ImageDraw, ImageFont
from torch import Tensor
from torch.nn import functional

from sslkit.composition.method import Method
from sslkit.data.images import Images
from sslkit.data.loader import EpochRows
from sslkit.data.thumbnails import captions_of
from sslkit.data.views.augmentation import contact_sheet, view_generator
from sslkit.data.views.cropped import CroppedImages
from sslkit.data.views.crops import Crops
from sslkit.data.views.sheet import CELL, Sheet
from sslkit.files.writing import write_whole
from sslkit.numerics.captions import caption
from sslkit.objectives.base import Hidden

HIDDEN = 0.82  # brightness of hidden patches
BLANK = 2 / 255  # largest difference of the pixels of a blank view


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
