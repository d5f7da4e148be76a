"""The pictures of a run: views of some images at its start and the loss over time."""

import textwrap
from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial
from itertools import count, cycle
from pathlib import Path
from typing import TYPE_CHECKING

import matplotlib
import numpy as np
import torch
from matplotlib.figure import Figure
from PIL import Image
from torch import Tensor
from torch.nn import functional

from sslkit.composition.method import Method
from sslkit.data.decoded import DecodedImages
from sslkit.data.images import Images
from sslkit.data.loader import EpochRows
from sslkit.data.views.augmentation import contact_sheet, view_generator
from sslkit.data.views.cropped import CroppedImages
from sslkit.data.views.crops import Crops
from sslkit.files.writing import write_whole
from sslkit.numerics.figures import captioned, save_figure
from sslkit.objectives.base import Hidden

if TYPE_CHECKING:
    from matplotlib.axes import Axes

matplotlib.use("Agg")

FILMS, SHOWN_FRAMES = 3, 8  # videos, and frames of each, in the picture of clip views
MOST_ROWS, MOST_HIGH = 8, 1100  # images, and pixels of all of them
CELL = 112  # pixels: smaller views are drawn larger
LETTERS = 60  # of a path
HIDDEN = 0.82  # brightness of hidden patches

SHARES = "share: gradient norm / the objective's"  # titles of panels
ACCURACIES = {True: "accuracy on held-out images", False: "accuracy on images that were trained on too"}
COLUMNS, WIDTH, HIGH = 3, 3.9, 2.5  # panels side by side; inches of a panel
LINE, OTHER = "#1f5fa8", "#a8480a"
FEW, SMOOTHED = 20, 60  # rows up to which each has a dot, and from which a running median is drawn
MARKS = 12  # most lines that mark epochs


@dataclass(frozen=True)
class Columns:
    """The columns of a sheet: captions and pixels (N, C, S, S). notes: sentences below."""

    names: list[str]
    views: list[Tensor]
    notes: list[str]


def save_views(method: Method, images: Images | CroppedImages, path: Path) -> None:
    """Save some images with views of the kind used in training, side by side and with captions.

    They are evenly spaced, as the first ones of a folder are all of one class.
    images: crops need `whole`. A row is an image, for clips a view of a video. path: in the folder of the run, whose
    name is the title.
    """
    of_clips = method.backbone.frames is not None
    most = FILMS if of_clips else min(MOST_ROWS, max(3, MOST_HIGH // max(CELL, method.image_size)))
    batch = images.__getitems__(EpochRows(spread(len(images), most), method.seed, 0))
    device = next(method.parameters()).device
    views = [view.cpu() for view in method.make_views(batch["images"].to(device), batch["aspect"].to(device))]
    whole = batch["images"].whole if isinstance(batch["images"], Crops) else batch["images"]
    rows = captions_of(images.images if isinstance(images, CroppedImages) else images, batch["index"].tolist())
    if of_clips:
        grid, columns, rows = clip_sheet(whole, views), clip_columns(whole, views), clip_rows(rows, views)
    else:
        columns = image_columns(method, views)
        grid = contact_sheet(in_proportion(whole, batch["aspect"]), columns.views, rows=len(rows))
    larger = max(1, round(CELL / method.image_size))
    grid = grid.resize((grid.width * larger, grid.height * larger), Image.Resampling.NEAREST)
    shown = [f"{most:,} of {len(images):,} are shown, evenly spaced."] if most < len(images) else []
    title, note = f"Views of {path.parent.name}", " ".join([*columns.notes, *_on_channels(whole), *shown])
    with write_whole(path) as partial:
        captioned(grid, columns.names, rows, title=title, note=note).save(partial, format="png")


def spread(n: int, most: int) -> list[int]:
    """Rows of n, at most `most` of them, evenly spaced from the first."""
    return [place * n // most for place in range(most)] if n > most else list(range(n))


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
    names = ["as read", *_named(views)]
    notes = ["Left: the whole image. Beside it: its views, drawn as in training."]
    if len({view.shape[-1] for view in views}) > 1:
        notes.append("Smaller views are drawn at their size relative to the others.")
    hidden = method.objective.hidden(len(views[0]), view_generator(method.seed, 0, 0))
    if hidden:
        names += hidden
        notes += _on_masks(hidden)
    return Columns(names, [*views, *(grayed(method, views[one.view], one.mask) for one in hidden.values())], notes)


def _on_masks(hidden: dict[str, Hidden]) -> list[str]:
    """Sentences on the gray patches."""
    seen = [100 * (1 - one.mask.float().mean().item()) for one in hidden.values() if not one.predicted]
    shares = " and ".join(dict.fromkeys(f"{share:.0f} %" for share in seen))
    notes = [f"The network sees the patches that are not gray, {shares} of a view, other ones in each step."]
    if asked := [name for name, one in hidden.items() if one.predicted]:
        notes.append(f"Of {', '.join(asked)} it predicts those that are not gray.")
    return notes


def grayed(method: Method, view: Tensor, mask: Tensor) -> Tensor:
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
    shown = shown_frames(clips)
    first = clips[:, [v % per_video for v in range(whole.shape[1])], :, shown[0]]
    return contact_sheet(
        first.flatten(0, 1), [whole[:, :, :, t].flatten(0, 1) for t in shown], rows=len(first) * len(whole[0])
    )


def clip_columns(clips: Tensor, views: Sequence[Tensor]) -> Columns:
    """The captions of `clip_sheet`."""
    frames, side, shown = clips.shape[3], views[0].shape[-1], shown_frames(clips)
    notes = ["Left: the first frame of the clip as read. Beside it: frames of its view, drawn as in training."]
    if len(shown) < frames:
        notes.append(f"{len(shown)} of {frames} frames are shown, evenly spaced.")
    if hidden := len(views) - len(_full(views)):
        notes.append(f"{hidden} smaller views are not shown.")
    return Columns(["as read", *(f"frame {t + 1}\n{side} px" for t in shown)], [], notes)


def clip_rows(videos: Sequence[str], views: Sequence[Tensor]) -> list[str]:
    """The captions of the rows of `clip_sheet`. videos: captions of the videos."""
    return [f"{video}\nview {v}" for video in videos for v in range(1, len(_full(views)) + 1)]


def shown_frames(clips: Tensor) -> list[int]:
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


def _named(views: Sequence[Tensor]) -> list[str]:
    """`view 1`, `view 2`, ..., `crop 1`, ... for views smaller than the largest, each with its size."""
    largest, counts, names = max(view.shape[-1] for view in views), {"view": 0, "crop": 0}, []
    for view in views:
        kind = "view" if view.shape[-1] == largest else "crop"
        counts[kind] += 1
        names.append(f"{kind} {counts[kind]}\n{view.shape[-1]} px")
    return names


def _full(views: Sequence[Tensor]) -> list[Tensor]:
    return [view for view in views if view.shape[-1] == views[0].shape[-1]]


def _on_channels(whole: Tensor) -> list[str]:
    channels = whole.shape[-4] if whole.dim() == 6 else whole.shape[1]
    return [] if channels in (1, 3) else [f"The first of {channels} channels is shown in gray."]


def _ending(path: str, parts: int) -> str:
    """The last parts of a path, at most 60 letters: its end tells files apart."""
    short = "/".join(Path(path).parts[-parts:])
    return short if len(short) <= LETTERS else f"…{short[1 - LETTERS :]}"


def plot_terms(rows: list[dict[str, float]], terms: list[str], path: Path, k: int = 10, held_out: bool = True) -> None:
    """Plot over the steps: the loss, each of its terms, the shares of regularisers in the gradient, and with labels the
    accuracies of k-NN and online probe.

    rows: of metrics.csv. path: in the folder of the run, whose name is the title. held_out: whether the accuracies are
    of images that were not trained on.
    """
    accuracies = ACCURACIES[held_out]
    names = ["loss", *terms] if len(terms) > 1 else terms or ["loss"]
    judged = partial(_draw_accuracies, rows=rows, k=k, title=accuracies)
    panels = {SHARES: partial(_draw_shares, rows=rows), accuracies: judged}
    names = [*names, *([SHARES] if _shares(rows) else []), *([accuracies] if any("knn" in row for row in rows) else [])]
    columns = min(len(names), COLUMNS) if len(names) != COLUMNS + 1 else 2
    lines = -(-len(names) // columns)
    figure = Figure(figsize=(WIDTH * columns, HIGH * lines + 0.6), layout="constrained")
    for place, name in enumerate(names):
        axis = figure.add_subplot(lines, columns, place + 1)
        panels.get(name, partial(_draw_term, rows=rows, name=name))(axis)
        _mark_epochs(axis, rows, label=place + columns >= len(names))
        axis.spines[["top", "right"]].set_visible(False)
    notes = (
        ["Terms are shown as they enter the loss, weights included; the loss is their sum."] if len(terms) > 1 else []
    )
    notes += ["Pale: as recorded, without the extremes; dark: running median."] if _window(rows) > 1 else []
    figure.suptitle(path.parent.name, fontsize=11, parse_math=False)
    figure.supxlabel("\n".join(textwrap.wrap(" ".join(notes), 42 * columns)), fontsize=8, color="#444444")
    save_figure(figure, path)


def _draw_term(axis: "Axes", rows: list[dict[str, float]], name: str) -> None:
    steps, values = np.array([(row["step"], row[name]) for row in rows if name in row]).reshape(-1, 2).T
    window = _window(rows)
    alone = {"marker": "o", "markersize": 3} if len(steps) <= FEW else {}
    axis.plot(steps, values, color=LINE, alpha=0.3 if window > 1 else 1, lw=1 if window > 1 else 1.5, **alone)
    if window > 1:
        middle = np.median(np.lib.stride_tricks.sliding_window_view(values, window), axis=1)
        axis.plot(steps[window // 2 : window // 2 + len(middle)], middle, color=LINE, lw=1.8)
        seen = np.concatenate([middle, np.quantile(values, [0.01, 0.99])])  # a lone peak would flatten the rest
        edge = 0.06 * (np.ptp(seen) or 1)
        axis.set_ylim(seen.min() - edge, seen.max() + edge)
    axis.set_title(name, fontsize=10, loc="left", parse_math=False)


def _shares(rows: list[dict[str, float]]) -> dict[str, str]:
    """The columns of the regularisers' shares, and their regularisers."""
    found = dict.fromkeys(key for row in rows for key in row if key.endswith("/share"))
    return {key: key.rpartition("/")[0] for key in found}


def _draw_shares(axis: "Axes", rows: list[dict[str, float]]) -> None:
    styles = cycle([(LINE, "-"), (OTHER, "--"), (LINE, ":"), (OTHER, "-.")])
    for (key, label), (colour, style) in zip(_shares(rows).items(), styles, strict=False):
        points = [(row["step"], row[key]) for row in rows if row.get(key, 0) > 0]
        if points:
            axis.plot(*zip(*points, strict=True), style, color=colour, label=label, marker="o", markersize=3)
    axis.axhline(1, color="#8a949e", lw=0.8)
    axis.set_yscale("log")
    axis.set_title(SHARES, fontsize=10, loc="left")
    if axis.get_legend_handles_labels()[0]:
        axis.legend(frameon=False, fontsize=8)


def _draw_accuracies(axis: "Axes", rows: list[dict[str, float]], k: int, title: str) -> None:
    for key, label, colour, marker in (("knn", f"{k}-NN", LINE, "o"), ("probe", "online probe", OTHER, "s")):
        points = [(row["step"], 100 * row[key]) for row in rows if key in row]
        if points:
            dots = {"marker": marker, "markersize": 4} if len(points) <= FEW else {}
            axis.plot(*zip(*points, strict=True), color=colour, label=label, **dots)
    axis.set_title(title, fontsize=10, loc="left")
    axis.yaxis.set_major_formatter("{x:g} %")
    axis.legend(frameon=False, fontsize=8)


def _mark_epochs(axis: "Axes", rows: list[dict[str, float]], *, label: bool) -> None:
    """Draw a line at the end of every epoch, or of every tenth, ..., so that there are at most twelve."""
    ends = {row["epoch"]: row["step"] for row in rows}
    rounded = (digit * 10**zeros for zeros in count() for digit in (1, 2, 5))
    every = next(number for number in rounded if MARKS * number >= len(ends))
    for epoch, step in ends.items():
        if epoch % every == 0:
            axis.axvline(step, color="#d3d9df", lw=0.8, zorder=0)
    axis.set_xlim(0, 1.02 * max(ends.values(), default=1))
    axis.tick_params(labelsize=8)
    axis.locator_params(axis="x", nbins=5, integer=True)
    if label:
        axis.set_xlabel(f"step; lines mark {'epochs' if every == 1 else f'every {every} epochs'}", fontsize=8)


def _window(rows: list[dict[str, float]]) -> int:
    """Rows of the loss in a running median; 1 for few."""
    recorded = sum("loss" in row for row in rows)
    return 1 if recorded < SMOOTHED else max(3, recorded // 20)
