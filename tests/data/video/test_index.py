"""The index of a folder of videos: made once, kept whole, brought up to date."""

import os
import shutil
import warnings
from collections.abc import Sequence
from pathlib import Path

import numpy as np
import pytest
from films import write_film
from odd_disks import read_only

from sslkit.data.video import index as video_index
from sslkit.data.video.index import VideoIndex, index_videos
from sslkit.data.video.opening import open_reader
from sslkit.data.video.reader import VideoFacts, VideoReader
from sslkit.errors import UserError

NAMES = ["a.avi", "b.mp4", "below/c.avi", "text.mp4"]


class Counting:
    """A reader that remembers which files it surveyed."""

    def __init__(self, name: str = "counting 1") -> None:
        self.reader: VideoReader = open_reader()
        self.name, self.surveyed = name, []

    def survey(self, path: str) -> VideoFacts:
        self.surveyed.append(Path(path).name)
        return self.reader.survey(path)


@pytest.fixture
def root(tmp_path: Path) -> Path:
    root = tmp_path / "videos"
    (root / "below").mkdir(parents=True)
    write_film(root / "a.avi", 30, g="10")
    write_film(root / "b.mp4", 21, g="7", bf="2")
    write_film(root / "below" / "c.avi", 5, size=(32, 64))
    (root / "text.mp4").write_text("no film")
    return root


def index(root: Path, cache: Path | None, paths: Sequence[str] = NAMES, name: str = "counting 1"):
    reader = Counting(name)
    return index_videos(root, paths, reader, cache), sorted(reader.surveyed)


def same(one: VideoIndex, other: VideoIndex) -> bool:
    rows = ([repr(index.row(place)) for place in range(len(index))] for index in (one, other))
    keys = ("key_ends", "key_pts", "key_numbers")
    return next(rows) == next(rows) and all(np.array_equal(getattr(one, k), getattr(other, k)) for k in keys)


def test_it_says_what_the_reader_finds(root: Path) -> None:
    found, _ = index(root, None)
    for place, name in enumerate(NAMES[:3]):
        row, facts = found.row(place), open_reader().survey(str(root / name))
        assert repr(row.facts) == repr(facts) and found.paths[place] == name
        assert np.array_equal(row.facts.key_pts, facts.key_pts)
        assert np.array_equal(row.facts.key_numbers, facts.key_numbers)
        assert row.stamp.bytes == (root / name).stat().st_size
    assert found.row(3).facts is None and "not a video" in found.row(3).reason


def test_a_second_opening_surveys_only_what_could_not_be_read(root: Path, tmp_path: Path) -> None:
    first, surveyed = index(root, tmp_path / "cache")
    again, twice = index(root, tmp_path / "cache")
    assert surveyed == ["a.avi", "b.mp4", "c.avi", "text.mp4"] and twice == ["text.mp4"]
    assert same(first, again)
    assert [path.suffix for path in (tmp_path / "cache").iterdir() if not path.name.startswith(".")] == [".npz"]
    assert sorted(path.name for path in root.iterdir()) == ["a.avi", "b.mp4", "below", "text.mp4"]


def test_only_what_is_new_or_has_changed_is_surveyed(root: Path, tmp_path: Path) -> None:
    index(root, tmp_path / "cache")
    write_film(root / "text.mp4", 9)
    os.utime(root / "a.avi", ns=(0, 12345))
    write_film(root / "d.avi", 4)
    found, surveyed = index(root, tmp_path / "cache", [*NAMES, "d.avi"])
    assert surveyed == ["a.avi", "d.avi", "text.mp4"]
    assert found.numbers["frames"].tolist() == [30, 21, 5, 9, 4]


def test_the_order_is_that_of_the_paths_and_others_keep_their_rows(root: Path, tmp_path: Path) -> None:
    index(root, tmp_path / "cache")
    found, surveyed = index(root, tmp_path / "cache", ["below/c.avi", "a.avi"])
    assert surveyed == [] and found.numbers["frames"].tolist() == [5, 30]
    write_film(root / "a.avi", 31)
    index(root, tmp_path / "cache", ["a.avi"])
    assert index(root, tmp_path / "cache")[1] == ["text.mp4"]


def test_a_read_only_index_is_used_if_it_knows_all_videos(tmp_path: Path) -> None:
    write_film(tmp_path / "a.avi", 30, g="10")
    (tmp_path / "text.mp4").write_text("no film")
    names = ["a.avi", "text.mp4"]
    index(tmp_path, tmp_path / "cache", names)
    said = read_only(tmp_path / "cache", lambda: str(index(tmp_path, tmp_path / "cache", names)[1]))
    assert said == "[]", "not even what could not be read"
    shutil.copy(tmp_path / "a.avi", tmp_path / "b.avi")
    said = read_only(tmp_path / "cache", lambda: str(index(tmp_path, tmp_path / "cache", [*names, "b.avi"])))
    assert said.startswith(f"UserError: cannot write the index of videos in {tmp_path / 'cache'}: Permission denied")


def test_another_decoder_has_an_index_of_its_own(root: Path, tmp_path: Path) -> None:
    index(root, tmp_path / "cache")
    assert len(index(root, tmp_path / "cache", name="counting 2")[1]) == len(NAMES)
    assert index(root, tmp_path / "cache")[1] == ["text.mp4"]


def test_a_damaged_index_is_made_again(root: Path, tmp_path: Path) -> None:
    whole, _ = index(root, tmp_path / "cache")
    (file,) = (tmp_path / "cache").glob("videos-*.npz")
    for content in (file.read_bytes()[:-40], b"nothing"):
        file.write_bytes(content)
        with pytest.warns(UserWarning, match="is damaged"):
            again, surveyed = index(root, tmp_path / "cache")
        assert len(surveyed) == len(NAMES) and same(whole, again)


def test_what_was_surveyed_before_a_crash_is_kept(root: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(video_index, "_SAVE_EVERY", 1)
    reader = Counting()
    survey = reader.survey

    def crashing(path: str) -> VideoFacts:
        if path.endswith("c.avi"):
            raise KeyboardInterrupt
        return survey(path)

    reader.survey = crashing
    with pytest.raises(KeyboardInterrupt):
        index_videos(root, NAMES, reader, tmp_path / "cache")
    assert index(root, tmp_path / "cache")[1] == ["c.avi", "text.mp4"]


def test_a_cache_that_cannot_be_written_is_said_before_the_survey(root: Path, tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    reader = Counting()
    with pytest.raises(UserError, match=r"cannot write the index of videos.*choose another folder"):
        index_videos(root, NAMES, reader, tmp_path / "file" / "cache")
    assert reader.surveyed == []


def test_a_file_that_is_gone(root: Path) -> None:
    with pytest.raises(UserError, match=r"cannot read the video .*gone\.mp4"):
        index(root, None, ["gone.mp4"])


def test_the_manifest_is_that_of_any_copy(root: Path, tmp_path: Path) -> None:
    shutil.copytree(root, tmp_path / "copy", copy_function=shutil.copy)  # with times of its own
    one, other = index(root, None)[0], index(tmp_path / "copy", None)[0]
    assert one.manifest() == other.manifest()
    assert (one.numbers["changed"] != other.numbers["changed"]).any()
    assert one.manifest() != index(root, None, NAMES[:3])[0].manifest()
    write_film(root / "a.avi", 29, g="10")
    assert one.manifest() != index(root, None)[0].manifest()


def test_names_and_no_names_survive(root: Path, tmp_path: Path) -> None:
    name = "ünicode \udcff.avi"
    try:
        shutil.copy(root / "a.avi", root / name)
    except (OSError, UnicodeError):
        pytest.skip("the file system takes no such name")
    index(root, tmp_path / "cache", [name])
    found, surveyed = index(root, tmp_path / "cache", [name])
    assert surveyed == [] and found.paths[0] == name
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert len(index(root, tmp_path / "cache", [])[0]) == 0
