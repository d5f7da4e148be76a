"""SIGReg against lightly's, a loop over algorithm 1, an adaptive quadrature and the closed form of the integral."""

import itertools
import math

import pytest
import torch
from lightly.loss import lejepa_loss
from scipy.integrate import quad
from torch import Tensor

from sslkit.layers.sigreg import draw_slices, sigreg
from sslkit.runtime import distributed, draws


def drawn(*shape: int, seed: int = 0, scale: float = 1.0, shift: float = 0.0) -> Tensor:
    g = torch.Generator().manual_seed(seed)
    return (torch.randn(*shape, generator=g, dtype=torch.double) * scale + shift).requires_grad_()


def lightlys(z: Tensor, slices: Tensor, monkeypatch: pytest.MonkeyPatch, **options: float) -> Tensor:
    monkeypatch.setattr(lejepa_loss.SIGReg, "_generate_unit_vectors", lambda *_: slices)
    return lejepa_loss.SIGReg(num_vectors=slices.shape[1], **options)(z)


def algorithm_1(x: Tensor, slices: Tensor, n_slices: int) -> Tensor:
    """The paper's: one direction and one of the 17 points on [-5, 5] at a time, in complex numbers."""
    points = [-5 + 10 * k / 16 for k in range(17)]
    statistics = []
    for m in range(n_slices):
        projected = x @ slices[:, m]
        errors = []
        for t in points:
            ecf = torch.exp(1j * projected * t).mean()
            errors.append((ecf - math.exp(-(t**2) / 2)).abs().square() * math.exp(-(t**2) / 2))
        area = sum((a + b) / 2 * (10 / 16) for a, b in itertools.pairwise(errors))
        statistics.append(area * len(x))
    return torch.stack(statistics).mean()


def integrand(t: float, x: list[float]) -> float:
    real = sum(math.cos(t * one) for one in x) / len(x)
    imaginary = sum(math.sin(t * one) for one in x) / len(x)
    normal = math.exp(-(t**2) / 2)
    return len(x) * ((real - normal) ** 2 + imaginary**2) * normal


def closed_form(x: Tensor) -> Tensor:
    """The integral over the whole line, term by term of the square: sums of Gaussians of the values' differences."""
    n = len(x)
    pairs = torch.exp(-((x[:, None] - x).square()) / 2).sum() / n * math.sqrt(2 * math.pi)
    cross = 2 * math.sqrt(math.pi) * torch.exp(-x.square() / 4).sum()
    return pairs - cross + n * math.sqrt(2 * math.pi / 3)


@pytest.mark.parametrize(("knots", "t_max"), [(17, 3.0), (9, 5.0), (2, 1.0)])
@pytest.mark.parametrize("shape", [(9, 5), (2, 7, 5), (3, 1, 5)])
def test_value_and_gradient_are_lightlys(knots: int, t_max: float, shape: tuple[int, ...], monkeypatch) -> None:
    z = drawn(*shape, scale=1.3, shift=0.2)
    slices = draw_slices(5, 33, 4, like=z)
    ours = sigreg(z, slices, knots=knots, t_max=t_max)
    theirs = lightlys(z, slices, monkeypatch, knots=knots, t_max=t_max)
    torch.testing.assert_close(ours, theirs, rtol=1e-5, atol=1e-8)
    mine, its = (torch.autograd.grad(v, z)[0] for v in (ours, theirs))
    assert its.abs().max() > 1e-3
    torch.testing.assert_close(mine, its, rtol=1e-5, atol=1e-7)


@pytest.mark.parametrize(("n", "scale", "shift"), [(6, 1.0, 0.0), (11, 3.0, 1.0), (4, 0.01, 0.0)])
def test_nine_points_of_one_half_are_algorithm_1s_seventeen(n: int, scale: float, shift: float) -> None:
    z = drawn(n, 4, scale=scale, shift=shift)
    slices = draw_slices(4, 5, 0, like=z)
    ours, theirs = sigreg(z, slices), algorithm_1(z, slices, 5)
    torch.testing.assert_close(ours, theirs, rtol=1e-5, atol=1e-12)
    mine, its = (torch.autograd.grad(v, z)[0] for v in (ours, theirs))
    torch.testing.assert_close(mine, its, rtol=1e-5, atol=1e-10)


def test_single_precision_is_algorithm_1_too() -> None:
    z = drawn(64, 8)
    slices = draw_slices(8, 16, 0, like=z)
    ours = sigreg(z.float(), slices.float())
    assert ours.dtype is torch.float32
    torch.testing.assert_close(ours.double(), algorithm_1(z, slices, 16), rtol=1e-5, atol=0)


def test_nine_points_approximate_the_integral() -> None:
    x = drawn(12, 1, seed=3).detach()
    one = torch.ones(1, 1, dtype=torch.double)
    values = x[:, 0].tolist()
    whole = quad(integrand, -math.inf, math.inf, args=(values,))[0]
    ours = sigreg(x, one).item()
    assert ours == pytest.approx(whole, rel=1e-4)
    assert ours == pytest.approx(2 * quad(integrand, 0, 5, args=(values,))[0], rel=1e-4)
    later = sigreg(x, one, knots=17, t_max=3.0).item()  # the authors' later points cover a part of the line
    assert later == pytest.approx(quad(integrand, -3, 3, args=(values,))[0], rel=2e-3)
    assert later < 0.999 * whole
    assert sigreg(x, one, knots=3).item() != pytest.approx(whole, rel=1e-2)


def test_the_whole_integral_has_a_closed_form() -> None:
    x = drawn(30, 1, scale=1.4, shift=0.5)
    one = torch.ones(1, 1, dtype=torch.double)
    ours, theirs = sigreg(x, one, knots=200, t_max=9.0), closed_form(x[:, 0])
    torch.testing.assert_close(ours, theirs, rtol=1e-9, atol=0)
    torch.testing.assert_close(*(torch.autograd.grad(v, x)[0] for v in (ours, theirs)), rtol=1e-7, atol=1e-9)


def test_a_normal_sample_has_the_expected_statistic_whatever_its_size() -> None:
    """E = integral of (1 - exp(-t^2)) exp(-t^2 / 2) = sqrt(2 pi) (1 - 1 / sqrt(3)), the variance of the ecf times N."""
    expected = math.sqrt(2 * math.pi) * (1 - 1 / math.sqrt(3))
    for n in (8, 64):
        z = drawn(4000, n, 1, seed=n).detach()
        assert sigreg(z, torch.ones(1, 1, dtype=torch.double)).item() == pytest.approx(expected, rel=0.06)


@pytest.mark.parametrize("wrong", [lambda z: z * 2, lambda z: z / 2, lambda z: z + 0.5, lambda z: z[:1].expand_as(z)])
def test_another_scale_centre_or_a_collapse_costs_more(wrong) -> None:
    z = drawn(256, 6).detach()
    slices = draw_slices(6, 64, 0, like=z)
    assert sigreg(wrong(z), slices) > 3 * sigreg(z, slices)


def test_a_cube_costs_more_than_a_ball_of_the_same_covariance() -> None:
    """Along an axis it is uniform: moments beyond the second count."""
    z = drawn(2048, 2).detach()
    axes = torch.eye(2, dtype=torch.double)
    uniform = (torch.rand(2048, 2, generator=torch.Generator().manual_seed(1), dtype=torch.double) - 0.5) * 12**0.5
    assert sigreg(uniform, axes) > 3 * sigreg(z, axes)


def test_the_value_is_the_mean_over_views_and_slices() -> None:
    z = drawn(3, 7, 4).detach()
    slices = draw_slices(4, 6, 2, like=z)
    each = [sigreg(view, slices[:, m : m + 1]).item() for view in z for m in range(6)]
    assert sigreg(z, slices).item() == pytest.approx(sum(each) / 18, rel=1e-12)


def test_the_sum_over_ranks_is_the_statistic_of_all_images(monkeypatch: pytest.MonkeyPatch) -> None:
    z = drawn(2, 5, 4).detach()
    slices = draw_slices(4, 6, 2, like=z)
    twice = sigreg(torch.cat([z, z], dim=1), slices)
    monkeypatch.setattr(distributed, "world_size", lambda: 2)
    monkeypatch.setattr(distributed, "sum_over_ranks", lambda own: 2 * own)  # the other rank has the same images
    torch.testing.assert_close(sigreg(z, slices), twice)


@pytest.mark.parametrize("step", [0, 1, 12_345])
def test_directions_are_normal_draws_of_the_step_of_length_one(step: int) -> None:
    raw = draws.normal((7, 20), step, torch.device("cpu"))
    slices = draw_slices(7, 20, step, like=torch.empty(0, dtype=torch.double))
    assert slices.dtype is torch.double
    for m in range(20):
        torch.testing.assert_close(slices[:, m], (raw[:, m] / raw[:, m].norm()).double())
        assert slices[:, m].norm().item() == pytest.approx(1, rel=1e-6)


def test_directions_depend_on_the_step_alone() -> None:
    like = torch.empty(0)
    torch.manual_seed(1)
    first = draw_slices(7, 20, 3, like=like)
    torch.manual_seed(2)
    state = torch.get_rng_state()
    assert torch.equal(first, draw_slices(7, 20, 3, like=like)) and torch.equal(state, torch.get_rng_state())
    assert (draw_slices(7, 20, 4, like=like) - first).abs().max() > 0.1
    mean = torch.stack([draw_slices(3, 50, step, like=like) for step in range(100)]).mean((0, 2))
    assert mean.abs().max() < 0.05  # they point everywhere


def test_large_embeddings_stay_finite() -> None:
    z = (drawn(2, 6, 4) * 1e4).detach().float().requires_grad_()
    loss = sigreg(z, draw_slices(4, 8, 0, like=z))
    loss.backward()
    assert loss.isfinite() and z.grad.isfinite().all()
