"""Frames by number with PyAV, whose wheels bring FFmpeg along."""

import errno
from collections.abc import Iterator
from contextlib import contextmanager

import numpy as np
import torch

from sslkit.data.video_reader import UnreadableVideo, VideoFacts, check_numbers
from sslkit.errors import UserError

try:
    import av
    from av.video.reformatter import VideoReformatter
except ImportError as error:
    raise UserError(f'videos are read by PyAV, which is not there ({error}): pip install -e ".[video]"') from error

_STARVED = (errno.EMFILE, errno.ENFILE, errno.ENOMEM)
_START = 32  # frames at a file's start that prove how its packets are numbered
# Where a frame that nothing refers to may be left undecoded. Not HEVC: others may refer to its "non-reference" frames.
_SKIPS = ("h264", "mpeg4", "mpeg2video", "mpeg1video")


class PyAVReader:
    """See `VideoReader`. Decodes with as many threads as torch has: one in a loader's worker."""

    def __init__(self) -> None:
        library = ".".join(map(str, av.library_versions["libavcodec"]))
        self.name = f"pyav {av.__version__} (libavcodec {library})"

    def survey(self, path: str) -> VideoFacts:
        with _opened(path) as (container, stream):
            timestamps, keys = _packets(container, stream)
            if keys is None or not _proven(container, stream, timestamps, keys):
                return _counted(path)
            numbers = np.searchsorted(timestamps, keys)
            frame = next(_decoded(container, stream, int(timestamps[0])))
            return _facts(stream, frame, len(timestamps), "packets", keys, numbers)

    def frames(
        self, path: str, facts: VideoFacts, numbers: np.ndarray, size: tuple[int, int], interpolation: str = "bilinear"
    ) -> np.ndarray:
        check_numbers(numbers, facts)
        out = np.empty((len(numbers), *size, 3), dtype=np.uint8)
        missing = set(numbers.tolist())
        scaler = VideoReformatter()
        with _opened(path) as (container, stream):
            _set_threads(stream, torch.get_num_threads() if len(facts.key_pts) else 1)
            source = _sought if len(facts.key_pts) else _from_start
            for number, frame in source(container, stream, facts, numbers):
                out[np.searchsorted(numbers, number)] = _picture(scaler, frame, size, interpolation)
                missing.discard(number)
        if missing:
            raise UnreadableVideo(f"frame {min(missing)} of {facts.frames} cannot be decoded")
        return out


@contextmanager
def _opened(path: str) -> Iterator[tuple["av.container.InputContainer", "av.VideoStream"]]:
    """The file and its video; what goes wrong with either becomes UnreadableVideo, unless the machine is starved."""
    try:
        with av.open(path) as container:
            yield container, _video(container)
    except UnreadableVideo:
        raise
    except (av.FFmpegError, OSError, ValueError, StopIteration) as error:
        if getattr(error, "errno", None) in _STARVED:
            raise
        raise UnreadableVideo(_reason(error)) from error


def _reason(error: Exception) -> str:
    text = getattr(error, "strerror", None) or str(error)
    if isinstance(error, av.error.InvalidDataError):
        return f"not a video, or its header is damaged ({text})"
    return f"{type(error).__name__}: {text}".splitlines()[0]


def _video(container: "av.container.InputContainer") -> "av.VideoStream":
    cover = av.stream.Disposition.attached_pic
    streams = [stream for stream in container.streams.video if not stream.disposition & cover]
    if not streams:
        kinds = sorted({stream.type for stream in container.streams} - {"video"})
        raise UnreadableVideo(f"no video in it, {' and '.join(kinds)} only" if kinds else "no video in it")
    stream = streams[0]
    if stream.codec_context is None or stream.codec_context.codec is None:
        raise UnreadableVideo(f"no decoder for its codec in PyAV {av.__version__}")
    return stream


def _set_threads(stream: "av.VideoStream", count: int) -> None:
    stream.codec_context.thread_type = "AUTO" if count > 1 else "NONE"
    stream.codec_context.thread_count = count


def _packets(
    container: "av.container.InputContainer", stream: "av.VideoStream"
) -> tuple[np.ndarray, np.ndarray | None]:
    """All timestamps in rising order, and those of the key frames; None if they do not tell the frames' order."""
    timestamps, keys, sound = [], [], True
    for packet in container.demux(stream):
        if not packet.size:
            continue
        sound &= packet.pts is not None and not packet.is_corrupt and not packet.is_discard
        timestamps.append(packet.pts)
        if packet.is_keyframe:
            keys.append(packet.pts)
    if not sound or not keys or len(set(timestamps)) < len(timestamps) or min(keys) > min(timestamps):
        return np.empty(0, dtype=np.int64), None
    return np.sort(np.array(timestamps, dtype=np.int64)), np.sort(np.array(keys, dtype=np.int64))


def _proven(
    container: "av.container.InputContainer", stream: "av.VideoStream", timestamps: np.ndarray, keys: np.ndarray
) -> bool:
    """Whether each packet is one frame, shown in the order of the timestamps: at the start, and from the last key."""
    last = np.searchsorted(timestamps, keys[-1])
    try:
        for first, expected in ((keys[0], timestamps[:_START]), (keys[-1], timestamps[last:])):
            frames = _decoded(container, stream, int(first))
            if [frame.pts for _, frame in zip(expected, frames, strict=False)] != expected.tolist():
                return False
        return next(frames, None) is None
    except av.FFmpegError:
        return False


def _decoded(container: "av.container.InputContainer", stream: "av.VideoStream", key: int) -> Iterator["av.VideoFrame"]:
    """The frames from that key frame on. Raises FFmpegError at the first damaged packet."""
    for packet in _from_key(container, stream, key):
        yield from (frame for frame in packet.decode() if frame.pts is None or frame.pts >= key)


def _from_key(container: "av.container.InputContainer", stream: "av.VideoStream", key: int) -> Iterator["av.Packet"]:
    """The packets from that of the key frame on; from the file's start where seeking lands behind it."""
    for target in (key, None):
        _rewind(container, stream, target)
        packets = container.demux(stream)
        for packet in packets:
            if packet.is_keyframe and packet.pts == key:
                yield packet
                yield from packets
                return
            if target is not None and packet.is_keyframe and packet.pts is not None and packet.pts > key:
                break
    raise UnreadableVideo("it has lost a key frame since it was indexed")


def _rewind(container: "av.container.InputContainer", stream: "av.VideoStream", target: int | None) -> None:
    if target is None:
        container.seek(-(2**62), backward=True, any_frame=False)
    else:
        container.seek(target, stream=stream, backward=True, any_frame=False)


def _counted(path: str) -> VideoFacts:
    """The facts of a file that has to be decoded to the end to count its frames."""
    first, count = None, 0
    with _opened(path) as (container, stream):
        _set_threads(stream, 1)
        for frame in _every(container, stream):
            first, count = first or frame, count + 1
        if first is None:
            raise UnreadableVideo("no frame in it can be decoded")
        none = np.empty(0, dtype=np.int64)
        return _facts(stream, first, count, "decoded", none, none)


def _every(container: "av.container.InputContainer", stream: "av.VideoStream") -> Iterator["av.VideoFrame"]:
    """What can be decoded from the start on; damaged packets are passed over, always the same ones."""
    packets = container.demux(stream)
    while True:
        try:
            packet = next(packets, None)
            if packet is None:
                return
            frames = packet.decode()
        except (av.error.InvalidDataError, av.error.EOFError):
            continue
        yield from frames


def _facts(
    stream: "av.VideoStream", frame: "av.VideoFrame", frames: int, counted: str, keys: np.ndarray, numbers: np.ndarray
) -> VideoFacts:
    height, width, pixel = frame.height, frame.width, float(stream.sample_aspect_ratio or 1)
    aspect = width * pixel / height
    if _quarter_turns(frame) % 2:
        height, width, aspect = width, height, 1 / aspect
    return VideoFacts(frames, float(stream.average_rate or 0), height, width, aspect, counted, keys, numbers)


def _from_start(
    container: "av.container.InputContainer", stream: "av.VideoStream", facts: VideoFacts, numbers: np.ndarray
) -> Iterator[tuple[int, "av.VideoFrame"]]:
    wanted, last = set(numbers.tolist()), int(numbers[-1])
    for number, frame in enumerate(_every(container, stream)):
        if number in wanted:
            yield number, frame
        if number >= last:
            return


def _sought(
    container: "av.container.InputContainer", stream: "av.VideoStream", facts: VideoFacts, numbers: np.ndarray
) -> Iterator[tuple[int, "av.VideoFrame"]]:
    """Each run of neighbouring stretches (from a key frame to the next) that hold wanted frames is decoded once."""
    stretch = np.searchsorted(facts.key_numbers, numbers, side="right") - 1
    used = np.unique(stretch)
    for run in np.split(used, np.flatnonzero(np.diff(used) > 1) + 1):
        wanted = numbers[(stretch >= run[0]) & (stretch <= run[-1])]
        yield from _run(container, stream, facts, int(run[0]), int(run[-1]), wanted)


def _run(
    container: "av.container.InputContainer",
    stream: "av.VideoStream",
    facts: VideoFacts,
    first: int,
    last: int,
    wanted: np.ndarray,
) -> Iterator[tuple[int, "av.VideoFrame"]]:
    """The wanted frames of the stretches first .. last."""
    packets, timestamps = _gathered(container, stream, facts, first, last)
    start = int(facts.key_numbers[first])
    number_of = {timestamps[number - start]: number for number in wanted.tolist()}
    skips = stream.codec_context.name in _SKIPS
    left = len(number_of)
    final = max(place for place, packet in enumerate(packets) if packet.pts in number_of)
    for packet in [*packets[: final + 1], None]:
        if skips and packet is not None:
            stream.codec_context.skip_frame = "DEFAULT" if packet.pts in number_of else "NONREF"
        for frame in stream.codec_context.decode(packet):
            if frame.pts in number_of:
                left -= 1
                yield number_of[frame.pts], frame
        if not left:
            return


def _gathered(
    container: "av.container.InputContainer", stream: "av.VideoStream", facts: VideoFacts, first: int, last: int
) -> tuple[list["av.Packet"], list[int]]:
    """The packets of these stretches in the order of decoding, and the timestamps of their frames in rising order.

    Frames of a stretch may come behind the next key frame, so the packets go on until all are there.
    """
    begin = int(facts.key_pts[first])
    ends = last + 1 < len(facts.key_pts)
    end = int(facts.key_pts[last + 1]) if ends else None
    count = int(facts.key_numbers[last + 1] if ends else facts.frames) - int(facts.key_numbers[first])
    packets, timestamps = [], []
    for packet in _from_key(container, stream, begin):
        if not packet.size:
            break
        packets.append(packet)
        if packet.pts is not None and packet.pts >= begin and (end is None or packet.pts < end):
            timestamps.append(packet.pts)
        if len(timestamps) == count:
            return packets, sorted(timestamps)
    raise UnreadableVideo(f"it breaks off: {len(timestamps)} frames are left of {count} that were there when indexed")


def _quarter_turns(frame: "av.VideoFrame") -> int:
    """Quarter turns, counter-clockwise, that set a frame upright."""
    return round(frame.rotation / 90) % 4


def _picture(
    scaler: "VideoReformatter", frame: "av.VideoFrame", size: tuple[int, int], interpolation: str
) -> np.ndarray:
    """(height, width, 3) uint8, upright."""
    turns = _quarter_turns(frame)
    height, width = size[::-1] if turns % 2 else size
    scaled = scaler.reformat(frame, width, height, "rgb24", interpolation=interpolation.upper(), threads=1)
    return np.rot90(scaled.to_ndarray(), turns)
