"""What metrics see: labels of any kind, features of any type, and one error for what is not sound."""

import dataclasses
from pathlib import Path

import numpy as np
import pytest
import torch

from evaluation.features import as_features
from evaluation.ranking.inputs.samples import as_sample
from sslkit.errors import UserError
from sslkit.runtime.context import Runtime

X = np.random.default_rng(0).normal(size=(6, 3))
Y = [0, 0, 1, 1, 2, 2]


@pytest.mark.parametrize(
    ("labels", "classes"),
    [
        ([7, 7, 3, 3, 9, 9], ("3", "7", "9")),
        ([-1, -1, 1, 1, 1, 1], ("-1", "1")),
        (["b", "b", "a", "a", "c", "c"], ("a", "b", "c")),
        ([("x", 1), ("x", 1), ("x", 2), ("x", 2), "y", "y"], ("y", "('x', 1)", "('x', 2)")),
        ([True, True, False, False, False, True], ("False", "True")),
        (np.array([1.0, 1.0, 2.0, 2.0, 2.0, 2.0]), ("1.0", "2.0")),
        (torch.tensor([5, 5, 4, 4, 4, 4]), ("4", "5")),
    ],
)
def test_labels_are_numbered_from_zero_without_gaps(labels: object, classes: tuple) -> None:
    sample = as_sample(X, labels)
    assert sample.classes == classes and set(sample.y.tolist()) == set(range(len(classes)))
    given = list(labels.tolist() if hasattr(labels, "tolist") else labels)
    assert [sample.classes[k] for k in sample.y] == [str(label) for label in given]


def test_fractions_and_columns_are_targets_and_no_classes() -> None:
    sample = as_sample(X, [0.5, 1.0, 2.0, 3.5, 1.0, 2.0])
    assert sample.y is None and sample.targets.shape == (6, 1)
    assert as_sample(X, np.eye(6)[:, :4]).targets.shape == (6, 4)  # two rows have no 1
    with pytest.raises(UserError, match="one class label per image"):
        _ = sample.labels
    assert as_sample(X, Y).targets[:, 0].tolist() == Y  # whole numbers can be either


@pytest.mark.parametrize(
    "one_hot", [np.eye(3)[[0, 2, 1, 0, 2, 1]], torch.eye(3, dtype=torch.int64)[[0, 2, 1, 0, 2, 1]]]
)
def test_one_hot_labels_are_classes_and_targets(one_hot: object) -> None:
    sample = as_sample(X, one_hot)
    assert sample.y.tolist() == [0, 2, 1, 0, 2, 1] and sample.targets.shape == (6, 3)


@pytest.mark.parametrize("dtype", [torch.float64, torch.float32, torch.float16, torch.bfloat16, torch.int32])
def test_blocks_are_float64_copies_of_any_type(dtype: torch.dtype) -> None:
    x = (torch.arange(18).reshape(6, 3) + 0.5).to(dtype)
    before = x.clone()
    sample = as_sample(x, Y)
    for _, block in sample.blocks():
        assert block.dtype == torch.float64
        block += 1
    assert torch.equal(x, before) and torch.equal(sample.features, before.double())


def test_a_memory_map_is_read_in_place(tmp_path: Path) -> None:
    np.save(tmp_path / "x.npy", X.astype(np.float32))
    x = np.load(tmp_path / "x.npy", mmap_mode="r")
    sample = as_sample(x, Y)
    assert sample.x.data_ptr() == x.ctypes.data
    assert np.allclose(sample.features, X, atol=1e-6)


@pytest.mark.parametrize("kind", ["<f4", ">f4", ">f8", ">f2", ">i4", "longdouble", "uint8", "bool"])
@pytest.mark.parametrize("backwards", [False, True])
@pytest.mark.parametrize("mapped", [False, True])
def test_any_byte_order_width_and_direction_also_from_the_disk(
    kind: str, backwards: bool, mapped: bool, tmp_path: Path
) -> None:
    given = np.arange(18).reshape(6, 3).astype(kind)
    if mapped:
        np.save(tmp_path / "x.npy", given)
        given = np.load(tmp_path / "x.npy", mmap_mode="r")
    given = given[::-1] if backwards else given
    assert np.array_equal(as_sample(given, Y).features, given.astype(np.float64))


def test_columns_of_a_record_and_labels_of_any_float_type() -> None:
    record = np.zeros(6, dtype=[("name", "S3"), ("x", "f4", (3,))])
    record["x"] = X
    assert np.allclose(as_sample(record["x"], Y).features, X, atol=1e-6)
    for labels in (torch.tensor(Y).bfloat16(), torch.tensor(Y).half(), np.array(Y, dtype=">i4"), np.array(Y, "g")):
        assert as_sample(X, labels).y.tolist() == Y
    assert torch.equal(as_sample(X, torch.eye(6)[:, :4].bfloat16()).targets, torch.eye(6)[:, :4].double())


def test_probabilities_are_divided_by_their_sum_in_a_copy() -> None:
    p = np.full((6, 4), 0.25) * 1.0009
    before = p.copy()
    assert torch.allclose(as_sample(X, Y, source_probs=p).source_probs.sum(1), torch.ones(6).double(), atol=1e-15)
    assert (p == before).all()


def test_features_bring_their_labels_and_lose_the_unlabelled_rows() -> None:
    features = as_features((X.astype(np.float32), Y))
    assert as_sample(features).y.tolist() == Y
    features.y[0] = -1
    assert len(as_sample(features)) == 5


def test_shift_take_and_moved() -> None:
    shift = torch.tensor([[1.0, 0, 0], [0, 2.0, 0], [0, 0, 3.0]], dtype=torch.float64)
    sample = as_sample(X, Y)
    _ = sample.scatter, sample.moments
    moved = sample.move(shift)
    by_hand = as_sample(X + shift.numpy()[Y], Y)
    assert torch.equal(moved.features, by_hand.features)
    assert torch.allclose(moved.moments.means, by_hand.moments.means, atol=1e-14)
    assert torch.allclose(moved.scatter.total, by_hand.scatter.total, atol=1e-12)
    part = moved.take(torch.tensor([0, 1, 4, 5]))
    assert part.classes == ("0", "2") and torch.equal(part.features, by_hand.features[[0, 1, 4, 5]])
    assert part.y.tolist() == [0, 0, 1, 1]


@pytest.mark.parametrize(
    ("x", "y", "more", "said"),
    [
        (X, Y[:5], {}, "6 rows of features and 5 labels"),
        (X[:1], Y[:1], {}, "at least 2 images"),
        (X, [1] * 6, {}, "all 6 labels are '1'"),
        (np.where(np.eye(6, 3) > 0, np.nan, X), Y, {}, "NaN or infinite, the first in row 0"),
        (X[0], Y, {}, r"must be \(N, D\)"),
        (X.astype(str), Y, {}, "must be numbers"),
        (X, None, {}, "labels are missing"),
        (X, 3, {}, "labels must be one for each image"),
        (X, np.array(3), {}, "labels must be one for each image"),
        (X, Y, {"source_probs": 0.5}, "source_probs must have a row for each of the 6 labels, got 0.5"),
        (X, Y, {"boxes": 1}, "boxes must have a row"),
        (X, [0, 0, 1, 1, None, 2], {}, "None or NaN"),
        (X, [0, 0, 1, 1, float("nan"), 2], {}, "NaN or infinite"),
        (X, [{}] * 6, {}, "hashable"),
        (X, Y, {"source_probs": np.full((6, 4), 0.2)}, "sums to 0.8, not 1"),
        (X, Y, {"source_probs": np.full((5, 4), 0.25)}, "5 rows of source_probs and 6 labels"),
        (X, Y, {"source_probs": np.full((6, 2), [1.5, -0.5])}, "not below 0"),
        (X, Y, {"reference": (np.zeros(2), np.ones(2))}, "features have 3 columns"),
        (X, Y, {"reference": (np.zeros(3), -np.ones(3))}, "std not negative"),
        (X, Y, {"reference": 3}, "a pair of arrays"),
        ([[1, 2], [3]] * 3, Y, {}, "its rows of one length"),
        (X.astype(complex), Y, {}, "must be numbers"),
        (torch.from_numpy(X).to(torch.complex64), Y, {}, "must be real numbers"),
        (X, [[0, 1], [1]] * 3, {}, "labels of several columns must have rows of one length"),
        (X, Y, {"device": "cuda:99"}, "torch sees"),
        (X, Y, {"device": "abacus"}, "not known to torch"),
        (X, Y, {"seed": 2**32}, "seed=4294967296"),
        (X, Y, {"seed": 1.5}, "seed=1.5"),
    ],
)
def test_one_clear_error(x: object, y: object, more: dict, said: str) -> None:
    with pytest.raises(UserError, match=said):
        own = {name: more.pop(name) for name in ("device", "seed") if name in more}
        as_sample(x, y, **more, runtime=Runtime(**{"device": "cpu", **own}))


def test_a_part_of_a_moved_sample_keeps_its_move() -> None:
    sample = as_sample(np.zeros((6, 2)), [0, 0, 0, 1, 1, 1])
    shift = torch.tensor([[1.0, 2.0], [3.0, 4.0]], dtype=torch.float64)
    part = sample.move(shift).take(torch.tensor([0, 5]))
    assert torch.equal(part.features, shift)
    assert torch.equal(part.move(2 * shift).features, 3 * shift)


def test_rows_without_a_label_are_no_class() -> None:
    with pytest.raises(UserError, match=r"2 of 6 labels are -1 \(no label\)"):
        as_sample(X, [0, 0, 1, 1, -1, -1])
    assert as_sample(X, [0, 0, 1, 1, -2, -2]).classes == ("-2", "0", "1")


def test_yes_and_no_are_the_same_as_an_array_and_as_features() -> None:
    y = np.array([[1, -1], [-1, 1], [1, 1], [-1, -1], [1, -1], [-1, 1]])
    assert torch.equal(as_sample(X, y).targets, as_sample(as_features((X, y))).targets)
    y[0, 1] = 0
    with pytest.warns(UserWarning, match="do not count"):
        assert as_sample(X, y).targets.tolist() == (y > 0).tolist()


def test_groups_are_those_of_features_also_of_some() -> None:
    given = dataclasses.replace(as_features((X, Y)), groups=np.array([5, 5, 9, 9, 9, 2]))
    sample = as_sample(given)
    assert sample.groups.tolist() == [1, 1, 2, 2, 2, 0] and as_sample(X, Y).groups is None
    assert sample.take(torch.tensor([0, 5])).groups.tolist() == [1, 0]
