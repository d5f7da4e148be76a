"""Moments, scatter and the compact basis, against numpy on all rows at once."""

from pathlib import Path

import numpy as np
import pytest
import torch

from evaluation.ranking.inputs.samples import as_sample
from evaluation.transferability import base
from evaluation.transferability._scatter import PANEL, add_upper_gram, mirror_upper

RNG = np.random.default_rng(0)
N, D, C = 300, 20, 5
Y = RNG.permutation(np.arange(N) % C)
X = RNG.normal(size=(C, D))[Y] + RNG.normal(size=(N, D))


def within(x: np.ndarray, y: np.ndarray) -> np.ndarray:
    rest = [x[y == c] - x[y == c].mean(0) for c in np.unique(y)]
    return sum(part.T @ part for part in rest)


@pytest.fixture
def small_blocks(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(base, "BLOCK", 7 * D)


def test_moments_are_numpys() -> None:
    moments = as_sample(X, Y).moments
    for c in range(C):
        assert moments.counts[c] == (c == Y).sum()
        assert np.allclose(moments.means[c], X[c == Y].mean(0), atol=1e-13)
        assert np.allclose(moments.variances[c], X[c == Y].var(0), atol=1e-13)
    assert np.allclose(moments.mean, X.mean(0), atol=1e-13)
    assert np.allclose(moments.column_variances, X.var(0), rtol=1e-12)
    assert moments.n == N and np.allclose(moments.shares, np.bincount(Y) / N)


def test_scatter_is_numpys() -> None:
    scatter = as_sample(X, Y).scatter
    assert np.allclose(scatter.within, within(X, Y), atol=1e-10)
    assert np.allclose(scatter.total, N * np.cov(X, rowvar=False, ddof=0), atol=1e-10)
    assert np.allclose(scatter.between, scatter.total - scatter.within, atol=1e-10)
    values, vectors = scatter.values, scatter.eigenbasis.leading(D)
    assert np.allclose(vectors * values @ vectors.T, scatter.total, atol=1e-10)
    assert (values.diff() >= 0).all() and (values >= 0).all()


def test_blocks_change_nothing_but_rounding(small_blocks: None) -> None:
    sample = as_sample(X, Y)
    assert len(list(sample.blocks())) == -(-N // 7)
    assert np.allclose(sample.scatter.within, within(X, Y), atol=1e-10)
    assert np.allclose(sample.moments.variances[2], X[Y == 2].var(0), atol=1e-13)


@pytest.mark.parametrize("width", [1, PANEL - 1, PANEL, 2 * PANEL + 3])
def test_upper_gram_is_the_gram(width: int) -> None:
    x = torch.from_numpy(RNG.normal(size=(50, width)))
    gram = torch.zeros(width, width, dtype=torch.float64)
    for part in x.split(20):
        add_upper_gram(gram, part)
    mirror_upper(gram)
    assert torch.equal(gram, gram.T)
    assert torch.allclose(gram, x.T @ x, atol=1e-12)


def test_a_large_offset_costs_no_digits() -> None:
    x = X.astype(np.float32) * np.float32(2**-4)  # exact after the offset, which is a power of 2 too
    x = np.round(x * 2**10) / np.float32(2**10)
    near, far = as_sample(x, Y), as_sample(x + np.float32(1024), Y)
    assert np.array_equal(x.astype(np.float64) + 1024, (x + np.float32(1024)).astype(np.float64))
    scale = float(near.scatter.within.diagonal().max())
    assert (near.scatter.within - far.scatter.within).abs().max() < 1e-11 * scale
    assert torch.allclose(near.moments.variances, far.moments.variances, rtol=1e-10)


def test_memory_mapped_features(tmp_path: Path, small_blocks: None) -> None:
    np.save(tmp_path / "x.npy", X.astype(np.float32))
    mapped = np.load(tmp_path / "x.npy", mmap_mode="r")
    assert not mapped.flags.writeable
    whole = as_sample(X.astype(np.float32), Y)
    assert torch.equal(as_sample(mapped, Y).scatter.within, whole.scatter.within)
    assert np.array_equal(mapped, X.astype(np.float32))


def test_without_labels_all_rows_are_one_class() -> None:
    sample = as_sample(X, RNG.normal(size=N))
    assert sample.y is None and len(sample.moments.counts) == 1
    assert np.allclose(sample.scatter.within, N * np.cov(X, rowvar=False, ddof=0), atol=1e-10)
    assert float(sample.scatter.between.abs().max()) == 0


def test_moved_is_computed_and_remembered_alike() -> None:
    shift = torch.from_numpy(RNG.normal(size=(C, D)))
    fresh = as_sample(X, Y).move(shift)
    origin = as_sample(X, Y)
    assert origin.scatter.n == N
    known = origin.move(shift)
    assert known.scatter.within is origin.scatter.within  # no second pass of O(N D^2)
    expected = X + shift.numpy()[Y]
    for sample in (fresh, known, fresh.move(shift).move(-shift)):
        assert np.allclose(sample.features, expected, atol=1e-12)
        assert np.allclose(sample.moments.means[1], expected[Y == 1].mean(0), atol=1e-12)
        assert np.allclose(sample.moments.variances[1], X[Y == 1].var(0), atol=1e-12)
        assert np.allclose(sample.scatter.total, N * np.cov(expected, rowvar=False, ddof=0), atol=1e-9)


def test_moved_scatter_has_its_own_axes() -> None:
    sample = as_sample(X, Y)
    before = sample.scatter.values.clone()
    after = sample.move(10 * torch.from_numpy(RNG.normal(size=(C, D)))).scatter
    assert np.allclose(after.values, np.linalg.eigvalsh(after.total.numpy()), rtol=1e-9, atol=1e-8)
    assert not torch.allclose(after.values, before) and torch.equal(sample.scatter.values, before)


def wide(n: int = 12, d: int = 40, offset: float = 0.0) -> np.ndarray:
    return RNG.normal(size=(n, d)) + offset


@pytest.mark.parametrize("offset", [0.0, 3.0, 1000.0])
def test_compact_keeps_products_and_ones(offset: float) -> None:
    x = wide(offset=offset)
    sample = as_sample(x, np.arange(12) % 3)
    compact = sample.compact
    assert compact.dim == 40 and compact.x.shape[1] <= 12
    assert np.allclose(compact.x @ compact.x.T, x @ x.T, rtol=1e-11, atol=1e-10)
    assert np.allclose(compact.x @ compact.ones, x.sum(1), rtol=1e-11, atol=1e-9)
    assert torch.equal(compact.labels, sample.labels) and compact.compact is compact
    assert np.allclose(compact.scatter.total, torch.diag(compact.diagonal), atol=1e-9 * float(compact.diagonal.max()))
    own, theirs = compact.scatter.values, torch.linalg.eigvalsh(sample.scatter.total)
    assert np.allclose(own[-11:], theirs[-11:], rtol=1e-9)


def test_compact_of_moved_and_of_equal_rows() -> None:
    x, y = wide(), np.arange(12) % 3
    shift = torch.from_numpy(RNG.normal(size=(3, 40)))
    moved = x + shift.numpy()[y]
    compact = as_sample(x, y).move(shift).compact
    assert np.allclose(torch.pdist(compact.x), torch.pdist(torch.from_numpy(moved)), rtol=1e-10)
    x[1:] = x[0]
    equal = as_sample(x, y).compact
    assert np.allclose(equal.x @ equal.x.T, x @ x.T, rtol=1e-10)
    assert float(equal.scatter.total.abs().max()) < 1e-20


def test_compact_of_a_tall_sample_is_itself() -> None:
    sample = as_sample(X, Y)
    assert sample.compact is sample


def test_input_is_not_written_to_and_bits_repeat() -> None:
    x = torch.from_numpy(X.copy())
    first, second = as_sample(x, Y), as_sample(x, Y)
    assert torch.equal(first.scatter.within, second.scatter.within)
    assert torch.equal(first.moments.variances, second.moments.variances)
    assert np.array_equal(x.numpy(), X)


def test_equal_rows_have_no_axes_and_distinct_ones_keep_theirs() -> None:
    assert float(as_sample(np.full((N, 3), 0.1), Y).scatter.values.max()) == 0
    near = 1000 + 1e-6 * X  # float64 has 1e-13 there
    values = as_sample(near, Y).scatter.values
    assert np.allclose(values * 1e12, np.linalg.eigvalsh(N * np.cov(X, rowvar=False, ddof=0)), rtol=1e-5)


def test_what_is_rounding_of_a_mean_is_nothing() -> None:
    x = np.hstack([X, np.full((N, 3), 0.1), np.full((N, 1), 1e6 + 0.1)])
    sample = as_sample(x, Y)
    assert sample.moments.varies.tolist() == [True] * D + [False] * 4
    assert (sample.moments.spread[:, D:] == 0).all() and (sample.moments.column_variances[D:] == 0).all()
    assert (sample.scatter.total[D:] == 0).all() and (sample.scatter.total[:, D:] == 0).all()
    assert not sample.scatter.is_collapsed
    narrow = as_sample(1e6 + 1e-6 * X, Y)  # far from 0, and no rounding
    assert narrow.moments.varies.all() and not narrow.scatter.is_collapsed


@pytest.mark.parametrize("width", [D, 2 * N])
def test_equal_rows_vary_in_no_direction(width: int) -> None:
    sample = as_sample(np.tile(RNG.normal(size=(1, width)), (N, 1)), Y).compact
    assert sample.scatter.is_collapsed and not sample.scatter.varies.any() and (sample.scatter.values == 0).all()
    assert (sample.scatter.within == 0).all() and sample.x.shape[1] == (D if width == D else 1)


def test_rows_that_are_constant_in_each_class_do_not_vary_within() -> None:
    sample = as_sample((0.1 + RNG.normal(size=(C, D)))[Y], Y)
    assert (sample.moments.variances == 0).all() and (sample.scatter.within == 0).all()
    assert sample.moments.varies.all() and int(sample.scatter.varies.sum()) == C - 1
