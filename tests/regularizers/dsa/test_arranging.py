"""Eqs. 9, 10 and 16 against double loops written from the paper, in float64."""

import math

import pytest
import torch
from torch import Tensor

from sslkit.errors import UserError
from sslkit.regularizers.dsa import ArrangingMLP, arrange_loss
from sslkit.regularizers.dsa.arranging import CosineArranger, arrange_log_sum

PHI = {"relu": torch.relu, "softplus": torch.nn.functional.softplus, "exp": torch.exp}


def double(*shape: int, generator: torch.Generator) -> Tensor:
    return torch.randn(*shape, generator=generator, dtype=torch.float64)


def loop_loss(z, m, score, alpha, gamma, squared, mean, inside, include_self) -> Tensor:
    z = [row / row.norm() for row in z]
    total, pairs = 0.0, 0
    for i in range(len(z)):
        for j in range(len(z)):
            if i == j and not include_self:
                continue
            d = (z[i] - z[j]).square().sum()
            d = torch.zeros(()) if i == j else (d if squared else d.sqrt())
            exponent = (2 * m[i, j] - alpha) * d / gamma
            total = total + (torch.exp(score[i] * exponent) if inside else score[i] * torch.exp(exponent))
            pairs += 1
    return torch.log(1 + (total / pairs if mean else total))


@pytest.mark.parametrize("inputs", ["concat", "diff"])
@pytest.mark.parametrize("phi", PHI)
def test_eq_9_by_a_double_loop(phi: str, inputs: str, generator: torch.Generator) -> None:
    torch.manual_seed(0)
    mlp = ArrangingMLP(3, 8, phi=phi, inputs=inputs).double()
    z = double(6, 3, generator=generator)
    q = torch.empty(6, 6, dtype=torch.float64)
    for i in range(6):
        for j in range(6):
            pair = torch.cat([z[i], z[j]]) if inputs == "concat" else z[i] - z[j]
            q[i, j] = PHI[phi](mlp.last(torch.relu(mlp.first(pair)))).detach()[0]
    m = mlp(z)
    assert m.dtype == torch.float64
    torch.testing.assert_close(m, q / q.sum(1, keepdim=True), rtol=1e-5, atol=1e-7)  # eps is 1e-6 of the sum
    torch.testing.assert_close(m.sum(1), torch.ones(6, dtype=torch.float64), rtol=1e-5, atol=0)
    assert not torch.allclose(m, m.T)
    rows = torch.tensor([5, 1])
    torch.testing.assert_close(mlp(z, rows), m[rows])


def test_first_bias_gives_live_rows() -> None:
    """With torch's own initialisation of the last bias some seeds start with dead rows."""
    z = torch.nn.functional.normalize(torch.randn(64, 64, generator=torch.Generator().manual_seed(1)), dim=1)
    for seed in range(20):
        torch.manual_seed(seed)
        mlp = ArrangingMLP(64)
        assert mlp.last.bias.item() == 0.5
        assert (mlp(z).sum(1) > 0.99).all(), seed


def test_dead_rows_are_finite() -> None:
    mlp = ArrangingMLP(4, 8)
    torch.nn.init.constant_(mlp.last.bias, -100.0)
    z = torch.randn(5, 4, requires_grad=True)
    m = mlp(z)
    assert not m.any()
    arrange_loss(z, m).backward()
    assert z.grad.isfinite().all() and all(p.grad.isfinite().all() for p in mlp.parameters())


def test_without_row_normalisation(generator: torch.Generator) -> None:
    torch.manual_seed(0)
    mlp = ArrangingMLP(3, 8, normalise="none").double()
    z = double(4, 3, generator=generator)
    pair = mlp.last(torch.relu(mlp.first(torch.cat([z[1], z[2]]))))
    torch.testing.assert_close(mlp(z)[1, 2], pair.sigmoid()[0])


def test_cosine_arranger(generator: torch.Generator) -> None:
    z = double(6, 3, generator=generator)
    cosine = torch.nn.functional.cosine_similarity(z[:, None], z[None], dim=2)
    torch.testing.assert_close(CosineArranger(normalise="none")(z), cosine)
    positive = cosine.clamp(min=0)
    m = CosineArranger()(z)
    torch.testing.assert_close(m, positive / positive.sum(1, keepdim=True), rtol=1e-5, atol=1e-7)
    torch.testing.assert_close(CosineArranger()(z, torch.tensor([2])), m[2:3])


@pytest.mark.parametrize("include_self", [False, True])
@pytest.mark.parametrize("inside", [False, True])
@pytest.mark.parametrize("mean", [False, True])
@pytest.mark.parametrize("squared", [False, True])
def test_eq_16_by_a_double_loop(squared, mean, inside, include_self, generator) -> None:
    z = double(7, 4, generator=generator).requires_grad_()
    m = torch.rand(7, 7, generator=generator, dtype=torch.float64).requires_grad_()
    score = torch.rand(7, generator=generator, dtype=torch.float64)
    score[2] = 0
    want = loop_loss(z, m, score, 0.8, 0.3, squared, mean, inside, include_self)
    got = arrange_loss(
        z,
        m,
        score,
        alpha=0.8,
        gamma=0.3,
        squared=squared,
        reduction="mean" if mean else "sum",
        score_mode="inside" if inside else "outside",
        include_self=include_self,
    )
    torch.testing.assert_close(got, want)
    grads = zip(torch.autograd.grad(got, [z, m]), torch.autograd.grad(want, [z, m]), strict=True)
    for ours, reference in grads:
        torch.testing.assert_close(ours, reference)


def test_eq_10_is_eq_16_with_scores_of_one(generator: torch.Generator) -> None:
    z, m = double(5, 3, generator=generator), torch.rand(5, 5, generator=generator, dtype=torch.float64)
    want = loop_loss(z, m, torch.ones(5), 1.0, 0.5, False, False, False, False)
    torch.testing.assert_close(arrange_loss(z, m), want)


@pytest.mark.parametrize("mode", ["outside", "inside"])
@pytest.mark.parametrize("squared", [False, True])
def test_gradcheck_over_several_blocks(squared: bool, mode: str, generator: torch.Generator, monkeypatch) -> None:
    monkeypatch.setattr("sslkit.regularizers.dsa.arranging._BLOCK", 12)
    z, m = double(6, 3, generator=generator), torch.rand(4, 6, generator=generator, dtype=torch.float64)
    score, rows = torch.tensor([0.3, 0.0, 1.0, 0.7]), torch.tensor([3, 0, 5, 1])

    def loss(z: Tensor, m: Tensor) -> Tensor:
        return arrange_loss(z, m, score, squared=squared, score_mode=mode, rows=rows)

    assert torch.autograd.gradcheck(loss, (z.requires_grad_(), m.requires_grad_()))


def test_row_blocks_add_up(generator: torch.Generator) -> None:
    z, m = double(6, 3, generator=generator), torch.rand(6, 6, generator=generator, dtype=torch.float64)
    score = torch.rand(6, generator=generator, dtype=torch.float64)
    parts = [torch.tensor([0, 3, 4]), torch.tensor([1, 2, 5])]
    sums = torch.stack([arrange_log_sum(z, m[rows], score[rows], rows=rows) for rows in parts])
    torch.testing.assert_close(torch.nn.functional.softplus(sums.logsumexp(0)), arrange_loss(z, m, score))


@pytest.mark.parametrize("squared", [False, True])
def test_duplicates_have_finite_gradients(squared: bool, generator: torch.Generator) -> None:
    z = torch.randn(3, 8, generator=generator).repeat(2, 1)
    z[4] = 2 * z[1]  # the same direction, another length
    z.requires_grad_()
    m = torch.full((6, 6), 1 / 6, requires_grad=True)
    arrange_loss(z, m, squared=squared).backward()
    assert z.grad.isfinite().all() and m.grad.isfinite().all()
    assert z.grad.abs().max() < 10


def test_all_scores_zero_is_zero_with_zero_gradient(generator: torch.Generator) -> None:
    z, m = torch.randn(4, 3, generator=generator, requires_grad=True), torch.rand(4, 4, requires_grad=True)
    loss = arrange_loss(z, m, torch.zeros(4))
    loss.backward()
    assert loss.item() == 0 and not z.grad.any() and not m.grad.any()


def test_score_of_zero_mutes_its_row(generator: torch.Generator) -> None:
    z, m = torch.randn(4, 3, generator=generator), torch.rand(4, 4, generator=generator, requires_grad=True)
    arrange_loss(z, m, torch.tensor([1.0, 0, 1, 1])).backward()
    assert not m.grad[1].any() and m.grad[0].any()


@pytest.mark.parametrize("n", [1, 2])
@pytest.mark.parametrize("reduction", ["sum", "mean"])
def test_fewest_rows(n: int, reduction: str, generator: torch.Generator) -> None:
    z, m = torch.randn(n, 3, generator=generator, requires_grad=True), torch.full((n, n), 1 / n, requires_grad=True)
    loss = arrange_loss(z, m, reduction=reduction)
    loss.backward()
    assert loss.isfinite() and z.grad.isfinite().all() and m.grad.isfinite().all()
    assert (loss > 0) == (n > 1)


def test_large_exponents_do_not_overflow(generator: torch.Generator) -> None:
    z, m = torch.randn(4, 3, generator=generator, requires_grad=True), torch.ones(4, 4)
    loss = arrange_loss(z, m, gamma=1e-3)  # exponents up to 2000
    loss.backward()
    assert 100 < loss < math.inf and z.grad.isfinite().all()


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16])
def test_fp32_inside_whatever_comes(dtype: torch.dtype, generator: torch.Generator) -> None:
    torch.manual_seed(0)
    mlp = ArrangingMLP(8, 16)
    z = torch.randn(6, 8, generator=generator).to(dtype)
    with torch.autocast("cpu", torch.bfloat16):
        m = mlp(z)
        loss = arrange_loss(z, m)
    assert m.dtype == loss.dtype == torch.float32
    torch.testing.assert_close(m, mlp(z.float()))
    torch.testing.assert_close(loss, arrange_loss(z.float(), m))


@pytest.mark.parametrize("option", ["phi", "normalise", "inputs", "kernel"])
def test_unknown_options(option: str) -> None:
    with pytest.raises(UserError, match=option):
        ArrangingMLP(4, **{option: "nonsense"})
