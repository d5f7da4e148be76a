"""SimCLR against lightly's NT-Xent and a float64 loop over the paper's eq. 1."""

import math

import pytest
import torch
import torch.nn.functional as F
from lightly.loss import NTXentLoss

from sslkit import backbones
from sslkit.embeddings import Embeddings
from sslkit.objectives.simclr import SimCLR


def simclr(temperature: float) -> SimCLR:
    return SimCLR(backbones.build("narrow_resnet", image_size=16, in_chans=1), temperature=temperature)


def embeddings(z: torch.Tensor) -> Embeddings:
    return Embeddings(z=z, h=z, target=None, index=torch.arange(z.shape[1]))


def oracle(objective: SimCLR, e: Embeddings) -> torch.Tensor:
    return NTXentLoss(temperature=objective.temperature)(*e.z)


@pytest.mark.parametrize("temperature", [0.07, 0.5])
def test_align_plus_constrain_is_lightlys_nt_xent(temperature: float) -> None:
    z = torch.randn(2, 9, 7, requires_grad=True)
    objective = simclr(temperature)
    ours = objective.align(embeddings(z)) + objective.constrain(embeddings(z))
    theirs = NTXentLoss(temperature=temperature)(z[0], z[1])
    torch.testing.assert_close(ours, theirs, rtol=1e-5, atol=1e-6)
    torch.testing.assert_close(*(torch.autograd.grad(v, z)[0] for v in (ours, theirs)), rtol=1e-4, atol=1e-6)


def test_align_plus_constrain_is_the_papers_loop() -> None:
    z = torch.randn(2, 5, 4, dtype=torch.double)
    unit = F.normalize(z.flatten(0, 1), dim=1)
    total = 0.0
    for i in range(10):
        positive = (i + 5) % 10
        others = [math.exp(unit[i] @ unit[k] / 0.3) for k in range(10) if k != i]
        total -= math.log(math.exp(unit[i] @ unit[positive] / 0.3) / sum(others))
    objective = simclr(0.3)
    got = objective.align(embeddings(z)) + objective.constrain(embeddings(z))
    assert got.item() == pytest.approx(total / 10, rel=1e-10)


def test_large_logits_stay_finite() -> None:
    z = torch.ones(2, 4, 3).mul(1e4).requires_grad_()
    objective = simclr(0.01)
    loss = objective.align(embeddings(z)) + objective.constrain(embeddings(z))
    loss.backward()
    assert loss.isfinite() and z.grad.isfinite().all()
