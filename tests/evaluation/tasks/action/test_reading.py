"""Clips of films whose frames say their number: which frames, which squares of them, in which order."""

import math
import os
import shutil
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch
from films import cut, numbers_in, write_film
from torch.utils.data import DataLoader

from evaluation.tasks.action.crops import Sizes, crop_places, short_side
from evaluation.tasks.action.datasets import open_films
from evaluation.tasks.action.films import SurveyedVideos, survey
from evaluation.tasks.action.reading import ClipShape, EvalViews, FilmViews, Schedule, TrainingClips
from sslkit.data.loader import collate
from sslkit.errors import UserError

SHAPE = ClipShape(length=4, stride=3, sizes=Sizes(crop=42, short=(48, 60), test=48))
LENGTHS = {"a/long": 52, "a/span": 10, "b/short": 6, "b/one": 1}


@pytest.fixture(scope="module")
def numbered(tmp_path_factory) -> Path:
    root = tmp_path_factory.mktemp("numbered")
    for split in ("train", "test"):
        for name, frames in LENGTHS.items():
            path = root / split / f"{name}.mp4"
            path.parent.mkdir(parents=True, exist_ok=True)
            write_film(path, frames, size=(96, 160))
    return root


def opened(root: Path, split: str = "test") -> SurveyedVideos:
    return survey(open_films(f"video:{root}", split), on_error="skip")


@pytest.mark.parametrize(
    ("rule", "starts"),
    [
        ("slowfast", [0, 4, 8, 12, 16, 21, 25, 29, 33, 37]),
        ("slowfast_offset", [0, 4, 8, 12, 16, 20, 24, 28, 32, 36]),
        ("endpoints", [0, 4, 9, 14, 18, 23, 28, 32, 37, 42]),
    ],
)
def test_the_frames_of_a_films_views_are_those_of_the_rule(numbered: Path, rule: str, starts: list[int]) -> None:
    """The long film has 52 frames and a clip spans 10: the last start is 42."""
    films = opened(numbered)
    row = films.films.paths.index("a/long.mp4")
    views = FilmViews(films, SHAPE, EvalViews(10, 3, rule))[row]["views"]
    assert views.shape == (30, 3, 4, 48, 48) and views.dtype == torch.uint8
    frames, where = films.decode(row, np.arange(52), (48, 80))
    for number, start in enumerate(starts):
        wanted = frames[where[start : start + 10 : 3]]
        assert numbers_in(wanted).tolist() == [start, start + 3, start + 6, start + 9]
        for crop, left in enumerate((0, 16, 32)):  # of 80 pixels: the start, the middle, the end
            clip = views[3 * number + crop].permute(1, 2, 3, 0).numpy()
            assert (clip == wanted[:, :, left : left + 48]).all()


def test_a_film_shorter_than_a_clip_repeats_its_last_frame(numbered: Path) -> None:
    films = opened(numbered)
    square = ClipShape(4, 3, Sizes(crop=48, short=(48, 48), test=48))
    wanted = {"a/span": [0, 3, 6, 9], "b/short": [0, 3, 5, 5], "b/one": [0, 0, 0, 0]}
    for row, path in enumerate(films.films.paths):
        if (numbers := wanted.get(path.removesuffix(".mp4"))) is None:
            continue
        views = FilmViews(films, square, EvalViews(2, 3))[row]["views"]
        frames, where = films.decode(row, np.array(numbers), (48, 80))
        assert (views[0].permute(1, 2, 3, 0).numpy() == frames[where][:, :, :48]).all(), path


def test_crops_are_at_both_ends_and_in_the_middle() -> None:
    assert crop_places(256, 340, 256, 3) == [(0, 0), (0, 42), (0, 84)]
    assert crop_places(341, 256, 256, 3) == [(0, 0), (43, 0), (85, 0)], "the middle is rounded up"
    assert crop_places(256, 256, 256, 3) == [(0, 0)] * 3
    assert crop_places(256, 341, 224, 1) == [(16, math.ceil((341 - 224) / 2))]
    for height in range(10, 20):
        for size in range(4, 11):
            assert crop_places(height, 21, size, 3)[1] == (math.ceil((height - size) / 2), math.ceil((21 - size) / 2))


def test_sizes_are_the_published_ones_at_224_and_in_proportion_elsewhere() -> None:
    assert Sizes.for_size(224) == Sizes(224, (256, 320), 256)
    assert Sizes.for_size(112) == Sizes(112, (128, 160), 128)
    assert short_side(4 / 3, 256) == (256, 341) and short_side(3 / 4, 256) == (341, 256) and short_side(1, 9) == (9, 9)


def test_square_frames_have_one_crop(tmp_path: Path) -> None:
    for split in ("train", "test"):
        for name in "ab":
            (tmp_path / split / name).mkdir(parents=True)
            write_film(tmp_path / split / name / "1.mp4", 12, size=(64, 64))
    assert len(FilmViews(opened(tmp_path), SHAPE, EvalViews(5, 3))[0]["views"]) == 5
    assert len(FilmViews(opened(tmp_path), SHAPE, EvalViews(5, 1))[0]["views"]) == 5


def test_training_clips_are_a_function_of_seed_epoch_and_row(numbered: Path) -> None:
    films = opened(numbered, "train")
    keys = [(epoch, row) for epoch in (0, 1) for row in range(4)]
    first = TrainingClips(films, SHAPE, seed=0).__getitems__(keys)
    assert first["clips"].shape == (8, 3, 4, 42, 42) and first["label"].tolist() == [0, 0, 1, 1] * 2
    again = TrainingClips(films, SHAPE, seed=0).__getitems__(keys[::-1])
    assert (again["clips"].flip(0) == first["clips"]).all()
    long = films.films.paths.index("a/long.mp4")
    assert (first["clips"][long] != first["clips"][4 + long]).any(), "another epoch shows another clip"
    other = TrainingClips(films, SHAPE, seed=1).__getitems__(keys)
    assert (first["clips"][long] != other["clips"][long]).any()


def test_a_film_that_is_listed_twice_shifts_no_other(tmp_path: Path) -> None:
    for name, frames in (("a", 9), ("b", 14), ("c", 21)):
        (tmp_path / "train" / name).mkdir(parents=True)
        write_film(tmp_path / "train" / name / f"{name}.mp4", frames)
    films = open_films(f"video:{tmp_path}", "train")
    rows = np.array([0, 1, 1, 2])
    twice = replace(films, paths=tuple(films.paths[row] for row in rows), y=films.y[rows], sizes=films.sizes[rows])
    found = survey(twice, on_error="skip")
    assert [found.facts(row).frames for row in range(4)] == [9, 14, 14, 21]


def test_two_workers_give_the_clips_of_one(numbered: Path) -> None:
    clips = TrainingClips(opened(numbered, "train"), SHAPE, seed=3)
    schedule = Schedule(4, 2, 2, 3)
    found = []
    for workers in (0, 2):
        loader = DataLoader(clips, batch_sampler=schedule, collate_fn=collate, num_workers=workers)
        found.append([batch["clips"] for batch in loader])
    assert len(found[0]) == 4 and all((one == two).all() for one, two in zip(*found, strict=True))


def test_random_clips_reach_both_ends_of_a_film(tmp_path: Path) -> None:
    """A span is 10 frames, so the film of 15 has the starts 0 to 5, and that of 10 the start 0 alone."""
    for name, frames in (("a", 15), ("b", 10)):
        (tmp_path / "train" / name).mkdir(parents=True)
        write_film(tmp_path / "train" / name / "1.mp4", frames, size=(96, 96))
    whole = ClipShape(4, 3, Sizes(crop=96, short=(96, 96), test=96))
    clips = TrainingClips(opened(tmp_path, "train"), whole, 0)
    shown = [[numbers_in(clips._clip(epoch, row).permute(1, 2, 3, 0).numpy()) for epoch in range(60)] for row in (0, 1)]
    starts = [{int(numbers[0]) for numbers in film} for film in shown]
    assert starts == [{0, 1, 2, 3, 4, 5}, {0}]
    assert all((np.diff(numbers) == 3).all() for film in shown for numbers in film)


def test_random_crops_reach_all_edges_of_the_frames(numbered: Path, monkeypatch) -> None:
    """Frames of 48 x 80 pixels that say where a pixel is: a crop of 42 begins at 0 to 6 and 0 to 38."""
    place = np.stack([*np.indices((48, 80)), np.zeros((48, 80))], -1).astype(np.uint8)
    monkeypatch.setattr(SurveyedVideos, "decode", lambda *_: (place[None], np.zeros(4, dtype=int)))
    clips = TrainingClips(opened(numbered, "train"), replace(SHAPE, sizes=Sizes(42, (48, 48), 48)), 0)
    tops, lefts = zip(*(clips._clip(epoch, 1)[:2, 0, 0, 0].tolist() for epoch in range(400)), strict=True)
    assert (set(tops), set(lefts)) == (set(range(7)), set(range(39)))


def test_a_film_that_is_overwritten_has_changed_and_a_copy_has_not(tmp_path: Path) -> None:
    for name, frames in (("a", 9), ("b", 10)):
        (tmp_path / "films" / "train" / name).mkdir(parents=True)
        write_film(tmp_path / "films" / "train" / name / "1.mp4", frames)

    def opened(folder: str) -> SurveyedVideos:
        return survey(open_films(f"video:{tmp_path / folder}", "train"), cache=tmp_path / "cache", on_error="skip")

    first = opened("films")
    path = tmp_path / "films" / "train" / "a" / "1.mp4"
    content, about = path.read_bytes(), path.stat()
    path.touch()
    shutil.copytree(tmp_path / "films", tmp_path / "copy" / "films", copy_function=shutil.copyfile)
    assert {opened(name).content for name in ("films", "copy/films")} == {first.content}
    path.write_bytes(content[:-9] + bytes(8) + content[-1:])
    os.utime(path, ns=(about.st_atime_ns, about.st_mtime_ns))
    assert opened("films").content != first.content
    path.write_bytes(content)
    assert opened("films").content == first.content


def test_a_schedule_goes_on_where_it_was_stopped() -> None:
    whole = list(Schedule(10, 3, 4, seed=5))
    assert len(whole) == len(Schedule(10, 3, 4, seed=5)) == 12
    for first in range(13):
        assert list(Schedule(10, 3, 4, seed=5, first=first)) == whole[first:]
    assert [{epoch for epoch, _ in keys} for keys in whole] == [{epoch} for epoch in range(4) for _ in range(3)]
    assert len(Schedule(2, 64, 3, seed=0)) == 3, "a smaller set is one batch"


def test_films_that_cannot_be_decoded_are_named_and_left_out(numbered: Path, tmp_path: Path) -> None:
    root = tmp_path / "films"
    for path in numbered.rglob("*.mp4"):
        to = root / path.relative_to(numbered)
        to.parent.mkdir(parents=True, exist_ok=True)
        to.write_bytes(path.read_bytes())
    (root / "train" / "a" / "no.mp4").write_bytes(b"no film at all")
    cut(root / "train" / "a" / "long.mp4", 0.3, root / "train" / "b" / "cut.mp4")
    films = opened(root, "train")
    assert set(films.films.left_out) == {"a/no.mp4", "b/cut.mp4"} and all(films.films.left_out.values())
    assert len(films.films) == 4
    assert [films.facts(row).frames for row in range(4)] == [52, 10, 1, 6]
    with pytest.raises(UserError, match=r"2 of 6 videos cannot be read, the first is .*no.mp4"):
        survey(open_films(f"video:{root}", "train"), on_error="raise")
    for path in (root / "test").rglob("*.mp4"):
        path.write_bytes(b"nor this")
    with pytest.raises(UserError, match="none of the 4 videos can be read"):
        opened(root)


def test_a_film_that_breaks_after_the_survey_gives_way_to_the_next(numbered: Path, tmp_path: Path) -> None:
    root = tmp_path / "films"
    for path in numbered.rglob("*.mp4"):
        to = root / path.relative_to(numbered)
        to.parent.mkdir(parents=True, exist_ok=True)
        to.write_bytes(path.read_bytes())
    train, test = opened(root, "train"), opened(root)
    for films in (train, test):
        films.films.path(1).write_bytes(b"gone bad")
    batch = TrainingClips(train, SHAPE, 0).__getitems__([(0, 0), (0, 1)])
    assert batch["rows"].tolist() == [0, 2] and batch["label"].tolist() == [0, 1] and batch["bad"] == ["a/span.mp4"]
    broken = FilmViews(test, SHAPE, EvalViews(2, 1))[1]
    assert broken["views"] is None and broken["reason"]


@pytest.mark.parametrize(
    ("given", "said"),
    [({"clips": 0}, "clips must be"), ({"crops": 2}, "crops must be 1"), ({"rule": "slowfest"}, "slowfast")],
)
def test_views_that_do_not_exist(given: dict, said: str) -> None:
    with pytest.raises(UserError, match=said):
        EvalViews(**given)
