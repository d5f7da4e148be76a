"""Classes by name."""

import warnings

import numpy as np
import pytest

from sslkit.data.sources.class_names import as_read, known, list_names, match_classes, renumber, unseen
from sslkit.errors import UserError


def test_names_are_compared_as_people_read_them() -> None:
    alike = ["Grüne Äpfel", "grüne_äpfel", "GRÜNE  ÄPFEL", "Gru\u0308ne A\u0308pfel"]
    assert len(set(map(as_read, alike))) == 1
    assert len(set(map(as_read, ["cat", "cats", "c at", "kat", "cat2", "çat"]))) == 6


def test_the_first_split_names_a_class() -> None:
    with pytest.warns(UserWarning, match="pets: 'Cat' and 'cat'; 'x_1' and 'x 1' are one class"):
        found = match_classes(
            {"train": ["Cat", "dog", "x_1"], "val": ["cat", "x_1"], "test": ["dog", "x 1", "new"]}, "pets"
        )
    assert found == {"Cat": "Cat", "cat": "Cat", "dog": "dog", "x_1": "x_1", "x 1": "x_1", "new": "new"}


def test_accents_that_look_the_same_are_shown_by_their_codes() -> None:
    with pytest.warns(UserWarning, match=r"'é' and 'e\\u0301' are one class"):
        match_classes({"train": ["\u00e9"], "test": ["e\u0301"]}, "pets")


def test_many_pairs_are_counted() -> None:
    names = [f"class{k}" for k in range(6)]
    with pytest.warns(UserWarning, match="'class2' and 'CLASS2'; and 3 more such are one class"):
        match_classes({"train": names, "test": [name.upper() for name in names]}, "pets")


def test_other_names_say_nothing() -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert match_classes({"train": ["a", "b"], "test": ["b"]}, "pets") == {"a": "a", "b": "b"}


def test_labels_are_renumbered_by_name() -> None:
    y = np.array([0, 1, -1, 1])
    assert renumber(y, ["b", "a"], ["a", "b", "c"], "test").tolist() == [1, 0, -1, 0]
    with pytest.warns(UserWarning, match="are one class"):
        assert renumber(y, ["B", "a"], ["a", "b"], "test").tolist() == [1, 0, -1, 0]
    with pytest.raises(UserError, match="test has classes that train has no image of: d; leave their rows out"):
        renumber(y, ["a", "d"], ["a", "b"], "test")
    with pytest.raises(UserError, match="two classes are called a"):
        renumber(y, ["a", "a"], ["a", "b"], "test")
    with pytest.raises(UserError, match="no image of: b"):
        unseen(np.array([0, 1]), np.array([0, 0]), ["a", "b"], "test")


def test_labels_of_classes_that_train_lacks_are_none() -> None:
    train = np.array([0, 0, 1, -1])
    labels, missing = known(np.array([2, 1, 0, -1]), ["a", "b", "c"], train, ["a", "b", "c"], "pets")
    assert labels.tolist() == [-1, 1, 0, -1] and missing == ["c"]
    labels, missing = known(np.array([0, 1]), ["b", "a"], train, ["a", "b"], "pets")
    assert labels.tolist() == [1, 0] and missing == []
    with pytest.raises(UserError, match="no class in common: train has a, b, test x"):
        known(np.array([0]), ["x"], train, ["a", "b"], "pets")


def test_many_names_are_cut() -> None:
    assert list_names(["a", "b"]) == "a, b" and list_names(list("abcdefg"), 3) == "a, b, c and 4 more"
