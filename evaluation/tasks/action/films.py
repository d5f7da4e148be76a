"""Index the videos of a split once, leaving out and reporting those that cannot be decoded."""

import hashlib
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path

import numpy as np

from evaluation.datasets._copies import same_of_shape
from evaluation.tasks.action.datasets.base import Films
from sslkit.data.file_contents import FileContents
from sslkit.data.path_list import PathList
from sslkit.data.pixel_digest import digest_of_pixels
from sslkit.data.video.index import VideoIndex, index_videos
from sslkit.data.video.opening import open_reader
from sslkit.data.video.reader import UnreadableVideo, VideoFacts, VideoReader
from sslkit.errors import UserError

RATES = 1.1  # ratio of frame rates that are told apart: 23.976, 24 and 25 count as one


@dataclass(frozen=True)
class SurveyedVideos:
    """films: the decodable videos. index: their frame counts and sizes, at `places`. reader: of their frames.

    cache: folder that remembers the digests of the files.
    """

    films: Films
    index: VideoIndex
    places: np.ndarray
    reader: VideoReader
    cache: str | Path | None = None

    @cached_property
    def content(self) -> str:
        """sha256 (hex) of the files: that of any copy."""
        digest = hashlib.sha256()
        FileContents(self.films.root, PathList(list(self.films.paths)), self.cache).update_content(digest)
        return digest.hexdigest()

    @property
    def shapes(self) -> np.ndarray:
        """(N, 3) int64: frames, height and width of each video."""
        return np.stack([self.index.numbers[name][self.places] for name in ("frames", "height", "width")], 1)

    @property
    def rates(self) -> np.ndarray:
        """(N,) float64 frames per second by the files' headers, 0 where these do not say it."""
        return self.index.numbers["fps"][self.places]

    def digest_of(self, row: int) -> int | None:
        """Digest the first, the middle and the last frame at full size; None if one cannot be decoded."""
        facts = self.facts(row)
        numbers = np.unique([0, facts.frames // 2, facts.frames - 1])
        try:
            frames = self.reader.frames(
                str(self.films.path(row)), facts, numbers, (facts.height, facts.width), "bilinear"
            )
        except UnreadableVideo:
            return None
        return digest_of_pixels(frames.reshape(-1, *frames.shape[2:]))

    def facts(self, row: int) -> VideoFacts:
        """Number of frames, aspect ratio and key frames of a video."""
        return self.index.row(int(self.places[row])).facts

    def decode(self, row: int, numbers: np.ndarray, size: tuple[int, int]) -> tuple[np.ndarray, np.ndarray]:
        """Decode the unique frames among `numbers`: (n, height, width, 3) uint8, and the index of each number in them.

        numbers: any shape, in any order. size: (height, width). The indices have the shape of `numbers`. Raises
        UnreadableVideo.
        """
        wanted, where = np.unique(numbers, return_inverse=True)
        frames = self.reader.frames(str(self.films.path(row)), self.facts(row), wanted, size, "bilinear")
        return frames, where.reshape(np.shape(numbers))


def survey(films: Films, *, cache: str | Path | None = None, on_error: str) -> SurveyedVideos:
    """Index every video, or read the index from the folder `cache`.

    on_error: for undecodable videos: "skip" leaves them out, with the reason in `films.left_out`, "raise" raises.
    Raises UserError without PyAV, for such videos with on_error="raise", and if no video is left.
    """
    reader = open_reader()
    index = index_videos(films.root, films.paths, reader, None if cache is None else Path(cache))
    row_of = {path: row for row, path in enumerate(dict.fromkeys(films.paths))}  # lists may contain a video twice
    places = np.array([row_of[path] for path in films.paths])
    sound = index.numbers["frames"][places] > 0
    unreadable = {int(row): index.reasons[int(places[row])] for row in np.flatnonzero(~sound)}
    if unreadable and on_error == "raise":
        row, reason = next(iter(unreadable.items()))
        raise UserError(
            f"{films.name}: {len(unreadable)} of {len(films)} videos cannot be read, the first is {films.path(row)}: "
            f"{reason}; on_error=skip leaves them out"
        )
    return SurveyedVideos(films.without(unreadable) if unreadable else films, index, places[sound], reader, cache)


def add_note(videos: SurveyedVideos, note: str) -> SurveyedVideos:
    """Return the videos with one more remark beside their results."""
    note = "; ".join(filter(None, (videos.films.note, note)))
    return replace(videos, films=replace(videos.films, note=note))


def in_train(train: SurveyedVideos, test: SurveyedVideos) -> np.ndarray:
    """Return (M,) bool: test videos that are also training videos, under whatever name and in whatever container.

    They have as many frames of the same size, and equal pixels in the first, the middle and the last one. Only videos
    whose number and size of frames occur in both splits are decoded.
    """
    shapes = [list(map(tuple, videos.shapes.tolist())) for videos in (train, test)]
    return same_of_shape(*shapes, train.digest_of, test.digest_of)


def rates_line(train: SurveyedVideos, test: SurveyedVideos) -> str:
    """Return a line where videos have several frame rates, so that clips of as many frames last longer or shorter."""
    spans = []
    for videos in (train, test):
        positive = videos.rates[videos.rates > 0]
        spans.append((float(positive.min()), float(positive.max())) if len(positive) else None)
    rates = [rate for span in spans if span for rate in span]
    if not rates or max(rates) <= RATES * min(rates):
        return ""
    spread = " and ".join(
        f"{name} videos {low:.4g}" + (f" to {high:.4g}" if high > RATES * low else "")
        for name, (low, high) in zip(("training", "test"), (span or (0.0, 0.0) for span in spans), strict=True)
    )
    return (
        f"frames per second differ: {spread}; a clip is a number of frames, so that it shows another span of time: "
        "give all videos one rate (ffmpeg -i IN -r RATE OUT)"
    )
