"""NMI and ARI against scikit-learn, matched accuracy against all matchings, and what each image adds."""

import itertools

import numpy as np
import pytest
from sklearn.metrics import adjusted_rand_score, normalized_mutual_info_score

from evaluation.learners.partitions import (
    MEASURES,
    Contingency,
    k_means,
    matching_accuracy,
    mutual_information,
    rand_index,
)


def drawn(seed: int, n: int, classes: int, clusters: int, agree: float) -> tuple[np.ndarray, np.ndarray]:
    rng = np.random.default_rng(seed)
    y = rng.integers(classes, size=n)
    return y, np.where(rng.random(n) < agree, y % clusters, rng.integers(clusters, size=n))


CASES = [(0, 300, 5, 7, 0.6), (1, 60, 4, 4, 0.0), (2, 80, 10, 3, 0.8), (3, 30, 5, 5, 1.0)]


@pytest.mark.parametrize("case", CASES)
def test_values_are_those_of_scikit_learn(case: tuple) -> None:
    y, cluster = drawn(*case)
    table = Contingency.count(y + 3, cluster * 2)
    assert mutual_information(table)[0] == pytest.approx(normalized_mutual_info_score(y, cluster), abs=1e-12)
    assert rand_index(table)[0] == pytest.approx(adjusted_rand_score(y, cluster), abs=1e-12)


@pytest.mark.parametrize(("classes", "clusters"), [(4, 4), (3, 5), (5, 3)])
def test_the_matching_is_the_best_of_all(classes: int, clusters: int) -> None:
    y, cluster = drawn(classes, 70, classes, clusters, 0.4)
    wide = max(classes, clusters)
    best = max(np.mean(np.array(match)[cluster] == y) for match in itertools.permutations(range(wide)))
    value, right = matching_accuracy(Contingency.count(y, cluster))
    assert value == pytest.approx(best) == right.mean() and set(right.tolist()) <= {0.0, 1.0}


def test_one_class_and_one_cluster_agree() -> None:
    table = Contingency.count(np.zeros(5, int), np.zeros(5, int))
    assert [agree(table)[0] for agree in MEASURES.values()] == [1, 1, 1]


@pytest.mark.parametrize("name", ["nmi", "ari"])
def test_what_an_image_adds_is_what_is_missing_without_it(name: str) -> None:
    y, cluster = drawn(*CASES[0])
    value, by_image = MEASURES[name](Contingency.count(y, cluster))
    assert by_image.mean() == pytest.approx(value, abs=1e-12)
    rows = [np.arange(len(y)) != row for row in range(len(y))]
    without = np.array([MEASURES[name](Contingency.count(y[keep], cluster[keep]))[0] for keep in rows])
    exact = value + (len(y) - 1) * (without.mean() - without)
    assert np.corrcoef(exact, by_image)[0, 1] > 0.99 and 0.85 < by_image.std() / exact.std() < 1.15


def test_k_means_finds_what_is_apart_and_repeats_itself() -> None:
    rng = np.random.default_rng(0)
    y = rng.integers(3, size=900)  # faiss would take a sample of 256 rows a cluster
    x = (np.eye(3)[y] * 20 + rng.standard_normal((900, 3))).astype(np.float32)
    ari = [adjusted_rand_score(y, k_means(x, 3, 20, seed)) for seed in range(4)]
    assert max(ari) == 1 and (k_means(x, 5, 3, 1) == k_means(x, 5, 3, 1)).all()
