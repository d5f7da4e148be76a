"""W-MSE against a float64 loop over the paper's equations, and lightly's loss where its shuffling does not matter."""

import pytest
import torch
import torch.nn.functional as F
from lightly.loss import WMSELoss
from torch import Tensor

from sslkit import backbones
from sslkit.embeddings import Embeddings
from sslkit.errors import UserError
from sslkit.objectives.w_mse import WMSE, Shuffled, whiten, whiten_parts


def inverse_root(cov: Tensor) -> Tensor:
    """The lower triangle W with W cov W^T = I, row by row: Gram-Schmidt in the metric of cov."""
    rows = []
    for axis in torch.eye(len(cov), dtype=cov.dtype):
        for done in rows:
            axis = axis - (axis @ cov @ done) * done
        rows.append(axis / (axis @ cov @ axis).sqrt())
    return torch.stack(rows)


def whitened_loop(x: Tensor, eps: float) -> Tensor:
    mean = sum(x) / len(x)
    cov = sum(torch.outer(row - mean, row - mean) for row in x) / (len(x) - 1)
    cov = (1 - eps) * cov + eps * cov.trace() / len(cov) * torch.eye(len(cov), dtype=x.dtype)
    return torch.stack([inverse_root(cov) @ (row - mean) for row in x])


def oracle(objective: WMSE, e: Shuffled) -> Tensor:
    """One process: the rows of e stand in the order of the batch."""
    z = e.z.double()
    v, n, _ = z.shape
    total, count = 0.0, 0
    for order in e.order:
        parts = n // objective.whitening_size
        sizes = [n // parts + (k < n % parts) for k in range(parts)]
        for rows in order.split(sizes):
            y = [whitened_loop(view[rows], objective.whitening_eps) for view in z]
            for a in range(v):
                for b in range(a + 1, v):
                    for p, q in zip(y[a], y[b], strict=True):
                        total = total + (p / p.norm() - q / q.norm()).square().sum()
                        count += 1
    return (total / count).to(e.z.dtype)


def build(**options) -> WMSE:
    options = {"dim": 3, "whitening_size": 8, **options}
    return WMSE(backbones.build("narrow_resnet", image_size=16, in_chans=1), hidden=8, **options)


def drawn(n: int, *, v: int = 2, d: int = 3, iters: int = 1, dtype=torch.double) -> Shuffled:
    g = torch.Generator().manual_seed(n + iters)
    mix = torch.randn(d, d, generator=g, dtype=dtype) + 2 * torch.eye(d, dtype=dtype)
    z = torch.randn(v, n, d, generator=g, dtype=dtype) @ mix + 5
    z = (z + 2 * z[:1]).requires_grad_()
    order = torch.stack([torch.randperm(n, generator=g) for _ in range(iters)])
    return Shuffled(z=z, h=z, target=None, index=torch.arange(n), order=order)


@pytest.mark.parametrize("iters", [1, 3])
@pytest.mark.parametrize("v", [2, 3])
@pytest.mark.parametrize("n", [8, 16, 21, 31])  # one part, two equal, two unequal, three of which one is longer
def test_align_is_the_papers_loop(n: int, v: int, iters: int) -> None:
    e, objective = drawn(n, v=v, iters=iters), build(whitening_eps=1e-3)
    both = objective.align(e), oracle(objective, e)
    torch.testing.assert_close(*both, rtol=1e-9, atol=1e-12)
    torch.testing.assert_close(*(torch.autograd.grad(x, e.z)[0] for x in both), rtol=1e-7, atol=1e-10)
    assert objective.constrain(e) is None


@pytest.mark.parametrize("v", [2, 4])
def test_one_sub_batch_is_lightlys_loss(v: int) -> None:
    e, objective = drawn(40, v=v, d=6, dtype=torch.float32), build(dim=6, whitening_size=40, whitening_eps=0.0)
    theirs = WMSELoss(embedding_dim=6, w_size=40, num_samples=v)(e.z.flatten(0, 1))
    both = objective.align(e), theirs
    torch.testing.assert_close(*both, rtol=1e-4, atol=1e-5)
    torch.testing.assert_close(*(torch.autograd.grad(x, e.z)[0] for x in both), rtol=1e-3, atol=1e-5)


def test_whitened_rows_have_covariance_one() -> None:
    x = drawn(30, d=5).z.detach()
    y = whiten(x)
    for view in y:
        torch.testing.assert_close(view.T.cov(), torch.eye(5, dtype=torch.double), rtol=0, atol=1e-10)
        torch.testing.assert_close(view.mean(0), torch.zeros(5, dtype=torch.double), rtol=0, atol=1e-12)
    assert torch.autograd.gradcheck(whiten, x[:, :8].clone().requires_grad_())


@pytest.mark.parametrize("n", [8, 15, 16, 17, 23, 24, 25])
def test_every_row_is_whitened_in_a_part_that_is_large_enough(n: int) -> None:
    x = drawn(n).z.detach()
    y = whiten_parts(x, 8)
    parts = n // 8
    sizes = [n // parts + (k < n % parts) for k in range(parts)]
    assert sum(sizes) == n and min(sizes) >= 8 and y.shape == x.shape
    for part in y.split(sizes, dim=1):
        torch.testing.assert_close(part[0].T.cov(), torch.eye(3, dtype=torch.double), rtol=0, atol=1e-9)


def test_scale_does_not_matter() -> None:
    e, objective = drawn(20), build()
    larger = Shuffled(z=e.z * 1e4 + 7, h=e.h, target=None, index=e.index, order=e.order)
    torch.testing.assert_close(objective.align(larger), objective.align(e), rtol=1e-6, atol=0)


def test_a_dead_direction_is_finite_by_eps_and_nan_without() -> None:
    z = drawn(16).z.detach().float()
    z[..., 2] = z[..., 1]
    z.requires_grad_()
    e = Shuffled(z=z, h=z, target=None, index=torch.arange(16), order=torch.arange(16)[None])
    objective = build()
    loss = objective.align(e)
    loss.backward()
    assert loss.isfinite() and z.grad.isfinite().all()
    e.z = torch.zeros_like(z)
    assert objective.align(e).isnan()  # nothing to whiten: said, not papered over


def test_the_permutation_comes_from_the_generator_and_is_drawn_anew() -> None:
    objective = build(whitening_iters=2)
    views = [torch.rand(9, 1, 16, 16, generator=torch.Generator().manual_seed(k)) for k in range(2)]

    def orders(seed: int) -> list[Tensor]:
        g = torch.Generator().manual_seed(seed)
        return [objective.embed(views, torch.arange(9), g).order for _ in range(2)]

    first, second = orders(4)
    assert first.shape == (2, 9) and torch.equal(first.sort(1).values, torch.arange(9).expand(2, 9))
    assert not torch.equal(first, second) and not torch.equal(first[0], first[1])
    assert all(torch.equal(a, b) for a, b in zip((first, second), orders(4), strict=True))
    before = torch.get_rng_state()
    orders(5)
    assert torch.equal(before, torch.get_rng_state())


def test_a_batch_too_small_to_whiten_is_a_clear_error() -> None:
    objective = build()
    assert objective.least_images == 8
    with pytest.raises(UserError, match=r"sub-batches of 8 images and this batch has 7.*raise the batch size"):
        objective.align(drawn(7))


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"whitening_size": 3}, "whitening_size > dim"),
        ({"whitening_iters": 0}, "whitening_iters must be at least 1, got 0"),
        ({"whitening_eps": 1.0}, "whitening_eps must be at least 0 and below 1, got 1.0"),
    ],
)
def test_bad_options_are_refused(options: dict, message: str) -> None:
    with pytest.raises(UserError, match=message):
        build(**options)


def test_published_sizes() -> None:
    backbone = backbones.build("narrow_resnet", image_size=16, in_chans=1)
    objective = WMSE(backbone)
    assert (objective.dim, objective.whitening_size, objective.whitening_iters) == (64, 128, 1)
    assert objective.projector[0].out_features == 2 * backbone.width
    small = objective.views.at(32).views[0]
    published = {"scale": (0.2, 1.0), "brightness": 0.4, "contrast": 0.4, "saturation": 0.4, "hue": 0.1, "blur": 0.0}
    assert published.items() <= vars(small).items() and (small.jitter, small.grayscale) == (0.8, 0.1)


def test_z_is_not_whitened() -> None:
    objective = build()
    views = [torch.rand(9, 1, 16, 16, generator=torch.Generator().manual_seed(k)) for k in range(2)]
    e = objective.embed(views, torch.arange(9))
    expected = objective.projector(objective.backbone(torch.cat(views))).unflatten(0, (2, 9))
    torch.testing.assert_close(e.z, expected)
    assert isinstance(e, Embeddings) and F.normalize(e.z, dim=-1).isfinite().all()
