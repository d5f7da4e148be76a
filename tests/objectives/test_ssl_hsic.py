"""SSL-HSIC against centred kernel matrices in float64; its features against the kernel, its width against Adam."""

import pytest
import torch
from torch import Tensor

from sslkit import backbones
from sslkit.objectives.ssl_hsic import SSLHSIC, Drawn, draw_frequencies, embeddings, fourier_features


def kernel(x: Tensor, frequencies: Tensor, phases: Tensor, scale: Tensor) -> Tensor:
    """The estimated kernel of all rows, one feature after another: (R, D) -> (R, R)."""
    total = torch.zeros(len(x), len(x), dtype=x.dtype)
    for w, b in zip(frequencies, phases, strict=True):
        wave = torch.cos((x * w / scale).sum(1) + b)
        total = total + 2 / len(frequencies) * torch.outer(wave, wave)
    return total


def hsic(k: Tensor, other: Tensor, n: int, gamma: float) -> Tensor:
    """The loss from two kernel matrices of (M N) rows, embedding by embedding."""
    rows = len(k)
    m = rows // n
    h = torch.eye(rows, dtype=k.dtype) - 1 / rows
    same = sum(k[p * n + i, q * n + i] for i in range(n) for p in range(m) for q in range(m) if p != q)
    variance = (k @ h @ other @ h).trace() / rows**2
    return -same / (n * m * (m - 1)) + k.mean() + gamma * variance.sqrt()


def oracle(objective: SSLHSIC, e: Drawn) -> Tensor:
    x = torch.cat([e.prediction, e.target]).double()
    n = x.shape[1]
    x = (x / x.norm(dim=-1, keepdim=True)).flatten(0, 1)
    one, two = (
        kernel(x, w.double(), b.double(), objective.scale) for w, b in zip(e.frequencies, e.phases, strict=True)
    )
    return hsic(one, two, n, objective.gamma)


def build(d: int = 6, **options) -> SSLHSIC:
    return SSLHSIC(backbones.build("narrow_resnet", image_size=16, in_chans=1), hidden=8, dim=d, **options)


def drawn(v: int, n: int, d: int, features: int = 32) -> Drawn:
    g = torch.Generator().manual_seed(n * d)
    target = torch.randn(v, n, d, generator=g, dtype=torch.double)
    prediction = (target.flip(0) + torch.randn(v, n, d, generator=g, dtype=torch.double)).requires_grad_()
    frequencies, phases = (x.double() for x in draw_frequencies(features, d, g))
    z = {"z": prediction, "h": prediction, "target": target, "index": torch.arange(n), "prediction": prediction}
    return Drawn(**z, frequencies=frequencies, phases=phases)


@pytest.mark.parametrize("v", [2, 3])
@pytest.mark.parametrize(("n", "d", "features"), [(9, 4, 32), (5, 12, 7), (2, 3, 1)])
def test_align_plus_constrain_is_that_of_the_kernel_matrices(n: int, d: int, features: int, v: int) -> None:
    e, objective = drawn(v, n, d, features), build(d, gamma=2.0).double()
    objective.scale = torch.tensor(0.7, dtype=torch.double)
    both = objective.align(e) + objective.constrain(e), oracle(objective, e)
    torch.testing.assert_close(*both, rtol=1e-9, atol=1e-12)
    torch.testing.assert_close(*(torch.autograd.grad(x, e.prediction)[0] for x in both), rtol=1e-8, atol=1e-10)


def test_fp32_is_as_exact() -> None:
    e, objective = drawn(2, 32, 16, 64), build(16)
    narrow = {k: getattr(e, k).float() for k in ("z", "h", "target", "prediction", "frequencies", "phases")}
    narrow = Drawn(index=e.index, **narrow)
    ours = objective.align(narrow) + objective.constrain(narrow)
    torch.testing.assert_close(ours.double(), oracle(objective, e), rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize("scale", [0.5, 1.0, 2.0])
@pytest.mark.parametrize("d", [1, 8, 256])
def test_the_features_estimate_the_inverse_multiquadric_kernel(d: int, scale: float) -> None:
    g = torch.Generator().manual_seed(d)
    x = torch.nn.functional.normalize(torch.randn(12, d, generator=g), dim=1)
    frequencies, phases = draw_frequencies(60_000, d, g)
    exact = scale / (torch.cdist(x, x) ** 2 + scale**2).sqrt()
    for w, b in zip(frequencies, phases, strict=True):
        features = fourier_features(x, w, b, torch.tensor(scale))
        torch.testing.assert_close(features @ features.T, exact, rtol=0, atol=0.02)


def test_with_many_features_it_is_the_loss_of_the_kernel() -> None:
    e, objective = drawn(2, 10, 5, 4000), build(5)
    x = embeddings(e).detach().flatten(0, 1)
    exact = 1 / (torch.cdist(x, x) ** 2 + 1).sqrt()
    ours = objective.align(e) + objective.constrain(e)
    torch.testing.assert_close(ours.detach(), hsic(exact, exact, 10, 3.0), rtol=0, atol=0.05)


def test_the_kernels_width_is_adams_on_the_log_of_its_slope() -> None:
    objective = build(5).double()
    scale = torch.ones((), dtype=torch.double, requires_grad=True)
    adam = torch.optim.Adam([scale], lr=3e-4)
    for n in (6, 9, 300):  # of 300 images the first 256
        e = drawn(2, n, 5)
        x = embeddings(e).detach()[:, :256].flatten(0, 1)
        i, j = torch.triu_indices(len(x), len(x), 1)
        distance = (x[i] - x[j]).square().sum(1).requires_grad_()
        (slope,) = torch.autograd.grad((scale / (distance + scale**2).sqrt()).sum(), distance, create_graph=True)
        adam.zero_grad()
        (-slope.abs().log().mean()).backward()
        adam.step()
        with torch.no_grad():
            objective.observe(e)
        torch.testing.assert_close(objective.scale, scale.detach(), rtol=1e-7, atol=0)


def test_collapsed_embeddings_have_a_finite_gradient() -> None:
    z = torch.ones(2, 6, 5).requires_grad_()
    frequencies, phases = draw_frequencies(16, 5, None)
    e = Drawn(z=z, h=z, target=z.detach(), index=None, prediction=z, frequencies=frequencies, phases=phases)
    objective = build(5)
    (objective.align(e) + objective.constrain(e)).backward()
    assert z.grad.isfinite().all()


def test_the_features_come_from_the_generator_and_are_drawn_anew() -> None:
    objective = build(features=11)
    views = [torch.rand(4, 1, 16, 16, generator=torch.Generator().manual_seed(k)) for k in range(2)]

    def frequencies(seed: int) -> list[Tensor]:
        g = torch.Generator().manual_seed(seed)
        return [objective.embed(views, torch.arange(4), g).frequencies for _ in range(2)]

    first, second = frequencies(3)
    assert first.shape == (2, 11, 6) and not torch.equal(first, second) and not torch.equal(first[0], first[1])
    assert torch.equal(first, frequencies(3)[0])


def test_the_teacher_follows_and_has_no_gradient() -> None:
    objective = build(momentum=0.5)
    assert not any(p.requires_grad for p in objective.teacher.parameters())
    with torch.no_grad():
        objective.projector[0].weight.add_(1)
    before = objective.teacher[1][0].weight.clone()
    objective.after_step(progress=0.0)
    torch.testing.assert_close(objective.teacher[1][0].weight, before + 0.5)


def test_published_widths() -> None:
    backbone = backbones.build("narrow_resnet", image_size=16, in_chans=1)
    objective = SSLHSIC(backbone)
    linear = [m for m in (*objective.projector, *objective.predictor) if isinstance(m, torch.nn.Linear)]
    w = 2 * backbone.width
    assert [m.out_features for m in linear] == [w, 256, w, 256]
    assert (objective.gamma, objective.features, objective.momentum) == (3.0, 512, 0.99)
