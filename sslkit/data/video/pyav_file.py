"""Open a video file with PyAV, and describe its faults."""

import errno
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager

import av

from sslkit.data.video.reader import UnreadableVideo
from sslkit.files.reading import regular

_STARVED = (errno.EMFILE, errno.ENFILE, errno.ENOMEM)


@contextmanager
def open_stream(path: str) -> Iterator[tuple["av.container.InputContainer", "av.VideoStream"]]:
    """The file and its video stream; a fault becomes UnreadableVideo, except lack of memory or file handles."""
    with ExitStack() as stack:
        with translate_errors("not a video, or its header is damaged"):
            # A relative path such as a:b would be read as the protocol "a".
            container = stack.enter_context(av.open(f"file:{regular(path)}"))
        with translate_errors("it is damaged"):
            yield container, _video(container)


@contextmanager
def translate_errors(damage: str) -> Iterator[None]:
    """Turn errors of FFmpeg and of files into UnreadableVideo. damage: the message for invalid data."""
    try:
        yield
    except (av.FFmpegError, OSError, ValueError, StopIteration) as error:
        if getattr(error, "errno", None) in _STARVED:
            raise
        text = getattr(error, "strerror", None) or str(error)
        if isinstance(error, av.error.InvalidDataError):
            raise UnreadableVideo(f"{damage} ({text})") from error
        raise UnreadableVideo(f"{type(error).__name__}: {text}".splitlines()[0]) from error


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
