"""Samples of several images: one of them is read, and it is said which."""

from pathlib import Path

import pytest
from tars import labels, names, opened, pngs, tar

from sslkit.errors import UserError


@pytest.mark.parametrize(
    ("kinds", "read", "said"),
    [
        ("jpg seg.png cls", ".jpg", "3 .seg.png"),
        ("mask2.png jpg", ".jpg", "3 .mask2.png"),
        ("jpg thumb.jpg", ".jpg", "3 .thumb.jpg"),
        ("jpg png", ".jpg", "3 .png"),  # a mask beside its photograph, or the same one twice
        ("left.png right.png cls", ".left.png", "3 .right.png"),  # webdataset's issue 20
        ("main.jpg aux0.jpg aux1.jpg", ".aux0.jpg", "3 .aux1.jpg, 3 .main.jpg"),  # its issue 257
        ("depth.png color.png", ".color.png", "3 .depth.png"),
        ("depth.png mask.png", ".depth.png", "3 .mask.png"),  # nothing else
    ],
)
def test_one_image_of_a_sample_is_read(kinds: str, read: str, said: str, tmp_path: Path) -> None:
    members = [f"{key}.{kind}" + "=1" * (kind == "cls") for key in "abc" for kind in kinds.split()]
    tar(tmp_path / "a.tar", pngs(*members))
    for _ in range(2):  # read from the shard, and from the kept index
        images, lines = opened(tmp_path / "a.tar", cache=tmp_path / "cache")
        assert names(images) == [f"{key}{read}" for key in "abc"]
        assert lines == [f"a: samples with several images: read 3 {read}; left out {said}"]
        assert labels(images) == (["1"] * 3 if "cls" in kinds else None)


def test_the_kind_that_most_samples_have(tmp_path: Path) -> None:
    tar(tmp_path / "a.tar", pngs("a.png", "a.jpg", "b.png", "c.png", "d.jpg"))
    images, lines = opened(tmp_path / "a.tar")
    assert names(images) == ["a.png", "b.png", "c.png", "d.jpg"]
    assert lines == ["a: samples with several images: read 3 .png, 1 .jpg; left out 1 .jpg"]


def test_a_mask_in_a_sample_of_its_own_is_left_out(tmp_path: Path) -> None:
    """An unsorted tar: no mask stands beside its photograph."""
    tar(tmp_path / "a.tar", pngs("a.png", "b.png", "a.mask.png", "b.mask.png"))
    images, lines = opened(tmp_path / "a.tar")
    assert names(images) == ["a.png", "b.png"] and "left out 2 .mask.png" in lines[0]


def test_words_and_numbers_that_belong_to_a_name(tmp_path: Path) -> None:
    whole = [
        "St.Paul.png",
        "St.Peter.png",
        "p.0001.png",
        "p.0002.png",
        "p.2024-01-02.png",
        "a.normal.png",
        "b.tumour.png",
    ]
    tar(tmp_path / "a.tar", pngs(*whole))
    images, lines = opened(tmp_path / "a.tar")
    assert names(images) == whole and not lines


def test_the_kind_is_the_same_in_all_splits(tmp_path: Path) -> None:
    tar(tmp_path / "x-train-0.tar", pngs("a.jpg", "a.png", "b.jpg", "b.png", "c.jpg"))
    tar(tmp_path / "x-test-0.tar", pngs("d.jpg", "d.png", "e.png"))
    train, lines = opened(tmp_path)
    assert names(train) == ["a.jpg", "b.jpg", "c.jpg"] and "left out 2 .png" in lines[0]
    test, lines = opened(tmp_path, split="test")
    assert names(test) == ["d.jpg", "e.png"] and "read 1 .jpg, 1 .png; left out 1 .png" in lines[0]


def test_a_split_of_masks_alone_has_no_image(tmp_path: Path) -> None:
    tar(tmp_path / "x-train-0.tar", pngs("a.png", "a.mask.png"))
    tar(tmp_path / "x-test-0.tar", pngs("b.mask.png"))
    assert names(opened(tmp_path)[0]) == ["a.png"]
    with pytest.raises(UserError, match=r"no image in 1 shard, such as .*; left out 1 other member: 1 \.mask\.png"):
        opened(tmp_path, split="test")
