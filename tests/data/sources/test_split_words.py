"""The words that name splits."""

import pytest

from sslkit.data.sources.split_words import looks_like_a_split, resolve_split, split_like, split_of, usual


@pytest.mark.parametrize(
    ("name", "split"),
    [("train", "train"), ("TRAINING", "train"), ("Valid", "val"), ("dev", "val"), (" test ", "test"), ("tests", None)],
)
def test_words_in_any_case(name: str, split: str | None) -> None:
    assert split_of(name) == split


def test_a_source_is_divided_if_it_has_images_to_train_on_and_others() -> None:
    assert usual({"train": 1, "val": 2, "test": 3}) == {"train": 1, "val": 2, "test": 3}
    assert usual({"val": 2, "train": 1}) == {"train": 1, "test": 2} == usual({"train": 1, "test": 2})
    assert usual({"train": 1}) == usual({"val": 2, "test": 3}) == {}
    assert resolve_split("val", ("train", "test")) == "test" and resolve_split("val", ("train", "val", "test")) == "val"
    assert resolve_split("test", ("train",)) == "test" and resolve_split("val", ("train",)) == "val"


@pytest.mark.parametrize("name", ["train2017", "test_images", "fold1", "TestSet", "val", "images-train", "split 3"])
def test_names_of_parts(name: str) -> None:
    assert looks_like_a_split(name)


@pytest.mark.parametrize("name", ["training shoes", "test tube", "cat", "images", "contest", "folded", "n01440764", ""])
def test_names_of_things(name: str) -> None:
    assert not looks_like_a_split(name)


def test_one_class_called_train_among_others_is_a_class() -> None:
    assert split_like(["bus", "car", "train"]) == []
    assert split_like(["more", "train"]) == ["train"] and split_like(["bus", "car", "test"]) == ["test"]
    assert split_like(["bus", "train1", "train2"]) == ["train1", "train2"] and split_like([]) == []
