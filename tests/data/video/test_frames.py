"""Frames of videos as images: which frames, their names, labels and groups, and what becomes of damaged ones."""

import warnings
from pathlib import Path

import numpy as np
import pytest
from films import cut, numbers_in, write_film

import sslkit
from sslkit.data.video.frames import FrameImages
from sslkit.errors import UserError

LENGTHS = {"calm/a.avi": 60, "calm/b.mkv": 26, "wild/c.avi": 101}
CODECS = {".avi": {}, ".mkv": {"codec": "libx264", "bf": "2", "g": "16"}}


@pytest.fixture(scope="module")
def films(tmp_path_factory: pytest.TempPathFactory) -> Path:
    root = tmp_path_factory.mktemp("films")
    for name, frames in LENGTHS.items():
        (root / name).parent.mkdir(exist_ok=True)
        write_film(root / name, frames, **CODECS[Path(name).suffix])
    return root


def opened(source: Path | str, **options) -> FrameImages:
    return sslkit.open_images(f"frames:{source}", **{"cache": None, "image_size": 40, **options})


def numbers_of(images: FrameImages, rows: list[int]) -> list[int]:
    """The numbers that can be read off the pictures."""
    pictures = images.__getitems__(rows)["images"].numpy()
    return numbers_in(pictures.transpose(0, 2, 3, 1)).tolist()


@pytest.mark.parametrize("every", [None, 0.4, 2, 1e-9])
def test_the_pictures_are_the_frames_of_their_seconds(films: Path, every: float | None) -> None:
    images = opened(films, every=every)
    step = max(25 * (every or 1), 1)
    expected = [np.arange(0, frames, step).round().astype(int).tolist() for frames in LENGTHS.values()]
    assert images.frame_numbers.tolist() == [number for some in expected for number in some]
    names = [f"{name}#t={number / 25:g}" for name, some in zip(LENGTHS, expected, strict=True) for number in some]
    assert [images.image_name(row) for row in range(len(images))] == names
    rows = [*np.random.default_rng(0).permutation(len(images)).tolist(), 1, 1]
    assert numbers_of(images, rows) == images.frame_numbers[rows].tolist()


def test_labels_are_those_of_the_videos_and_a_video_is_a_group(films: Path) -> None:
    images = opened(films)
    assert images.classes == ["calm", "wild"] and images.labels.tolist() == [0] * 5 + [1] * 5
    assert [len(set(images.groups[images.rows == film].tolist())) for film in range(3)] == [1, 1, 1]
    assert len(set(images.groups.tolist())) == 3


def test_groups_that_a_table_names_stay(films: Path) -> None:
    table = films.parent / "films.csv"
    rows = "".join(f"{films / name},{place}\n" for name, place in zip(LENGTHS, "xyx", strict=True))
    table.write_text("path,place\n" + rows)
    images = opened(table, columns={"group": "place"})
    assert len(set(images.groups.tolist())) == 2


def test_a_whole_frame_has_its_own_size(films: Path) -> None:
    images = opened(films)
    (picture,) = images.read_whole([6])["images"]
    assert tuple(picture.shape[1:]) == (images.videos.facts(2).height, images.videos.facts(2).width)


def test_one_video_is_a_source(films: Path) -> None:
    images = opened(films / "wild" / "c.avi")
    assert images.labels is None and len(images) == 5 and numbers_of(images, [3]) == [75]


def test_a_damaged_place_is_left_out_and_the_frames_before_it_are_read(tmp_path: Path) -> None:
    write_film(tmp_path / "a.mkv", 100, codec="libx264", bf="0", g="10")
    write_film(tmp_path / "b.mkv", 30, codec="libx264", bf="0", g="10")
    images = opened(tmp_path, every=0.4)
    cut(tmp_path / "a.mkv", 0.5, tmp_path / "a.mkv")
    batch = images.__getitems__(list(range(len(images))))
    lost = [row for row in range(10) if batch["index"][row] != row]
    assert lost and lost == list(range(lost[0], 10)) and lost[0] > 1
    assert batch["bad"] == [images.path(row) for row in lost]
    assert numbers_in(batch["images"].numpy()[: lost[0]].transpose(0, 2, 3, 1)).tolist() == [
        10 * row for row in range(lost[0])
    ]


def test_part_and_a_part_of_it_keep_their_frames(films: Path) -> None:
    images = opened(films).part(np.array([9, 2, 6]), "train")
    assert numbers_of(images, [0, 1, 2]) == [100, 50, 25]
    assert images.image_name(1) == "calm/a.avi#t=2"


def test_what_is_not_read_is_one_line(films: Path) -> None:
    with pytest.warns(UserWarning, match=r"films\d* train: of 3 videos one frame a second is read, 10 in all; every="):
        opened(films)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        opened(films, every=1)


def test_every_is_refused_where_there_are_no_frames(films: Path, tmp_path: Path) -> None:
    with pytest.raises(UserError, match=r"every=2 is of frames of videos, .* data=frames:FOLDER"):
        sslkit.open_images("digits", every=2)
    with pytest.raises(UserError, match=r"c.avi is a video: its frames are images, data=frames:.*c\.avi"):
        sslkit.open_images(films / "wild" / "c.avi")
    with pytest.raises(UserError, match=r"no images in .* for their frames: data=frames:"):
        sslkit.open_images(films)
    with pytest.raises(UserError, match="every must be a number, above 0"):
        opened(films, every=0)
