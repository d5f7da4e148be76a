"""The search and the votes against loops over all similarities, with ties, blocks and groups."""

import tracemalloc

import numpy as np
import pytest

from evaluation import neighbours as module
from evaluation.neighbours import neighbours, unit_rows, vote
from sslkit.errors import UserError


def cloud(n: int, d: int, seed: int = 0) -> np.ndarray:
    return np.random.default_rng(seed).normal(size=(n, d)).astype("f")


def every(bank: np.ndarray, query: np.ndarray, order: np.ndarray) -> np.ndarray:
    """(M, N) float64 cosines by position."""
    bank = bank[order].astype(np.float64)
    return query.astype(np.float64) @ (bank / np.linalg.norm(bank, axis=1, keepdims=True)).T


@pytest.mark.parametrize("k", [1, 7, 130])
@pytest.mark.parametrize("block", [2**23, 40 * 16])
def test_they_are_the_nearest_of_all(monkeypatch, k: int, block: int) -> None:
    monkeypatch.setattr(module, "BLOCK", block)
    bank, query, order = cloud(500, 16), unit_rows(cloud(90, 16, 1), "q"), np.random.default_rng(2).permutation(500)
    similarity, position = neighbours(bank, order, query, k)
    cosines = every(bank, query, order)
    assert (position == np.argsort(-cosines, axis=1)[:, :k]).all()
    assert np.allclose(similarity, np.take_along_axis(cosines, position, 1), atol=1e-6)


@pytest.mark.parametrize("block", [2**23, 25 * 16])
def test_of_equally_similar_rows_the_first_position_counts(monkeypatch, block: int) -> None:
    """Each row three times: the k-th place is almost always tied."""
    monkeypatch.setattr(module, "BLOCK", block)
    once = cloud(40, 16)
    bank = np.concatenate([once, once, once])
    query = unit_rows(once[:15], "q")
    for k in (1, 2, 4, 7, 119, 120):
        _, position = neighbours(bank, np.arange(120), query, k)
        wanted = np.argsort(-np.round(every(bank, query, np.arange(120)), 9), axis=1, kind="stable")[:, :k]
        assert (position == wanted).all(), k


@pytest.mark.parametrize("block", [2**23, 30 * 16])
def test_the_own_group_is_left_out(monkeypatch, block: int) -> None:
    monkeypatch.setattr(module, "BLOCK", block)
    bank, order = cloud(200, 16), np.arange(200)
    group = np.random.default_rng(3).integers(0, 60, 200)
    _, position = neighbours(bank, order, unit_rows(bank, "q"), 9, (group, group))
    cosines = every(bank, unit_rows(bank, "q"), order)
    cosines[group[:, None] == group] = -2
    assert (position == np.argsort(-cosines, axis=1)[:, :9]).all()


def test_rows_equal_to_the_query_stay_when_only_it_is_left_out() -> None:
    bank = np.repeat(cloud(20, 8), 4, axis=0)
    own = np.arange(80)
    _, position = neighbours(bank, own, unit_rows(bank, "q"), 3, (own, own))
    assert (position // 4 == own[:, None] // 4).all()
    assert (position != own[:, None]).all() and (np.diff(position, axis=1) > 0).all()


def test_votes_are_sums_of_weights() -> None:
    similarity = np.sort(np.random.default_rng(0).uniform(-1, 1, (30, 12)).astype("f"))[:, ::-1]
    labels = np.random.default_rng(1).integers(0, 4, (30, 12))
    found = vote(similarity, labels, (1, 5, 12), 0.2, 4)
    for k, voted in found.items():
        for row in range(30):
            votes = [0.0] * 4
            for j in range(k):
                votes[labels[row, j]] += np.exp(float(similarity[row, j]) / 0.2)
            assert voted[row] == int(np.argmax(votes))


def test_equal_votes_go_to_the_smaller_label_and_small_temperatures_stay_finite() -> None:
    similarity = np.full((1, 4), 0.9, "f")
    assert vote(similarity, np.array([[3, 1, 1, 3]]), [4], 0.07, 5)[4] == [1]
    close = np.array([[0.9, 0.8, 0.8, 0.8]], "f")
    with np.errstate(over="raise", invalid="raise"):
        assert vote(close, np.array([[2, 1, 1, 1]]), [4], 1e-5, 3)[4] == [2]
        assert vote(close, np.array([[2, 1, 1, 1]]), [4], 10.0, 3)[4] == [1]


def test_no_matrix_of_all_similarities_is_held() -> None:
    bank, query = cloud(100_000, 8), unit_rows(cloud(2000, 8, 1), "q")
    tracemalloc.start()
    neighbours(bank, np.arange(100_000), query, 20)
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert peak < 60e6  # all similarities would be 800 MB


def test_a_row_of_zeros_is_named() -> None:
    bank = cloud(50, 4)
    bank[[17, 30]] = 0
    with pytest.raises(UserError, match="train: 2 rows of features are all zeros, the first is row 17"):
        neighbours(bank, np.arange(50), unit_rows(cloud(3, 4), "q"), 5)
    assert np.isfinite(unit_rows(np.full((1, 4), 1e-30, "f"), "tiny")).all()
