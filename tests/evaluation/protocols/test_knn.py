"""knn on real images against scikit-learn, lightly and a float64 loop."""

from dataclasses import replace
from types import SimpleNamespace

import numpy as np
import pytest
import torch
from lightly.utils.benchmarking import knn_predict
from sklearn.neighbors import KNeighborsClassifier

from evaluation.features import Features, as_features
from evaluation.protocols import knn as module
from evaluation.protocols.knn import knn, predict
from evaluation.results.class_means import mean_per_class
from evaluation.results.result import Result
from evaluation.results.statistics import share
from sslkit import open_images
from sslkit.errors import UserError
from sslkit.numerics import accuracy
from sslkit.runtime.context import Runtime


def pixels(source: str, split: str, rows: int) -> Features:
    images = open_images(source, split=split)
    batch = images.__getitems__(list(range(rows)))
    x = batch["images"].float().flatten(1).numpy() / 255
    ids = np.array([f"{split}/{row}" for row in range(rows)])
    return Features(x, batch["label"].numpy(), images.classes, f"{source} {split} {rows}", ids)


@pytest.fixture(scope="module")
def train() -> Features:
    return pixels("fashion_mnist", "train", 2000)


@pytest.fixture(scope="module")
def test() -> Features:
    return pixels("fashion_mnist", "test", 400)


def unit(x: np.ndarray) -> np.ndarray:
    x = x.astype(np.float64)
    return x / np.linalg.norm(x, axis=1, keepdims=True)


def by_loop(train: Features, test: Features, k: int, temperature: float, alone: bool = False) -> np.ndarray:
    """Every similarity in float64, every vote by itself."""
    cosines, labels = unit(test.x) @ unit(train.x).T, []
    for row, cosine in enumerate(cosines):
        if alone:
            cosine[row] = -2
        votes = np.zeros(len(train.classes))
        for j in np.argsort(-cosine, kind="stable")[:k]:
            votes[train.y[j]] += np.exp(cosine[j] / temperature)
        labels.append(votes.argmax())
    return np.array(labels)


@pytest.mark.parametrize(("k", "temperature"), [(1, 0.07), (20, 0.07), (200, 0.1), (7, 0.5)])
def test_labels_are_those_of_scikit_learn_and_of_a_loop(train, test, k: int, temperature: float) -> None:
    labels = predict(train, test, [k], temperature)[k]
    oracle = KNeighborsClassifier(
        k, weights=lambda distance: np.exp((1 - distance) / temperature), metric="cosine", algorithm="brute"
    ).fit(train.x.astype(np.float64), train.y)
    assert (labels == oracle.predict(test.x.astype(np.float64))).all()
    assert (labels == by_loop(train, test, k, temperature)).all()


def test_labels_are_those_of_lightly(train, test) -> None:
    bank, query = (torch.nn.functional.normalize(torch.from_numpy(f.x), dim=1) for f in (train, test))
    want = knn_predict(query, bank.T, torch.from_numpy(train.y), 10, knn_k=200, knn_t=0.1)[:, 0]
    assert (predict(train, test, [200], 0.1)[200] == want.numpy()).all()


def test_the_result_holds_every_k(train, test) -> None:
    result = knn(train, test)
    assert result.value == (by_loop(train, test, 20, 0.07) == test.y).mean() and 0.7 < result.value < 0.9
    assert set(result.others) == {"k=1", "k=10", "k=100", "k=200"}
    assert result.others["k=100"] == share(by_loop(train, test, 100, 0.07) == test.y)
    assert result.estimate == share(result.outcomes) and result.kind == "wilson over images"
    assert result.recipe == "cosine, k=20, T=0.07" and result.metric == "top1" and result.converged is None
    assert result.digests == {"train": train.digest, "test": test.digest} and not result.details["leave_one_out"]
    assert Result.from_json(result.to_json()).others == result.others


def test_the_main_number_is_at_k(train, test) -> None:
    result = knn(train, test, k=10, ks=(1, 2500))
    assert result.value == knn(train, test).others["k=10"].value and set(result.others) == {"k=1"}


def test_an_image_is_left_out_of_its_own_neighbours(train) -> None:
    few = train.take(np.arange(600))
    result = knn(few, few, k=5, ks=())
    assert (result.outcomes == (by_loop(few, few, 5, 0.07, alone=True) == few.y)).all()
    assert result.recipe.endswith("leave one out") and result.details["leave_one_out"]
    assert knn((few.x, few.y), (few.x, few.y), k=1).value < 1


def test_images_of_test_that_are_in_train_are_left_out_of_their_own_neighbours(train, test) -> None:
    few, some = train.take(np.arange(600)), test.take(np.arange(100))
    mixed = replace(
        some,
        x=np.concatenate([few.x[:200], some.x]),
        y=np.concatenate([few.y[:200], some.y]),
        ids=np.concatenate([few.ids[:200], some.ids]),
        digest="mixed",
    )
    result = knn(few, mixed, k=1, ks=())
    alone, apart = by_loop(few, few, 1, 0.07, alone=True)[:200], by_loop(few, some, 1, 0.07)
    assert (result.outcomes == (np.concatenate([alone, apart]) == mixed.y)).all() and not result.outcomes[:200].all()
    assert result.details["in_train"] == 200 and result.recipe.endswith("leave one out") and not result.leaky
    renamed = knn(few, replace(some, ids=few.ids[:100]), k=1, ks=())  # the same names in another folder
    assert renamed.details["in_train"] == 0 and (renamed.outcomes == (apart == some.y)).all()


def test_its_copies_and_the_images_of_its_group_are_left_out_too(train) -> None:
    """Every image twice: a bank that keeps the copy answers all."""
    few = train.take(np.arange(300))
    twice = few.take(np.repeat(np.arange(300), 2))
    others = replace(twice, pixel_digests=np.arange(600))  # other images of equal features
    assert knn(others, others, k=1, ks=()).value == 1
    grouped = replace(others, groups=np.repeat(np.arange(300), 2))
    alone = knn(few, few, k=1, ks=()).outcomes
    for one in (grouped, replace(twice, pixel_digests=np.repeat(np.arange(300), 2), ids=np.arange(600).astype(str))):
        assert (knn(one, one, k=1, ks=()).outcomes == np.repeat(alone, 2)).all()


def test_the_order_of_the_rows_does_not_matter(train, test) -> None:
    rng = np.random.default_rng(0)
    a, b = rng.permutation(len(train)), rng.permutation(len(test))
    one, other = knn(train, test), knn(train.take(a), test.take(b))
    assert (one.outcomes[b] == other.outcomes).all() and one.others == other.others


def test_blocks_of_queries_do_not_matter(train, test, monkeypatch) -> None:
    whole = predict(train, test, [1, 20])
    monkeypatch.setattr(accuracy, "QUERIES", 37)
    parts = predict(train, test, [1, 20])
    assert all((whole[k] == parts[k]).all() for k in whole)


def test_ties_go_to_the_smaller_class(train) -> None:
    """The same images under two labels: every neighbour is tied with its copy."""
    few = train.take(np.arange(500))
    x, y = np.concatenate([few.x, few.x]), np.concatenate([few.y + 10, few.y])
    for k in (1, 2, 3, 20):
        bank = Features(x, y, [str(label) for label in range(20)], "both", np.arange(1000).astype(str))
        assert (predict(bank, train.take(np.arange(600, 900)), [k])[k] < 10).all()
    assert knn(([[1.0, 0], [1, 0], [0, 1]], [1, 0, 1]), ([[2.0, 0], [3, 0.1]], [0, 0]), k=1).value == 1


def test_labels_are_matched_by_name(train, test) -> None:
    turned = replace(test, y=9 - test.y, classes=list(test.classes)[::-1])
    assert knn(train, turned).value == knn(train, test).value
    named = [(f.x, np.array(f.classes)[f.y]) for f in (train, test)]
    assert knn(*named).value == knn(train, test).value


def test_the_metric_is_that_of_the_data(train, test) -> None:
    uneven = test.take((test.y == 6) | (np.arange(400) < 100))
    result = knn(train, replace(uneven, metric="mean_per_class"))
    right = predict(train, uneven, [20])[20] == uneven.y
    recalls = [right[uneven.y == label].mean() for label in np.unique(uneven.y)]
    assert result.metric == "mean_per_class" and result.value == pytest.approx(np.mean(recalls))
    assert result.value != pytest.approx(right.mean()) and result.estimate == mean_per_class(right, uneven.y)


def test_features_may_lie_on_the_disk(train, test, tmp_path) -> None:
    np.save(tmp_path / "x.npy", train.x)
    mapped = replace(train, x=np.load(tmp_path / "x.npy", mmap_mode="r"))
    assert knn(mapped, test).value == knn(train, test).value


def test_bad_input(train, test) -> None:
    few = train.take(np.arange(30))
    zero = few.x.copy()
    zero[4] = 0
    yes_no = np.tile([[1, -1]], (30, 1))
    for given, options, message in [
        ((few, test.take(few.y[:9])), {"k": 31}, "k must be at most 30, the number of training images, got 31"),
        (
            (few, few),
            {"k": 30},
            "k must be at most 29, .* images .itself, or its group, is left out",
        ),
        ((few, few), {"k": 0}, "k must be a whole number, at least 1 .*, got 0"),
        ((few, few), {"ks": (1, 2.5)}, "ks must be a list, each a whole number, at least 1 .*2.5"),
        ((few, few), {"temperature": 0}, "temperature must be a number, above 0, got 0"),
        ((replace(few, x=zero), test), {"k": 5}, "train: 1 rows of features are all zeros, the first is row 4"),
        ((train, replace(few, x=zero)), {"k": 5}, "test: 1 rows of features are all zeros, the first is row 4"),
        (((few.x, few.y * 0), (few.x, few.y)), {"k": 5}, "classes that train has no image of"),
        (((few.x, yes_no), (few.x, yes_no)), {}, "knn needs one label per image"),
        (((few.x * np.nan, few.y), test), {}, "NaN or infinite"),
    ]:
        with pytest.raises(UserError, match=message):
            knn(*given, **options)


def test_few_training_images_with_a_twin_are_compared_with_all_others() -> None:
    rng = np.random.default_rng(0)
    train = as_features((rng.normal(size=(12, 3)), np.arange(12) % 2))
    subject = SimpleNamespace(train=lambda _: train, test=lambda _: train.take(np.arange(1)))
    (found,) = module.run(subject, module.Options(), Runtime())
    assert found.details["k"] == 11 and found.details["in_train"] == 1
