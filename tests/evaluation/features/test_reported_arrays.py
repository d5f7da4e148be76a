"""Public reports about features and labels that people give to scikit-learn, torchmetrics and scores of models."""

from typing import Any

import numpy as np
import pytest
import torch

from evaluation import knn, linear_probe, score
from evaluation.features import as_features
from sslkit import open_images
from sslkit.errors import UserError

IMAGES = open_images("digits")
X, Y = IMAGES.pixels[:200, 0].reshape(200, -1).astype(np.float32), IMAGES.labels[:200]
TRAIN, TEST = slice(0, 120), slice(120, 200)


def scores(x: Any, y: Any) -> list[float]:
    return [score(name, x, y) for name in ("logme", "gbc", "h_score", "linear_probe")]


@pytest.fixture(scope="module")
def plain() -> list[float]:
    return scores(X, Y)


@pytest.mark.parametrize("kind", [np.asarray, torch.from_numpy])
def test_labels_in_a_column(kind: Any, plain: list[float]) -> None:
    """`A column-vector y was passed`: labels (N, 1) were spread to (N, N), or taken for one class of several."""
    column = kind(Y[:, None])
    assert scores(X, column) == plain
    value = knn((X[TRAIN], Y[TRAIN]), (X[TEST], Y[TEST])).value
    assert knn((X[TRAIN], column[TRAIN]), (X[TEST], column[TEST])).value == value
    assert as_features((X[:4], np.array([["b"], ["a"], ["b"], ["a"]]))).y.tolist() == [1, 0, 1, 0]
    assert as_features((X[:4], np.array([[1], [-1], [0], [1]]))).metric == "map11", "yes, no and not known of one class"


def test_masked_features_are_refused(plain: list[float]) -> None:
    """NumPy drops the mask: filling values, such as 1e20 or 0, were features."""
    masked = np.ma.masked_greater(X, 200)
    with pytest.raises(UserError, match="features are masked in places"):
        score("logme", masked, Y)
    with pytest.raises(UserError, match="train: features are masked in places"):
        knn((masked[TRAIN], Y[TRAIN]), (X[TEST], Y[TEST]))
    with pytest.raises(UserError, match="labels are masked in places"):
        score("logme", X, np.ma.masked_equal(Y, 3))
    assert scores(np.ma.masked_array(X), Y) == plain, "without a masked value it is an array"


@pytest.mark.parametrize("kind", ["torch", "csr", "scipy"])
def test_sparse_features_are_refused(kind: str) -> None:
    """Errors of kernels that do not exist, or an array of one object."""
    import scipy.sparse

    dense = torch.from_numpy(X)
    sparse = {"torch": dense.to_sparse, "csr": dense.to_sparse_csr, "scipy": lambda: scipy.sparse.csr_matrix(X)}[kind]()
    with pytest.raises(UserError, match=r"features are a sparse array: give a dense one"):
        score("gbc", sparse, Y)
    with pytest.raises(UserError, match=r"train: features are a sparse array"):
        knn((sparse, Y), (X, Y))


def test_tables_of_pandas(plain: list[float]) -> None:
    """Rows were matched by their index; categories and missing values raised errors of their own."""
    pandas = pytest.importorskip("pandas")
    table, shuffled = pandas.DataFrame(X), pandas.Series(Y, index=np.arange(200)[::-1])
    for labels in (shuffled, shuffled.astype("category")):
        assert np.allclose(scores(table, labels), plain)
    missing = shuffled.astype("Int64").where(shuffled != 3)
    with pytest.raises(UserError, match="some labels are None or NaN; leave these rows out"):
        score("logme", X, missing)
    with pytest.raises(UserError, match=r"labels must be integers or names, found NaN|some labels are None or NaN"):
        as_features((X, missing))


def test_arguments_in_the_order_of_scikit_learn() -> None:
    """The name of the metric behind features and labels: the message was the whole array."""
    with pytest.raises(
        UserError, match=r"a metric is named by a text, such as 'logme', before features and labels"
    ) as error:
        score(X, Y, "logme")
    assert len(str(error.value)) < 150


def test_half_precision_that_overflowed_is_named_and_other_types_change_nothing(plain: list[float]) -> None:
    """Squares of 8-bit integers wrap around, those of half precision are infinite."""
    assert scores(X.astype(np.uint8), Y) == plain and np.allclose(scores(X.astype(np.float16), Y), plain)
    with np.errstate(over="ignore"), pytest.raises(UserError, match="features are NaN or infinite, the first in row 0"):
        score("logme", (X * 3000).astype(np.float16), Y)


def test_a_test_image_is_judged_alone() -> None:
    """Scaling by the test images, and means of the accuracies of batches: the number depended on their batch."""
    train = (X[TRAIN], Y[TRAIN])
    whole = linear_probe(train, (X[TEST], Y[TEST]), c=1.0)
    parts = [linear_probe(train, (X[rows], Y[rows]), c=1.0) for rows in (slice(120, 121), slice(121, 200))]
    assert np.array_equal(np.concatenate([part.outcomes for part in parts]), whole.outcomes)
    assert whole.value == (parts[0].value + 79 * parts[1].value) / 80
    assert 0 <= parts[0].interval[0] < parts[0].interval[1] <= 1, "one image has an interval, and no NaN"
    nearest = [knn(train, (X[rows], Y[rows]), k=5).outcomes for rows in (slice(120, 121), slice(121, 200))]
    assert np.array_equal(np.concatenate(nearest), knn(train, (X[TEST], Y[TEST]), k=5).outcomes)


def test_classes_without_a_test_image_do_not_count() -> None:
    """Means over all classes of the training set: an absent one counted as 0, or made NaN."""
    from dataclasses import replace

    train, test = as_features((X[TRAIN], Y[TRAIN])), as_features((X[TEST], Y[TEST]))
    some = replace(test.take(test.y < 4), metric="mean_per_class")
    result = knn(train, some, k=5)
    assert result.value == pytest.approx(np.mean([result.outcomes[some.y == label].mean() for label in range(4)]))
