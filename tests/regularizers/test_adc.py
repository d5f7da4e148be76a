"""ADC against loops over anchors, its reading of the Dirichlet term, and what odd batches and priors give."""

import math

import pytest
import torch
import torch.distributed as dist
from contract import batch, build, step
from forks import start_ranks
from torch import Tensor

from sslkit.embeddings import Embeddings
from sslkit.errors import UserError
from sslkit.regularizers.adc import ADC

V, N, D = 2, 6, 5


def images_of(n: int = N) -> Tensor:
    return torch.rand(n, 1, 8, 8, generator=torch.Generator().manual_seed(1)).double()


def prior(images: Tensor) -> Tensor:
    return images.flatten(1)[:, :7] - 0.5


def embeddings(v: int = V, n: int = N, seed: int = 0) -> Embeddings:
    z = torch.randn(v, n, D, generator=torch.Generator().manual_seed(seed), dtype=torch.double).requires_grad_()
    return Embeddings(z=z, h=z.detach(), target=None, index=torch.arange(n))


def normal_shares(square: Tensor, sigma: float) -> Tensor:
    """Logarithms: the density itself underflows for a small sigma."""
    loc, scale = torch.tensor([0, sigma], dtype=torch.double)
    return torch.distributions.Normal(loc, scale).log_prob(square.sqrt()).log_softmax(0)


def student_shares(square: Tensor, sigma: float, dof: float) -> Tensor:
    freedom, loc, scale = torch.tensor([dof, 0, sigma], dtype=torch.double)
    return torch.distributions.StudentT(freedom, loc, scale).log_prob(square.sqrt()).log_softmax(0)


def oracle(e: Embeddings, a: Tensor, plugin: ADC) -> tuple[Tensor, Tensor]:
    """The two terms by a loop over anchors and by torch's densities."""
    z = e.z.flatten(0, 1)
    z, a = z / z.norm(dim=1, keepdim=True), a / a.norm(dim=1, keepdim=True)
    calibrate, preserve, n = [], [], e.z.shape[1]
    for i in range(len(z)):
        others = [j for j in range(len(z)) if j != i]
        square = torch.stack([(z[i] - z[j]).square().sum() for j in others])
        near, seen = normal_shares(square, plugin.sigma).detach(), student_shares(square, plugin.sigma, plugin.dof)
        log_kept = torch.stack([-(a[i] - a[j]).square().sum() / plugin.tau for j in others])
        kept = log_kept.log_softmax(0)
        foreign = log_kept[[j % n != i % n for j in others]].log_softmax(0)
        spread = -(foreign.exp() * foreign).sum()
        calibrate.append((near.exp() * (near - seen)).sum() / max(spread, math.log(2)))
        preserve.append((kept.exp() * (kept - seen)).sum())
    return plugin.nu * sum(calibrate) / len(z), plugin.upsilon * sum(preserve) / len(z)


@pytest.mark.parametrize(
    ("v", "n", "options"),
    [
        (2, 6, {}),
        (1, 5, {"nu": 0.1, "upsilon": 3.0}),
        (3, 4, {"sigma": 0.2, "dof": 8.0, "tau": 0.05}),
        (2, 6, {"sigma": 5e-3, "tau": 1e-4}),
    ],
)
def test_terms_are_those_of_a_loop_over_anchors(v: int, n: int, options: dict) -> None:
    plugin, e, images = ADC(D, prior=prior, **options), embeddings(v, n), images_of(n)
    ours = plugin.terms(e, images)
    assert list(ours) == list(plugin.weights()) == ["adc/calibrate", "adc/preserve"]
    features = prior(images.float()).double().repeat(v, 1)
    for mine, theirs in zip(ours.values(), oracle(e, features, plugin), strict=True):
        torch.testing.assert_close(mine, theirs, rtol=1e-9, atol=1e-12)
        grads = [torch.autograd.grad(loss, e.z, retain_graph=True)[0] for loss in (mine, theirs)]
        torch.testing.assert_close(*grads, rtol=1e-8, atol=1e-12)


def test_preserving_is_a_dirichlet_density_whose_mode_is_the_prior() -> None:
    """Minus its log density, up to what the network does not change."""
    plugin, images = ADC(D, prior=prior, sigma=0.4), images_of(4)
    a = prior(images.float()).double()
    a = a / a.norm(dim=1, keepdim=True)

    def density(e: Embeddings) -> Tensor:
        z = e.z[0] / e.z[0].norm(dim=1, keepdim=True)
        total = 0
        for i in range(4):
            others = [j for j in range(4) if j != i]
            kept = torch.softmax(torch.stack([-(a[i] - a[j]).square().sum() / plugin.tau for j in others]), 0)
            square = torch.stack([(z[i] - z[j]).square().sum() for j in others])
            seen = student_shares(square, plugin.sigma, plugin.dof).exp()
            total = total + torch.distributions.Dirichlet(1 + kept).log_prob(seen)
        return total / 4

    one, other = embeddings(1, 4), embeddings(1, 4, seed=1)
    ours = plugin.terms(one, images)["adc/preserve"] - plugin.terms(other, images)["adc/preserve"]
    torch.testing.assert_close(ours, density(other) - density(one), rtol=1e-9, atol=1e-12)


def test_near_rows_are_pulled_and_far_ones_pushed() -> None:
    """One step down the calibration: two heaps get narrower and their distance grows."""
    directions = torch.eye(D, dtype=torch.double)[[0, 0, 0, 1, 1, 1]]
    noise = 0.15 * torch.randn(6, D, generator=torch.Generator().manual_seed(2), dtype=torch.double)
    z = (directions + noise)[None].requires_grad_()
    e = Embeddings(z=z, h=z.detach(), target=None, index=torch.arange(6))
    (grad,) = torch.autograd.grad(ADC(D, prior=prior, upsilon=0.0).terms(e, images_of(6))["adc/calibrate"], z)

    def distances(z: Tensor) -> tuple[float, float]:
        unit = z[0] / z[0].norm(dim=1, keepdim=True)
        d = torch.cdist(unit, unit)
        return (d[:3, :3].sum() + d[3:, 3:].sum()).item(), d[:3, 3:].sum().item()

    (near, far), (nearer, farther) = distances(z.detach()), distances(z.detach() - 0.5 * grad)
    assert nearer < near and farther > far


@pytest.mark.parametrize("v", [1, 2])
@pytest.mark.parametrize("tau", [0.1, 0.5])
def test_an_outlier_of_the_prior_counts_less(v: int, tau: float) -> None:
    """Where the last pair of images becomes two outliers, the weights of these two alone change."""

    def calibration(features: Tensor) -> float:
        return ADC(D, prior=lambda _: features, tau=tau).terms(embeddings(v), images_of())["adc/calibrate"].item()

    pairs, outliers = torch.eye(6)[[0, 0, 1, 1, 2, 2]], torch.eye(6)[[0, 0, 1, 1, 2, 3]]
    assert calibration(outliers) < 0.97 * calibration(pairs)


@pytest.mark.parametrize(
    ("v", "n", "features"),
    [(1, 1, prior), (2, 1, prior), (1, 2, prior), (2, 4, lambda images: torch.ones(len(images), 3))],
)
def test_few_rows_and_equal_features_have_a_finite_gradient(v: int, n: int, features) -> None:
    e, plugin = embeddings(v, n), ADC(D, prior=features)
    loss = sum(plugin.terms(e, images_of(n)).values())
    loss.backward()
    assert loss.isfinite() and e.z.grad.isfinite().all()


def test_a_collapsed_network_has_a_finite_gradient() -> None:
    e = embeddings()
    e.z = torch.ones_like(e.z).requires_grad_()
    sum(ADC(D, prior=prior).terms(e, images_of()).values()).backward()
    assert e.z.grad.isfinite().all()


def test_bad_options_are_named_in_one_line() -> None:
    for option, value in {"dof": 2.0, "sigma": 0.0, "nu": -1.0, "mode": "both"}.items():
        with pytest.raises(UserError, match=option) as caught:
            build("byol+adc", adc={option: value})
        assert "\n" not in str(caught.value)


def test_the_clean_images_are_asked_for_where_nothing_else_has_their_features() -> None:
    with pytest.raises(UserError, match="adc reads the clean images"):
        ADC(D, prior=prior).terms(embeddings(), None)


def test_a_step_of_a_method_has_both_terms() -> None:
    terms = step(build("simclr+adc", adc={"prior": "hog"}), *batch(8))
    assert all(terms[name] > 0 for name in ("adc/calibrate", "adc/preserve"))


CASES = [{}, {"mode": "view", "tau": 0.1}]


def run(options: dict, part: slice) -> dict[str, Tensor]:
    """One rank's terms, and the gradient of their sum by z."""
    images = images_of(8)
    z = embeddings(V, 8).z.detach()[:, part].clone().requires_grad_()
    views = [images[part], images[part].flip(2)]
    e = Embeddings(z=z, h=z.detach(), target=None, index=torch.arange(8)[part], views=views).gather()
    terms = ADC(D, prior=prior, **options).terms(e, images[part])
    sum(terms.values()).backward()
    return {**{name: value.detach() for name, value in terms.items()}, "z": z.grad}


def work(rank: int, folder: str) -> None:
    torch.set_num_threads(1)
    dist.init_process_group("gloo", init_method=f"file://{folder}/store", rank=rank, world_size=2)
    torch.save([run(options, slice(rank, None, 2)) for options in CASES], f"{folder}/{rank}.pt")
    dist.destroy_process_group()


def test_two_processes_equal_one(tmp_path) -> None:
    start_ranks(work, str(tmp_path))
    first, second = (torch.load(tmp_path / f"{rank}.pt") for rank in range(2))
    for options, one, other in zip(CASES, first, second, strict=True):
        whole = run(options, slice(None))
        for name in ("adc/calibrate", "adc/preserve"):
            torch.testing.assert_close(one[name], whole[name])
            torch.testing.assert_close(other[name], whole[name])
        both = torch.stack([one["z"], other["z"]], 2).flatten(1, 2) / 2
        torch.testing.assert_close(both, whole["z"], rtol=1e-10, atol=1e-12)
