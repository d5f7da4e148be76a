"""Films that are ready to be read: surveyed once, those that cannot be decoded left out and named."""

import hashlib
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path

import numpy as np

from evaluation.protocols.action.datasets.base import Films
from sslkit.data.video_index import VideoIndex, index_videos
from sslkit.data.video_reader import VideoFacts, VideoReader, open_reader
from sslkit.errors import UserError


@dataclass(frozen=True)
class SurveyedVideos:
    """films: those that can be decoded. index: what a survey found of each, at `places`. reader: of their frames."""

    films: Films
    index: VideoIndex
    places: np.ndarray
    reader: VideoReader

    @cached_property
    def changed(self) -> str:
        """sha256 (hex) of when each film was last changed, to the ns: other content of the same size has another."""
        return hashlib.sha256(self.index.numbers["changed"][self.places].tobytes()).hexdigest()

    def facts(self, row: int) -> VideoFacts:
        """How many frames a film has, of what aspect, and where its key frames are."""
        return self.index.row(int(self.places[row])).facts

    def read(self, row: int, numbers: np.ndarray, size: tuple[int, int]) -> tuple[np.ndarray, np.ndarray]:
        """The frames (n, height, width, 3) uint8 of one film that are among `numbers`, each once, and where each is.

        numbers: any shape, in any order. size: (height, width). Returns the frames, and places in them of the shape of
        `numbers`. Raises UnreadableVideo.
        """
        wanted, where = np.unique(numbers, return_inverse=True)
        frames = self.reader.frames(str(self.films.path(row)), self.facts(row), wanted, size)
        return frames, where.reshape(np.shape(numbers))


def survey(
    films: Films, *, decoder: str = "auto", cache: str | Path | None = None, on_error: str = "skip"
) -> SurveyedVideos:
    """Look through every film once, or read what an earlier look found in the folder `cache`.

    decoder: see `sslkit.data.video_reader.open_reader`. on_error: what a film that cannot be decoded does: "skip"
    leaves it out, with the reason in `films.left_out`, "raise" stops.
    Raises UserError for a decoder that is not there, with on_error="raise" for such films, and where no film is left.
    """
    reader = open_reader(decoder)
    index = index_videos(films.root, films.paths, reader, None if cache is None else Path(cache))
    row_of = {path: row for row, path in enumerate(dict.fromkeys(films.paths))}  # lists may name a film twice
    places = np.array([row_of[path] for path in films.paths])
    sound = index.numbers["frames"][places] > 0
    unreadable = {int(row): index.reasons[int(places[row])] for row in np.flatnonzero(~sound)}
    if unreadable and on_error == "raise":
        row, reason = next(iter(unreadable.items()))
        raise UserError(
            f"{films.name}: {len(unreadable)} of {len(films)} films cannot be read, the first is {films.path(row)}: "
            f"{reason}; on_error=skip goes on without them"
        )
    return SurveyedVideos(films.without(unreadable) if unreadable else films, index, places[sound], reader)
