"""The words that name the splits of a data set: of folders, lists of files, shards, archives, tables and videos."""

import re
from collections.abc import Collection, Iterable, Mapping
from typing import TypeVar

from sslkit.data.columns import NO, YES

SPLIT_OF_WORD: dict[str, str] = {
    "train": "train",
    "training": "train",
    "val": "val",
    "valid": "val",
    "validation": "val",
    "dev": "val",
    "eval": "val",
    "evaluation": "val",
    "test": "test",
    "testing": "test",
    "heldout": "test",
    "holdout": "test",
}
OF_YES_OR_NO: dict[str, tuple[str, str]] = {  # a column, without _: the splits of its yes and of its no
    "istrain": ("train", "test"),
    "isvalid": ("val", "train"),
    "isval": ("val", "train"),
    "istest": ("test", "train"),
}
_UNLABELLED = frozenset(("unlabeled", "unlabelled", "nolabel", "nolabels", "unsup", "unsupervised"))
_PARTS = frozenset(("fold", "split"))  # of data, too, but which one is held out is not known
_FILLERS = frozenset(("data", "dataset", "image", "images", "img", "imgs", "photos", "set", "out"))
T = TypeVar("T")


def split_of(name: str) -> str | None:
    """The split that a folder's name, or a value in a column of splits, stands for, in any case."""
    return SPLIT_OF_WORD.get(name.strip().lower())


def split_by_yes_or_no(column: str, value: str) -> str | None:
    """The split that a value in a column such as is_train or is_valid stands for; None for any other."""
    yes, no = OF_YES_OR_NO.get(column.lower().replace("_", ""), (None, None))
    word = value.strip().lower()
    return yes if word in YES else no if word in NO else None


def is_unlabelled(name: str) -> bool:
    """Return whether a folder beside those of classes is called as the images without a class: unlabeled, no_label."""
    words = re.findall("[a-z]+", name.lower())
    return "".join(words) in _UNLABELLED or any(
        word in _UNLABELLED and set(words) <= {word, *_FILLERS} for word in words
    )


def usual(found: Mapping[str, T]) -> dict[str, T]:
    """The splits that a source offers, "train" first, with what it has of each: {} unless it is divided.

    found: what there is of "train", "val" and "test". There must be some of "train" and of another; a single held-out
    part is "test", whatever it is called.
    """
    held_out = [split for split in ("val", "test") if split in found]
    if "train" not in found or not held_out:
        return {}
    names = ("test",) if len(held_out) == 1 else held_out
    return {"train": found["train"], **{name: found[split] for name, split in zip(names, held_out, strict=True)}}


def resolve_split(split: str, offered: Collection[str]) -> str:
    """The split that is meant: "val" is "test" where that is the only held-out one."""
    return "test" if split == "val" and "val" not in offered and "test" in offered else split


def looks_like_a_split(name: str) -> bool:
    """Return whether a name says that a folder is a part of a data set: train2017, test_images, fold1, TestSet."""
    words = re.findall("[a-z]+", re.sub("(?<=[a-z])(?=[A-Z])", " ", name).lower())
    vocabulary = {*SPLIT_OF_WORD, *_PARTS}
    return any(word in vocabulary for word in words) and all(word in vocabulary or word in _FILLERS for word in words)


def split_like(names: Iterable[str]) -> list[str]:
    """The names of classes that are taken for parts of the data by mistake; [] where they may be classes.

    A class `train` among cars and buses is one. One called as held-out images are, two that look like parts, and one of
    two are not.
    """
    names = list(names)
    splits = [name for name in names if looks_like_a_split(name)]
    certain = any(split_of(name) in ("val", "test") for name in splits)
    return splits if certain or len(splits) >= 2 or (splits and len(names) <= 2) else []
