"""Nearness of images: groups against a plain loop over all pairs, and features that tell nothing."""

import numpy as np
import pytest

from evaluation.embedding.nearness import AgreedIndex, CosineIndex, by_chance, by_cosine
from sslkit.data.likeness import BITS, count_differences
from sslkit.errors import UserError
from sslkit.numerics import near_copies
from sslkit.numerics.near_copies import FEWEST, group_by_leaders


def cosines(x: np.ndarray) -> np.ndarray:
    unit = x / np.linalg.norm(x.astype(np.float64), axis=1, keepdims=True)
    return unit @ unit.T


def lead(near: np.ndarray, order: np.ndarray, block: int) -> np.ndarray:
    """The leaders by their definition; near: (N, N) float, the higher the nearer, -inf where not near."""
    leader, leaders = np.arange(len(near)), []
    for start in range(0, len(order), block):
        rows = order[start : start + block]
        left = []
        for row in rows:
            best = max(leaders, key=lambda other, row=row: near[row, other], default=row)
            if leaders and near[row, best] > -np.inf:
                leader[row] = best
            else:
                left.append(row)
        while left:
            first = left[0]
            members = [row for row in left if row == first or near[first, row] > -np.inf]
            leader[members] = first
            leaders.append(first)
            left = [row for row in left if row not in members]
    return leader


def hashes_of(bits: np.ndarray) -> np.ndarray:
    """Hashes of bits (N, 104), the same in both halves."""
    both = np.zeros((len(bits), 2, 128), bool)
    both[:, :, :BITS] = bits[:, None]
    return np.packbits(both, axis=2).reshape(len(bits), 32).view(np.int64)


def objects(count: int, copies: int, flipped: float, seed: int = 0) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Hashes, features and the object of each image: copies with a share of the bits flipped, and some noise."""
    draws = np.random.default_rng(seed)
    same = np.repeat(np.arange(count), copies)
    bits = (draws.random((count, BITS)) < 0.5)[same] ^ (draws.random((len(same), BITS)) < flipped)
    x = draws.normal(size=(count, 48))[same] + 0.1 * draws.normal(size=(len(same), 48))
    return hashes_of(bits), x.astype(np.float32), same


@pytest.mark.parametrize("block", [16, 1024])
def test_groups_by_cosine_are_those_of_all_pairs(monkeypatch, block: int) -> None:
    monkeypatch.setattr(near_copies, "BLOCK", block)
    rng = np.random.default_rng(1)
    x = (rng.normal(size=(60, 8))[rng.integers(0, 60, 300)] + 0.3 * rng.normal(size=(300, 8))).astype(np.float32)
    rows = np.sort(rng.permutation(300)[:250])
    nearness = by_cosine(x, rows, 0.9)
    found = group_by_leaders(nearness.rows, len(x), nearness.index)
    cosine = cosines(x)
    expected = lead(np.where(cosine >= 0.9, cosine, -np.inf), rows, block)
    assert found.tolist() == expected.tolist() and (found != np.arange(300)).sum() > 100


def test_equal_rows_are_near_at_the_highest_threshold() -> None:
    x = np.random.default_rng(0).normal(size=(50, 19)).astype(np.float32).repeat(2, 0)
    nearness = by_cosine(x, np.arange(100), 1.0)
    assert group_by_leaders(nearness.rows, 100, nearness.index).tolist() == np.arange(0, 100, 2).repeat(2).tolist()


@pytest.mark.parametrize("block", [16, 1024])
def test_groups_by_pixels_and_features_are_those_of_all_pairs(monkeypatch, block: int) -> None:
    monkeypatch.setattr(near_copies, "BLOCK", block)
    hashes, x, _ = objects(60, 5, 0.07)
    order = np.random.default_rng(3).permutation(300)
    found = group_by_leaders(order, 300, AgreedIndex(hashes, x, {6: -np.inf, 12: 0.96, 20: 0.98}))
    apart, cosine = count_differences(hashes[:, None], hashes), cosines(x)
    steps = [apart <= 6, (apart <= 12) & (cosine > 0.96), (apart <= 20) & (cosine > 0.98)]
    near = np.where(np.any(steps, axis=0), -apart.astype(float), -np.inf)
    np.testing.assert_array_equal(found, lead(near, order, block))
    members = np.flatnonzero(found != np.arange(300))
    assert all(
        (step & (apart > least))[members, found[members]].any() for step, least in zip(steps, (-1, 6, 12), strict=True)
    )


def test_no_chain_joins_opposites() -> None:
    angle = np.linspace(0, np.pi, 200)
    x = np.stack([np.cos(angle), np.sin(angle)], 1).astype(np.float32)
    found = group_by_leaders(np.arange(200), 200, CosineIndex(x, 0.9))
    assert (cosines(x)[np.arange(200), found] >= 0.9).all() and len(np.unique(found)) > 4


@pytest.mark.parametrize(("count", "copies"), [(12, 10), (40, 10), (200, 2)])
@pytest.mark.parametrize("telling", [True, False])
def test_sets_of_many_copies_are_grouped_by_object(count: int, copies: int, telling: bool) -> None:
    hashes, x, same = objects(count, copies, 0.02)
    if not telling:  # the features of a collapsed network
        x = 1 + 1e-6 * x
    nearness = by_chance(hashes, x, np.arange(len(x)))
    found = group_by_leaders(nearness.rows, len(x), nearness.index)
    assert (same[found] == same).all() and (np.bincount(found)[found] == copies).mean() >= 0.9


def test_features_that_agree_find_copies_beyond_the_pixels() -> None:
    hashes, x, same = objects(200, 2, 0.13, seed=5)
    by_both, by_pixels = (by_chance(hashes, features, np.arange(400)) for features in (x, np.ones_like(x)))
    both, pixels = (group_by_leaders(told.rows, 400, told.index) for told in (by_both, by_pixels))
    assert "where the similarity of the features is above 0." in by_both.rule
    assert (both != np.arange(400)).sum() > (pixels != np.arange(400)).sum() and (same[both] == same).all()


@pytest.mark.parametrize(
    ("features", "reason"),
    [
        (lambda x: np.ones_like(x), "features do not tell copies from other images"),
        (lambda x: x + 1e6, "features do not tell copies from other images"),
        (lambda x: np.full_like(x, np.nan), "the features of 120 images have no direction"),
        (lambda x: np.where(np.arange(len(x))[:, None] < 3, 0, x), "the features of 3 images have no direction"),
    ],
)
def test_features_that_tell_nothing_are_named_and_not_used(features, reason: str) -> None:
    hashes, x, same = objects(60, 2, 0.02)
    nearness = by_chance(hashes, features(x), np.arange(120))
    assert f"{reason}" in nearness.rule and "so pixels alone decide" in nearness.rule
    found = group_by_leaders(nearness.rows, 120, nearness.index)
    assert (same[found] == same).all() and (found != np.arange(120)).sum() > 50


def test_few_images_are_compared_by_their_pixels() -> None:
    hashes, x, _ = objects(3, 2, 0.01)
    nearness = by_chance(hashes, x, np.arange(5))
    assert "5 images are too few to measure what similarity features have by chance" in nearness.rule
    assert group_by_leaders(nearness.rows, 5, nearness.index).tolist() == [0, 0, 2, 2, 4] and FEWEST > 5
    one = by_chance(hashes, x, np.arange(1))
    assert group_by_leaders(one.rows, 1, one.index).tolist() == [0]


def test_images_without_structure_are_left_out() -> None:
    hashes, x, _ = objects(40, 1, 0)
    hashes[7:9] = 0
    nearness = by_chance(hashes, x, np.arange(40))
    assert "2 images without structure are compared by content alone" in nearness.rule
    assert np.setdiff1d(np.arange(40), nearness.rows).tolist() == [7, 8]


def test_a_threshold_needs_features_with_a_direction() -> None:
    x = np.ones((5, 3), np.float32)
    x[2] = 0
    with pytest.raises(UserError, match="1 rows of features are all zeros, the first is row 2"):
        by_cosine(x, np.arange(5), 0.9)
