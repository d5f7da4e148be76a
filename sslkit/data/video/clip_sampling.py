"""Choose the frames of a clip: only frame numbers, no file access.

A clip of `length` frames, `stride` apart, spans (length - 1) * stride + 1 frames; the last possible start is d =
frames - span. In a video shorter than the span, the clip starts at 0 and repeats the last frame.
"""

import numpy as np

from sslkit.errors import UserError
from sslkit.options.members import nearest

SAMPLINGS = ("random", "center")
RULES = ("slowfast", "slowfast_offset", "endpoints")
_PURPOSE = 0x636C6970  # separates these draws from others of the same seed: "clip"


def span(length: int, stride: int) -> int:
    """Number of frames from the first to the last of a clip, both included."""
    return (length - 1) * stride + 1


def last_start(frames: int, length: int, stride: int) -> int:
    """d: the last possible start of a clip; 0 if the video is shorter than a clip."""
    return max(frames - span(length, stride), 0)


def clip_frames(starts: np.ndarray, frames: int, length: int, stride: int) -> np.ndarray:
    """Frame numbers (R, length) of clips that start at `starts` (R,), the last frame repeated beyond the end."""
    if frames < 1:
        raise ValueError("a video without frames has no clip")
    numbers = np.asarray(starts, dtype=np.int64)[:, None] + stride * np.arange(length, dtype=np.int64)
    return np.minimum(numbers, frames - 1)


def random_starts(frames: int, clips: int, length: int, stride: int, key: tuple[int, int, int]) -> np.ndarray:
    """Starts (clips,) int64, each uniform from 0 to d and independent of the others.

    key: (seed, epoch, row of the video), each at least 0; the same key gives the same starts in any process.
    """
    generator = np.random.default_rng(np.random.SeedSequence((_PURPOSE, *key)))
    return generator.integers(0, last_start(frames, length, stride), size=clips, endpoint=True)


def center_start(frames: int, length: int, stride: int) -> np.ndarray:
    """The start (1,) of the central clip: floor(d / 2)."""
    return np.array([last_start(frames, length, stride) // 2])


def uniform_starts(frames: int, clips: int, length: int, stride: int, rule: str) -> np.ndarray:
    """Starts (clips,) of the test clips i = 0 .. clips - 1, by one of three rules in use.

    "slowfast": floor(d * i / clips), SlowFast's default, which never reaches the end of the video.
    "slowfast_offset": i * floor(d / (clips - 1)), its offset mode.
    "endpoints": floor(d * i / (clips - 1)), from the first start to the last.
    A single clip starts at 0 by the first rule, at floor(d / 2) by the others. Here a clip spans (length - 1) * stride
    + 1 frames with whole strides between them; SlowFast counts length * stride and spreads the frames over it.
    Source of the first two: facebookresearch/SlowFast, datasets/decoder.py, get_start_end_idx.
    """
    d, i = last_start(frames, length, stride), np.arange(clips, dtype=np.int64)
    if rule == "slowfast":
        return d * i // clips
    if rule not in RULES:
        raise UserError(f"rule={rule} is not a rule for uniform clips: {nearest(rule, RULES)}")
    if clips == 1:
        return center_start(frames, length, stride)
    return i * (d // (clips - 1)) if rule == "slowfast_offset" else d * i // (clips - 1)
