"""Small films whose frames say their own number, for tests of whatever reads videos."""

from collections.abc import Sequence
from fractions import Fraction
from pathlib import Path

import numpy as np
import pytest

av = pytest.importorskip("av")

BITS = 10
HEIGHT, WIDTH = 48, 160


def picture(number: int, height: int = HEIGHT, width: int = WIDTH) -> np.ndarray:
    """(height, width, 3) uint8: the number as upright bars, bright for 1, the highest bit at the left; with grain."""
    bits = number >> np.arange(BITS)[::-1] & 1
    bars = bits[np.arange(width) * BITS // width] * 180 + 20
    grain = np.random.default_rng(number).integers(0, 40, (height, width, 1))
    return np.broadcast_to(bars[None, :, None] + grain, (height, width, 3)).astype(np.uint8)


def numbers_in(pictures: np.ndarray) -> np.ndarray:
    """The numbers of pictures (..., height, width, 3), whatever their size."""
    width = pictures.shape[-2]
    centres = ((np.arange(BITS) + 0.5) * width / BITS).astype(int)
    bits = pictures[..., centres, :].mean((-3, -1)) > 127
    return (bits * (1 << np.arange(BITS)[::-1])).sum(-1)


def write_film(
    path: Path,
    frames: int,
    codec: str = "mpeg4",
    *,
    rate: int = 25,
    times: Sequence[int] | None = None,
    size: tuple[int, int] = (HEIGHT, WIDTH),
    pixel_aspect: Fraction | None = None,
    **options: str,
) -> Path:
    """A film of `frames` frames; times: timestamps in 1/1000 s for a variable frame rate. options: the encoder's."""
    if codec not in av.codecs_available:
        pytest.skip(f"PyAV was built without {codec}")
    with av.open(str(path), "w") as container:
        stream = container.add_stream(codec, rate=1000 if times else rate)
        stream.height, stream.width = size
        stream.pix_fmt = "yuvj420p" if codec == "mjpeg" else "yuv420p"
        if times:
            stream.codec_context.time_base = Fraction(1, 1000)
        if pixel_aspect:
            stream.codec_context.sample_aspect_ratio = pixel_aspect
        stream.codec_context.thread_count = 1
        stream.codec_context.options = {"threads": "1", **options}
        for number in range(frames):
            frame = av.VideoFrame.from_ndarray(picture(number, *size), format="rgb24")
            frame.pts = times[number] if times else number
            frame.time_base = Fraction(1, 1000) if times else Fraction(1, rate)
            container.mux(stream.encode(frame))
        container.mux(stream.encode(None))
    return path


def encode(path: Path, pictures: Sequence[np.ndarray], rate: int = 25) -> None:
    """MPEG-4 of pictures (height, width, 3) uint8, all of one size."""
    path.parent.mkdir(parents=True, exist_ok=True)
    with av.open(str(path), "w") as container:
        stream = container.add_stream("mpeg4", rate=rate)
        stream.height, stream.width = pictures[0].shape[:2]
        stream.pix_fmt = "yuv420p"
        stream.codec_context.thread_count = 1
        for shown in pictures:
            frame = av.VideoFrame.from_ndarray(np.ascontiguousarray(shown), format="rgb24")
            container.mux(stream.encode(frame))
        container.mux(stream.encode(None))


def write_sound(path: Path) -> Path:
    """A file of half a second of silence, without a picture."""
    with av.open(str(path), "w") as container:
        stream = container.add_stream("aac", rate=16000, layout="mono")
        for number in range(8):
            frame = av.AudioFrame.from_ndarray(np.zeros((1, 1024), dtype=np.float32), format="fltp", layout="mono")
            frame.sample_rate, frame.pts = 16000, 1024 * number
            container.mux(stream.encode(frame))
        container.mux(stream.encode(None))
    return path


def cut(path: Path, share: float, to: Path) -> Path:
    """A copy of the first part of a file."""
    content = path.read_bytes()
    to.write_bytes(content[: int(share * len(content))])
    return to
