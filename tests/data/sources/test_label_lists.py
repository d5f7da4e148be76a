"""Lists of class numbers against a loop over plain lists."""

import numpy as np

from sslkit.data.sources.label_lists import LabelLists

LISTS = [[4, 9], None, [], [9], [0, 4, 9], None]


def test_rows_and_indicator_are_those_of_the_lists() -> None:
    labels, classes = LabelLists.from_lists(LISTS), [0, 4, 9]
    assert labels.lists() == LISTS and len(labels) == 6 and labels.are_several
    order = np.array([4, 4, 1, 2, 0])
    assert labels.rows(order).lists() == [LISTS[row] for row in order]
    assert labels.rows(np.array([], np.int64)).lists() == []
    want = [[0] * 3 if one is None else [1 if number in one else -1 for number in classes] for one in LISTS]
    assert labels.indicator(np.array(classes)).tolist() == want


def test_one_class_an_image() -> None:
    labels = LabelLists.from_lists([[3], None, [], [1]])
    assert not labels.are_several and labels.known.tolist() == [True, False, True, True]
    assert labels.single().tolist()[::3] == [3, 1] and (labels.single()[1:3] < 0).all()
