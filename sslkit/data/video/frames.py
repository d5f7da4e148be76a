"""Frames of videos as images: `frames:FOLDER`, one a second, or every so many seconds.

The frames of a video stay on one side of a split, as those of a group, unless other groups are named.
"""

import re
from collections.abc import Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path
from threading import get_ident
from typing import Any

import numpy as np
from PIL import Image

from sslkit.data.columns import NO_COLUMNS, Columns, group_numbers
from sslkit.data.decode.unreadable import UnreadableImage
from sslkit.data.decoded_images import Decode, DecodedImages
from sslkit.data.image_options import ImageOptions
from sslkit.data.images import Identity
from sslkit.data.video import clips
from sslkit.data.video.options import VideoOptions
from sslkit.data.video.reader import UnreadableVideo, VideoFacts
from sslkit.terminal import say
from sslkit.terminal.say import counted

PREFIX = "frames:"
EVERY = 1.0  # second: neighbouring frames of a film are nearly alike
USUAL_RATE = 25.0  # frames a second of a video whose header names none: that of most cameras and films
AT_ONCE = 8  # frames that are decoded together: 200 MB of 3840 x 2160
_PREFIXES = re.compile(rf"(^|,)\s*{PREFIX}")


class FrameImages(DecodedImages):
    """N frames of videos, named `NAME.mp4#t=12.5` by their second.

    rows: (N,) int64, of each frame in `videos`. frame_numbers: (N,) int64, of the frame in its video, from 0.
    """

    def __init__(
        self, videos: clips.Videos, rows: np.ndarray, numbers: np.ndarray, identity: Identity, options: ImageOptions
    ) -> None:
        self.videos, self.rows, self.frame_numbers = videos, rows, numbers
        self._decoded: dict[int, dict[int, Image.Image]] = {}  # by thread, the pictures of some rows
        super().__init__(identity, options)

    def __len__(self) -> int:
        return len(self.rows)

    def path(self, row: int) -> str:
        return self.videos.path(int(self.rows[row])) + self._second(row)

    def image_name(self, row: int) -> str:
        return self.videos.image_name(int(self.rows[row])) + self._second(row)

    def _second(self, row: int) -> str:
        """The frame as a media fragment (W3C, Media Fragments URI 1.0)."""
        second = self.frame_numbers[row] / _rate(self.videos.facts(int(self.rows[row])))
        return f"#t={second:.3f}".rstrip("0").rstrip(".")

    def read_rows(self, rows: Sequence[int], decode: Decode) -> tuple[np.ndarray, list[str]]:
        """As of `DecodedImages`; the frames of a video are decoded in one pass, `AT_ONCE` together."""
        read, bad = [], []
        for start in range(0, len(rows), AT_ONCE):
            few = [int(row) for row in rows[start : start + AT_ONCE]]
            self._decoded[get_ident()] = self._decode(few)
            try:
                index, unread = super().read_rows(few, partial(_decode_later, decode, start))
            finally:
                del self._decoded[get_ident()]
            read.append(index)
            bad += unread
        return np.concatenate([np.empty(0, np.int64), *read]), list(dict.fromkeys(bad))

    def _decode(self, rows: Sequence[int]) -> dict[int, Image.Image]:
        """The pictures of some rows, without those of a video of which one cannot be decoded."""
        by_video: dict[int, list[int]] = {}
        for row in set(rows):
            by_video.setdefault(int(self.rows[row]), []).append(row)
        pictures: dict[int, Image.Image] = {}
        for some in by_video.values():
            try:
                pictures.update(zip(some, self._pictures_of(some), strict=True))
            except UnreadableVideo:  # each is tried alone, and told of, where it is opened
                continue
        return pictures

    def _pictures_of(self, rows: Sequence[int]) -> list[Image.Image]:
        """Of rows of one video, at its own size. Raises UnreadableVideo."""
        video = int(self.rows[rows[0]])
        facts = self.videos.facts(video)
        size = facts.height, max(1, round(facts.height * facts.aspect))
        numbers, inverse = np.unique(self.frame_numbers[rows], return_inverse=True)
        pixels = self.videos.reader.frames(self.videos.path(video), facts, numbers, size, "bilinear")
        return [Image.fromarray(pixels[shown]) for shown in inverse]

    def _open(self, row: int) -> Image.Image:
        if (picture := self._decoded.get(get_ident(), {}).get(row)) is not None:
            return picture.copy()
        try:
            return self._pictures_of([row])[0]
        except UnreadableVideo as error:
            raise UnreadableImage(str(error)) from error

    def _take(self, rows: np.ndarray) -> None:
        self.rows, self.frame_numbers = self.rows[rows], self.frame_numbers[rows]

    def _update_listing(self, digest: Any) -> None:
        self.videos._update_listing(digest)
        self._update_frames(digest)

    def _update_digest(self, digest: Any) -> None:
        self.videos._update_digest(digest)
        self._update_frames(digest)

    def _update_frames(self, digest: Any) -> None:
        digest.update(self.rows.tobytes())
        digest.update(self.frame_numbers.tobytes())


def open_frames(source: str | Path, options: ImageOptions) -> FrameImages:
    """One split of `frames:FOLDER`, of several folders, a list, a pattern or a file, as `clips.open_videos` opens them.

    Labels are those of the videos. Raises UserError for a source without videos, none that can be read, and no PyAV.
    """
    shared = {name: getattr(options, name) for name in ("split", "on_error", "cache", "columns")}
    videos = clips.open_folder_of_videos(files_of(source), VideoOptions(**shared))
    every = options.every or EVERY
    each = [numbers_every(videos.facts(row), every) for row in range(len(videos))]
    rows = np.repeat(np.arange(len(videos)), [len(numbers) for numbers in each])
    if unknown := sum(videos.facts(row).fps <= 0 for row in range(len(videos))):
        which = f"{counted(unknown, 'video')} of {len(videos):,}"
        say.warn(f"{videos.name}: {which} have no rate: {USUAL_RATE:g} frames a second are assumed", stacklevel=3)
    if options.every is None:
        remark = f"of {counted(len(videos), 'video')} one frame a second is read, {len(rows):,} in all"
        say.warn(f"{videos.name} {videos.split}: {remark}; every=0.5 reads two", stacklevel=3)
    return FrameImages(videos, rows, np.concatenate(each), _identity(videos, rows, str(source)), options)


def splits_of_frames(source: str | Path, columns: Columns = NO_COLUMNS) -> tuple[str, ...]:
    return clips.splits_of_videos(files_of(source), columns)


def files_of(source: str | Path) -> str:
    """The folders, lists and patterns that a source names, without `frames:`, which each of several may have."""
    return _PREFIXES.sub(r"\1", str(source))


def numbers_every(facts: VideoFacts, every: float) -> np.ndarray:
    """(n,) int64: the frames at 0, every, 2 every, ... seconds, each once. every: seconds."""
    step = max(every * _rate(facts), 1.0)
    count = int(np.ceil(facts.frames / step))
    numbers = np.floor(np.arange(count) * step + 0.5).astype(np.int64)
    return numbers[numbers < facts.frames]


def _rate(facts: VideoFacts) -> float:
    return facts.fps if facts.fps > 0 else USUAL_RATE


def _identity(videos: clips.Videos, rows: np.ndarray, source: str) -> Identity:
    """What the frames in `rows` of videos have of these."""
    names = [f"{videos.split}/{videos.image_name(row)}" for row in range(len(videos))]
    groups = group_numbers(names, names) if videos.groups is None else videos.groups
    values = None if videos.group_values is None else [videos.group_values[row] for row in rows]
    of_each = {"labels": videos.labels, "multi_labels": videos.multi_labels, "numbers": videos.numbers}
    of_each = {name: None if value is None else value[rows] for name, value in of_each.items()}
    about = Identity(videos.name, source, videos.splits, classes=videos.classes, mirror=videos.mirror)
    return replace(about, groups=groups[rows], group_values=values, **of_each)


def _decode_later(decode: Decode, start: int, image: Any, *, place: int) -> None:
    decode(image, place=start + place)
