"""torchcodec against PyAV, on machines where it loads."""

from pathlib import Path

import numpy as np
import pytest
from films import numbers_in, write_film, write_sound

from sslkit.data.video.reader import UnreadableVideo, VideoReader, open_reader
from sslkit.errors import UserError

N = 60


@pytest.fixture
def reader() -> VideoReader:
    try:
        return open_reader("torchcodec")
    except UserError as error:
        pytest.skip(str(error))


@pytest.mark.parametrize(
    ("name", "options"),
    [
        ("plain.avi", {"codec": "mpeg4", "g": "12"}),
        ("b-frames.mp4", {"codec": "libx264", "g": "20", "bf": "3"}),
        ("variable-rate.mp4", {"codec": "libx264", "g": "20", "bf": "2", "times": True}),
        ("open-gop.mkv", {"codec": "libx264", "g": "16", "bf": "3", "x264-params": "open-gop=1:scenecut=0"}),
    ],
)
def test_it_gives_the_frames_that_pyav_gives(tmp_path: Path, name: str, options: dict, reader: VideoReader) -> None:
    if options.get("times"):
        options = {**options, "times": np.cumsum(np.random.default_rng(0).integers(5, 200, N)).tolist()}
    path = str(write_film(tmp_path / name, N, **options))
    facts, other = reader.survey(path), open_reader("pyav").survey(path)
    assert (facts.frames, facts.height, facts.width) == (other.frames, other.height, other.width)
    assert facts.aspect == pytest.approx(other.aspect)
    numbers = np.array([0, 7, 8, 33, N - 1])
    pictures = reader.frames(path, facts, numbers, (24, 120))
    assert pictures.dtype == np.uint8 and numbers_in(pictures).tolist() == numbers.tolist()
    expected = open_reader("pyav").frames(path, other, numbers, (24, 120))
    assert np.abs(pictures.astype(int) - expected).mean() < 4


def test_what_is_no_video_is_refused(tmp_path: Path, reader: VideoReader) -> None:
    (tmp_path / "text.mp4").write_text("no film\n" * 50)
    for path in (tmp_path / "text.mp4", tmp_path / "gone.mp4", write_sound(tmp_path / "sound.mp4")):
        with pytest.raises(UnreadableVideo) as raised:
            reader.survey(str(path))
        assert "\n" not in str(raised.value)
