"""The published sets as their authors lay them out, with tiny films; what is missing is said at once."""

from collections.abc import Callable
from pathlib import Path

import pytest

from evaluation.datasets import Reading
from evaluation.tasks.action.datasets import Films, find, folds_of, names, open_films
from evaluation.tasks.action.datasets.ucf101 import COUNTS
from sslkit.errors import UserError


def touch(*paths: Path) -> None:
    """Listing opens no film, so its bytes do not matter here."""
    for path in paths:
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(path.name.encode())


def opened(name: str, root: Path, split: str = "train", fold: int = 1) -> Films:
    with pytest.warns(UserWarning, match="instead of"):
        return open_films(f"{name}:{root}", split, Reading(counts="warn"), fold=fold)


def named(films: Films) -> dict[str, str]:
    return {path: films.classes[label] for path, label in zip(films.paths, films.y, strict=True)}


@pytest.fixture
def ucf(tmp_path: Path, lines: Callable) -> Path:
    root = tmp_path / "UCF101"
    lists, videos = root / "ucfTrainTestlist", root / "UCF-101"
    lines(lists / "classInd.txt", "1 ApplyEyeMakeup", "2 HandstandPushups")
    train = ["ApplyEyeMakeup/v_ApplyEyeMakeup_g08_c01.avi 1", "HandstandPushups/v_HandStandPushups_g09_c02.avi 2"]
    lines(lists / "trainlist01.txt", *train, "")
    lines(lists / "testlist01.txt", "HandstandPushups/v_HandStandPushups_g01_c01.avi")
    lines(lists / "trainlist02.txt", "HandstandPushups/v_HandStandPushups_g01_c01.avi 2")
    lines(lists / "testlist02.txt", *(line.split()[0] for line in train))
    for line in (*train, "HandstandPushups/v_HandStandPushups_g01_c01.avi"):
        touch(videos / line.split()[0])
    return root


def test_ucf101_has_labels_for_both_lists(ucf: Path) -> None:
    assert named(opened("ucf101", ucf)) == {
        "ApplyEyeMakeup/v_ApplyEyeMakeup_g08_c01.avi": "ApplyEyeMakeup",
        "HandstandPushups/v_HandStandPushups_g09_c02.avi": "HandstandPushups",
    }
    test = opened("ucf101", ucf, "test")
    assert test.classes == ("ApplyEyeMakeup", "HandstandPushups") and test.y.tolist() == [1]
    assert len(opened("ucf101", ucf, "test", fold=2)) == 2
    assert opened("ucf101", ucf.parent, "test").digest == test.digest, "the folder above it does as well"
    assert opened("ucf101", ucf, "test", fold=2).digest != test.digest


def test_ucf101_converted_to_mp4_in_lower_case_is_found(ucf: Path) -> None:
    videos = ucf / "UCF-101"
    for path in list(videos.rglob("*.avi")):
        path.rename(path.with_name(path.stem.lower() + ".MP4"))
    assert len(opened("ucf101", ucf)) == 2


def test_ucf101_groups_are_not_in_both_lists(ucf: Path, lines: Callable) -> None:
    lines(ucf / "ucfTrainTestlist" / "testlist01.txt", "ApplyEyeMakeup/v_ApplyEyeMakeup_g08_c02.avi")
    with pytest.raises(UserError, match="videos of group ApplyEyeMakeup/v_ApplyEyeMakeup_g08 in both"):
        open_films(f"ucf101:{ucf}", "train")


def test_ucf101_counts_are_the_published_ones() -> None:
    entry = find("ucf101")
    assert (entry.counts["train", 1], entry.counts["test", 1], entry.classes) == (9537, 3783, 101)
    assert {sum(both) for both in COUNTS.values()} == {13320}
    hmdb = find("hmdb51")
    assert set(hmdb.counts.values()) == {51 * 70, 51 * 30} and hmdb.classes == 51


def test_missing_films_are_counted_and_named_at_once(ucf: Path) -> None:
    for path in (ucf / "UCF-101").rglob("*g0[89]*.avi"):
        path.unlink()
    with pytest.raises(UserError) as raised:
        open_films(f"ucf101:{ucf}", "train")
    said = str(raised.value)
    assert "2 of 2 videos are missing" in said and "\n" not in said and "Source: https://www.crcv.ucf.edu" in said
    assert "v_ApplyEyeMakeup_g08_c01.avi" in said and "v_HandStandPushups_g09_c02.avi" in said


def test_another_number_of_films_than_published_is_refused(ucf: Path) -> None:
    with pytest.raises(UserError, match="2 videos instead of 9537 and 2 classes instead of 101"):
        open_films(f"ucf101:{ucf}", "train")
    assert "not the published set" in opened("ucf101", ucf).note


@pytest.fixture
def hmdb(tmp_path: Path, lines: Callable) -> Path:
    root = tmp_path / "hmdb51"
    for name in ("brush_hair", "cartwheel"):
        films = [f"A_{name}_#{number}_(1).avi" for number in range(4)]
        touch(*(root / "videos" / name / film for film in films))
        for fold in (1, 2, 3):
            marks = ["0", "1", "2", "1"] if fold == 1 else ["2", "1", "0", "0"]
            said = [f"{film} {mark} " for film, mark in zip(films, marks, strict=True)]
            lines(root / "testTrainMulti_7030_splits" / f"{name}_test_split{fold}.txt", *said)
    return root


def test_hmdb51_takes_the_marked_films(hmdb: Path) -> None:
    train, test = opened("hmdb51", hmdb), opened("hmdb51", hmdb, "test")
    assert train.classes == ("brush_hair", "cartwheel") and train.y.tolist() == [0, 0, 1, 1]
    assert train.paths[:2] == ("brush_hair/A_brush_hair_#1_(1).avi", "brush_hair/A_brush_hair_#3_(1).avi")
    assert test.paths == ("brush_hair/A_brush_hair_#2_(1).avi", "cartwheel/A_cartwheel_#2_(1).avi")
    assert opened("hmdb51", hmdb, "test", fold=3).paths[0] == "brush_hair/A_brush_hair_#0_(1).avi"


def test_hmdb51_refuses_a_line_that_it_does_not_know(hmdb: Path, lines: Callable) -> None:
    lines(hmdb / "testTrainMulti_7030_splits" / "cartwheel_test_split1.txt", "a.avi 1", "b.avi 3")
    with pytest.raises(UserError, match=r"cartwheel_test_split1.txt line 2: 'b.avi 3' is not"):
        open_films(f"hmdb51:{hmdb}", "train")


@pytest.fixture
def kinetics(tmp_path: Path, lines: Callable) -> Path:
    """Five of the six listed films: one in a class folder, one beside them, one named without its times."""
    root, head = tmp_path / "k400", "label,youtube_id,time_start,time_end,split,is_cc"
    rows = ["abseiling,-3B32lodo2M,59,69", "petting animal (not cat),_kwSDLoYjyI,0,10", '"shot put, old",abCDe,7,17']
    rows += ["abseiling,gone12345,1,11"]
    lines(root / "annotations" / "train.csv", head, *(f"{row},train,0" for row in rows))
    lines(root / "annotations" / "val.csv", head, *(f"{row},validate,0" for row in rows[:3]))
    touch(root / "train" / "abseiling" / "-3B32lodo2M_000059_000069.mp4")
    touch(root / "train" / "petting_animal_(not_cat)" / "_kwSDLoYjyI_000000_000010.mkv", root / "train" / "abCDe.mp4")
    touch(root / "val" / "abseiling" / "-3B32lodo2M_000059_000069.mp4", root / "val" / "other" / "zz_000000_000010.mp4")
    return root


def test_kinetics_takes_labels_from_its_list_and_counts_what_is_missing(kinetics: Path) -> None:
    train = opened("kinetics400", kinetics)
    assert named(train) == {
        "abseiling/-3B32lodo2M_000059_000069.mp4": "abseiling",
        "petting_animal_(not_cat)/_kwSDLoYjyI_000000_000010.mkv": "petting animal (not cat)",
        "abCDe.mp4": "shot put, old",
    }
    assert train.left_out == {"gone12345_000001_000011": "missing"} and "1 of 4 videos missing" in train.note
    test = opened("kinetics400", kinetics, "test")
    assert len(test) == 1 and test.classes == train.classes and len(test.left_out) == 2, (
        "the classes are those of the list"
    )


def test_the_manifest_digest_tells_two_copies_apart(kinetics: Path) -> None:
    first = opened("kinetics400", kinetics).digest
    assert opened("kinetics400", kinetics).digest == first
    touch(kinetics / "train" / "abseiling" / "gone12345_000001_000011.mp4")
    assert opened("kinetics400", kinetics).digest != first
    (kinetics / "train" / "abseiling" / "gone12345_000001_000011.mp4").unlink()
    (kinetics / "train" / "abCDe.mp4").write_bytes(b"cut")
    assert opened("kinetics400", kinetics).digest != first


def test_kinetics_without_its_columns_or_films(kinetics: Path, lines: Callable, tmp_path: Path) -> None:
    lines(kinetics / "annotations" / "val.csv", "label,youtube_id", "abseiling,x")
    with pytest.raises(UserError, match=r"val.csv has no column time_end, time_start"):
        open_films(f"kinetics400:{kinetics}", "test")
    for path in (kinetics / "train").rglob("*.m*"):
        path.unlink()
    with pytest.raises(UserError, match=r"4 of 4 videos are missing .* Source: https://github.com/cvdfoundation"):
        open_films(f"kinetics400:{kinetics}", "train")


def test_kinetics_has_the_labels_of_train_in_both_lists(kinetics: Path, lines: Callable) -> None:
    head = "label,youtube_id,time_start,time_end"
    lines(kinetics / "annotations" / "val.csv", head, "petting animal (not cat),zz,0,10")
    touch(kinetics / "val" / "zz_000000_000010.mp4")
    train, test = (opened("kinetics400", kinetics, split) for split in ("train", "test"))
    assert test.classes == train.classes and list(named(test).values()) == ["petting animal (not cat)"]
    lines(kinetics / "annotations" / "val.csv", head, "juggling,zz,0,10")
    with pytest.raises(UserError, match=r"val.csv: the classes juggling are not in .*train.csv"):
        open_films(f"kinetics400:{kinetics}", "test", Reading(counts="warn"))


@pytest.mark.parametrize("name", names())
@pytest.mark.parametrize("split", ["train", "test"])
def test_nothing_on_the_disk_is_one_line_with_all_that_is_needed(name: str, split: str, tmp_path: Path) -> None:
    with pytest.raises(UserError) as raised:
        open_films(name, split, Reading(root=tmp_path))
    said = str(raised.value)
    assert "cannot be opened from" in said and "https://" in said and f"data={name}:ROOT" in said and "\n" not in said
    for any_of in find(name).files(1):
        assert any_of[0] in said


def test_folders_of_films(tmp_path: Path) -> None:
    touch(*(tmp_path / "set" / path for path in ("train/b/1.mp4", "train/a/x/2.3gp", "val/b/3.webm", "val/b/.4.mp4")))
    touch(tmp_path / "set" / "train" / "a" / "readme.txt")
    train, test = (open_films(f"video:{tmp_path / 'set'}", split) for split in ("train", "test"))
    assert named(train) == {"a/x/2.3gp": "a", "b/1.mp4": "b"} and named(test) == {"b/3.webm": "b"}
    assert train.name == "set" and folds_of("video:set") == (1,)


def test_folders_of_films_are_called_as_those_of_images(tmp_path: Path) -> None:
    touch(*(tmp_path / "set" / path for path in ("Training/Run/1.mp4", "Training/walk/2.mp4", "DEV/run/3.mp4")))
    with pytest.warns(UserWarning, match="'Run' and 'run' are one class"):
        test = open_films(f"video:{tmp_path / 'set'}", "test")
    assert named(test) == {"run/3.mp4": "Run"}


def test_films_are_named_as_images_are(tmp_path: Path) -> None:
    """Several folders, a list with labels and splits, and a pattern."""
    for top, kind in (("one", "train"), ("two", "train"), ("one", "val")):
        touch(*(tmp_path / top / kind / label / f"{top}.mp4" for label in ("a", "b")))
    several = f"video:{tmp_path / 'one'},video:{tmp_path / 'two'}"
    train, test = (open_films(several, split) for split in ("train", "test"))
    assert named(train) == {f"{top}/train/{label}/{top}.mp4": label for top in ("one", "two") for label in ("a", "b")}
    assert named(test) == {"one/val/a/one.mp4": "a", "one/val/b/one.mp4": "b"} and test.name == "one+two"
    rows = ["video,label,split", "one/train/a/one.mp4,x,train", "one/train/b/one.mp4,y,train"]
    rows += ["two/train/a/two.mp4,y,test", "two/train/b/two.mp4,,test"]
    (tmp_path / "list.csv").write_text("\n".join(rows))
    with pytest.warns(UserWarning, match="paths from 'video', labels from 'label', splits from 'split'"):
        train, test = (open_films(f"video:{tmp_path / 'list.csv'}", split) for split in ("train", "test"))
    assert named(train) == {"one/train/a/one.mp4": "x", "one/train/b/one.mp4": "y"} and train.name == "list"
    assert named(test) == {"two/train/a/two.mp4": "y"} and test.left_out == {"two/train/b/two.mp4": "no label"}
    pattern = open_films(f"video:{tmp_path}/one/**/*.mp4", "test")
    assert named(pattern) == {"val/a/one.mp4": "a", "val/b/one.mp4": "b"}


@pytest.mark.parametrize(
    ("files", "said"),
    [
        (
            ("train/a/1.mp4", "train/b/1.mp4"),
            r"has no train and test \(or val\) videos: .* train/CLASS/",
        ),
        (("train/a/1.mp4", "train/b/1.mp4", "test/a/1.mp4", "test/c/1.mp4"), "the classes c are not in train"),
        (("train/a/1.mp4", "test/a/1.mp4"), "train: classification needs at least 2 classes"),
        (("train/1.mp4", "test/a/1.mp4"), "train: classification needs at least 2 classes"),
        (("train/a/1.mp4", "train/b/1.mp4", "test/1.mp4"), "test: its videos have no classes"),
        (("train/a/1.mp4", "train/b/1.mp4", "test/a/1.txt"), "no videos in .*test or below: looked for .mp4 .avi"),
    ],
)
def test_folders_that_are_not_so(files: tuple[str, ...], said: str, tmp_path: Path) -> None:
    touch(*(tmp_path / file for file in files))
    with pytest.raises(UserError, match=said):
        open_films(f"video:{tmp_path}", "test")


@pytest.mark.parametrize("source", ["fashion_mnist", "video", "video:", "ucf102", 3])
def test_what_is_no_set_of_films(source) -> None:
    with pytest.raises(UserError, match="is not a video data set: for action, data is video:FOLDER or hmdb51"):
        open_films(source, "test")


def test_splits_and_folds_that_are_not_there(ucf: Path) -> None:
    with pytest.raises(UserError, match="ucf101: split='val' is not known"):
        open_films(f"ucf101:{ucf}", "val")
    with pytest.raises(UserError, match="ucf101 has no split 4; known: 1, 2, 3"):
        open_films(f"ucf101:{ucf}", "test", fold=4)
    with pytest.raises(UserError, match=r"folder of videos .*nowhere is not there"):
        open_films(f"video:{ucf}/nowhere", "train")
