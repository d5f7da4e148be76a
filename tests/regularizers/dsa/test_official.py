"""variant=code against loops over the images of each pair of views, written from what the public code computes."""

import math

import pytest
import torch
from torch import Tensor

from sslkit.embeddings import Embeddings
from sslkit.regularizers.dsa import DSA, arrange_loss, connectivity_score
from sslkit.regularizers.dsa.arranging import ArrangingMLP
from sslkit.regularizers.dsa.official import arrange_views

V, N, D = 2, 9, 4


def prior(images: Tensor) -> Tensor:
    return images.flatten(1) - 0.5


def case(views: int = V) -> tuple[DSA, Embeddings, Tensor]:
    generator = torch.Generator().manual_seed(0)
    z = 3 * torch.randn(views, N, D, generator=generator, dtype=torch.float64) + 1
    images = torch.rand(N, 1, 4, 4, generator=generator)
    seen = [torch.rand(N, 1, 4, 4, generator=generator) for _ in range(views)]
    torch.manual_seed(0)
    how = {"mode": "view", "neighbours": "batch", "nu": 1.0, "upsilon": 0.01, "balance": None}
    dsa = DSA(D, variant="code", hidden=8, prior=prior, eta=3, **how)
    e = Embeddings(z=z.requires_grad_(), h=z.detach(), target=None, index=torch.arange(N), views=seen)
    return dsa.double(), e, images


def block(f_s: ArrangingMLP, z: Tensor) -> Tensor:
    """M of one view with itself: differences, each dimension over its L1 norm over all pairs; rows over their sum."""
    pairs = torch.stack([z[i] - z[j] for i in range(N) for j in range(N)])
    pairs = pairs / pairs.abs().sum(0)
    q = torch.relu(f_s.last(torch.relu(f_s.first(pairs)))).view(N, N)
    return q / q.sum(1, keepdim=True)


@pytest.mark.parametrize("views", [1, 2, 3])
def test_the_terms_of_the_public_code(views: int) -> None:
    dsa, e, images = case(views)
    terms = dsa.terms(e, images)
    own = [block(dsa.arrange, z) for z in e.z]
    unit = torch.nn.functional.normalize(e.z, dim=2)
    score = connectivity_score(prior(images), eta=3, backend="torch").double()
    assert score.std() > 0
    seen = [torch.nn.functional.normalize(prior(view).double(), dim=1) for view in e.views]
    means, consistency = [], 0.0
    for a in range(views):
        for b in range(views):
            total = 0.0
            for i in range(N):
                for j in range(N):
                    if (a, i) != (b, j):
                        d = (unit[a, i] - unit[b, j]).norm()
                        total = total + torch.exp(score[i] * d * (2 * own[a][i, j] - 1) / 0.5)
            means.append(total / N**2)
            kernel = torch.exp(-torch.cdist(seen[a], seen[b]) / 0.5)
            consistency = consistency + 0.01 * (own[a] - kernel).norm()
    want = torch.log(1 + sum(means) / len(means))
    torch.testing.assert_close(terms["dsa/arrange"], want, rtol=1e-5, atol=0)
    # the prior is fp32, in which the distance of equal features is some 1e-4
    torch.testing.assert_close(terms["dsa/consistency"], consistency, rtol=1e-3, atol=0)
    inputs = [e.z, *dsa.arrange.parameters()]
    for got, wanted, rtol in ((terms["dsa/arrange"], want, 1e-4), (terms["dsa/consistency"], consistency, 1e-2)):
        pairs = zip(*(torch.autograd.grad(x, inputs, retain_graph=True) for x in (got, wanted)), strict=True)
        for x, y in pairs:
            torch.testing.assert_close(x, y, rtol=rtol, atol=1e-6)


def test_the_code_s_arrange_term_from_the_pieces() -> None:
    dsa, e, images = case()
    m = arrange_views(dsa.arrange, e.z)
    n = V * N
    score = connectivity_score(prior(images), eta=3, backend="torch").repeat(V)
    mean = arrange_loss(e.z.flatten(0, 1), m, score, reduction="mean", score_mode="inside")
    share = math.log((n - 1) / n)  # the code counts the pairs of an image with itself, as zeros
    want = torch.log1p(torch.expm1(mean) * math.exp(share))
    torch.testing.assert_close(dsa.terms(e, images)["dsa/arrange"], want)


def test_m_of_two_views_is_that_of_the_first_with_itself() -> None:
    dsa, e, _ = case(3)
    m = arrange_views(dsa.arrange, e.z).view(3, N, 3, N)
    for a in range(3):
        for b in range(3):
            torch.testing.assert_close(m[a, :, b], block(dsa.arrange, e.z[a]), rtol=1e-5, atol=1e-8)


def test_equal_images_and_single_ones_are_finite() -> None:
    dsa, e, images = case()
    e.z = torch.ones(V, N, D, dtype=torch.float64, requires_grad=True)
    loss = sum(dsa.terms(e, images).values())
    loss.backward()
    assert loss.isfinite() and e.z.grad.isfinite().all()
    m = arrange_views(dsa.arrange, e.z)
    torch.testing.assert_close(m, torch.full_like(m, 1 / N), rtol=1e-5, atol=0)
    one = Embeddings(z=e.z[:, :1], h=e.z[:, :1], target=None, index=torch.arange(1), views=[x[:1] for x in e.views])
    with pytest.warns(UserWarning, match="eta"):
        assert sum(dsa.terms(one, images[:1]).values()).isfinite()
