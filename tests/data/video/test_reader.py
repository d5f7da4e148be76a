"""Frames by number, on films whose frames say their number."""

import sys
from collections.abc import Iterator
from fractions import Fraction
from pathlib import Path

import numpy as np
import pytest
import torch
from films import HEIGHT, WIDTH, av, cut, numbers_in, write_film

from sslkit.data.video.opening import open_reader
from sslkit.data.video.reader import UnreadableVideo, VideoReader, check_numbers
from sslkit.errors import UserError

SIZE = (24, 120)
FILMS = {
    "mpeg4.avi": {"codec": "mpeg4", "g": "12", "b": "2M"},
    "mpeg4-b-frames.avi": {"codec": "mpeg4", "g": "12", "bf": "2", "b": "2M"},  # AVI has no timestamps of its own
    "mpeg4-b-frames.mp4": {"codec": "mpeg4", "g": "12", "bf": "2"},
    "mjpeg.avi": {"codec": "mjpeg"},
    "h264.mp4": {"codec": "libx264", "g": "20", "bf": "0"},
    "h264-b-pyramid.mp4": {"codec": "libx264", "g": "24", "bf": "3", "b-pyramid": "normal"},
    "h264-open-gop.mkv": {"codec": "libx264", "g": "16", "bf": "3", "x264-params": "open-gop=1:scenecut=0"},
    "h264-one-key-frame.mp4": {"codec": "libx264", "g": "1000", "sc_threshold": "0"},
    "h264.ts": {"codec": "libx264", "g": "20", "bf": "2"},
    "hevc.mp4": {"codec": "libx265", "x265-params": "log-level=none:pools=1:keyint=16:bframes=3"},
    "vp9.webm": {"codec": "libvpx-vp9", "g": "20", "deadline": "realtime", "cpu-used": "8", "lag-in-frames": "8"},
    "variable-rate.mp4": {"codec": "libx264", "g": "20", "bf": "2", "times": True},
    "variable-rate.mkv": {"codec": "mpeg4", "g": "15", "times": True},
}
N = 75


@pytest.fixture
def reader() -> VideoReader:
    return open_reader()


@pytest.fixture(scope="module")
def films(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("films")


def film(folder: Path, name: str) -> str:
    path = folder / name
    if not path.exists():
        options = dict(FILMS[name])
        if options.pop("times", None):
            options["times"] = np.cumsum(np.random.default_rng(0).integers(5, 200, N)).tolist()
        write_film(path, N, **options)
    return str(path)


@pytest.mark.parametrize("name", FILMS)
def test_any_frames_of_any_film_are_those_asked_for(films: Path, name: str, reader: VideoReader) -> None:
    path = film(films, name)
    facts = reader.survey(path)
    assert (facts.frames, facts.height, facts.width) == (N, HEIGHT, WIDTH)
    draws = np.random.default_rng(1)
    asked = [np.arange(N), np.array([0]), np.array([N - 1]), np.array([3, N - 2])]
    asked += [np.unique(draws.integers(0, N, count)) for count in (1, 1, 2, 3, 5, 9)]
    for numbers in asked:
        pictures = reader.frames(path, facts, numbers, SIZE, "bilinear")
        assert pictures.shape == (len(numbers), *SIZE, 3) and pictures.dtype == np.uint8
        assert numbers_in(pictures).tolist() == numbers.tolist()


@pytest.mark.parametrize("name", FILMS)
def test_a_frame_is_the_same_however_it_is_reached(films: Path, name: str, reader: VideoReader) -> None:
    path = film(films, name)
    facts = reader.survey(path)
    whole = reader.frames(path, facts, np.arange(N), SIZE, "bilinear")
    for number in (1, 20, 33, 47, N - 1):
        assert np.array_equal(reader.frames(path, facts, np.array([number]), SIZE, "bilinear")[0], whole[number])


def test_most_films_need_not_be_read_from_their_start(films: Path, reader: VideoReader) -> None:
    for name in ("mpeg4.avi", "h264.mp4", "h264-b-pyramid.mp4", "variable-rate.mp4", "hevc.mp4"):
        facts = reader.survey(film(films, name))
        assert facts.counted == "packets" and len(facts.key_numbers) > 1, name
        assert facts.key_numbers[0] == 0 and (np.diff(facts.key_numbers) > 0).all()


def test_the_rate_is_the_headers(films: Path, reader: VideoReader) -> None:
    assert reader.survey(film(films, "h264.mp4")).fps == 25


@pytest.mark.parametrize("name", ["mpeg4.avi", "mpeg4-b-frames.avi", "h264-open-gop.mkv", "h264.ts", "vp9.webm"])
@pytest.mark.parametrize("share", [0.4, 0.77, 0.995])
def test_a_truncated_file_gives_the_frames_before_the_break(
    films: Path, tmp_path: Path, name: str, share: float, reader: VideoReader
) -> None:
    path = str(cut(Path(film(films, name)), share, tmp_path / name))
    facts = reader.survey(path)
    assert 0.2 * N < facts.frames <= N
    with av.open(path) as container:
        plain = _plainly_decoded(container)
    while plain[-1].is_corrupt:
        plain.pop()
    assert facts.frames == len(plain)
    numbers = np.unique(np.linspace(0, facts.frames - 1, 9).astype(int))
    shown = numbers_in(reader.frames(path, facts, numbers, SIZE, "bilinear"))
    assert shown[:-1].tolist() == numbers[:-1].tolist()
    # A B frame stands in the file behind the frame that it is shown before: the cut may have taken it alone.
    assert shown[-1] == numbers[-1] or (name, share) == ("h264-open-gop.mkv", 0.995)


def test_a_frame_cut_in_two_is_not_counted(films: Path, tmp_path: Path, reader: VideoReader) -> None:
    """The decoder of Motion JPEG does not say so, the file does."""
    path = str(cut(Path(film(films, "mjpeg.avi")), 0.77, tmp_path / "cut.avi"))
    facts = reader.survey(path)
    assert facts.frames == 51  # of 52 that are decoded; the last shows another number
    assert numbers_in(reader.frames(path, facts, np.arange(51), SIZE, "bilinear")).tolist() == list(range(51))


def _plainly_decoded(container: "av.container.InputContainer") -> list:
    frames = []
    for packet in container.demux(video=0):
        try:
            frames += packet.decode()
        except av.error.InvalidDataError:
            continue
    return frames


def test_a_file_that_shrinks_after_its_survey_is_refused(films: Path, tmp_path: Path, reader: VideoReader) -> None:
    whole = Path(film(films, "h264-open-gop.mkv"))
    facts = reader.survey(str(whole))
    broken = str(cut(whole, 0.5, tmp_path / "broken.mkv"))
    with pytest.raises(UnreadableVideo, match=r"breaks off|lost a key frame|cannot be decoded"):
        reader.frames(broken, facts, np.array([2, N - 1]), SIZE, "bilinear")
    assert numbers_in(reader.frames(broken, facts, np.array([2]), SIZE, "bilinear")).tolist() == [2]


def damaged(film: str, packet: int, to: Path) -> str:
    """A copy with zeros in the second half of one packet: a slice that ends too early, whatever bits the encoder wrote
    (x264's differ between processors)."""
    with av.open(film) as container:
        packets = [(each.pos, each.size) for each in container.demux(video=0) if each.size]
    (start, size), content = packets[packet], bytearray(Path(film).read_bytes())
    content[start + size // 2 : start + size] = bytes(size - size // 2)
    to.write_bytes(content)
    return str(to)


@pytest.mark.parametrize("packet", [1, 20, 39])
@pytest.mark.parametrize(
    "name",
    [
        "h264.mp4",
        "variable-rate.mp4",
        "h264-one-key-frame.mp4",  # frames that are shown before the damage, predicted from it
        "mpeg4-b-frames.mp4",
        "mpeg4-b-frames.avi",  # read from its start
        "mpeg4.avi",
    ],
)
def test_damage_in_the_middle_is_never_another_frame(
    films: Path, tmp_path: Path, name: str, packet: int, reader: VideoReader, threads: None
) -> None:
    path = damaged(film(films, name), packet, tmp_path / name)
    facts, refused = reader.survey(path), []
    for number in range(facts.frames):
        try:
            (shown,) = numbers_in(reader.frames(path, facts, np.array([number]), SIZE, "bilinear"))
        except UnreadableVideo as error:
            refused.append(number)
            assert "damaged" in str(error) and "header" not in str(error) and "frame" in str(error)
        else:
            lost = N - facts.frames if facts.counted == "decoded" else 0  # frames that are gone have no number
            assert shown in (number, number + lost)
    assert 0 < len(refused) < facts.frames and 0 not in refused


@pytest.fixture
def threads() -> Iterator[None]:
    """Four threads for torch, with which FFmpeg would not flag all of the damage."""
    before = torch.get_num_threads()
    torch.set_num_threads(4)
    yield
    torch.set_num_threads(before)


def test_a_flagged_frame_is_named(films: Path, tmp_path: Path, reader: VideoReader) -> None:
    path = damaged(film(films, "mpeg4-b-frames.avi"), 20, tmp_path / "damaged.avi")
    with pytest.raises(UnreadableVideo, match=r"^frame 20 is damaged"):
        reader.frames(path, reader.survey(path), np.array([3, 20, 60]), SIZE, "bilinear")


def test_a_colon_in_a_relative_path_is_no_protocol(
    films: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, reader: VideoReader
) -> None:
    (tmp_path / "a:b").symlink_to(films)
    film(films, "mpeg4.avi")
    monkeypatch.chdir(tmp_path)
    path = "a:b/mpeg4.avi"
    assert numbers_in(reader.frames(path, reader.survey(path), np.array([7]), SIZE, "bilinear")).tolist() == [7]


def test_a_turned_film_is_set_upright(films: Path, tmp_path: Path, reader: VideoReader) -> None:
    content = Path(film(films, "mpeg4-b-frames.mp4")).read_bytes()
    plain = (np.array([1, 0, 0, 0, 1, 0]) << 16).astype(">i4")
    # A telephone held upright: x' = -y, y' = x (ISO/IEC 14496-12, 8.3.2), a quarter turn clockwise.
    turned = (np.array([0, 1, 0, -1, 0, 0]) << 16).astype(">i4")
    header = content.index(b"tkhd")
    head, tail = content[:header], content[header:]
    path = tmp_path / "turned.mp4"
    path.write_bytes(head + tail.replace(plain.tobytes(), turned.tobytes(), 1))
    facts = reader.survey(str(path))
    assert (facts.height, facts.width) == (WIDTH, HEIGHT)
    assert facts.aspect == pytest.approx(HEIGHT / WIDTH)
    upright = reader.frames(str(path), facts, np.array([9, 40]), (WIDTH, HEIGHT), "bilinear")
    assert numbers_in(np.rot90(upright, axes=(1, 2))).tolist() == [9, 40]
    assert numbers_in(np.rot90(upright, -1, axes=(1, 2))).tolist() != [9, 40]


def test_pixels_that_are_not_square(tmp_path: Path, reader: VideoReader) -> None:
    path = write_film(tmp_path / "wide.mkv", 5, pixel_aspect=Fraction(2, 1))
    facts = reader.survey(str(path))
    assert (facts.height, facts.width) == (HEIGHT, WIDTH)
    assert facts.aspect == pytest.approx(2 * WIDTH / HEIGHT)


def test_small_pictures_are_antialiased(tmp_path: Path, reader: VideoReader) -> None:
    path = write_film(tmp_path / "stripes.mkv", 1, size=(64, 320))
    facts = reader.survey(str(path))
    wide = reader.frames(str(path), facts, np.array([0]), (64, 320), "bilinear")
    for interpolation in ("bilinear", "bicubic"):
        small = reader.frames(str(path), facts, np.array([0]), (8, 40), interpolation)
        mean = wide.reshape(8, 8, 40, 8, 3).mean((1, 3))
        assert np.abs(small[0] - mean).mean() < 4


@pytest.mark.parametrize("numbers", [[], [-1], [N], [3, 3], [5, 4]])
def test_numbers_that_cannot_be(films: Path, reader: VideoReader, numbers: list[int]) -> None:
    facts = reader.survey(film(films, "mpeg4.avi"))
    with pytest.raises(ValueError, match="frame numbers"):
        check_numbers(np.array(numbers, dtype=np.int64), facts)


def test_without_pyav_one_line_says_how_to_get_it(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "av", None)
    monkeypatch.delitem(sys.modules, "sslkit.data.video.pyav_reader", raising=False)
    with pytest.raises(UserError, match=r"PyAV, which is not there.*pip install -e \"\.\[video\]\""):
        open_reader()


def test_the_name_says_the_versions(reader: VideoReader) -> None:
    assert reader.name.startswith(f"pyav {av.__version__} (libavcodec ")
