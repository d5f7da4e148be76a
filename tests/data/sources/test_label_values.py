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
