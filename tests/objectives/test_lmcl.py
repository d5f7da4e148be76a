"""LMCL against a loop over pairs in fp64: NT-Xent and the distances between the thresholds."""

import math

import pytest
import torch
from torch import Tensor

from sslkit import backbones
from sslkit.embeddings import Embeddings
from sslkit.errors import UserError
from sslkit.objectives.lmcl import LMCL
from sslkit.objectives.simclr import SimCLR


def lmcl(**options) -> LMCL:
    torch.manual_seed(0)
    return LMCL(backbones.build("narrow_resnet", image_size=16, in_chans=1), **{"dim": 4, "hidden": 16, **options})


def embeddings(z: Tensor) -> Embeddings:
    return Embeddings(z=z, h=z, target=None, index=torch.arange(z.shape[1]))


def drawn(n: int = 5, views: int = 2, dtype=torch.double, scale: float = 1.0) -> Embeddings:
    g = torch.Generator().manual_seed(n)
    return embeddings((scale * torch.randn(views, n, 4, generator=g, dtype=dtype)).requires_grad_())


def oracle(objective: LMCL, e: Embeddings) -> Tensor:
    """Eq. 9, pair by pair in fp64: the mean of SimCLR's eq. 1, and the regulariser of every pair."""
    z = [row / row.norm() for row in e.z.double().flatten(0, 1)]
    v, n = e.z.shape[:2]
    rows = range(v * n)
    contrast, margin = [], []
    for i in rows:
        others = [torch.exp(z[i] @ z[k] / objective.temperature) for k in rows if k != i]
        for positive in (k for k in rows if k % n == i % n and k != i):
            contrast.append(-torch.log(torch.exp(z[i] @ z[positive] / objective.temperature) / sum(others)))
        for k in rows:
            distance = (1 - z[i] @ z[k]) / 2
            inside = k != i and objective.near < distance < objective.far
            margin.append(-(distance - objective.near) * (distance - objective.far) if inside else 0 * distance)
    return torch.stack(contrast).mean() + objective.weight * torch.stack(margin).sum() / (v * n * (v * n - 1))


@pytest.mark.parametrize(("n", "views"), [(2, 2), (9, 2), (4, 3)])
@pytest.mark.parametrize("options", [{}, {"temperature": 0.5, "weight": 3.0}, {"near": 0.0, "far": 1.0}])
def test_align_plus_constrain_is_the_loop(n: int, views: int, options: dict) -> None:
    objective, e = lmcl(**options), drawn(n, views)
    ours, theirs = objective.align(e) + objective.constrain(e), oracle(objective, e)
    torch.testing.assert_close(ours, theirs, rtol=1e-10, atol=1e-12)
    torch.testing.assert_close(*(torch.autograd.grad(v, e.z)[0] for v in (ours, theirs)), rtol=1e-8, atol=1e-10)


def test_in_fp32_it_agrees_to_the_fifth_digit() -> None:
    objective, e = lmcl(), drawn(12, dtype=torch.float32)
    ours, theirs = objective.align(e) + objective.constrain(e), oracle(objective, e)
    torch.testing.assert_close(ours.double(), theirs, rtol=1e-5, atol=1e-5)
    torch.testing.assert_close(*(torch.autograd.grad(v, e.z)[0] for v in (ours, theirs)), rtol=1e-5, atol=1e-5)


def test_without_weight_it_is_simclr() -> None:
    objective, e = lmcl(weight=0.0), drawn(7)
    plain = SimCLR(objective.backbone, dim=4, hidden=16)
    for term in ("align", "constrain"):
        assert torch.equal(getattr(objective, term)(e), getattr(plain, term)(e))


def at_distance(distance: float) -> Tensor:
    """Two images whose single view has this distance, as angles that require a gradient."""
    return torch.tensor([[0.0], [math.acos(1 - 2 * distance)]], dtype=torch.double).requires_grad_()


@pytest.mark.parametrize(
    ("distance", "moves"), [(0.1, 0), (0.25, -1), (0.34, -1), (0.36, 1), (0.45, 1), (0.6, 0), (0.95, 0)]
)
def test_a_distance_inside_the_margin_moves_to_its_nearer_side(distance: float, moves: int) -> None:
    objective, angles = lmcl(weight=1e6), at_distance(distance)
    z = torch.cat([angles.cos(), angles.sin()], dim=1)[None]
    plain = SimCLR(objective.backbone, dim=4, hidden=16)
    regulariser = objective.constrain(embeddings(z)) - plain.constrain(embeddings(z))
    (grad,) = torch.autograd.grad(regulariser, angles)
    assert (-grad[1, 0]).sign().item() == moves or (moves == 0 and abs(grad[1, 0]) < 1e-6)
    expected = 1e6 * max(0.0, (distance - 0.2) * (0.5 - distance))
    assert regulariser.item() == pytest.approx(expected, abs=1e-4)


def test_large_embeddings_stay_finite() -> None:
    objective, e = lmcl(temperature=0.01), drawn(dtype=torch.float32, scale=1e4)
    loss = objective.align(e) + objective.constrain(e)
    loss.backward()
    assert loss.isfinite() and e.z.grad.isfinite().all()


@pytest.mark.parametrize("far", [0.2, 0.1])
def test_thresholds_without_a_margin_are_refused(far: float) -> None:
    with pytest.raises(UserError, match=rf"near=0\.2 must be below far={far}"):
        lmcl(far=far)
