"""Index the videos of a split once, leaving out and reporting those that cannot be decoded."""

import hashlib
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path

import numpy as np

from evaluation.protocols.action.datasets.base import Films
from sslkit.data.video.index import VideoIndex, index_videos
from sslkit.data.video.reader import VideoFacts, VideoReader, open_reader
from sslkit.errors import UserError


@dataclass(frozen=True)
class SurveyedVideos:
    """films: the decodable videos. index: their frame counts and sizes, at `places`. reader: of their frames."""

    films: Films
    index: VideoIndex
    places: np.ndarray
    reader: VideoReader

    @cached_property
    def changed(self) -> str:
        """sha256 (hex) of each file's modification time in ns, which detects changed content of the same size."""
        return hashlib.sha256(self.index.numbers["changed"][self.places].tobytes()).hexdigest()

    def facts(self, row: int) -> VideoFacts:
        """Number of frames, aspect ratio and key frames of a video."""
        return self.index.row(int(self.places[row])).facts

    def read(self, row: int, numbers: np.ndarray, size: tuple[int, int]) -> tuple[np.ndarray, np.ndarray]:
        """Decode the unique frames among `numbers`: (n, height, width, 3) uint8, and the index of each number in them.

        numbers: any shape, in any order. size: (height, width). The indices have the shape of `numbers`. Raises
        UnreadableVideo.
        """
        wanted, where = np.unique(numbers, return_inverse=True)
        frames = self.reader.frames(str(self.films.path(row)), self.facts(row), wanted, size)
        return frames, where.reshape(np.shape(numbers))


def survey(
    films: Films, *, decoder: str = "auto", cache: str | Path | None = None, on_error: str = "skip"
) -> SurveyedVideos:
    """Index every video, or read the index from the folder `cache`.

    decoder: see `sslkit.data.video.reader.open_reader`. on_error: for undecodable videos: "skip" leaves them out, with
    the reason in `films.left_out`, "raise" raises.
    Raises UserError for a missing decoder, for such videos with on_error="raise", and if no video is left.
    """
    reader = open_reader(decoder)
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
    return SurveyedVideos(films.without(unreadable) if unreadable else films, index, places[sound], reader)
