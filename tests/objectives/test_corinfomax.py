"""CorInfoMax against float64 loops over the covariances, with the averages of several steps."""

import pytest
import torch
from torch import Tensor

from sslkit import backbones
from sslkit.embeddings import Embeddings
from sslkit.objectives.corinfomax import CorInfoMax


def averages_loop(z: Tensor, mean: Tensor, covariance: Tensor, forgetting: float) -> tuple[Tensor, Tensor]:
    """The new mean and covariance of one view, z (N, D), image by image."""
    rows = [row / row.norm() for row in z.double()]
    mean = forgetting * mean + (1 - forgetting) * sum(rows) / len(rows)
    now = sum(torch.outer(row - mean, row - mean) for row in rows) / len(rows)
    return mean, forgetting * covariance + (1 - forgetting) * now


def oracle(objective: CorInfoMax, e: Embeddings) -> Tensor:
    n, d = e.z.shape[1:]
    a, b = (view.double() / view.double().norm(dim=1, keepdim=True) for view in e.z)
    total = objective.attraction * sum((a[i] - b[i]).square().sum() for i in range(n)) / (n * d)
    for view, mean, covariance in zip(e.z, objective.mean, objective.covariance, strict=True):
        _, new = averages_loop(view, mean, covariance, objective.forgetting)
        values = torch.linalg.eigvalsh(new + 1e-8 * torch.eye(d, dtype=new.dtype))
        total = total - values.log().sum() / d
    return total


def build(d: int = 6, **options) -> CorInfoMax:
    return CorInfoMax(backbones.build("narrow_resnet", image_size=16, in_chans=1), hidden=8, dim=d, **options)


def drawn(n: int, d: int, seed: int = 0) -> Embeddings:
    g = torch.Generator().manual_seed(seed)
    z = torch.randn(2, n, d, generator=g, dtype=torch.double) + 0.5
    z = (z + z[:1]).requires_grad_()
    return Embeddings(z=z, h=z, target=None, index=torch.arange(n))


@pytest.mark.parametrize("forgetting", [0.1, 0.01])
@pytest.mark.parametrize(("n", "d"), [(20, 4), (7, 7), (3, 9)])
def test_align_plus_constrain_is_the_loop_in_every_step(n: int, d: int, forgetting: float) -> None:
    objective = build(d, attraction=3.0, forgetting=forgetting)
    for seed in range(3):  # from the identity on
        e = drawn(n, d, seed)
        both = objective.align(e) + objective.constrain(e), oracle(objective, e)
        torch.testing.assert_close(*both, rtol=1e-8, atol=1e-10)
        grads = [torch.autograd.grad(x, e.z)[0] for x in both]
        torch.testing.assert_close(*grads, rtol=1e-5, atol=1e-5 * grads[1].abs().max().item())
        with torch.no_grad():
            expected = [
                averages_loop(z, mean, r, forgetting)
                for z, mean, r in zip(e.z, objective.mean, objective.covariance, strict=True)
            ]
            objective.observe(e)
        for ours, theirs in zip(
            (objective.mean, objective.covariance), map(torch.stack, zip(*expected, strict=True)), strict=True
        ):
            torch.testing.assert_close(ours, theirs, rtol=1e-12, atol=1e-14)


def test_the_averages_begin_at_0_and_the_identity() -> None:
    objective = build(4)
    assert torch.equal(objective.mean, torch.zeros(2, 4, dtype=torch.double))
    assert torch.equal(objective.covariance[1], torch.eye(4, dtype=torch.double))


def test_fp32_is_as_exact() -> None:
    e, objective = drawn(64, 16), build(16)
    narrow = Embeddings(z=e.z.float(), h=e.h.float(), target=None, index=e.index)
    ours = objective.align(narrow) + objective.constrain(narrow)
    assert ours.dtype is torch.float32
    torch.testing.assert_close(ours.double(), oracle(objective, e), rtol=1e-5, atol=1e-5)


def test_the_length_of_z_does_not_matter() -> None:
    e, objective = drawn(20, 5), build(5)
    longer = Embeddings(z=e.z * torch.linspace(1, 1e4, 20)[:, None], h=e.h, target=None, index=e.index)
    torch.testing.assert_close(objective.constrain(longer), objective.constrain(e))
    torch.testing.assert_close(objective.align(longer), objective.align(e))


def test_collapsed_batches_stay_finite_and_cost_more() -> None:
    objective = build(9)
    spread = objective.constrain(drawn(30, 9)).item()
    z = torch.ones(2, 6, 9).requires_grad_()
    e = Embeddings(z=z, h=z, target=None, index=torch.arange(6))
    for _ in range(20):  # until nothing of the identity is left
        with torch.no_grad():
            objective.observe(e)
    loss = objective.constrain(e)
    loss.backward()
    assert loss.isfinite() and loss.item() > spread and z.grad.isfinite().all()


def test_published_widths_and_views() -> None:
    backbone = backbones.build("narrow_resnet", image_size=16, in_chans=1)
    objective = CorInfoMax(backbone)
    w = backbone.width
    linear = [m for m in objective.projector if isinstance(m, torch.nn.Linear)]
    assert [m.out_features for m in linear] == [4 * w, 4 * w, w // 4] and linear[-1].bias is None
    assert (objective.attraction, objective.forgetting) == (2000.0, 0.1)
    assert [view.scale for view in objective.views.views] == [(0.08, 1.0)] * 2
