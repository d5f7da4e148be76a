"""Eqs. 11 to 15 against double loops written from the paper."""

import math

import pytest
import torch
from torch import Tensor

from sslkit.errors import UserError
from sslkit.numerics.ties import nearest_of_all
from sslkit.regularizers.dsa import connectivity_score, consistency_loss, prior_matrix, scoring


def loop_prior(a: Tensor, tau: float, squared: bool) -> Tensor:
    a = [row / row.norm() for row in a]
    kernel = torch.empty(len(a), len(a), dtype=torch.float64)
    for i, x in enumerate(a):
        for j, y in enumerate(a):
            d = math.dist(x.tolist(), y.tolist())
            kernel[i, j] = math.exp(-(d**2 if squared else d) / tau)
    return kernel


def loop_score(a: Tensor, eta: int, mu: int, rule: str, include_direct: bool) -> list[float]:
    a = torch.nn.functional.normalize(a, dim=1)
    near = []
    for i in range(len(a)):
        others = sorted((j for j in range(len(a)) if j != i), key=lambda j, i=i: -float(a[i] @ a[j]))
        near.append(set(others[:eta]))
    scores = []
    for i in range(len(a)):
        returns = {j: sum(i in near[k] for k in near[j]) + (include_direct and i in near[j]) for j in near[i]}
        counts = {
            "threshold": sum(r > mu for r in returns.values()) / eta,
            "fraction": sum(returns.values()) / eta**2,
            "mutual": sum(i in near[j] for j in near[i]) / eta,
        }
        scores.append(counts[rule])
    return scores


@pytest.mark.parametrize("squared", [True, False])
def test_eqs_11_and_12_by_a_double_loop(squared: bool, generator: torch.Generator) -> None:
    a = torch.randn(7, 5, generator=generator, dtype=torch.float64)
    kernel = loop_prior(a, 0.4, squared)
    want = kernel / kernel.sum(1, keepdim=True)
    close = {"rtol": 1e-6, "atol": 1e-6}  # d itself is known to the root of float64's precision
    torch.testing.assert_close(prior_matrix(a, tau=0.4, squared=squared), want, **close)
    torch.testing.assert_close(prior_matrix(a, tau=0.4, squared=squared, normalise="none"), kernel, **close)
    rows = torch.tensor([6, 2])
    torch.testing.assert_close(prior_matrix(a, tau=0.4, squared=squared, rows=rows), want[rows], **close)


def test_prior_is_centred_and_has_no_gradient(generator: torch.Generator) -> None:
    a = torch.randn(6, 4, generator=generator, requires_grad=True)
    centre = torch.ones(4)
    got = prior_matrix(a, center=centre)
    assert not got.requires_grad
    torch.testing.assert_close(got, prior_matrix(a - centre))
    assert not torch.allclose(got, prior_matrix(a))


def test_tau_auto_is_the_median_neighbour_distance(generator: torch.Generator) -> None:
    a = torch.nn.functional.normalize(torch.randn(31, 4, generator=generator, dtype=torch.float64), dim=1)
    third = (a[:, None] - a[None]).square().sum(2).sort(1).values[:, 3]
    got = prior_matrix(a, tau="auto", neighbours=3)
    torch.testing.assert_close(got, prior_matrix(a, tau=third.median().item()), rtol=1e-5, atol=1e-7)


def test_prior_of_duplicates_under_autocast_is_finite() -> None:
    with torch.autocast("cpu", torch.bfloat16):
        got = prior_matrix(torch.ones(4, 3, dtype=torch.float16), tau="auto")
    assert got.dtype == torch.float32
    torch.testing.assert_close(got, torch.full((4, 4), 0.25))


def test_eq_13_by_a_double_loop(generator: torch.Generator) -> None:
    m, p = (torch.rand(4, 5, generator=generator, dtype=torch.float64) for _ in range(2))
    want = sum(float(p[i, j] - m[i, j]) ** 2 for i in range(4) for j in range(5))
    assert consistency_loss(m, p).item() == pytest.approx(want)
    assert consistency_loss(m, p, frobenius="norm").item() == pytest.approx(math.sqrt(want))
    m.requires_grad_()
    assert torch.autograd.gradcheck(lambda m: consistency_loss(m, p), (m,))
    same = m.detach().clone().requires_grad_()
    consistency_loss(same, same.detach(), frobenius="norm").backward()
    assert not same.grad.any()


@pytest.mark.parametrize("include_direct", [False, True])
@pytest.mark.parametrize("rule", scoring.RULES)
@pytest.mark.parametrize("backend", scoring.BACKENDS)
@pytest.mark.parametrize("dense", [True, False])
def test_eqs_14_and_15_by_loops(dense, backend, rule, include_direct, generator, monkeypatch) -> None:
    if not dense:
        monkeypatch.setattr(scoring, "_DENSE", 0)
        monkeypatch.setattr(scoring, "_PAIRS", 9 * 5**2)  # several blocks
    a = torch.randn(40, 3, generator=generator)
    got = connectivity_score(a, eta=5, mu=2, rule=rule, include_direct=include_direct, backend=backend)
    want = loop_score(a, 5, 2, rule, include_direct)
    torch.testing.assert_close(got, torch.tensor(want))
    assert 0 < got.mean() < 1 and got.std() > 0  # the setting tells images apart


@pytest.mark.parametrize("backend", scoring.BACKENDS)
def test_an_image_is_not_its_own_neighbour_among_duplicates(backend: str) -> None:
    a = torch.tensor([1.0, 0.0]).repeat(6, 1)
    ids = scoring._nearest(a, 3, backend)
    assert ids.tolist() == [[1, 2, 3], [0, 2, 3], [0, 1, 3], [0, 1, 2], [0, 1, 2], [0, 1, 2]]


@pytest.mark.parametrize("copies", [5, 40])
@pytest.mark.parametrize("backend", scoring.BACKENDS)
def test_of_equally_near_images_the_first_rows_count(backend: str, copies: int, generator: torch.Generator) -> None:
    """Fewer and more copies than the search has candidates beyond eta, and multiples of them."""
    once = torch.randn(7, 37, generator=generator)
    a = torch.cat([once * (1 + copy % 5) for copy in range(copies)])
    ids = scoring._nearest(scoring._unit(a), 3, backend).tolist()
    for row, found in enumerate(ids):
        assert found == [other for other in range(row % 7, 7 * copies, 7) if other != row][:3]


@pytest.mark.parametrize("squared", [True, False])
def test_tau_auto_of_copies_is_not_their_rounding(squared: bool, generator: torch.Generator) -> None:
    """Each image 30 times, so that the median distance to the 20th neighbour is 0: copies weigh the same."""
    a = torch.randn(4, 768, generator=generator).repeat(30, 1)
    prior = prior_matrix(a, tau="auto", squared=squared)
    same = torch.arange(120) % 4 == (torch.arange(120) % 4)[:, None]
    assert prior[same].min() > 0.4 * prior[same].max() and prior[~same].max() < 1e-6


def test_tight_cluster_scores_more_than_an_outlier(generator: torch.Generator) -> None:
    cluster = torch.tensor([1.0, 0, 0]) + 0.01 * torch.randn(12, 3, generator=generator)
    score = connectivity_score(torch.cat([cluster, torch.tensor([[0.0, 1, 0]])]), eta=5)
    assert score[12] == 0 and score[:12].mean() > 0.5


@pytest.mark.parametrize("backend", scoring.BACKENDS)
def test_eta_is_clamped_with_a_warning(backend: str, generator: torch.Generator) -> None:
    a = torch.randn(5, 3, generator=generator)
    with pytest.warns(UserWarning, match="using 4 neighbours"):
        got = connectivity_score(a, eta=20, backend=backend)
    torch.testing.assert_close(got, torch.ones(5))  # all are neighbours of all: 3 returns for each


@pytest.mark.filterwarnings("ignore:eta")
def test_fewest_images() -> None:
    assert connectivity_score(torch.ones(1, 3)).tolist() == [0]
    assert connectivity_score(torch.randn(2, 3)).tolist() == [0, 0]  # i -> j -> i is no two-hop return
    assert connectivity_score(torch.randn(2, 3), include_direct=True, mu=0).tolist() == [1, 1]


def test_unknown_rule() -> None:
    with pytest.raises(UserError, match="fraction"):
        connectivity_score(torch.ones(3, 2), rule="fractoin")


@pytest.mark.parametrize("seed", range(6))
def test_neighbours_found_on_a_gpu_are_those_found_on_the_cpu(seed: int) -> None:
    """Equal rows, rows that differ in length alone, and cosines that are equal by chance."""
    g = torch.Generator().manual_seed(seed)
    x = torch.randn(90, 5, generator=g)
    x = (x > 0).float() + 1e-3 if seed % 3 == 0 else x
    x = x[torch.randint(0, 40, (90,), generator=g)] * torch.rand(90, 1, generator=g) if seed % 2 else x
    rows = torch.nn.functional.normalize(x, dim=1)
    assert torch.equal(nearest_of_all(rows, 20), scoring._nearest(rows, 20, "torch"))
