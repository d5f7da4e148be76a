"""The labelled subset: equal per class, nested, by names."""

from itertools import pairwise

import numpy as np
import pytest

from sslkit import open_images
from sslkit.data.subsets import label_subset, list_digest, shares
from sslkit.errors import UserError


def data(sizes: list[int], seed: int = 0) -> tuple[np.ndarray, np.ndarray, list[str]]:
    """Labels in a random order, names, classes."""
    y = np.random.default_rng(seed).permutation(np.repeat(np.arange(len(sizes)), sizes))
    return y, np.array([f"n{label}/{row}.jpg" for row, label in enumerate(y)]), [f"n{k}" for k in range(len(sizes))]


def test_the_counts_of_simclr_on_imagenet() -> None:
    """12811 and 128116 images, 12 or 13 and 128 or 129 a class, though classes have 732 to 1300 images."""
    sizes = np.array([1300] * 895 + [1121] * 66 + [1120] * 38 + [1121])
    sizes[[-2, -3]] += [-388, 150]
    sizes[-9:-2] += 34
    assert sizes.sum() == 1281167 and sizes.min() == 732
    names = [f"n{k:08d}" for k in range(1000)]
    for fraction, total, low in ((0.01, 12811, 12), (0.1, 128116, 128)):
        counts = shares(sizes, fraction, names)
        assert counts.sum() == total and set(counts) == {low, low + 1}


@pytest.mark.parametrize("fraction", [0.03, 0.1, 0.29, 0.5, 1.0])
def test_the_total_is_that_share_and_the_classes_give_the_same(fraction: float) -> None:
    y, ids, classes = data([100] * 7)
    rows = label_subset(y, ids, classes, fraction)
    counts = np.bincount(y[rows], minlength=7)
    assert len(rows) == len(set(rows)) == int(700 * fraction + 1e-9) and np.ptp(counts) <= 1
    assert (np.diff(rows) > 0).all()


@pytest.mark.parametrize("sizes", [[100] * 7, [4, 300, 9, 50, 120]])
def test_a_smaller_subset_is_inside_a_larger_one(sizes: list[int]) -> None:
    y, ids, classes = data(sizes)
    fractions = [0.02, 0.03, 0.05, 0.1, 0.11, 0.3, 0.7, 1.0]
    subsets = [set(label_subset(y, ids, classes, fraction)) for fraction in fractions]
    assert all(small < large for small, large in pairwise(subsets))


def test_the_order_of_the_rows_is_of_no_account() -> None:
    y, ids, classes = data([30, 40, 50])
    chosen = set(ids[label_subset(y, ids, classes, 0.1)])
    order = np.random.default_rng(1).permutation(len(y))
    assert set(ids[order][label_subset(y[order], ids[order], classes, 0.1)]) == chosen
    other = np.array([2, 0, 1])  # the classes numbered in another way
    renamed = [classes[k] for k in np.argsort(other)]
    assert set(ids[label_subset(other[y], ids, renamed, 0.1)]) == chosen
    assert set(ids[label_subset(y, ids, classes, 0.1, seed=1)]) != chosen


def test_which_class_gives_one_more_changes_with_the_seed() -> None:
    names = [f"n{k}" for k in range(10)]
    extra = [tuple(shares([50] * 10, 23 / 500, names, seed)) for seed in range(20)]
    assert all(sorted(counts) == [2] * 7 + [3] * 3 for counts in extra) and len(set(extra)) > 10


def test_a_small_class_gives_all_it_has_and_the_others_the_rest() -> None:
    y, ids, classes = data([3, 100, 100])
    counts = np.bincount(y[label_subset(y, ids, classes, 0.2)])
    assert counts[0] == 3 and sorted(counts[1:]) == [18, 19] and counts.sum() == 40  # floor(0.2 * 203)


def test_unlabelled_rows_are_neither_counted_nor_drawn() -> None:
    y, ids, classes = data([20, 20])
    y[:10] = -1
    rows = label_subset(y, ids, classes, 0.2)
    assert len(rows) == 6 and (y[rows] >= 0).all()


def test_real_names() -> None:
    from evaluation.datasets import open_split

    split = open_split("digits", "train")
    rows = label_subset(split.y, split.ids, split.classes, 0.1)
    assert np.bincount(split.y[rows]).tolist().count(14) + np.bincount(split.y[rows]).tolist().count(15) == 10
    assert len(rows) == len(open_images("digits")) // 10


@pytest.mark.parametrize("fraction", [0.0, -0.1, 1.5])
def test_fractions_out_of_range(fraction: float) -> None:
    with pytest.raises(UserError, match=r"must lie in \(0, 1\]"):
        label_subset(*data([10, 10]), fraction)


def test_too_few_for_a_label_in_each_class() -> None:
    with pytest.raises(UserError, match=r"0.02 of 100 labelled images is 2, fewer than one for each of 5 .*0.05"):
        label_subset(*data([20] * 5), 0.02)
    with pytest.raises(UserError, match="fewer than one"):
        label_subset(np.full(5, -1), [str(k) for k in range(5)], [], 0.5)
    with pytest.raises(UserError, match="one label an image"):
        label_subset(np.zeros((5, 3)), [str(k) for k in range(5)], ["a"] * 3, 0.5)


def test_the_digest_of_a_list_is_of_its_names() -> None:
    assert list_digest(["b", "a"]) == list_digest(["a", "b"]) != list_digest(["a", "c"])
