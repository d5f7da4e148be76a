"""Barlow Twins against lightly's loss and a float64 loop over the paper's eq. 1."""

from itertools import combinations

import pytest
import torch
from lightly.loss import BarlowTwinsLoss
from torch import Tensor

from sslkit import backbones
from sslkit.embeddings import Embeddings
from sslkit.objectives.barlow_twins import BarlowTwins, off_diagonal, standardize

SHAPES = [(9, 7), (16, 40), (3, 50), (2, 2), (64, 3)]  # more images, more dimensions, and the ends of both


def oracle(objective: BarlowTwins, e: Embeddings) -> Tensor:
    theirs = BarlowTwinsLoss(lambda_param=objective.redundancy)
    return torch.stack([theirs(a, b) for a, b in combinations(e.z, 2)]).mean()


def build(**options) -> BarlowTwins:
    return BarlowTwins(backbones.build("narrow_resnet", image_size=16, in_chans=1), hidden=8, dim=6, **options)


def drawn(v: int, n: int, d: int, dtype=torch.double) -> Embeddings:
    g = torch.Generator().manual_seed(n * d)
    z = torch.randn(v, n, d, generator=g, dtype=dtype) * 3 + 2
    z = (z + z[:1]).requires_grad_()
    return Embeddings(z=z, h=z, target=None, index=torch.arange(n))


def loss(objective: BarlowTwins, e: Embeddings) -> Tensor:
    return objective.align(e) + objective.constrain(e)


@pytest.mark.parametrize("v", [2, 3])
@pytest.mark.parametrize("redundancy", [0.005, 1.0])
@pytest.mark.parametrize(("n", "d"), SHAPES)
def test_align_plus_constrain_is_lightlys(n: int, d: int, redundancy: float, v: int) -> None:
    e, objective = drawn(v, n, d), build(redundancy=redundancy)
    both = loss(objective, e), oracle(objective, e)
    torch.testing.assert_close(*both, rtol=1e-9, atol=1e-12)
    torch.testing.assert_close(*(torch.autograd.grad(x, e.z)[0] for x in both), rtol=1e-8, atol=1e-10)


@pytest.mark.parametrize(("n", "d"), [(20, 4), (4, 12)])
def test_align_plus_constrain_is_the_papers_loop(n: int, d: int) -> None:
    e = drawn(2, n, d)
    a, b = ((z - z.mean(0)) / z.std(0, correction=0) for z in e.z.detach())
    align = constrain = 0.0
    for i in range(d):
        for j in range(d):
            c = sum(a[k, i].item() * b[k, j].item() for k in range(n)) / n
            align += (1 - c) ** 2 if i == j else 0
            constrain += c**2 if i != j else 0
    # The loop has no epsilon in the variance.
    assert build().align(e).item() == pytest.approx(align, rel=1e-4)
    assert build(redundancy=0.1).constrain(e).item() == pytest.approx(0.1 * constrain, rel=1e-4)


@pytest.mark.parametrize("n", [4, 15, 40])
def test_off_diagonal_is_one_sum_by_either_way(n: int) -> None:
    g = torch.Generator().manual_seed(0)
    a, b = torch.randn(2, 5, n, 20, generator=g, dtype=torch.double)
    for x, y in ((a, b), (a, a)):
        c = x.mT @ y
        expected = c.square().sum((1, 2)) - c.diagonal(dim1=1, dim2=2).square().sum(1)
        torch.testing.assert_close(off_diagonal(x, y), expected)
    assert torch.autograd.gradcheck(lambda x: off_diagonal(x, x), a[:1, :, :9].clone().requires_grad_())


@pytest.mark.parametrize("n", [24, 200])
def test_fp32_is_as_exact_as_fp64(n: int) -> None:
    wide = drawn(2, n, 64)
    narrow = drawn(2, n, 64, torch.float32)
    narrow.z = wide.z.detach().float().requires_grad_()
    objective = build()
    torch.testing.assert_close(objective.constrain(narrow).double(), objective.constrain(wide), rtol=1e-5, atol=0)
    grads = [torch.autograd.grad(objective.constrain(e), e.z)[0].double() for e in (narrow, wide)]
    torch.testing.assert_close(*grads, rtol=1e-3, atol=1e-5 * grads[1].abs().max().item())


def test_identical_decorrelated_views_have_no_loss() -> None:
    z = torch.linalg.qr(
        torch.cat([torch.ones(16, 1), torch.randn(16, 5, generator=torch.Generator().manual_seed(1))], 1)
    )
    z = z.Q[:, 1:].double() * 100  # orthogonal to the ones: mean 0
    e = Embeddings(z=torch.stack([z, z]), h=z, target=None, index=torch.arange(16))
    assert loss(build(), e).item() < 1e-6
    assert loss(build(), Embeddings(z=torch.stack([z, -z]), h=z, target=None, index=e.index)).item() == pytest.approx(
        20
    )


def test_scale_and_shift_of_a_dimension_do_not_matter() -> None:
    e = drawn(2, 30, 5)
    moved = Embeddings(z=e.z * torch.tensor([1e3, 5.0, 1, 2, 7]) - 4, h=e.h, target=None, index=e.index)
    torch.testing.assert_close(loss(build(), moved), loss(build(), e), rtol=1e-4, atol=1e-6)


def test_dead_dimensions_and_large_values_stay_finite() -> None:
    for z in (torch.ones(2, 6, 3), torch.randn(2, 6, 30, generator=torch.Generator().manual_seed(0)) * 1e6):
        e = Embeddings(z=z.requires_grad_(), h=z, target=None, index=torch.arange(6))
        total = loss(build(), e)
        total.backward()
        assert total.isfinite() and z.grad.isfinite().all()


def test_published_widths_follow_the_backbone() -> None:
    backbone = backbones.build("narrow_resnet", image_size=16, in_chans=1)
    objective = BarlowTwins(backbone)
    assert objective.dim == 4 * backbone.width and objective.redundancy == 0.005
    widths = [m.out_features for m in objective.projector if isinstance(m, torch.nn.Linear)]
    assert widths == [4 * backbone.width] * 3
    blurs = [view.blur for view in objective.views.views]
    assert blurs == [1.0, 0.1] and [view.solarize for view in objective.views.views] == [0.0, 0.2]


def test_standardize_has_mean_0_and_variance_1() -> None:
    z = standardize(drawn(2, 50, 3).z.detach())
    torch.testing.assert_close(z.mean(1), torch.zeros(2, 3, dtype=torch.double), rtol=0, atol=1e-12)
    torch.testing.assert_close(z.var(1, correction=0), torch.ones(2, 3, dtype=torch.double), rtol=1e-5, atol=0)
