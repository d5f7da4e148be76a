"""Classes of shards: from .cls, .json and .txt members, from folders, and what is said of those not used."""

from pathlib import Path

import pytest
from tars import labels, names, opened, pngs, rows_read, tar

from sslkit.data.sources.named import splits
from sslkit.data.sources.tar_labels import of_cls, of_json, of_txt
from sslkit.errors import UserError


@pytest.mark.parametrize(
    ("content", "classes"),
    [
        (b"7\n", ["7"]), (b"007", ["7"]), (b"3.0", ["3"]), (b"3.000e+01", ["30"]), (b"12 3,3", ["3", "12"]), (b"", []),
        (b"-1", None), (b"1.5", ["1.5"]), (b"-1 3", ["-1 3"]), (b"0 0 1 0", ["0 0 1 0"]), (b"0 1", ["0", "1"]),
        (b"n01440764", ["n01440764"]), (b"golden retriever", ["golden retriever"]), (b"1_0", ["1_0"]),
        (b"9" * 19, ["9" * 19]), (b"\xff\xfe", ["\ufffd\ufffd"]), (b"\xef\xbb\xbf7", ["7"]),
    ],
)  # fmt: skip
def test_content_of_cls(content: bytes, classes: list[str] | None) -> None:
    assert of_cls(content) == classes


@pytest.mark.parametrize(
    ("content", "found"),
    [
        (b'{"label": 3}', ("label", ["3"])), (b'{"label": "dog", "cls": 3}', ("label", ["dog"])),
        (b'{"cls": 2.0}', ("cls", ["2"])), (b'{"class_id": "4"}', ("class_id", ["4"])),
        (b'{"label": true}', ("label", ["1"])),
        (b'{"label": -1}', ("label", None)), (b'{"label": null}', ("label", None)), (b'{"label": ""}', ("label", None)),
        (b'{"labels": [3, 1, 3]}', ("labels", ["1", "3"])), (b'{"labels": ["b", "a"]}', ("labels", ["a", "b"])),
        (b'{"labels": []}', ("labels", [])), (b'{"labels": [0, 0, 1]}', ("labels", ["[0, 0, 1]"])),
        (b'{"labels": [{"box": 1}], "category": "x"}', ("category", ["x"])), (b'{"label": {"a": 1}}', None),
        (b'{"caption": "label"}', None), (b'["label"]', None), (b'{"label": 3', None),
        (b'{"label": ' + b"[" * 9999, None), (b'{"label": NaN}', ("label", ["nan"])),
        (b'{"label": "\\ud800"}', ("label", ["?"])), (b'{"label": 1.5}', ("label", ["1.5"])),
    ],
)  # fmt: skip
def test_content_of_json(content: bytes, found: tuple[str, list[str] | None] | None) -> None:
    assert of_json(content) == found


def test_content_of_txt() -> None:
    contents = (b"3\n", b"-1", b"a cat", b"3 cats", b"", b"7" * 40)
    assert [of_txt(content) for content in contents] == [["3"], None, *[["a text"]] * 4]


def test_numbers_and_names_in_json(tmp_path: Path) -> None:
    tar(
        tmp_path / "a.tar",
        pngs("a.png", 'a.json={"label": 7}', "b.png", 'b.json={"label": 3}', "c.png", 'c.json={"id": 3}'),
    )
    for _ in range(2):
        images, said = opened(tmp_path / "a.tar", cache=tmp_path / "cache")
        assert images.classes == ["3", "7"] and labels(images) == ["7", "3", None]
        assert said == [
            "a: its labels are 'label' in its .json members", "a: 3 images; left out 1 other member: 1 .json",
        ]  # fmt: skip
    tar(tmp_path / "b.tar", pngs("a.png", 'a.json={"class": "red fox"}', "b.png", 'b.json={"class": "cat"}'))
    images, said = opened(tmp_path / "b.tar")
    assert images.classes == ["cat", "red fox"] and labels(images) == ["red fox", "cat"]


def test_cls_comes_before_json(tmp_path: Path) -> None:
    for order in (("a.cls=1", 'a.json={"label": 9}'), ('a.json={"label": 9}', "a.cls=1")):
        tar(tmp_path / "a.tar", pngs("a.png", *order))
        images, said = opened(tmp_path / "a.tar")
        assert labels(images) == ["1"] and said == ["a: 1 image; left out 1 other member: 1 .json"]


def test_the_label_that_most_images_have(tmp_path: Path) -> None:
    """Numbers of two kinds of files may mean different classes: they are never mixed."""
    tar(
        tmp_path / "a.tar",
        pngs("a.png", "a.cls=0", *(name for key in "bcd" for name in (f"{key}.png", key + '.json={"label": 5}'))),
    )
    images, said = opened(tmp_path / "a.tar")
    assert labels(images) == [None, "5", "5", "5"] and images.classes == ["5"]
    assert "left out 1 other member: 1 .cls" in said[1]
    tar(tmp_path / "a.tar", pngs(*(f"{key}.{kind}" for key in "abc" for kind in ("coarse.cls=1", "fine.cls=2", "png"))))
    images, said = opened(tmp_path / "a.tar")
    assert labels(images) == ["1"] * 3
    assert said == ["a: its labels are its .coarse.cls members", "a: 3 images; left out 3 other members: 3 .fine.cls"]


@pytest.mark.parametrize(("labels", "are_said"), [("1 -1 -1", True), ("0 -1 1", False), ("1 1 1", False)])
def test_two_classes_written_as_minus_one_and_one_are_said(labels: str, are_said: bool, tmp_path: Path) -> None:
    members = ((f"{k}.png", f"{k}.cls={one}") for k, one in enumerate(labels.split()))
    tar(tmp_path / "a.tar", pngs(*(name for some in members for name in some)))
    _, said = opened(tmp_path / "a.tar")
    line = "a: 2 of 3 images have no label, as -1 says, and all others are 1: for two classes write 0 and 1"
    assert said == [line] * are_said


def test_texts_are_captions_unless_all_are_numbers(tmp_path: Path) -> None:
    tar(tmp_path / "a.tar", pngs("README.txt=about", "a.png", "a.txt=3", "b.png", "b.txt=1"))
    images, said = opened(tmp_path / "a.tar")
    assert labels(images) == ["3", "1"]
    assert said == ["a: its labels are its .txt members", "a: 2 images; left out 1 other member: 1 .txt"]
    tar(tmp_path / "a.tar", pngs("a.png", "a.txt=3", "b.png", "b.txt=a dog"))
    images, said = opened(tmp_path / "a.tar")
    assert labels(images) is None and said == ["a: 2 images; left out 2 other members: 2 .txt"]


def test_names_in_cls_are_classes_if_there_is_no_number(tmp_path: Path) -> None:
    tar(tmp_path / "x-train-0.tar", pngs("a.png", "a.cls=Red_Fox", "b.png", "b.cls=cat", "c.png", "c.cls=1.5"))
    tar(tmp_path / "x-test-0.tar", pngs("d.png", "d.cls=red fox", "e.png", "e.cls=cat"))
    images, said = opened(tmp_path)
    assert images.classes == ["Red_Fox", "cat"] and labels(images) == ["Red_Fox", "cat", None]
    assert (
        said[0]
        == f"no class in 1 .cls file, such as c.cls ('1.5') in {tmp_path}/x-train-0.tar: their images have no label"
    )
    assert "'Red_Fox' and 'red fox' are one class" in said[1] and len(said) == 2
    held_out, _ = opened(tmp_path, split="test")
    assert labels(held_out) == ["Red_Fox", "cat"]


def test_several_names_an_image(tmp_path: Path) -> None:
    tar(tmp_path / "a.tar", pngs("a.png", 'a.json={"labels": ["b", "c"]}', "b.png", 'b.json={"labels": []}', "c.png"))
    images, _ = opened(tmp_path / "a.tar")
    assert images.classes == ["b", "c"] and images.multi_labels.tolist() == [[1, 1], [-1, -1], [0, 0]]


@pytest.mark.parametrize("above", ["", "imagenette/", "a/b/", "train/", "imagenette/train/images/"])
def test_folders_that_all_members_share_are_no_class(above: str, tmp_path: Path) -> None:
    tar(tmp_path / "x-train-0.tar", pngs(*(f"{above}{name}/{row}.png" for row in range(2) for name in ("cat", "dog"))))
    below = above.replace("train", "val")
    tar(tmp_path / "x-val-0.tar", pngs(*(f"{below}{name}/{row}.png" for row in range(2) for name in ("dog", "Cat"))))
    images, said = opened(tmp_path)
    assert images.classes == ["cat", "dog"] and labels(images) == ["cat", "dog"] * 2
    assert len(said) == 1 and "'cat' and 'Cat' are one class" in said[0]
    held_out, _ = opened(tmp_path, split="val")
    assert labels(held_out) == ["dog", "cat"] * 2


def test_what_lies_beside_splits_in_an_archive_is_left_out_and_said(tmp_path: Path) -> None:
    """Splits in shards are found as in a folder; shards that are called like splits are not looked into."""
    members = pngs(*(f"{part}/{name}/0.png" for part in ("Training", "TEST") for name in ("cat", "dog")))
    members += pngs("extra/0.png", "0.png", "extra/0.cls=7")
    tar(tmp_path / "set-train-test.tar", members)
    images, said = opened(tmp_path / "set-train-test.tar")
    assert labels(images) == ["cat", "dog"] and images.splits == ("train", "test")
    beside = "left out 2 images beside them, such as extra/0.png"
    assert said[0] == f"set-train-test: Training/ and TEST/ in its members' names are its splits; {beside}"
    tar(tmp_path / "b" / "x-train-0.tar", members)
    tar(tmp_path / "b" / "x-train-1.tar", pngs("TEST/cat/7.png"))
    assert len(opened(tmp_path / "b")[0]) == 7


def test_several_archives_with_splits_inside(tmp_path: Path) -> None:
    for row in range(2):
        tar(tmp_path / f"{row}.tar", pngs(f"train/{row}.png", f"train/{row}.cls={row}", f"test/{row}.png"))
    train, _ = opened(tmp_path)
    test, _ = opened(tmp_path, split="test")
    assert names(train) == ["train/0.png", "train/1.png"] and labels(train) == ["0", "1"]
    assert names(test) == ["test/0.png", "test/1.png"] and train.content_digest != test.content_digest


def test_splits_inside_an_archive_are_read_and_said(tmp_path: Path) -> None:
    tar(
        tmp_path / "a.tar",
        pngs(*(f"photos/{part}/{name}/0.png" for part in ("train", "val") for name in ("cat", "dog"))),
    )
    for split, row in (("train", 0), ("val", 2), ("test", 2)):
        images, said = opened(tmp_path / "a.tar", split=split)
        assert labels(images) == ["cat", "dog"] and rows_read(images) == [row, row + 1]
        assert said == ["a: train/ and val/ in its members' names are its splits"]
    assert images.splits == splits(f"shards:{tmp_path}/a.tar", cache=None) == ("train", "test")
    with pytest.raises(UserError, match="has no split 'extra'"):
        opened(tmp_path / "a.tar", split="extra")
    tar(tmp_path / "b.tar", pngs("train2017/0.png", "val2017/0.png"))
    images, said = opened(tmp_path / "b.tar")
    assert images.classes == ["train2017", "val2017"] and "some look like splits: train2017, val2017" in said[0]


@pytest.mark.parametrize(
    ("train", "test"), [("training", "testing"), ("train", "dev"), ("Train", "TEST"), ("TRAINING", "valid")]
)
def test_words_of_splits_are_those_of_folders(train: str, test: str, tmp_path: Path) -> None:
    tar(tmp_path / f"x-{train}-0.tar", pngs("a.png", "b.png"))
    tar(tmp_path / f"x-{test}-0.tar", pngs("c.png"))
    images, _ = opened(tmp_path)
    held_out, _ = opened(tmp_path, split="test")
    assert images.splits == ("train", "test") and len(images) == 2 and len(held_out) == 1


def test_a_folder_that_all_shards_share_names_no_split(tmp_path: Path) -> None:
    for name in ("train-0.tar", "more-0.tar"):
        tar(tmp_path / "test" / name, pngs(f"{name}.png"))
    images, _ = opened(tmp_path / "test")
    assert images.splits == ("train",) and len(images) == 2
    for name in ("train/part/0.tar", "test/part/0.tar"):
        tar(tmp_path / "deep" / name, pngs("a.png"))
    images, _ = opened(tmp_path / "deep")
    assert images.splits == ("train", "test")


def test_images_beside_folders_have_no_labels(tmp_path: Path) -> None:
    tar(tmp_path / "a.tar", pngs("cat/0.png", "dog/0.png", "9.png"))
    images, said = opened(tmp_path / "a.tar")
    assert images.labels is None
    assert said == ["a has no labels, for there are images beside its folders, such as 9.png"]
