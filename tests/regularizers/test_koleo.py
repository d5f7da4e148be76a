"""KoLeo against lightly's and a plain loop."""

import math

import pytest
import torch
import torch.nn.functional as F
from lightly.loss import KoLeoLoss

from sslkit.embeddings import Embeddings
from sslkit.regularizers.koleo import KoLeo


def terms(z: torch.Tensor, **options) -> torch.Tensor:
    e = Embeddings(z=z, h=z, target=None, index=torch.arange(z.shape[1]))
    return KoLeo(z.shape[-1], **options).terms(e, torch.empty(0))["koleo"]


def test_one_view_is_lightlys() -> None:
    z = torch.randn(1, 9, 5, requires_grad=True)
    ours, theirs = terms(z, weight=1.0), KoLeoLoss()(z[0])
    torch.testing.assert_close(ours, theirs, rtol=1e-5, atol=1e-5)
    torch.testing.assert_close(*(torch.autograd.grad(v, z)[0] for v in (ours, theirs)), rtol=1e-4, atol=1e-5)


def test_two_views_are_the_mean_of_their_loops() -> None:
    z = torch.randn(2, 6, 4, dtype=torch.double)
    unit = F.normalize(z, dim=-1)
    logs = [
        math.log(min((unit[v, i] - unit[v, j]).norm().item() for j in range(6) if j != i))
        for v in range(2)
        for i in range(6)
    ]
    assert terms(z, weight=0.3, eps=0.0).item() == pytest.approx(-0.3 * sum(logs) / 12, rel=1e-9)


def test_duplicates_are_finite_in_value_and_gradient() -> None:
    z = torch.ones(2, 4, 3, requires_grad=True)
    loss = terms(z)
    loss.backward()
    assert loss.isfinite() and z.grad.isfinite().all()
