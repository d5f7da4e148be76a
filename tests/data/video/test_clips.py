"""Clips of videos by row: which frames, how often they are decoded, what becomes of files that cannot be read."""

import pickle
import shutil
import warnings
from collections import Counter
from pathlib import Path

import numpy as np
import pytest
import torch
from films import HEIGHT, WIDTH, cut, numbers_in, write_film, write_sound

import sslkit
from sslkit.data.images import Identity
from sslkit.data.loader import EpochRows, make_loader
from sslkit.data.sources.named import name_of_tables, open_images, splits
from sslkit.data.video.clip_sampling import clip_frames
from sslkit.data.video.clips import VideoOptions, Videos, open_video_files, open_videos
from sslkit.errors import UserError

LENGTHS = [3, 31, 40, 55, 64, 80]
SIZE = 40


@pytest.fixture(scope="module")
def films(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Six films, shorter and longer than a clip of 16 frames with stride 2, of several codecs."""
    root = tmp_path_factory.mktemp("films")
    for row, frames in enumerate(LENGTHS):
        options = [{}, {"g": "8"}, {"codec": "libx264", "bf": "2", "g": "16"}][row % 3]
        write_film(root / f"{row}.{'mkv' if row % 3 == 2 else 'avi'}", frames, **options)
    return root


def opened(root: Path, **options) -> Videos:
    return open_videos(root, **{"image_size": SIZE, "cache": None, **options})


def shown(batch: dict) -> np.ndarray:
    """The numbers (n, R, T) that can be read off the pictures."""
    return numbers_in(batch["images"].numpy().transpose(0, 1, 3, 4, 5, 2))


@pytest.mark.parametrize("sampling", ["random", "center"])
@pytest.mark.parametrize(("frames", "stride"), [(16, 2), (4, 8), (8, 1), (1, 1)])
def test_the_pictures_are_the_frames_that_the_batch_names(films: Path, sampling: str, frames: int, stride: int) -> None:
    videos = opened(films, sampling=sampling, frames=frames, stride=stride)
    rows = list(range(len(LENGTHS)))
    batch = videos.__getitems__(EpochRows(rows, 1, 2))
    clips = {"random": 2, "center": 1}[sampling]
    assert batch["images"].shape == (6, clips, 3, frames, SIZE, SIZE) and batch["images"].dtype == torch.uint8
    assert np.array_equal(shown(batch), batch["frames"].numpy())
    for row, length in enumerate(LENGTHS):
        for numbers in batch["frames"][row].numpy():
            assert np.array_equal(numbers, clip_frames(numbers[:1], length, frames, stride)[0])
            assert numbers[0] == 0 or numbers[0] + (frames - 1) * stride < length
    assert batch["index"].tolist() == rows and batch["bad"] == [] and batch["label"].tolist() == [-1] * 6


def test_a_video_is_opened_once_and_each_frame_decoded_once(films: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    videos = opened(films, clips=10, fit="crop")
    reader, asked = videos.reader, []
    plain = reader.frames
    monkeypatch.setattr(reader, "frames", lambda *given: asked.append(given) or plain(*given))
    batch = videos.__getitems__([5])
    assert batch["images"].shape[1] == 10
    assert len(asked) == 1
    assert asked[0][2].tolist() == np.unique(batch["frames"].numpy()).tolist()


def test_what_is_drawn_depends_on_seed_epoch_and_row_alone(films: Path) -> None:
    videos = opened(films)
    first = videos.__getitems__(EpochRows([4, 5], 1, 2))
    other = pickle.loads(pickle.dumps(videos)).__getitems__(pickle.loads(pickle.dumps(EpochRows([5, 3, 4], 1, 2))))
    assert torch.equal(first["images"][0], other["images"][2])
    assert torch.equal(first["images"][1], other["images"][0])
    for seed, epoch in ((2, 2), (1, 3)):
        assert not torch.equal(videos.__getitems__(EpochRows([4, 5], seed, epoch))["frames"], first["frames"])


def batches(videos: Videos, *, epoch: int, first: int = 0, **how) -> list[dict]:
    loader = make_loader(videos, batch_size=2, seed=7, **how)
    loader.sampler.set_epoch(epoch)
    return list(loader)[first:]


def by_row(made: list[dict]) -> dict[int, bytes]:
    pairs = [
        (row, clips) for batch in made for row, clips in zip(batch["index"].tolist(), batch["images"], strict=True)
    ]
    assert len({row for row, _ in pairs}) == len(pairs)
    return {row: clips.numpy().tobytes() for row, clips in pairs}


def test_workers_and_ranks_change_no_clip(films: Path) -> None:
    videos = opened(films)
    alone = by_row(batches(videos, epoch=3, workers=0))
    assert alone.keys() == set(range(6))
    assert by_row(batches(videos, epoch=3, workers=2)) == alone
    ranks = [by_row(batches(videos, epoch=3, workers=0, rank=rank, world_size=2)) for rank in range(2)]
    assert {**ranks[0], **ranks[1]} == alone
    assert by_row(batches(videos, epoch=4, workers=0)) != alone


def test_the_rest_of_an_epoch_is_the_same_after_a_resume(films: Path) -> None:
    whole = batches(opened(films), epoch=5, workers=0)
    loader = make_loader(opened(films), batch_size=2, seed=7, workers=0)  # a new process that skips one batch
    loader.sampler.set_epoch(5)
    for rows, batch in list(zip(loader.batch_sampler, whole, strict=True))[1:]:
        assert torch.equal(loader.dataset.__getitems__(rows)["images"], batch["images"])


def test_squash_says_the_aspect_and_crop_keeps_the_middle(films: Path) -> None:
    squashed = opened(films, sampling="center")[5]
    assert squashed["aspect"].item() == pytest.approx(WIDTH / HEIGHT)
    cropped = opened(films, sampling="center", fit="crop", image_size=HEIGHT)
    batch = cropped[5]
    assert batch["aspect"].item() == 1
    facts = cropped.facts(5)
    whole = cropped.reader.frames(cropped.path(5), facts, np.unique(batch["frames"]), (HEIGHT, WIDTH), "bilinear")
    left = (WIDTH - HEIGHT) // 2
    expected = whole[:, :, left : left + HEIGHT].transpose(3, 0, 1, 2)
    assert np.array_equal(batch["images"][0].numpy(), expected)


def test_upright_films_are_cropped_along_their_height(tmp_path: Path) -> None:
    write_film(tmp_path / "upright.mkv", 4, size=(96, 48))
    videos = opened(tmp_path, sampling="center", frames=2, stride=1, fit="crop", image_size=24)
    (whole,) = videos.reader.frames(videos.path(0), videos.facts(0), np.array([1]), (48, 24), "bilinear")
    assert np.array_equal(videos[0]["images"][0, :, 0].numpy(), whole[12:36].transpose(2, 0, 1))


def test_classes_and_splits_are_those_of_folders(films: Path, tmp_path: Path) -> None:
    for split, classes in (("train", "ab"), ("val", "abc")):
        for name in classes:
            (tmp_path / split / name).mkdir(parents=True)
            for row in (0, 1):
                shutil.copy(films / f"{row}.avi", tmp_path / split / name / f"{row}.avi")
    train, val = opened(tmp_path), opened(tmp_path, split="val")
    assert train.classes == val.classes == ["a", "b", "c"] and train.splits == ("train", "test")
    assert train.labels.tolist() == [0, 0, 1, 1] and val.labels.tolist() == [0, 0, 1, 1, 2, 2]
    assert train.__getitems__([2, 0])["label"].tolist() == [1, 0]
    assert train.digest != val.digest
    with pytest.raises(UserError, match="no split 'validate'"):
        opened(tmp_path, split="validate")


def test_several_folders_a_list_and_a_pattern(films: Path, tmp_path: Path) -> None:
    """The grammar of images."""
    for row, name in enumerate(("one/train/a", "one/train/b", "one/val/a", "two/a", "two/b")):
        (tmp_path / name).mkdir(parents=True)
        shutil.copy(films / f"{row % 2}.avi", tmp_path / name / f"{row}.avi")
    (tmp_path / "two" / "notes.txt").touch()
    for text in (f"video:{tmp_path}/one,{tmp_path}/two", f"video:{tmp_path}/one, video:{tmp_path}/two"):
        with pytest.warns(UserWarning, match=r"two: 2 videos; left out 1 other file: notes\.txt"):
            both = open_images(text, image_size=24, cache=None)
        assert both.splits == splits(text) == ("train", "test") and both.name == name_of_tables(text) == "one+two"
        assert [both.image_name(row) for row in range(4)][::3] == ["one/train/a/0.avi", "two/b/4.avi"]
        assert both.labels.tolist() == [0, 1, 0, 1] and len(open_images(both, split="test")) == 1
    (tmp_path / "list.csv").write_text("path,label\none/train/a/0.avi,x\ntwo/b/4.avi,y\ntwo/notes.txt,y")
    with pytest.warns(UserWarning, match=r"list\.csv: 2 videos; left out 1 other file"):
        listed = opened(f"video:{tmp_path}/list.csv")
    assert listed.classes == ["x", "y"] and listed.labels.tolist() == [0, 1]
    assert len(opened(f"video:{tmp_path}/one/**/*.avi")) == 2, "those of train"
    with pytest.raises(UserError, match="names 'nowhere', and there is no such folder or list"):
        opened(f"video:{tmp_path}/one,nowhere")


def test_open_images_delegates(films: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    videos = sslkit.open_images(f"video:{films}", image_size=24)
    assert isinstance(videos, Videos) and videos.image_size == 24 and videos.decodes and videos.channels == 3
    assert splits(f"video:{films}") == ("train",)
    assert list((tmp_path / "runs" / "cache").glob("videos-*.npz"))
    again = open_images(videos, fit="crop")
    assert isinstance(again, Videos) and again.fit == "crop" and again.image_size == 24
    assert open_images(videos) is videos
    with pytest.raises(UserError, match=r"folder of videos .* is not there"):
        sslkit.open_images(f"video:{tmp_path / 'gone'}")
    with pytest.raises(UserError, match="3 channels"):
        sslkit.open_images(f"video:{films}", channels=1)


def test_other_clips_of_the_same_videos(films: Path) -> None:
    videos = opened(films, cache=None)
    clean = videos.at(image_size=32, channels=3, fit="crop").with_sampling("center", clips=None)
    assert clean.index is videos.index and clean[3]["images"].shape == (1, 3, 16, 32, 32)
    assert videos[3]["images"].shape == (2, 3, 16, SIZE, SIZE)
    digests = [
        videos.digest,
        clean.digest,
        videos.with_sampling("random", clips=3).digest,
        opened(films, stride=1).digest,
        opened(films, frames=8).digest,
    ]
    assert len(set(digests)) == len(digests) and opened(films).digest == videos.digest


def test_a_copy_has_the_digest_and_the_manifest_and_a_changed_file_has_not(films: Path, tmp_path: Path) -> None:
    copy = Path(shutil.copytree(films, tmp_path / "copy", copy_function=shutil.copy))
    one, other = opened(films), opened(copy)
    assert one.manifest == other.manifest and one.digest == other.digest
    write_film(copy / "0.avi", 4)
    assert opened(copy).manifest != one.manifest and opened(copy).digest != one.digest


@pytest.fixture
def mixed(films: Path, tmp_path: Path) -> Path:
    """Two classes with videos that can be read, and four files that cannot."""
    for name in ("a", "b"):
        (tmp_path / name).mkdir()
        shutil.copy(films / "3.avi", tmp_path / name / "3.avi")
    (tmp_path / "a" / "2.mp4").write_text("no film")
    write_sound(tmp_path / "a" / "1.mp4")
    (tmp_path / "b" / "9.avi").touch()
    (tmp_path / "b" / "8.avi").write_bytes((films / "3.avi").read_bytes()[:300])
    return tmp_path


def test_what_cannot_be_read_is_counted_named_and_left_out(mixed: Path) -> None:
    with pytest.warns(UserWarning, match=r"4 of 6 videos cannot be read.*1\.mp4: no video in it, audio only.*1 more"):
        videos = opened(mixed)
    assert len(videos) == 2 and videos.kept.tolist() == [2, 3] and videos.labels.tolist() == [0, 1]
    assert Counter(Path(path).name for path in videos.skipped) == Counter(["1.mp4", "2.mp4", "9.avi", "8.avi"])
    assert videos.__getitems__([1, 0])["label"].tolist() == [1, 0]


def test_on_request_it_is_an_error(mixed: Path) -> None:
    with pytest.raises(UserError, match=r"cannot read .*1\.mp4: no video in it, audio only \(on_error=skip"):
        opened(mixed, on_error="raise")


def test_none_that_can_be_read(mixed: Path) -> None:
    for name in ("a", "b"):
        (mixed / name / "3.avi").unlink()
    with pytest.raises(UserError, match=r"none of its 4 videos can be read; the first is .*1\.mp4: no video in it"):
        opened(mixed)


def test_a_video_that_breaks_later_is_reported_and_the_next_one_taken(films: Path, tmp_path: Path) -> None:
    copy = Path(shutil.copytree(films, tmp_path / "copy"))
    videos, strict = opened(copy), opened(copy, on_error="raise")
    cut(copy / "1.avi", 0.01, copy / "1.avi")
    batch = videos.__getitems__(EpochRows([0, 1, 2], 3, 4))
    assert batch["index"].tolist() == [0, 2, 2] and batch["bad"] == [str(copy / "1.avi")]
    assert torch.equal(batch["images"][1], batch["images"][2])
    assert np.array_equal(shown(batch), batch["frames"].numpy())
    assert videos.__getitems__([1, 1])["bad"] == [str(copy / "1.avi")]
    with pytest.raises(UserError, match=r"cannot read .*1\.avi"):
        strict.__getitems__([1])
    for path in copy.iterdir():
        path.unlink()
    with pytest.raises(UserError, match="none of its 6 videos can be read any more"):
        videos.__getitems__([0])


def test_a_list_of_files_with_labels_of_its_own(mixed: Path) -> None:
    paths = ["b/3.avi", "a/2.mp4", "a/3.avi"]
    identity = Identity("listed", None, labels=np.array([7, 8, 9]), classes=list("abcdefghij"))
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        videos = open_video_files(mixed, paths, identity, VideoOptions(cache=None, image_size=SIZE))
    assert videos.labels.tolist() == [7, 9] and videos.kept.tolist() == [0, 2] and videos.name == "listed"
    with pytest.raises(UserError, match=r"listed: 1 videos are listed more than once, the first is b/3\.avi"):
        open_video_files(mixed, [*paths, paths[0]], identity, VideoOptions(cache=None, image_size=SIZE))


@pytest.mark.parametrize(
    ("options", "reason"),
    [
        ({"frames": 0}, r"data\.frames=0"),
        ({"stride": -1}, r"data\.stride=-1"),
        ({"clips": 0}, r"data\.clips=0"),
        ({"stride": 1.5}, r"data\.stride=1\.5 must be a whole number from 1"),
        ({"frames": "8"}, r"data\.frames='8' must be a whole number from 1"),
        ({"frames": None}, r"data\.frames=None must be a whole number from 1"),
        ({"clips": True}, r"data\.clips=True must be a whole number from 1"),
        ({"sampling": "centre"}, r"data\.sampling=centre is not an option.*center"),
        ({"sampling": "center", "clips": 2}, r"data\.clips=2.*one clip"),
        ({"on_error": "ignore"}, "on_error must be skip or raise, got 'ignore'"),
    ],
)
def test_options_out_of_range(films: Path, options: dict, reason: str) -> None:
    with pytest.raises(UserError, match=reason):
        opened(films, **options)


def test_folders_without_a_video(tmp_path: Path) -> None:
    with pytest.raises(UserError, match=r"no videos in .* looked for \.mp4.*0 other files"):
        opened(tmp_path)
    (tmp_path / "a.png").touch()
    with pytest.raises(UserError, match="1 other files"):
        opened(tmp_path)
    with pytest.raises(UserError, match="is a file: give the folder"):
        opened(tmp_path / "a.png")


def test_rows_out_of_range(films: Path) -> None:
    with pytest.raises(IndexError):
        opened(films)[6]
