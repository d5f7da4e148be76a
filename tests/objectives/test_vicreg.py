"""VICReg against lightly's loss and float64 loops over the paper's equations."""

from itertools import combinations

import pytest
import torch
from lightly.loss import VICRegLoss
from torch import Tensor

from sslkit import backbones
from sslkit.embeddings import Embeddings
from sslkit.objectives.vicreg import VICReg, covariance, invariance, variance

SHAPES = [(9, 7), (16, 40), (3, 50), (2, 3), (64, 3)]  # more images, more dimensions, and the ends of both


def oracle(objective: VICReg, e: Embeddings) -> Tensor:
    theirs = VICRegLoss(objective.invariance, objective.variance, objective.covariance)
    return torch.stack([theirs(a, b) for a, b in combinations(e.z, 2)]).mean()


def build(**options) -> VICReg:
    return VICReg(backbones.build("narrow_resnet", image_size=16, in_chans=1), hidden=8, dim=6, **options)


def drawn(v: int, n: int, d: int) -> Embeddings:
    g = torch.Generator().manual_seed(n * d)
    z = torch.randn(v, n, d, generator=g, dtype=torch.double) * torch.linspace(0.2, 2, d) + 2
    z = (z + z[:1]).requires_grad_()
    return Embeddings(z=z, h=z, target=None, index=torch.arange(n))


@pytest.mark.parametrize("v", [2, 3])
@pytest.mark.parametrize("weights", [(25.0, 25.0, 1.0), (1.0, 3.0, 7.0)])
@pytest.mark.parametrize(("n", "d"), SHAPES)
def test_align_plus_constrain_is_lightlys(n: int, d: int, weights: tuple, v: int) -> None:
    e = drawn(v, n, d)
    objective = build(invariance=weights[0], variance=weights[1], covariance=weights[2])
    both = objective.align(e) + objective.constrain(e), oracle(objective, e)
    torch.testing.assert_close(*both, rtol=1e-10, atol=1e-12)
    torch.testing.assert_close(*(torch.autograd.grad(x, e.z)[0] for x in both), rtol=1e-8, atol=1e-11)


@pytest.mark.parametrize(("n", "d"), [(20, 4), (4, 12)])
def test_the_terms_are_the_papers_loops(n: int, d: int) -> None:
    a, b = drawn(2, n, d).z.detach()
    mean = [sum(a[k, j].item() for k in range(n)) / n for j in range(d)]
    cov = [
        [sum((a[k, i].item() - mean[i]) * (a[k, j].item() - mean[j]) for k in range(n)) / (n - 1) for j in range(d)]
        for i in range(d)
    ]
    spread = sum(max(0.0, 1 - (cov[j][j] + 1e-4) ** 0.5) for j in range(d)) / d
    overlap = sum(cov[i][j] ** 2 for i in range(d) for j in range(d) if i != j) / d
    apart = sum((a[k, j].item() - b[k, j].item()) ** 2 for k in range(n) for j in range(d)) / (n * d)
    assert variance(a).item() == pytest.approx(spread, rel=1e-10)
    assert covariance(a).item() == pytest.approx(overlap, rel=1e-10)
    assert invariance(torch.stack([a, b])).item() == pytest.approx(apart, rel=1e-10)


def test_terms_of_many_sets_are_the_terms_of_each() -> None:
    z = torch.randn(2, 5, 9, 4, generator=torch.Generator().manual_seed(0), dtype=torch.double)
    for term in (variance, covariance):
        expected = torch.stack([torch.stack([term(s) for s in view]) for view in z])
        torch.testing.assert_close(term(z), expected)
    expected = torch.stack([invariance(z[:, k]) for k in range(5)])
    torch.testing.assert_close(invariance(z), expected)


def test_the_three_weighted_terms_stand_apart() -> None:
    e, objective = drawn(2, 9, 7), build(invariance=2.0, variance=3.0, covariance=5.0)
    constrain = objective.constrain(e)
    watched = objective.watched
    assert watched.keys() == {"variance", "covariance"}
    assert not any(x.requires_grad for x in watched.values())
    torch.testing.assert_close(watched["variance"], 3 * variance(e.z).mean().detach())
    torch.testing.assert_close(watched["covariance"], 5 * covariance(e.z).sum().detach())
    torch.testing.assert_close(constrain.detach(), watched["variance"] + watched["covariance"])
    torch.testing.assert_close(objective.align(e), 2 * (e.z[0] - e.z[1]).square().mean())


@pytest.mark.parametrize("n", [24, 60, 200])
def test_covariance_in_fp32_is_as_exact_as_in_fp64(n: int) -> None:
    """By way of N x N products too, whose large diagonal is subtracted."""
    wide = drawn(2, n, 64).z.detach().requires_grad_()
    narrow = wide.detach().float().requires_grad_()
    values = [covariance(z).sum() for z in (wide, narrow)]
    grads = [torch.autograd.grad(v, z)[0].double() for v, z in zip(values, (wide, narrow), strict=True)]
    torch.testing.assert_close(values[1].double(), values[0], rtol=1e-5, atol=0)
    torch.testing.assert_close(grads[1], grads[0], rtol=0, atol=1e-5 * grads[0].abs().max().item())


def test_a_collapsed_batch_is_pushed_apart_and_finite() -> None:
    z = torch.ones(2, 6, 30).requires_grad_()
    e = Embeddings(z=z, h=z, target=None, index=torch.arange(6))
    loss = build().align(e) + build().constrain(e)
    loss.backward()
    assert loss.item() == pytest.approx(25 * 0.99, rel=1e-3) and z.grad.isfinite().all()


def test_large_values_stay_finite() -> None:
    z = (torch.randn(2, 6, 30, generator=torch.Generator().manual_seed(0)) * 1e4).requires_grad_()
    e = Embeddings(z=z, h=z, target=None, index=torch.arange(6))
    loss = build().align(e) + build().constrain(e)
    loss.backward()
    assert loss.isfinite() and z.grad.isfinite().all()


def test_published_widths_and_views() -> None:
    backbone = backbones.build("narrow_resnet", image_size=16, in_chans=1)
    objective = VICReg(backbone)
    widths = [m.out_features for m in objective.projector if isinstance(m, torch.nn.Linear)]
    assert widths == [4 * backbone.width] * 3 and objective.dim == 4 * backbone.width
    first, second = objective.views.views
    assert first == second and (first.blur, first.solarize, first.saturation, first.hue) == (0.5, 0.1, 0.2, 0.1)
