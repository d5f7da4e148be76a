"""Clusters of features: both intervals, the level of random clusters, pairs of networks, too many clusters."""

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

import evaluation
from evaluation.features.table import Features, as_features
from evaluation.protocols.base import Subject
from evaluation.protocols.clustering import Options, open
from evaluation.results.comparison import compare
from sslkit.errors import UserError
from sslkit.models.loading import load


def features(size: float, seed: int = 0, n: int = 150) -> Features:
    rng = np.random.default_rng(seed)
    y = np.arange(n) % 5
    x = np.random.default_rng(9).standard_normal((5, 10))[y] * size + rng.standard_normal((n, 10))
    return as_features((x.astype(np.float32), y))


def test_a_result_has_both_intervals_and_the_level_of_random_clusters() -> None:
    [result] = evaluation.clustering(features(0.8), restarts=4)
    assert (result.metric, result.details["k"], result.n) == ("nmi", 5, 150)
    assert result.kind == "jackknife over images and restarts"
    assert result.others["nmi over restarts"].kind == "t over 4 restarts"
    assert result.others["nmi over restarts"].value == pytest.approx(result.value)
    assert set(result.others) >= {"ari", "cluster_accuracy", "ari over restarts", "cluster_accuracy over restarts"}
    level = result.details["chance"]
    assert 0.2 < level["cluster_accuracy"] < 0.4 < result.others["cluster_accuracy"].value and abs(level["ari"]) < 0.02
    assert 0 < level["nmi"] < result.value
    assert evaluation.clustering(features(0.8), restarts=4)[0].interval == result.interval


def test_each_number_of_clusters_is_a_result_and_groups_count_together() -> None:
    some = replace(features(1.0), groups=np.arange(150) // 10)
    results = evaluation.clustering(some, k=[3, 5], restarts=3)
    assert [result.details["k"] for result in results] == [3, 5] and "k=3" in results[0].recipe
    assert results[0].kind == "jackknife over 15 groups of images and restarts"


def test_two_networks_are_compared_in_pairs_and_restarts_count() -> None:
    results = [evaluation.clustering(features(size), restarts=5)[0] for size in (1.5, 0.3)]
    paired = [replace(result, paired_on="same") for result in results]
    assert compare(*paired).p < 0.001 and compare(*paired).difference == pytest.approx(
        results[0].value - results[1].value
    )
    same = [replace(evaluation.clustering(features(0.8), restarts=5, seed=s)[0], paired_on="same") for s in (0, 1)]
    assert compare(*same).p > 0.05, "one network, other restarts"


def test_too_many_clusters_end_before_any_image_is_read(tmp_path: Path) -> None:
    for number in range(4):
        (tmp_path / "test" / str(number)).mkdir(parents=True)
        (tmp_path / "train" / str(number)).mkdir(parents=True)
        for split in ("train", "test"):
            Image.fromarray(np.full((8, 8, 3), 40 * number, np.uint8)).save(tmp_path / split / str(number) / "a.png")
    subject = Subject(load("pixels", image_size=8), tmp_path)
    with pytest.raises(UserError, match=r"4 clusters of 4 images of .*several images a class"):
        open(subject, Options())
    with pytest.raises(UserError, match="clustering: 150 clusters of 150 images"):
        evaluation.clustering(features(1.0), k=150)
