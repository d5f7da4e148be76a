"""Random numbers by image: their distribution, one process against many, and orders that are permutations."""

import math
from collections import Counter
from itertools import permutations

import numpy as np
import pytest
import torch
from scipy import stats

from sslkit.runtime import draws


def generator(seed: int = 0) -> torch.Generator:
    return torch.Generator().manual_seed(seed)


def test_words_are_splitmix64s() -> None:
    """The numbers of all images in a row are its output, here computed one after the other."""
    state, mask, expected = draws.new_key(generator(5)), 2**64 - 1, []
    for _ in range(6):
        state = (state + 0x9E3779B97F4A7C15) & mask
        z = (state ^ state >> 30) * 0xBF58476D1CE4E5B9 & mask
        z = (z ^ z >> 27) * 0x94D049BB133111EB & mask
        expected.append(z ^ z >> 31)
    assert draws.words(range(2), 3, generator(5)).ravel().tolist() == expected


@pytest.mark.parametrize("seed", range(3))
def test_numbers_are_uniform_and_independent(seed: int) -> None:
    drawn = draws.uniform(range(1, 8000, 8), (3, 7), generator(seed)).numpy()
    assert drawn.shape == (1000, 3, 7) and drawn.dtype == np.float32
    assert 0 <= drawn.min() < 1e-3 and 1 - 1e-3 < drawn.max() < 1
    assert stats.kstest(drawn.ravel(), "uniform").pvalue > 1e-3
    flat = drawn.reshape(1000, 21)
    assert min(stats.kstest(column, "uniform").pvalue for column in flat.T) > 1e-4
    assert min(stats.kstest(row, "uniform").pvalue for row in flat) > 1e-6
    between = np.corrcoef(flat.T) - np.eye(21), np.corrcoef(flat[:-1, 0], flat[1:, 0])[0, 1]
    assert np.abs(between[0]).max() < 5 / np.sqrt(1000) and abs(between[1]) < 5 / np.sqrt(1000)


def test_calls_differ_and_a_seed_repeats_them() -> None:
    g = generator(1)
    first, second = (draws.uniform(range(50), (4,), g) for _ in range(2))
    assert not (first == second).any()
    assert torch.equal(first, draws.uniform(range(50), (4,), generator(1)))
    assert torch.equal(g.get_state(), _after_two_keys())


def _after_two_keys() -> torch.Tensor:
    """The caller's generator gives a key a call, for any number of images."""
    g = generator(1)
    draws.new_key(g), draws.new_key(g)
    return g.get_state()


@pytest.mark.parametrize("world_size", [2, 3, 256])
def test_each_rank_draws_its_rows_of_the_whole(world_size: int) -> None:
    whole = draws.uniform(range(4 * world_size), (5,), generator())
    for rank in {0, 1, world_size - 1}:
        own = draws.uniform(range(rank, 4 * world_size, world_size), (5,), generator())
        assert torch.equal(own, whole[rank::world_size])


@pytest.mark.parametrize("total", [1, 2, 3, 4, 5, 16, 17, 1000])
def test_an_order_holds_every_place_once_and_can_be_turned_back(total: int) -> None:
    rows, key = np.arange(total), draws.new_key(generator())
    places = draws.shuffle(rows, total, key)
    assert sorted(places) == rows.tolist()
    assert (draws.shuffle(places, total, key, back=True) == rows).all()
    some = rows[::3][:, None]
    assert (draws.shuffle(some, total, key) == places[some]).all()


@pytest.mark.parametrize("total", [3, 4])
def test_every_order_is_as_likely(total: int) -> None:
    g = generator()
    seen = Counter(tuple(draws.shuffle(np.arange(total), total, draws.new_key(g)).tolist()) for _ in range(3000))
    assert stats.chisquare([seen[order] for order in permutations(range(total))]).pvalue > 1e-3


def test_a_row_may_come_to_any_place_of_a_large_order() -> None:
    g = generator()
    places = [draws.shuffle(np.array([7]), 10_000, draws.new_key(g))[0] for _ in range(1000)]
    assert stats.kstest((np.array(places) + 0.5) / 10_000, "uniform").pvalue > 1e-3


def test_normal_numbers_are_splitmix64s_and_standard_normal() -> None:
    def splitmix64(key: int, place: int) -> int:
        z = (key + place * 0x9E3779B97F4A7C15) % 2**64
        z = (z ^ z >> 30) * 0xBF58476D1CE4E5B9 % 2**64
        z = (z ^ z >> 27) * 0x94D049BB133111EB % 2**64
        return z ^ z >> 31

    got = draws.normal((3, 4), 7, torch.device("cpu"))
    words = [splitmix64(7, place) for place in range(1, 7)]
    radius = [math.sqrt(-2 * math.log(((word >> 40) + 0.5) / 2**24)) for word in words]
    angle = [2 * math.pi * (word % 2**24) / 2**24 for word in words]
    want = [r * math.cos(a) for r, a in zip(radius, angle, strict=True)]
    want += [r * math.sin(a) for r, a in zip(radius, angle, strict=True)]
    torch.testing.assert_close(got.flatten(), torch.tensor(want), atol=2e-6, rtol=1e-5)
    many = draws.normal((100_001,), 1, torch.device("cpu")).double()
    assert len(many) == 100_001 and stats.kstest(many.numpy(), "norm").pvalue > 0.01
    assert abs(torch.corrcoef(torch.stack([many[:50_000], many[50_000:100_000]]))[0, 1]) < 0.02
