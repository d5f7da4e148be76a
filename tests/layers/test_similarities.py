"""Losses in blocks of rows against the whole matrix, and products of ten-bit operands against float64."""

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor

from sslkit.layers import similarities
from sslkit.layers.similarities import (
    cross_entropy,
    log_sum_exp,
    most_similar,
    round_to_tf32,
    square_distances,
    total_of_blocks,
)


@pytest.fixture(params=[7, 40, 10**9], ids=["a row", "three rows", "one block"])
def pairs(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> int:
    monkeypatch.setattr(similarities, "PAIRS", request.param)
    return request.param


def drawn(*sizes: tuple[int, ...]) -> list[Tensor]:
    g = torch.Generator().manual_seed(0)
    return [torch.randn(size, generator=g, dtype=torch.double).requires_grad_() for size in sizes]


def check(got: Tensor, expected: Tensor, *inputs: Tensor) -> None:
    """Values and gradients, of a sum with unequal weights."""
    weights = torch.rand(got.shape, generator=torch.Generator().manual_seed(1), dtype=torch.double)
    torch.testing.assert_close(got, expected, rtol=1e-13, atol=1e-13)
    for mine, its in zip(*(torch.autograd.grad((x * weights).sum(), inputs) for x in (got, expected)), strict=True):
        torch.testing.assert_close(mine, its, rtol=1e-12, atol=1e-13)


@pytest.mark.parametrize("sizes", [((11, 5), (13, 5)), ((3, 4, 5), (13, 5)), ((2, 11, 5), (2, 13, 5))])
def test_log_sum_exp_is_that_of_the_whole_matrix(sizes: tuple, pairs: int) -> None:
    rows, keys = drawn(*sizes)
    check(log_sum_exp(rows, keys, temperature=0.3), torch.logsumexp(rows @ keys.mT / 0.3, -1), rows, keys)


def test_each_row_leaves_its_own_key_out(pairs: int) -> None:
    rows, keys = drawn((6, 5), (13, 5))
    own = torch.tensor([12, 0, 3, 3, 7, 1])
    logits = (rows @ keys.T).masked_fill(F.one_hot(own, 13).bool(), float("-inf"))
    check(log_sum_exp(rows, keys, without=own), torch.logsumexp(logits, -1), rows, keys)
    assert torch.equal(most_similar(rows, keys, without=own), logits.argmax(-1))


def test_keys_of_their_own_leave_out_the_same_of_each(pairs: int) -> None:
    rows, keys = drawn((2, 6, 5), (2, 13, 5))
    own = torch.tensor([12, 0, 3, 3, 7, 1])
    logits = (rows @ keys.mT).masked_fill(F.one_hot(own, 13).bool(), float("-inf")) / 0.5
    check(log_sum_exp(rows, keys, temperature=0.5, without=own), torch.logsumexp(logits, -1), rows, keys)


def test_cross_entropy_is_that_of_the_whole_matrix(pairs: int) -> None:
    rows, keys, scores = drawn((6, 5), (13, 5), (6, 13))
    codes = scores.detach().softmax(-1)
    check(cross_entropy(rows, keys, codes), F.cross_entropy(rows @ keys.T, codes, reduction="none"), rows, keys)


def test_only_what_has_a_gradient_gets_one_and_no_rows_give_zero(pairs: int) -> None:
    rows, keys = drawn((6, 5), (13, 5))
    for inputs, trained in (((rows, keys.detach()), rows), ((rows.detach(), keys), keys)):
        mine, its = log_sum_exp(*inputs), torch.logsumexp(inputs[0] @ inputs[1].T, -1)
        check(mine, its, trained)
    (grad,) = torch.autograd.grad(log_sum_exp(rows[:0], keys).sum(), keys)
    assert torch.equal(grad, torch.zeros_like(keys))


def test_a_total_of_blocks_is_that_of_all_rows(pairs: int) -> None:
    rows, keys = drawn((6, 5), (13, 5))

    def cubes(x: Tensor) -> Tensor:
        return (x @ keys.T).pow(3).sum()

    check(total_of_blocks(cubes, 13, rows), cubes(rows), rows, keys)


def test_the_loss_is_fp32_under_autocast(pairs: int) -> None:
    rows, keys = (x.detach().float() for x in drawn((6, 5), (13, 5)))
    with torch.autocast("cpu", dtype=torch.bfloat16):
        got = log_sum_exp(rows, keys), cross_entropy(rows, keys, torch.full((6, 13), 1 / 13))
    expected = torch.logsumexp(rows.double() @ keys.double().T, -1).float()
    assert got[0].dtype is got[1].dtype is torch.float32
    torch.testing.assert_close(got[0], expected, rtol=1e-6, atol=1e-6)


def test_large_logits_stay_finite(pairs: int) -> None:
    rows = torch.full((6, 5), 1e3, requires_grad=True)
    loss = log_sum_exp(rows, rows, without=torch.arange(6)).sum()
    loss.backward()
    assert loss.isfinite() and rows.grad.isfinite().all()


def test_rounded_has_ten_bits_and_keeps_what_is_not_a_number() -> None:
    x = torch.randn(1000, generator=torch.Generator().manual_seed(0))
    assert ((round_to_tf32(x) - x).abs() <= x.abs() * 2**-11).all() and not (
        round_to_tf32(x).view(torch.int32) % 2**13
    ).any()
    assert round_to_tf32(torch.tensor([float("nan"), 0.0])).isnan().tolist() == [True, False]


def test_in_tf32_the_loss_on_65536_prototypes_is_float64s(monkeypatch: pytest.MonkeyPatch) -> None:
    """Operands of 10 bits, temperatures of 0.1 and 0.04. Rows lie near prototypes, as trained ones do: logits to 25."""
    monkeypatch.setattr(similarities, "_on_tensor_cores", lambda x, asked: asked and x.dtype is torch.float32)
    g = torch.Generator().manual_seed(0)
    keys = F.normalize(torch.randn(65536, 256, generator=g, dtype=torch.double), dim=1)
    noise = torch.randn(2, 16, 256, generator=g, dtype=torch.double) / 16
    student, slow = F.normalize(keys[:16] + 0.7 * noise, dim=-1)

    def loss_and_gradients(dtype: torch.dtype) -> tuple[Tensor, ...]:
        rows, prototypes = (x.to(dtype).requires_grad_() for x in (student / 0.1, keys))
        logits = similarities.product(slow.to(dtype) / 0.04, prototypes, tf32=True)
        codes = logits.softmax(-1)
        each = cross_entropy(rows, prototypes, codes / codes.sum(-1, keepdim=True), tf32=True)
        return each.detach(), *torch.autograd.grad(each.mean(), (rows, prototypes))

    found, expected = (loss_and_gradients(dtype) for dtype in (torch.float, torch.double))
    assert (found[0].mean() - expected[0].mean()).abs() < 1e-4 * expected[0].mean()
    for mine, its in zip(found[1:], expected[1:], strict=True):
        assert (mine - its).norm() < 1e-3 * its.norm()


def test_square_distances_are_those_of_unit_rows_and_zeros() -> None:
    a, b = (F.normalize(torch.randn(n, 4, generator=torch.Generator().manual_seed(n)), dim=1).double() for n in (5, 6))
    a[1], b[2], b[3] = 0, 0, a[0]
    torch.testing.assert_close(square_distances(a, b), torch.cdist(a, b).square(), rtol=1e-6, atol=1e-6)
