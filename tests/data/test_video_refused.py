"""Files that are no video, or of which no frame can be read."""

from pathlib import Path

import pytest
from films import cut, write_film, write_sound

from sslkit.data.video.opening import open_reader
from sslkit.data.video.reader import UnreadableVideo, VideoReader


@pytest.fixture
def reader() -> VideoReader:
    return open_reader()


def film(path: Path, **options: str) -> Path:
    write_film(path, 30, **options)
    return path


def _cut_header(folder: Path) -> Path:
    return cut(film(folder / "h264.mp4", codec="libx264"), 0.5, folder / "cut.mp4")  # MP4 keeps its index at the end


def _text(folder: Path) -> Path:
    (folder / "text.mp4").write_text("this is no film\n" * 40)
    return folder / "text.mp4"


def _empty(folder: Path) -> Path:
    (folder / "empty.avi").touch()
    return folder / "empty.avi"


def _sound(folder: Path) -> Path:
    return write_sound(folder / "sound.mp4")


def _no_codec(folder: Path) -> Path:
    content = film(folder / "mjpeg.avi", codec="mjpeg").read_bytes().replace(b"MJPG", b"qqqq")
    (folder / "codec.avi").write_bytes(content)
    return folder / "codec.avi"


def _no_frames(folder: Path) -> Path:
    content = film(folder / "mpeg4.avi", codec="mpeg4").read_bytes()
    (folder / "none.avi").write_bytes(content[: content.index(b"movi") + 4])
    return folder / "none.avi"


@pytest.mark.parametrize(
    ("make", "reason"),
    [
        (_cut_header, "not a video, or its header is damaged"),
        (_text, "not a video, or its header is damaged"),
        (_empty, "not a video, or its header is damaged"),
        (_sound, "no video in it, audio only"),
        (_no_codec, "no decoder for its codec"),
        (_no_frames, "no frame in it can be decoded"),
    ],
    ids=lambda value: getattr(value, "__name__", ""),
)
def test_what_is_no_video_is_refused_in_one_line(tmp_path: Path, make, reason: str, reader: VideoReader) -> None:
    with pytest.raises(UnreadableVideo, match=reason) as raised:
        reader.survey(str(make(tmp_path)))
    assert "\n" not in str(raised.value)


def test_a_file_that_is_gone(tmp_path: Path, reader: VideoReader) -> None:
    with pytest.raises(UnreadableVideo, match="No such file"):
        reader.survey(str(tmp_path / "gone.mp4"))
