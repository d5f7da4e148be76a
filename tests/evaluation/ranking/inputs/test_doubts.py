"""The checks of features before they are scored, against all of their rows and columns."""

import numpy as np
import pytest
import torch

from evaluation.ranking.inputs.doubts import constant_columns, distinct_rows, doubts, fingerprints
from evaluation.ranking.inputs.samples import as_sample
from evaluation.transferability.base import check_scale
from sslkit.errors import UserError

RNG = np.random.default_rng(0)
X = RNG.normal(size=(100, 40))
Y = np.arange(100) % 4


def tensor(x: np.ndarray) -> torch.Tensor:
    return torch.from_numpy(np.ascontiguousarray(x))


def test_fingerprints_tell_rows_apart_and_nothing_else() -> None:
    x = tensor(np.vstack([X, X[:7], np.zeros((1, 40)), np.full((1, 40), -0.0)]))
    found = fingerprints(x)
    assert len(torch.unique(found)) == 101 and (found[:7] == found[100:107]).all() and found[107] == found[108]
    assert (fingerprints(x[3:5]) == found[3:5]).all() and (fingerprints(x.T.contiguous().T) == found).all()
    whole = tensor(RNG.integers(0, 3, size=(500, 30)).astype(np.float32))
    assert len(torch.unique(fingerprints(whole))) == len(torch.unique(whole, dim=0))


@pytest.mark.parametrize("block", [2**21, 80])
def test_rows_and_columns_are_counted(block: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("evaluation.ranking.inputs.doubts.BLOCK", block)
    assert distinct_rows(tensor(np.repeat(X[:30], 4, 0))) == 30
    assert distinct_rows(tensor(X)) == 100
    assert distinct_rows(tensor(np.hstack([X, X, X]).T)) == 40
    late = np.zeros((100, 40))  # rows that differ in a column that is not looked at first
    late[:, 1] = np.arange(100)
    assert distinct_rows(tensor(late)) == 100
    alive = X * (np.arange(40) < 9)
    alive[3, 20] = 1e-9  # in a row that is not looked at first
    assert constant_columns(tensor(alive)) == 30
    assert constant_columns(tensor(X)) == constant_columns(tensor(X * (np.arange(40) < 30))) == 0  # no more than half


def test_one_scale_for_every_float32_and_none_beyond() -> None:
    biggest = float(np.finfo(np.float32).max)
    for scale in (biggest, 1e70, 1e-70, 1e-45):
        x = np.sign(X) * scale
        check_scale(as_sample(x.astype(np.float32) if scale <= biggest and scale > 1e-46 else x, Y))
        squares = (x / 1.0) ** 2
        assert np.isfinite(squares.sum() ** 2) and (squares**2 > 0).all()
    with pytest.raises(UserError, match=r"as large as 1e\+76: sums of their squares overflow float64; divide"):
        check_scale(as_sample(np.sign(X) * 1e76, Y))
    with pytest.raises(UserError, match="at most 1e-74: their squares underflow float64; multiply"):
        check_scale(as_sample(np.sign(X) * 1e-74, Y))
    check_scale(as_sample(np.zeros((100, 4)), Y))  # no scale: equal rows


def test_a_few_repeated_rows_and_dead_columns_are_nothing_to_warn_of() -> None:
    x = X * (np.arange(40) < 25)
    x[:40] = x[60:]
    assert doubts(as_sample(x, Y)) == ()
    assert doubts(as_sample(X.astype(np.float32) + 1000, Y)) == ()
    said = doubts(as_sample((1000 + 1e-5 * X).astype(np.float32), Y))
    assert said == ("all 100 rows of features are equal: the score is meaningless",)


def test_several_things_at_once() -> None:
    x = np.repeat(X[:30] * (np.arange(40) < 15), 2, 0)
    said = doubts(as_sample(x, Y[:60]))
    assert len(said) == 2 and "25 of 40 columns" in said[0] and "only 30 of 60 rows" in said[1]
