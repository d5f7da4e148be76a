"""Held-out images are drawn by name."""

import numpy as np

from sslkit.data.held_out import draw_keys, held_out

Y = np.repeat(np.arange(4), [1, 2, 10, 33])
IDS = np.array([f"class/{i}.png" for i in range(len(Y))])


def test_the_same_share_of_each_class_and_never_all() -> None:
    chosen = held_out(Y, IDS, 0.2, seed=0)
    assert np.bincount(Y[chosen], minlength=4).tolist() == [0, 1, 2, 7]


def test_folds_have_no_image_in_common() -> None:
    folds = [held_out(Y, IDS, 0.2, fold=fold, seed=0) for fold in range(5)]
    assert (folds[0] == held_out(Y, IDS, 0.2, seed=0)).all() and np.sum(folds, 0).max() == 1
    counts = [np.bincount(Y[fold], minlength=4).tolist() for fold in folds]
    assert counts == [[0, 1, 2, 7], [0, 1, 2, 7], [0, 0, 2, 7], [0, 0, 2, 7], [0, 0, 2, 5]]


def test_row_order_does_not_matter_and_the_seed_does() -> None:
    order = np.random.default_rng(0).permutation(len(Y))
    assert (held_out(Y[order], IDS[order], seed=0) == held_out(Y, IDS, seed=0)[order]).all()
    assert (held_out(Y, IDS, seed=1) != held_out(Y, IDS, seed=0)).any()


def test_a_new_file_moves_at_most_one_other_per_class() -> None:
    before = held_out(Y, IDS, seed=0)
    after = held_out(np.append(Y, 3), np.append(IDS, "class/new.png"), seed=0)[:-1]
    assert (before != after).sum() <= 1


def test_several_labels_share_one_draw() -> None:
    y = np.ones((50, 3), np.int8)
    assert held_out(y, np.arange(50), seed=0).sum() == 10


def test_purposes_draw_apart() -> None:
    assert (np.argsort(draw_keys(IDS, 0, "a")) != np.argsort(draw_keys(IDS, 0, "b"))).any()


def test_groups_stay_together_whatever_the_order_of_the_rows() -> None:
    y = np.repeat([0, 1], 40)
    groups, ids = np.arange(80) // 4 + 100, np.array([f"{row:02}.png" for row in range(80)])
    chosen = held_out(y, ids, groups=groups)
    assert chosen.reshape(-1, 4).all(1).sum() == chosen.reshape(-1, 4).any(1).sum() == 4
    assert np.bincount(y[chosen]).tolist() == [8, 8]
    order = np.random.default_rng(0).permutation(80)
    assert (held_out(y[order], ids[order], groups=groups[order]) == chosen[order]).all()
    assert (held_out(y, ids, groups=np.arange(80)) == held_out(y, ids)).all()
