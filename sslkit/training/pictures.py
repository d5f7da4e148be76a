"""The picture of a run at its start: views of some images."""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

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
from sslkit.files.writing import write_whole
from sslkit.numerics.captions import caption
from sslkit.objectives.base import Hidden

FILMS, SHOWN_FRAMES = 3, 8  # videos, and frames of each, in the picture of clip views
MOST_ROWS, MOST_HIGH = 8, 1100  # images, and pixels of all of them
CELL = 112  # pixels: smaller views are drawn larger
LETTERS = 60  # of a path
HIDDEN = 0.82  # brightness of hidden patches
BLANK = 2 / 255  # largest difference of the pixels of a blank view


@dataclass(frozen=True)
class Columns:
    """The columns of a sheet: captions and pixels (N, C, S, S). notes: sentences below."""

    names: list[str]
    views: list[Tensor]
    notes: list[str]


def save_views(method: Method, images: Images | CroppedImages, path: Path) -> None:
    """Save some images with views of the kind used in training, side by side and with captions.

    They are of as many classes as there is room for, as the first ones of a folder are all of one class.
    images: crops need `whole`. A row is an image, for clips a view of a video. path: in the folder of the run, whose
    name is the title.
    """
    of_clips = method.backbone.frames is not None
    most = FILMS if of_clips else min(MOST_ROWS, max(3, MOST_HIGH // max(CELL, method.image_size)))
    source = images.images if isinstance(images, CroppedImages) else images
    asked = over_classes(source.labels, len(images), most)
    batch = images.__getitems__(EpochRows(asked, method.seed, 0))
    device = next(method.parameters()).device
    views = [view.cpu() for view in method.make_views(batch["images"].to(device), batch["aspect"])]
    whole = batch["images"].whole if isinstance(batch["images"], Crops) else batch["images"]
    rows = captions_of(source, batch["index"].tolist())
    blank = blank_views(views)
    if of_clips:
        grid, columns, rows = clip_sheet(whole, views), clip_columns(whole, views), clip_rows(rows, views)
    else:
        columns = image_columns(method, views)
        grid = contact_sheet(in_proportion(whole, batch["aspect"]), columns.views, rows=len(rows))
    larger = max(1, round(CELL / method.image_size))
    grid = grid.resize((grid.width * larger, grid.height * larger), Image.Resampling.NEAREST)
    if blank and not of_clips:
        _mark(grid, blank, len(columns.names), len(rows))
    sample = "evenly spaced" if source.labels is None else "over the classes"
    channels = whole.shape[-4] if whole.dim() == 6 else whole.shape[1]
    notes = [*columns.notes]
    notes += [f"{len(blank)} of {len(asked) * len(views)} views are blank, of one colour."] if blank else []
    notes += [f"The first of {channels} channels is shown in gray."] if channels not in (1, 3) else []
    notes += [f"{most:,} of {len(images):,} are shown, {sample}."] if most < len(images) else []
    title, note = f"Views of {path.parent.name}", " ".join(notes)
    with write_whole(path) as partial:
        caption(grid, columns.names, rows, title=title, note=note).save(partial, format="png")


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


def _mark(grid: Image.Image, blank: Sequence[tuple[int, int]], columns: int, rows: int) -> None:
    """Write "blank" into the cells of blank views, which follow the column of whole images."""
    draw, font = ImageDraw.Draw(grid), ImageFont.load_default(13)
    width, height = grid.width / columns, grid.height / rows
    for row, view in blank:
        middle = round((view + 1.5) * width), round((row + 0.5) * height)
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


def image_columns(method: Method, views: Sequence[Tensor]) -> Columns:
    """The columns of views (N, C, S, S) of images; for an objective with masks also what they leave."""
    names = ["as read", *_view_names(views)]
    notes = ["Left: the whole image. Beside it: its views, drawn as in training."]
    if len({view.shape[-1] for view in views}) > 1:
        notes.append("Smaller views are drawn at their size relative to the others.")
    hidden = method.objective.hidden(len(views[0]), view_generator(method.seed, 0, 0))
    if hidden:
        names += hidden
        notes += _on_masks(hidden)
    return Columns(
        names, [*views, *(gray_out(method, views[entry.view], entry.mask) for entry in hidden.values())], notes
    )


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


def clip_sheet(clips: Tensor, views: Sequence[Tensor]) -> Image.Image:
    """One row for each full-size view of each video: on the left the clip's first frame, then the view's frames.

    clips: (N, R, C, T, H, W). views: from `augment`, view v of clip v % R. At most eight frames are shown, evenly
    spaced.
    """
    per_video = clips.shape[1]
    whole = torch.stack(_full(views), 1)  # (N, V, C, T, S, S)
    shown = frames_to_show(clips)
    first = clips[:, [v % per_video for v in range(whole.shape[1])], :, shown[0]]
    return contact_sheet(
        first.flatten(0, 1), [whole[:, :, :, t].flatten(0, 1) for t in shown], rows=len(first) * len(whole[0])
    )


def clip_columns(clips: Tensor, views: Sequence[Tensor]) -> Columns:
    """The captions of `clip_sheet`."""
    frames, side, shown = clips.shape[3], views[0].shape[-1], frames_to_show(clips)
    notes = ["Left: the first frame of the clip as read. Beside it: frames of its view, drawn as in training."]
    if len(shown) < frames:
        notes.append(f"{len(shown)} of {frames} frames are shown, evenly spaced.")
    if hidden := len(views) - len(_full(views)):
        notes.append(f"{hidden} smaller views are not shown.")
    return Columns(["as read", *(f"frame {t + 1}\n{side} px" for t in shown)], [], notes)


def clip_rows(videos: Sequence[str], views: Sequence[Tensor]) -> list[str]:
    """The captions of the rows of `clip_sheet`. videos: captions of the videos."""
    return [f"{video}\nview {v}" for video in videos for v in range(1, len(_full(views)) + 1)]


def frames_to_show(clips: Tensor) -> list[int]:
    """The frames to show of clips (N, R, C, T, H, W)."""
    frames = clips.shape[3]
    return torch.linspace(0, frames - 1, min(frames, SHOWN_FRAMES)).round().long().tolist()


def in_proportion(whole: Tensor, aspect: Tensor) -> Tensor:
    """Squares of images (N, C, S, S), uint8, with their width / height given back, on white."""
    if bool((aspect - 1).abs().max() < 0.01):
        return whole
    size, out = whole.shape[-1], torch.full_like(whole, 255)
    for image, square, ratio in zip(out, whole, aspect.tolist(), strict=True):
        height, width = max(1, round(size * min(1, 1 / ratio))), max(1, round(size * min(1, ratio)))
        top, left = (size - height) // 2, (size - width) // 2
        drawn = functional.interpolate(square[None].float(), (height, width), mode="bilinear", antialias=True)[0]
        image[:, top : top + height, left : left + width] = drawn.round().clamp(0, 255).to(whole.dtype)
    return out


def _view_names(views: Sequence[Tensor]) -> list[str]:
    """`view 1`, `view 2`, ..., `crop 1`, ... for views smaller than the largest, each with its size."""
    largest, counts, names = max(view.shape[-1] for view in views), {"view": 0, "crop": 0}, []
    for view in views:
        kind = "view" if view.shape[-1] == largest else "crop"
        counts[kind] += 1
        names.append(f"{kind} {counts[kind]}\n{view.shape[-1]} px")
    return names


def _full(views: Sequence[Tensor]) -> list[Tensor]:
    return [view for view in views if view.shape[-1] == views[0].shape[-1]]


def _ending(path: str, parts: int) -> str:
    """The last parts of a path, at most 60 letters: its end tells files apart."""
    short = "/".join(Path(path).parts[-parts:])
    return short if len(short) <= LETTERS else f"…{short[1 - LETTERS :]}"
