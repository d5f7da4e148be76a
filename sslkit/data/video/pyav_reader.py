"""Read frames by number with PyAV, whose wheels include FFmpeg.

FFmpeg repairs damaged frames and returns them. Frames that it flags are refused, and those that may be predicted from
them, see `damage.py`. Unflagged damage cannot be detected: FFmpeg flags no frame of VP9, HEVC or Motion JPEG, and not
every one of H.264 (a changed byte may still be a valid frame).
"""

from bisect import bisect_left
from collections.abc import Iterator

import numpy as np

from sslkit.data.video.damage import Damage
from sslkit.data.video.reader import UnreadableVideo, VideoFacts, check_numbers
from sslkit.errors import UserError

try:
    import av
    from av.codec.context import Flags
    from av.video.reformatter import VideoReformatter
except ImportError as error:
    raise UserError(f'videos are read by PyAV, which is not there ({error}): pip install -e ".[video]"') from error

from sslkit.data.video.pyav_file import open_stream  # needs PyAV

_START = 32  # frames at a file's start that prove the order of its packets
# Codecs whose unreferenced frames may be skipped. Not HEVC: others may refer to its "non-reference" frames.
# A reference is always decoded, so that its damage is seen.
_SKIPS = ("h264", "mpeg4", "mpeg2video", "mpeg1video")
_LATE = 16  # maximum number of frames by which decoding precedes display, in H.264 and HEVC


class PyAVReader:
    """See `VideoReader`. Decodes on one thread: with more, FFmpeg flags fewer of the damaged frames."""

    def __init__(self) -> None:
        library = ".".join(map(str, av.library_versions["libavcodec"]))
        self.name = f"pyav {av.__version__} (libavcodec {library})"

    def survey(self, path: str) -> VideoFacts:
        with open_stream(path) as (container, stream):
            timestamps, keys = _packets(container, stream)
            if keys is None or not _proven(container, stream, timestamps, keys):
                return _count_by_decoding(path)
            numbers = np.searchsorted(timestamps, keys)
            frame = next(_decode_from(container, stream, int(timestamps[0])))
            return _facts(stream, frame, len(timestamps), "packets", keys, numbers)

    def frames(
        self, path: str, facts: VideoFacts, numbers: np.ndarray, size: tuple[int, int], interpolation: str
    ) -> np.ndarray:
        check_numbers(numbers, facts)
        out = np.empty((len(numbers), *size, 3), dtype=np.uint8)
        missing = set(numbers.tolist())
        scaler = VideoReformatter()
        with open_stream(path) as (container, stream):
            _on_one_thread(stream)
            source = _sought if len(facts.key_pts) else _from_start
            for number, frame in source(container, stream, facts, numbers):
                out[np.searchsorted(numbers, number)] = _picture(scaler, frame, size, interpolation)
                missing.discard(number)
        if missing:
            raise UnreadableVideo(f"frame {min(missing)} of {facts.frames} cannot be decoded")
        return out


def _on_one_thread(stream: "av.VideoStream") -> None:
    stream.codec_context.thread_type = "NONE"
    stream.codec_context.thread_count = 1


def _packets(
    container: "av.container.InputContainer", stream: "av.VideoStream"
) -> tuple[np.ndarray, np.ndarray | None]:
    """All timestamps in rising order, and those of the key frames; None if they do not give the frames' order."""
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
    """Return whether each packet is one frame, displayed in timestamp order, at the start and from the last key frame.

    False if the last frame is damaged, as in a truncated file: such files are decoded to count their frames.
    """
    last = np.searchsorted(timestamps, keys[-1])
    try:
        for first, expected in ((keys[0], timestamps[:_START]), (keys[-1], timestamps[last:])):
            frames = _decode_from(container, stream, int(first))
            shown = [(frame.pts, frame.is_corrupt) for _, frame in zip(expected, frames, strict=False)]
            if [pts for pts, _ in shown] != expected.tolist():
                return False
        return next(frames, None) is None and not shown[-1][1]
    except av.FFmpegError:
        return False


def _decode_from(
    container: "av.container.InputContainer", stream: "av.VideoStream", key: int
) -> Iterator["av.VideoFrame"]:
    """The frames from key frame `key` on. Raises FFmpegError at the first damaged packet."""
    for packet in _from_key(container, stream, key):
        yield from (frame for frame in packet.decode() if frame.pts is None or frame.pts >= key)


def _from_key(container: "av.container.InputContainer", stream: "av.VideoStream", key: int) -> Iterator["av.Packet"]:
    """The packets from key frame `key` on; from the file's start if seeking lands after it."""
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


def _count_by_decoding(path: str) -> VideoFacts:
    """The facts of a file whose frames are counted by decoding it, up to the last intact frame."""
    first, count = None, 0
    with open_stream(path) as (container, stream):
        _on_one_thread(stream)
        for number, (frame, broken) in enumerate(_every(container, stream, Damage())):
            first, count = first or frame, count if broken else number + 1
        if not count:
            raise UnreadableVideo("no frame in it can be decoded")
        none = np.empty(0, dtype=np.int64)
        return _facts(stream, first, count, "decoded", none, none)


def _every(
    container: "av.container.InputContainer", stream: "av.VideoStream", damage: Damage
) -> Iterator[tuple["av.VideoFrame", bool]]:
    """Each frame that can be decoded from the start on, and whether it is damaged; also recorded in `damage`.

    Packets that cannot be decoded are skipped, always the same ones.
    """
    stream.codec_context.flags |= Flags.copy_opaque  # links a frame to its packet
    packets, broken, position, number = container.demux(stream), set(), -1, -1
    while True:
        try:
            packet = next(packets, None)
            if packet is None:
                return
            position += 1
            packet.opaque = position
            if packet.is_corrupt:
                broken.add(position)
            frames = packet.decode()
        except (av.error.InvalidDataError, av.error.EOFError):
            damage.lost(position)
            continue
        for frame in frames:
            number += 1
            bad = frame.is_corrupt or frame.opaque in broken
            damage.record_frame(frame.opaque, number, key=frame.key_frame, broken=bad)
            yield frame, bad


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
    wanted, last, damage = set(numbers.tolist()), int(numbers[-1]), Damage()
    for number, (frame, _) in enumerate(_every(container, stream, damage)):
        if number in wanted:
            damage.want(number, frame.opaque, number)
            yield number, frame
        if number >= last + _LATE:  # the last one may be predicted from frames displayed after it
            break
    damage.check()


def _sought(
    container: "av.container.InputContainer", stream: "av.VideoStream", facts: VideoFacts, numbers: np.ndarray
) -> Iterator[tuple[int, "av.VideoFrame"]]:
    """Decode each run of neighbouring stretches (from one key frame to the next) with wanted frames once."""
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
    packets, timestamps = _gather_packets(container, stream, facts, first, last)
    begin, start = int(facts.key_pts[first]), int(facts.key_numbers[first])
    number_of = {timestamps[number - start]: number for number in wanted.tolist()}
    skips = stream.codec_context.name in _SKIPS
    damage = Damage()
    place_of = {packet.pts: position for position, packet in enumerate(packets)}
    final = max(place_of[pts] for pts in number_of)
    for position, packet in enumerate([*packets[: final + 1], None]):
        if skips and packet is not None:
            stream.codec_context.skip_frame = "DEFAULT" if packet.pts in number_of else "NONREF"
        try:
            frames = stream.codec_context.decode(packet)
        except av.error.InvalidDataError as error:
            near = start + bisect_left(timestamps, packets[min(position, final)].pts)
            raise UnreadableVideo(f"it is damaged near frame {near} ({error.strerror})") from error
        for frame in frames:
            at = place_of.get(frame.pts)
            if at is None or frame.pts < begin:  # refers to frames before the first key frame
                continue
            damage.record_frame(at, frame.pts, key=frame.key_frame, broken=frame.is_corrupt or packets[at].is_corrupt)
            if frame.pts in number_of:
                damage.want(number_of[frame.pts], at, frame.pts)
                yield number_of[frame.pts], frame
    damage.check()


def _gather_packets(
    container: "av.container.InputContainer", stream: "av.VideoStream", facts: VideoFacts, first: int, last: int
) -> tuple[list["av.Packet"], list[int]]:
    """The packets of these stretches in decoding order, and the timestamps of their frames in rising order.

    Frames of a stretch may follow the next key frame, so packets are read until all frames are there.
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
    raise UnreadableVideo(f"it breaks off: {len(timestamps)} frames are left of the {count} that were indexed")


def _quarter_turns(frame: "av.VideoFrame") -> int:
    """Counter-clockwise quarter turns that rotate a frame upright."""
    return round(frame.rotation / 90) % 4


def _picture(
    scaler: "VideoReformatter", frame: "av.VideoFrame", size: tuple[int, int], interpolation: str
) -> np.ndarray:
    """(height, width, 3) uint8, upright."""
    turns = _quarter_turns(frame)
    height, width = size[::-1] if turns % 2 else size
    scaled = scaler.reformat(frame, width, height, "rgb24", interpolation=interpolation.upper(), threads=1)
    return np.rot90(scaled.to_ndarray(), turns)
