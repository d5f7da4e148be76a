"""Approximate neighbours of real images: recall, memory-mapped float16, repeats, copies; the scores that follow."""

import logging

import numpy as np
import pytest
import torch

import sslkit
from sslkit.regularizers.dsa import approximate, connectivity_score, scoring
from sslkit.regularizers.dsa.approximate import approximate_neighbours

K = 20


@pytest.fixture(autouse=True)
def small_cells(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(approximate, "PER_CELL", 50)


@pytest.fixture(scope="module")
def x() -> np.ndarray:
    images = sslkit.open_images("fashion_mnist").pixels[:4000]
    flat = images.reshape(4000, -1).astype(np.float32)
    return flat - flat.mean(0)


def exact(x: np.ndarray) -> np.ndarray:
    unit = x / np.linalg.norm(x, axis=1, keepdims=True)
    cosines = unit @ unit.T
    np.fill_diagonal(cosines, -np.inf)
    return np.argsort(-cosines, axis=1)[:, :K]


def test_the_recall_is_that_of_all_rows(x: np.ndarray) -> None:
    ids, recall = approximate_neighbours(x, K)
    assert ids.shape == (4000, K) and (ids != np.arange(4000)[:, None]).all()
    assert all(len(set(row)) == K for row in ids.tolist())
    shared = [len(set(a) & set(b)) / K for a, b in zip(ids.tolist(), exact(x).tolist(), strict=True)]
    assert recall >= approximate.GOAL and np.mean(shared) == pytest.approx(recall, abs=0.01)


def test_memory_mapped_float16_and_repeats(x: np.ndarray, tmp_path) -> None:
    np.save(tmp_path / "x.npy", x.astype(np.float16))
    mapped = np.load(tmp_path / "x.npy", mmap_mode="r")
    (one, recall), (two, _) = (approximate_neighbours(mapped, K) for _ in range(2))
    assert np.array_equal(one, two) and recall >= approximate.GOAL


def test_more_recall_takes_more_cells(x: np.ndarray, monkeypatch: pytest.MonkeyPatch) -> None:
    cells, reached = approximate._cells(x), []
    for goal in (0.5, 0.9, 0.999):
        monkeypatch.setattr(approximate, "GOAL", goal)
        reached.append(approximate._cells_to_compare(cells, x, K))
    counts, recalls = zip(*reached, strict=True)
    assert 1 <= counts[0] < counts[1] < counts[2] <= len(cells.near)
    assert all(recall >= goal for recall, goal in zip(recalls, (0.5, 0.9, 0.999), strict=True))


def test_copies_and_rows_without_direction(x: np.ndarray) -> None:
    rows = np.concatenate([np.repeat(x[:10], 60, axis=0), np.zeros((3, x.shape[1]), np.float32)])
    ids, recall = approximate_neighbours(rows, K)
    assert (ids != np.arange(len(rows))[:, None]).all() and (ids >= 0).all() and recall > 0.9
    assert (ids[:600] // 60 == np.arange(600)[:, None] // 60).all()


@pytest.mark.nightly
def test_scores_of_many_images_are_nearly_the_exact_ones(
    x: np.ndarray, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    want = connectivity_score(torch.from_numpy(x))
    assert torch.equal(connectivity_score(x), want)  # an array of few rows
    monkeypatch.setattr(scoring, "EXACT", 3999)
    with caplog.at_level(logging.INFO, "sslkit.say"):
        got, of_tensor = connectivity_score(x), connectivity_score(torch.from_numpy(x))
    assert torch.equal(got, of_tensor) and "4,000 images by an approximate search with a recall of 9" in caplog.text
    assert (got - want).abs().mean() < 0.05 < 0.2 < want.std()
    assert torch.equal(connectivity_score(torch.from_numpy(x), backend="torch"), want)
