"""Clips of videos: batches of uint8 clips by row, decoded on demand, each video once for all of its clips."""

import os
import re
from collections import Counter
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import torch

from sslkit.data.columns import NO_COLUMNS, Columns
from sslkit.data.file_contents import FileContents
from sslkit.data.images import Identity, ImageOptions, Images
from sslkit.data.items import Item, item_of
from sslkit.data.sources.file_sources import is_files, list_files, name_of_files, splits_of_files
from sslkit.data.sources.walk import VIDEOS
from sslkit.data.video import clip_sampling
from sslkit.data.video.index import VideoIndex, index_videos
from sslkit.data.video.opening import open_reader
from sslkit.data.video.options import DEFAULT_SIZE, VideoOptions
from sslkit.data.video.reader import UnreadableVideo, VideoFacts, VideoReader
from sslkit.data.video.sheet import ClipSheet
from sslkit.errors import UserError
from sslkit.terminal import say

PREFIX = "video:"
_PREFIXES = re.compile(rf"(^|,)\s*{PREFIX}")
_SHOWN = 3  # unreadable videos named in the warning


class Videos(Images):
    """N videos with R clips (R, 3, T, S, S) each; made by `open_videos` or `open_video_files`.

    frames: T. clips: R. skipped: unreadable videos and the reasons; they have no row.
    kept: (N,) int64, the place of each row in the list of files. facts of a row: `facts(row)`.
    manifest: sha256 (hex) of paths, sizes and frame counts, to compare copies of a data set.
    """

    sheet = ClipSheet

    def __init__(
        self, root: Path, index: VideoIndex, reader: VideoReader, identity: Identity, options: VideoOptions
    ) -> None:
        super().__init__(identity, options, channels=3, image_size=options.side, native_size=None)
        self.root, self.index, self.reader = root, index, reader
        self._files = FileContents(root, index.paths, options.cache)
        self.skipped: dict[str, str] = {}
        self.kept = np.arange(len(index))

    @property
    def item(self) -> Item:
        return item_of(self.frames, self.clips)

    @property
    def frames(self) -> int:
        return self.options.frames

    @property
    def clips(self) -> int:
        return self.options.per_video

    @property
    def view_size(self) -> int:
        return self.image_size

    @property
    def in_card(self) -> dict[str, int]:
        return {"frames": self.frames, "stride": self.options.stride}

    @property
    def manifest(self) -> str:
        return self.index.manifest()

    def __len__(self) -> int:
        return len(self.index)

    def path(self, row: int) -> str:
        return os.path.join(self.root, self.index.paths[row])

    def image_name(self, row: int) -> str:
        """The name of a row within its split, the same on every machine."""
        return self.index.paths[row].replace(os.sep, "/")

    def facts(self, row: int) -> VideoFacts:
        """Frames, size and rate of a row."""
        return self.index.row(row).facts

    def frame_numbers(self, row: int, seed: int, epoch: int = 0) -> np.ndarray:
        """(R, T) int64: the frame numbers of a row's clips."""
        o, frames = self.options, self.index.numbers["frames"][row].item()
        if o.sampling == "random":
            starts = clip_sampling.random_starts(frames, o.per_video, o.frames, o.stride, (seed, epoch, row))
        else:
            starts = clip_sampling.center_start(frames, o.frames, o.stride)
        return clip_sampling.clip_frames(starts, frames, o.frames, o.stride)

    def __getitems__(self, rows: list[int]) -> dict[str, Any]:
        """A batch of n rows, with the keys of `Images.__getitems__` and one more:

        images: (n, R, 3, T, S, S) uint8.
        aspect: (n,) width / height of the squares' content.
        frames: (n, R, T) int64, the numbers of the frames.
        With sampling="random" the frames depend on `rows.seed` and `rows.epoch` (of `loader.EpochRows`; 0 in a plain
        list) and on the row. If these cannot be read, the clips are those of the next row that can, whatever was read
        before: a video damaged in one place may be intact in others.
        """
        seed, epoch = getattr(rows, "seed", 0), getattr(rows, "epoch", 0)
        o, size = self.options, self.image_size
        images = np.empty((len(rows), self.clips, 3, o.frames, size, size), dtype=np.uint8)
        frames = np.empty((len(rows), o.per_video, o.frames), dtype=np.int64)
        index, aspect = np.empty(len(rows), dtype=np.int64), np.empty(len(rows), dtype=np.float32)
        bad: dict[int, None] = {}
        for position, row in enumerate(rows):
            index[position] = read = self._next_readable(int(row), seed, epoch, images[position], bad)
            frames[position] = self.frame_numbers(read, seed, epoch)
            aspect[position] = self.index.numbers["aspect"][read] if self.fit == "squash" else 1.0
        unread, numbers = [self.path(row) for row in bad], torch.from_numpy(frames)
        return self.batch(torch.from_numpy(images), index, torch.from_numpy(aspect), unread, frames=numbers)

    def with_sampling(self, sampling: str, *, clips: int | None) -> "Videos":
        """The same videos with other clips, without listing or surveying again. Options as in `open_videos`."""
        return self._with(replace(self.options, sampling=sampling, clips=clips))

    def clean(self, size: int) -> "Videos":
        return self.with_sampling("center", clips=None).at(image_size=size, channels=3, fit="crop")

    def without_draws(self, size: int) -> "Videos":
        return self.clean(size)

    def describe(self) -> list[str]:
        return [
            f"clips     {self.clips} of each video in a step, {self.frames} frames, stride {self.options.stride}, "
            f"decoded by {self.reader.name}"
        ]

    def at(
        self, *, image_size: int, channels: int, fit: str, interpolation: str = VideoOptions.interpolation
    ) -> "Videos":
        size = {"image_size": image_size, "channels": channels, "fit": fit, "interpolation": interpolation}
        return self._with(replace(self.options, **size))

    def _with(self, options: VideoOptions) -> "Videos":
        other = self._copy()
        other.options, other.fit, other.image_size = options, options.fit, options.side
        return other

    def _chosen(self) -> tuple[Any, ...]:
        o = self.options
        return (*super()._chosen(), o.frames, o.stride, o.per_video, o.sampling, self.reader.name)

    def _update_listing(self, digest: Any) -> None:
        digest.update(self.manifest.encode())

    def _update_digest(self, digest: Any) -> None:
        self._update_listing(digest)
        self._files.update_content(digest)

    def _next_readable(self, row: int, seed: int, epoch: int, out: np.ndarray, bad: dict[int, None]) -> int:
        """Write the clips of the row, or of the next readable one, to `out`; returns that row."""
        reason = ""
        for step in range(len(self)):
            candidate = (row + step) % len(self)
            try:
                self._decode(candidate, self.frame_numbers(candidate, seed, epoch), out)
                return candidate
            except UnreadableVideo as error:
                reason = str(error)
                if self.options.on_error == "raise":
                    raise UserError(_unreadable(self.path(candidate), reason)) from error
                bad[candidate] = None
        raise UserError(f"{self.name}: none of its {len(self)} videos can be read any more: {reason}")

    def _decode(self, row: int, numbers: np.ndarray, out: np.ndarray) -> None:
        """Decode the clips in one pass, each frame once; out: (R, 3, T, S, S)."""
        facts, size = self.facts(row), self.image_size
        used, inverse = np.unique(numbers, return_inverse=True)
        height, width = self._frame_size(facts.aspect)
        pictures = self.reader.frames(self.path(row), facts, used, (height, width), self.options.interpolation)
        top, left = (height - size) // 2, (width - size) // 2
        for clip, shown in enumerate(inverse.reshape(numbers.shape)):
            out[clip] = pictures[shown, top : top + size, left : left + size].transpose(3, 0, 1, 2)

    def _frame_size(self, aspect: float) -> tuple[int, int]:
        """Height and width of the scaled frames."""
        side = self.image_size
        if self.fit == "squash":
            return side, side
        return max(side, round(side / aspect)), max(side, round(side * aspect))


def open_videos(
    source: str | Path,
    split: str = VideoOptions.split,
    *,
    frames: int = VideoOptions.frames,
    stride: int = VideoOptions.stride,
    clips: int | None = VideoOptions.clips,
    image_size: int = DEFAULT_SIZE,
    sampling: str = VideoOptions.sampling,
    fit: str = VideoOptions.fit,
    interpolation: str = VideoOptions.interpolation,
    on_error: str = VideoOptions.on_error,
    cache: str | Path | None = VideoOptions.cache,
) -> Videos:
    """Open one split of a set of videos as clips.

    source: a folder, several, a list of files or a pattern, with or without "video:"; splits and classes as of images,
        see `folder.open_folder` and `file_sources.list_files`.
    frames: T, of a clip. stride: distance between two of its frames. A shorter video repeats its last frame.
    sampling: "random" clips, or the "center" one.
    clips: R, clips of each video; default 2 random ones, or 1 in the centre.
    image_size: side in pixels. fit: "squash" scales the whole frame to the square and returns its aspect; "crop"
        scales its shorter side to image_size and keeps the central square.
    interpolation: "bilinear" or "bicubic", both antialiased.
    on_error: undecodable videos are left out, counted and named ("skip"), or raise UserError ("raise"); so do clips
        that touch a damaged place of a video, if the decoder detects it (see `pyav_reader`).
    cache: folder for the index of the videos, made at the first opening; None rebuilds it each time.
    Raises UserError for a source without videos, none that can be read, no PyAV, or an option out of range.
    """
    options = VideoOptions(
        split=split, frames=frames, stride=stride, clips=clips, image_size=image_size, sampling=sampling, fit=fit,
        interpolation=interpolation, on_error=on_error, cache=cache,
    )  # fmt: skip
    return open_folder_of_videos(source, options)


def open_folder_of_videos(source: str | Path, options: ImageOptions) -> Videos:
    """Like `open_videos`, with an options object; ImageOptions get the defaults of videos."""
    if not isinstance(options, VideoOptions):
        options = VideoOptions(**vars(options))
    text = _resolve_source(source)
    listing = list_files(text, options.split, VIDEOS, options.columns)
    identity = listing.identity(name_of_files(text), f"{PREFIX}{text}")
    return open_video_files(listing.folder, listing.paths, identity, options)


def splits_of_videos(source: str | Path, columns: Columns = NO_COLUMNS) -> tuple[str, ...]:
    return splits_of_files(_resolve_source(source), columns)


def files_of(source: str | Path) -> str:
    """The folders, lists and patterns that a source names, without `video:`, which each of several may have."""
    return _PREFIXES.sub(r"\1", os.fspath(source))


def open_video_files(root: Path, paths: Sequence[str], identity: Identity, options: VideoOptions) -> Videos:
    """Clips of the files `paths` below `root`, in that order, for data sets with their own lists.

    identity: its labels are those of `paths`; unreadable videos are left out of both (see `Videos.kept`).
    Raises UserError as `open_videos` does.
    """
    if twice := [path for path, many in Counter(paths).items() if many > 1]:
        raise UserError(f"{identity.name}: {len(twice)} videos are listed more than once, the first is {twice[0]}")
    reader = open_reader()
    index = index_videos(root, paths, reader, None if options.cache is None else Path(options.cache))
    rows = [index.row(position) for position in range(len(index))]
    intact = np.array([position for position, row in enumerate(rows) if row.facts is not None], dtype=np.int64)
    skipped = {
        os.path.join(root, paths[position]): row.reason for position, row in enumerate(rows) if row.facts is None
    }
    _report(identity.name, skipped, len(paths), options.on_error)
    per_film = {name: getattr(identity, name) for name in ("labels", "multi_labels", "numbers", "groups")}
    per_film = {name: None if values is None else np.asarray(values)[intact] for name, values in per_film.items()}
    readable = VideoIndex.from_entries({paths[position]: rows[position] for position in intact.tolist()})
    videos = Videos(root, readable, reader, replace(identity, **per_film), options)
    videos.kept, videos.skipped = intact, skipped
    return videos


def _resolve_source(source: str | Path) -> str:
    """Return the files that a source names, see `files_of`. Raises UserError for what is not there."""
    if is_files(text := files_of(source)):
        return text
    path = Path(text).expanduser()
    what = "is a file: give the folder that holds the videos, or a list of files" if path.is_file() else "is not there"
    raise UserError(f"folder of videos {path.absolute()} {what}")


def _report(name: str, skipped: dict[str, str], total: int, on_error: str) -> None:
    """Warn of the unreadable videos. Raises UserError if none can be read, or if any cannot and on_error="raise"."""
    if not skipped:
        return
    path, reason = next(iter(skipped.items()))
    if on_error == "raise":
        raise UserError(_unreadable(path, reason))
    if len(skipped) == total:
        raise UserError(f"{name}: none of its {total} videos can be read; the first is {path}: {reason}")
    named = "; ".join(f"{path}: {reason}" for path, reason in list(skipped.items())[:_SHOWN])
    more = f"; and {len(skipped) - _SHOWN} more" if len(skipped) > _SHOWN else ""
    say.warn(f"{name}: {len(skipped)} of {total} videos cannot be read, left out: {named}{more}", stacklevel=3)


def _unreadable(path: str, reason: str) -> str:
    return f"cannot read {path}: {reason} (on_error=skip leaves such videos out)"
