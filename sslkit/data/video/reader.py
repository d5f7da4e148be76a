"""Read frames of a video file by number: the protocol.

A frame's number is its place in the file's display order, from 0. Timestamps are not used: on files of variable frame
rate decoders disagree on the frame at a given time.
"""

from dataclasses import dataclass, field
from typing import Protocol

import numpy as np

EXTENSIONS = (
    *("mp4", "avi", "mkv", "webm", "mov", "m4v", "mpg", "mpeg", "wmv", "flv", "3gp", "ogv", "mts", "m2ts", "divx"),
)


class UnreadableVideo(Exception):
    """The file is not a video, has no decodable picture, or ends before the requested frame."""


@dataclass(frozen=True)
class VideoFacts:
    """The result of a survey of a file.

    frames: number of decodable frames. fps: from the file's header, 0 if unknown.
    height, width: of an upright frame, in stored pixels. aspect: width / height as displayed.
    counted: "packets" (each holds one frame, as the file's start and end prove) or "decoded" (all were).
    key_pts, key_numbers: (K,) int64, timestamps of the frames to which a reader can seek, and their numbers; empty if
        the timestamps do not give the frames' order, so that every reading starts at the first frame.
    """

    frames: int
    fps: float
    height: int
    width: int
    aspect: float
    counted: str
    key_pts: np.ndarray = field(repr=False)
    key_numbers: np.ndarray = field(repr=False)


class VideoReader(Protocol):
    """A decoder. name: its name and version, included in every index and digest."""

    name: str

    def survey(self, path: str) -> VideoFacts:
        """Scan a file once. Raises UnreadableVideo with the reason in one line."""
        ...

    def frames(
        self, path: str, facts: VideoFacts, numbers: np.ndarray, size: tuple[int, int], interpolation: str
    ) -> np.ndarray:
        """Frames (n, height, width, 3), uint8 RGB, upright, in the order of `numbers`.

        facts: from `survey`. numbers: (n,) rising, without repeats, below facts.frames.
        size: (height, width) in pixels. interpolation: "bilinear" or "bicubic", both antialiased.
        Raises UnreadableVideo.
        """
        ...


def check_numbers(numbers: np.ndarray, facts: VideoFacts) -> None:
    """Raises ValueError unless the numbers rise and are within the video."""
    if not len(numbers) or numbers[0] < 0 or numbers[-1] >= facts.frames or (np.diff(numbers) <= 0).any():
        raise ValueError(f"frame numbers must rise and lie from 0 to {facts.frames - 1}, got {numbers}")
