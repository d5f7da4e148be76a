"""The search and the votes against loops over all similarities, with ties, blocks and groups."""

import tracemalloc
from fractions import Fraction

import numpy as np
import pytest

from sslkit.errors import UserError
from sslkit.numerics import neighbours as module
from sslkit.numerics.neighbours import Own, neighbours, unit_rows, vote
from sslkit.numerics.ties import ANGLE, search_error


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


def first_in_class_order(bank: np.ndarray, query: np.ndarray, k: int) -> np.ndarray:
    """(M, k) positions by a loop in whole numbers: cosines are compared as fractions, so no rounding is in them."""
    found = []
    for q in query.astype(int).tolist():
        keys = []
        for place, row in enumerate(bank.astype(int).tolist()):
            dot = sum(a * b for a, b in zip(q, row, strict=True))
            keys.append((-Fraction(dot * abs(dot), sum(a * a for a in row)), place))
        found.append([place for _, place in sorted(keys)[:k]])
    return np.array(found)


@pytest.mark.parametrize("scale", [1e-20, 1.0, 1e15])
@pytest.mark.parametrize("more", [16, 1])
def test_ties_of_whole_numbers_are_those_of_fractions(monkeypatch, scale: float, more: int) -> None:
    """Multiples, mirrored rows and copies: one cosine, as many roundings of it as rows."""
    monkeypatch.setattr(module, "MORE", more)
    rng = np.random.default_rng(5)
    once = rng.integers(-3, 4, (30, 6))
    once[:, 0] = 2
    bank = np.concatenate([once, 3 * once, once[:, [0, 1, 2, 5, 4, 3]], 7 * once])
    bank = bank[rng.permutation(len(bank))]
    query = rng.integers(-3, 4, (25, 6))
    query[:, 3:] = query[:, 3:4]  # so that mirroring a row of the bank changes no cosine
    query[:, 0] = 1
    for k in (1, 3, 20, 119):
        _, position = neighbours((bank * scale).astype("f"), np.arange(120), (query * scale).astype("f"), k)
        assert (position == first_in_class_order(bank, query, k)).all(), k


def test_more_copies_than_candidates_are_told_apart_by_position() -> None:
    bank = np.repeat(cloud(3, 33), 60, axis=0)[np.random.default_rng(0).permutation(180)]
    for k in (1, 30, 59, 61, 130):
        similarity, position = neighbours(bank, np.arange(180), 5 * bank[:40], k)
        wanted = np.argsort(-np.round(every(bank, unit_rows(bank[:40], "q"), np.arange(180)), 6), 1, kind="stable")
        assert (position == wanted[:, :k]).all(), k
        assert (similarity[:, : min(k, 60)] == similarity[:, :1]).all()  # the same bits


def test_an_offset_hides_no_neighbour() -> None:
    """All cosines are 1 but for 1e-6, which float32 cannot order: float64 can."""
    bank, query = 1000 + cloud(300, 16), 1000 + cloud(40, 16, 1)
    b, q = bank.astype(np.longdouble), query.astype(np.longdouble)
    cosines = (q @ b.T) / np.sqrt((b * b).sum(1))
    cosines /= np.sqrt((q * q).sum(1))[:, None]
    angles = np.arcsin(np.sqrt(1 - cosines * cosines)).astype(float)
    _, position = neighbours(bank, np.arange(300), query, 10)
    lost = np.take_along_axis(angles, position, 1) - np.sort(angles, 1)[:, :10]
    assert np.abs(lost).max() < 2 * ANGLE < np.ptp(angles, 1).min() / 1000


@pytest.mark.parametrize("width", [1, 3, 64, 2048])
def test_the_error_of_the_search_is_within_its_bound(width: int) -> None:
    rng = np.random.default_rng(0)
    for a in (np.ones((9, width), "f"), rng.random((200, width)).astype("f"), cloud(200, width)):
        found = unit_rows(a, "a") @ unit_rows(a[::-1], "a").T
        assert np.abs(found - every(a[::-1], unit_rows(a, "a"), np.arange(len(a)))).max() < search_error(width)


@pytest.mark.parametrize("block", [2**23, 30 * 16])
def test_the_own_group_is_left_out(monkeypatch, block: int) -> None:
    monkeypatch.setattr(module, "BLOCK", block)
    bank, order = cloud(200, 16), np.arange(200)
    group = np.random.default_rng(3).integers(0, 60, 200)
    _, position = neighbours(bank, order, unit_rows(bank, "q"), 9, Own.from_rows(group, group, None))
    cosines = every(bank, unit_rows(bank, "q"), order)
    cosines[group[:, None] == group] = -2
    assert (position == np.argsort(-cosines, axis=1)[:, :9]).all()


def test_rows_equal_to_the_query_stay_when_only_it_is_left_out() -> None:
    bank = np.repeat(cloud(20, 8), 4, axis=0)
    own = np.arange(80)
    _, position = neighbours(bank, own, unit_rows(bank, "q"), 3, Own.from_rows(own, own, None))
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


def test_sums_that_only_their_order_parts_are_equal() -> None:
    """0.1 + 0.2 + 0.3 against 0.3 + 0.2 + 0.1: the same three weights for both labels, in two orders."""
    similarity = np.log([[0.9, 0.9, 0.7, 0.7, 0.3, 0.3, 0.1, 0.1]])
    for labels in ([2, 1, 1, 2, 2, 1, 1, 2], [1, 2, 2, 1, 1, 2, 2, 1], [2, 1, 2, 1, 2, 1, 1, 2]):
        for scale in (1.0, 0.7, 0.33):
            assert vote(similarity * scale, np.array([labels]), [8], 1.0, 3)[8] == [1]
    nearly = np.array([[0.9, 0.9 - 1e-12]])
    assert vote(nearly, np.array([[2, 1]]), [2], 1.0, 3)[2] == [2]


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
