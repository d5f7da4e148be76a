"""Open the reader of videos, whose library is imported when a video is first read."""

from sslkit.data.video.reader import VideoReader


def open_reader() -> VideoReader:
    """The reader of PyAV, whose wheels include FFmpeg. Raises UserError where PyAV is not installed."""
    from sslkit.data.video.pyav_reader import PyAVReader

    return PyAVReader()
