"""Classes from the values of a column."""

import math
import warnings

import pytest

from sslkit.data.sources.label_values import Measured, classes_of, classes_of_splits


@pytest.mark.parametrize(
    ("values", "classes"),
    [
        ([0, 2, -1, None], {0: 0, 2: 2, -1: None, None: None}),
        ([0.0, 2.0, -1.0], {0.0: 0, 2.0: 2, -1.0: None}),
        ([True, False], {True: True, False: False}),
        (["cat", " ", "", "dog"], {"cat": "cat", " ": None, "": None, "dog": "dog"}),
        (["3", "10", "3.0", "-1"], {"3": 3, "10": 10, "3.0": 3, "-1": None}),
        (["007", "7"], {"007": "007", "7": "7"}),
        (["1", "one"], {"1": "1", "one": "one"}),
        (["1.5", "cat"], {"1.5": "1.5", "cat": "cat"}),
        ([None], {None: None}),
        ([], {}),
    ],
)
def test_values_and_their_classes(values: list, classes: dict) -> None:
    assert classes_of(values, "table") == classes
    assert all(type(found) is type(classes[value]) for value, found in classes_of(values, "table").items())


@pytest.mark.parametrize(
    ("values", "said"),
    [
        (
            [-1, 1, 1, -1, -1],
            "table: 3 of 5 labels are negative, which means none, and all others are 1: for",
        ),
        (["-1", "1.0", "1", ""], "table: 1 of 3 labels are negative, which means none, and all others are 1: for two"),
        (
            {-1.0: 600, 1.0: 1400},
            "table: 600 of 2,000 labels are negative, which means none, and all others are 1: for",
        ),
        ([-1, -2, 0, 3, None, math.nan], "table: 2 of 4 labels are negative, which means none$"),
        ([-1, -1], "table: 2 of 2 labels are negative, which means none$"),
    ],
)
def test_negative_labels_are_counted(values: list | dict, said: str) -> None:
    with pytest.warns(UserWarning, match=said):
        assert classes_of(values, "table")[next(iter(values))] is None


def test_labels_that_are_missing_are_not_negative() -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert classes_of([1, 1, None, math.nan], "table")[1] == 1


def test_negative_labels_of_all_splits_are_counted() -> None:
    with pytest.warns(UserWarning, match="table: 5 of 9 labels are negative, which means none, and all others are 1"):
        assert classes_of_splits({"train": {-1: 3, 1: 2}, "test": [1, -1, 1, -1]}, "table") == {-1: None, 1: 1}


def test_no_number_is_a_missing_one() -> None:
    assert list(classes_of([math.nan, 1.0], "table").values()).count(None) == 1


@pytest.mark.parametrize("values", [[0.5, 1.0], [math.inf], [1.0, 2.25, None], ["0.37", "2", ""]])
def test_measurements_are_no_classes(values: list) -> None:
    with pytest.raises(Measured):
        classes_of(values, "table")


def test_texts_of_splits_are_compared_as_names() -> None:
    with pytest.warns(UserWarning, match="table: 'Cat' and 'cat' are one class"):
        found = classes_of_splits({"train": ["Cat", "dog"], "test": ["cat"]}, "table")
    assert found == {"Cat": "Cat", "cat": "Cat", "dog": "dog"}
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert classes_of_splits({"train": [1, 2], "test": [2.0, None]}, "table") == {1: 1, 2: 2, None: None}
