"""Read frames by number with torchcodec, which uses the system's FFmpeg libraries."""

import os
from functools import partial
from importlib.metadata import version
from typing import Any

import numpy as np
import torch
from torchvision.transforms.v2 import functional as F

from sslkit.data.video.reader import UnreadableVideo, VideoFacts, check_numbers
from sslkit.errors import UserError

try:
    import torchcodec
    from torchcodec.decoders import VideoDecoder
except (ImportError, OSError, RuntimeError) as error:  # not installed, or without FFmpeg's libraries
    torchcodec, missing = None, str(error).strip().splitlines()[0]


class TorchcodecReader:
    """See `VideoReader`. Frames are ordered by their timestamps, from a scan of all packets.

    Frames that FFmpeg repaired after damage are returned: torchcodec does not mark them.
    """

    def __init__(self) -> None:
        if torchcodec is None:
            raise UserError(
                f'decoder=torchcodec does not load ({missing}): take decoder=pyav, pip install -e ".[video]"'
            )
        self.name = f"torchcodec {version('torchcodec')} (FFmpeg {torchcodec.ffmpeg_major_version})"

    def survey(self, path: str) -> VideoFacts:
        decoder = _open_decoder(path)
        metadata = decoder.metadata
        scanned = metadata.num_frames_from_content or 0
        frames, counted = (scanned, "packets") if _decodes(decoder, scanned - 1) else (_count(path), "decoded")
        if not frames:
            raise UnreadableVideo("no frame in it can be decoded")
        height, width = _read_frames(decoder, [0]).shape[-2:]  # upright, unlike the header's
        pixel = float(metadata.pixel_aspect_ratio or 1)
        pixel = 1 / pixel if round((metadata.rotation or 0) / 90) % 2 else pixel
        none = np.empty(0, dtype=np.int64)
        rate = float(metadata.average_fps_from_header or 0)
        return VideoFacts(frames, rate, height, width, width * pixel / height, counted, none, none)

    def frames(
        self, path: str, facts: VideoFacts, numbers: np.ndarray, size: tuple[int, int], interpolation: str = "bilinear"
    ) -> np.ndarray:
        check_numbers(numbers, facts)
        pictures = _read_frames(_open_decoder(path), numbers.tolist())
        scale = partial(F.resize, interpolation=F.InterpolationMode(interpolation), antialias=True)
        return scale(pictures, list(size)).permute(0, 2, 3, 1).numpy()


def _open_decoder(path: str) -> Any:
    if not os.path.isfile(path):
        raise UnreadableVideo("No such file or directory")
    try:
        return VideoDecoder(os.path.abspath(path), seek_mode="exact", num_ffmpeg_threads=torch.get_num_threads())
    except (RuntimeError, ValueError, IndexError) as error:
        raise _unreadable(error) from error


def _read_frames(decoder: Any, numbers: list[int]) -> torch.Tensor:
    """(n, 3, H, W) uint8."""
    try:
        return decoder.get_frames_at(numbers).data
    except (RuntimeError, ValueError, IndexError, StopIteration) as error:
        raise _unreadable(error) from error


def _decodes(decoder: Any, number: int) -> bool:
    if number < 0:
        return False
    try:
        _read_frames(decoder, [number])
    except UnreadableVideo:
        return False
    return True


def _count(path: str) -> int:
    """Number of frames from the start that can be decoded."""
    decoder, number = _open_decoder(path), 0
    while _decodes(decoder, number):
        number += 1
    return number


def _unreadable(error: Exception) -> UnreadableVideo:
    text = str(error).strip()
    return UnreadableVideo(
        f"not a video that can be decoded ({text.splitlines()[0] if text else type(error).__name__})"
    )
