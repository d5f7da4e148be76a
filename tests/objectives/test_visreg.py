"""VISReg, the objective, against lightly's loss; it shares its name with the regulariser."""

from unittest import mock

import pytest
import torch
from contract import batch, build, step
from lightly.loss import visreg_loss
from torch import Tensor

from sslkit import backbones
from sslkit.layers.prototypes import Crops
from sslkit.layers.sigreg import draw_slices
from sslkit.objectives.visreg import VISReg


def visreg(**options) -> VISReg:
    torch.manual_seed(0)
    net = backbones.build("narrow_resnet", image_size=16, in_chans=1)
    return VISReg(net, **{"dim": 6, "hidden": 16, "slices": 21, **options})


def crops(n: int = 7, n_local: int = 3, v: int = 2) -> Crops:
    g = torch.Generator().manual_seed(n)
    z, local = (torch.randn(k, n, 6, generator=g, dtype=torch.double).requires_grad_() for k in (v, n_local))
    return Crops(z=z, h=z, target=None, index=torch.arange(n), local=local)


def oracle(objective: VISReg, e: Crops) -> Tensor:
    """lightly's, on the directions of the objective's step."""
    parts = {f"lambda_{name}": getattr(objective, name) for name in ("scale", "shape")}
    loss = visreg_loss.VISRegLoss(objective.weight, objective.slices, lambda_center=objective.centre, **parts)
    drawn = draw_slices(e.z.shape[-1], objective.slices, objective.step, like=e.z)
    with mock.patch.object(visreg_loss.torch, "randn", lambda *_, **__: drawn):
        return loss(local_proj=e.local, global_proj=e.z)


@pytest.mark.parametrize(
    ("n", "n_local", "v", "options"),
    [
        (7, 3, 2, {}),
        (2, 1, 2, {"weight": 0.6}),
        (40, 2, 3, {"scale": 0.5, "shape": 3.0, "centre": 2.0}),
        (5, 1, 1, {"slices": 2, "weight": 1.0}),
    ],
)
def test_align_plus_constrain_is_lightlys_loss(n: int, n_local: int, v: int, options: dict) -> None:
    objective, e = visreg(**options), crops(n, n_local, v)
    for objective.step in (0, 5):
        both = objective.align(e) + objective.constrain(e), oracle(objective, e)
        torch.testing.assert_close(*both, rtol=1e-5, atol=1e-8)
        for mine, its in zip(*(torch.autograd.grad(loss, (e.z, e.local)) for loss in both), strict=True):
            assert its.abs().max() > 1e-4
            torch.testing.assert_close(mine, its, rtol=1e-5, atol=1e-7)


def test_collapsed_embeddings_are_spread_again() -> None:
    objective = visreg(weight=0.9)
    e = crops(32)
    for z in (e.z, e.local):
        z.data.mul_(1e-6)
    gradient = torch.autograd.grad(objective.constrain(e), e.z)[0]
    assert (gradient * e.z).sum(-1).mean() < 0 and gradient.norm() > 0.01  # a step against it makes z longer
    for z in (e.z, e.local):
        z.data.zero_()
    assert torch.autograd.grad(objective.constrain(e), e.z)[0].isfinite().all()


def test_the_objective_and_the_regulariser_of_one_name_stand_beside_each_other() -> None:
    m = build("visreg+visreg")
    terms = step(m, *batch(8))
    assert {"align", "constrain", "visreg/scale", "visreg/shape", "visreg/centre"} <= terms.keys()
