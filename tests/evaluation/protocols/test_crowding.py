"""Crowding against the shared formulas, scikit-learn and loops; what is drawn, capped and left out."""

import numpy as np
import pytest
import torch
from scipy.spatial.distance import pdist, squareform
from sklearn.metrics import silhouette_score

from evaluation.features import Features, as_features
from evaluation.protocols.crowding import crowding, mean_over_pairs
from evaluation.results.statistics import interval_of
from sslkit import open_images
from sslkit.errors import UserError
from sslkit.numerics import diagnostics

NAMES = {
    f"{name}/{rule}" for name in ("inter", "intra", "fisher") for rule in ("mean", "unit")
} | {"rankme", "alpha_req", "uniformity", "silhouette"}  # fmt: skip


@pytest.fixture(scope="module")
def digits() -> Features:
    images = open_images("digits", split="train")
    return as_features((images.pixels.reshape(len(images), -1) / 255.0, images.labels))


def test_real_digits_agree_with_every_formula(digits: Features) -> None:
    found = crowding(digits)
    x, y = torch.from_numpy(digits.x), torch.from_numpy(digits.y)
    mean, unit = diagnostics.crowding(x, y), diagnostics.crowding(x, y, "unit")
    assert set(found.others) == NAMES and found.details["not_measured"] == []
    assert found.value == found.others["inter/mean"].value == pytest.approx(mean.inter, rel=1e-10)
    assert found.others["inter/unit"].value == pytest.approx(unit.inter, rel=1e-10)
    assert found.others["intra/mean"].value == pytest.approx(mean.intra, rel=1e-10)
    assert found.others["intra/unit"].value == pytest.approx(unit.intra, rel=1e-10)
    assert found.others["rankme"].value == pytest.approx(diagnostics.rankme(x), rel=1e-4)
    assert found.others["alpha_req"].value == pytest.approx(diagnostics.alpha_req(x, 4, 100), rel=1e-3)
    assert found.others["uniformity"].value == pytest.approx(diagnostics.uniformity(x), rel=1e-9)
    z = digits.x / np.linalg.norm(digits.x, axis=1, keepdims=True)
    assert found.others["silhouette"].value == pytest.approx(silhouette_score(z, digits.y), abs=1e-4)
    for one in (found.estimate, *found.others.values()):
        assert one.interval[0] < one.value < one.interval[1] and one.kind


def test_the_unit_rule_is_the_value_where_it_is_asked_for(digits: Features) -> None:
    found = crowding(digits, centroid="unit")
    assert found.value == found.others["inter/unit"].value != found.others["inter/mean"].value
    assert "unit" in found.recipe and found.metric == "inter_class_distance"


def test_the_order_of_rows_does_not_matter(digits: Features) -> None:
    order = np.random.default_rng(0).permutation(len(digits))
    one = crowding(digits, spectrum_rows=300, pair_rows=200)
    other = crowding(digits.take(order), spectrum_rows=300, pair_rows=200)
    for name in NAMES:
        assert other.others[name].value == pytest.approx(one.others[name].value, rel=1e-9)
        assert other.others[name].interval == pytest.approx(one.others[name].interval, rel=1e-9)


def test_rows_are_capped_at_the_number_that_is_said(digits: Features) -> None:
    found = crowding(digits, spectrum_rows=100, pair_rows=50)
    assert (found.details["spectrum_rows"], found.details["pair_rows"]) == (100, 50)
    assert (found.others["rankme"].n, found.others["uniformity"].n) == (100, 50)
    whole = crowding(digits)
    assert found.others["rankme"].value < whole.others["rankme"].value  # it grows with the rows
    assert found.value == whole.value  # distances of classes are of all rows
    assert crowding(digits, spectrum_rows=100, seed=1).others["rankme"].value != found.others["rankme"].value


def test_two_models_are_measured_on_the_same_rows(digits: Features) -> None:
    from dataclasses import replace

    other = replace(digits, x=digits.x @ np.linalg.qr(np.random.default_rng(0).normal(size=(64, 64)))[0])
    one, turned = (crowding(f, spectrum_rows=200, pair_rows=100) for f in (digits, other))
    for name in NAMES:  # a rotation changes nothing, unless the rows are others
        assert turned.others[name].value == pytest.approx(one.others[name].value, rel=1e-3)


def test_drawn_classes_are_no_pairs_with_themselves() -> None:
    matrix = squareform(pdist(np.random.default_rng(0).normal(size=(6, 3))))
    for drawn in np.random.default_rng(1).integers(6, size=(20, 6)):
        pairs = [matrix[a, b] for i, a in enumerate(drawn) for b in drawn[:i] if a != b]
        weights = np.bincount(drawn, minlength=6)[None].astype(float)
        assert mean_over_pairs(weights, matrix)[0] == pytest.approx(np.mean(pairs))


def test_the_interval_over_classes_covers_95_percent() -> None:
    rng = np.random.default_rng(5)
    population = rng.normal(size=(2000, 6)) + 1
    truth, covered = pdist(population).mean(), []
    for _ in range(300):
        matrix = squareform(pdist(population[rng.choice(2000, 12, replace=False)]))
        weights = rng.multinomial(12, np.full(12, 1 / 12), 500).astype(float)
        low, high = interval_of(mean_over_pairs(weights, matrix), 12)
        covered.append(low <= truth <= high)
    assert np.mean(covered) == pytest.approx(0.95, abs=0.04)


def test_better_separated_classes_lie_further_apart() -> None:
    rng = np.random.default_rng(0)
    y = np.arange(400) % 8
    centres, noise = rng.normal(size=(8, 16)), rng.normal(size=(400, 16))
    near, far = (crowding((scale * centres[y] + noise, y)) for scale in (0.5, 3))
    assert near.value < far.value and near.others["intra/mean"].value > far.others["intra/mean"].value
    assert near.others["fisher/mean"].value < far.others["fisher/mean"].value
    assert near.interval[1] < far.interval[0]


def test_few_classes_have_no_interval_and_single_images_are_counted() -> None:
    rng = np.random.default_rng(0)
    y = np.array([0, 1] * 20 + [2])
    found = crowding((rng.normal(size=(41, 8)), y))
    assert found.interval is None and "2 classes: it takes about 6" in found.kind
    assert found.details["classes_of_one_image"] == 1 and found.n == 2


def test_what_cannot_be_measured_is_named() -> None:
    y = np.repeat(np.arange(6), 5)
    found = crowding((np.eye(6)[y], y))
    assert set(found.details["not_measured"]) == {"fisher/mean", "fisher/unit"}  # no variance within classes
    narrow = crowding((np.random.default_rng(0).normal(size=(30, 3)), y))
    assert narrow.details["not_measured"] == ["alpha_req"]  # no rank 4


@pytest.mark.parametrize(
    ("given", "options", "message"),
    [
        ((np.eye(30), np.zeros(30, int)), {}, "two classes"),
        ((np.eye(10), np.arange(10) % 2), {}, "at least 20 rows"),
        ((np.eye(30), np.arange(30) % 2), {"centroid": "median"}, "centroid must be mean or unit, got 'median'"),
        ((np.eye(30), np.arange(30) % 2), {"pair_rows": 3}, "pair_rows must be a whole number, at least 20 .*, got 3"),
        ((np.eye(30), np.arange(30) % 2), {"alpha_ranks": (5, 5)}, "alpha_ranks"),
        ((np.eye(30), -np.ones((30, 3), int)), {}, "several labels"),
        ((np.full((30, 2), np.nan), np.arange(30) % 2), {}, "NaN"),
    ],
)
def test_bad_input_is_refused(given: tuple, options: dict, message: str) -> None:
    with pytest.raises(UserError, match=message):
        crowding(given, **options)
