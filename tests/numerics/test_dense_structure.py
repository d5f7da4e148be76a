"""The dense structure estimator beside numpy code in float64, written from both public forms, of the same clusters."""

import math

import numpy as np
import pytest
import torch

from sslkit.errors import UserError
from sslkit.numerics import dense_structure as ours
from sslkit.numerics.dense_structure import Clusters, dense_structure


def patches(n: int = 16, parts: int = 12, width: int = 10, kinds: int = 5, noise: float = 0.3) -> torch.Tensor:
    generator = torch.Generator().manual_seed(0)
    centres = torch.randn(kinds, width, generator=generator)
    drawn = torch.randint(kinds, (n, parts), generator=generator)
    return centres[drawn] + noise * torch.randn(n, parts, width, generator=generator)


def rank(x: np.ndarray) -> float:
    share = np.linalg.svd(x, compute_uv=False)
    share = share / share.sum()
    return math.exp(-(share[share > 0] * np.log(share[share > 0])).sum()) / min(x.shape)


def spread(x: np.ndarray) -> float:
    return np.linalg.svd(x - x.mean(0), compute_uv=False).sum() / math.sqrt(max(len(x) - 1, x.shape[1]))


def terms(z: np.ndarray, images: list, groups: list) -> tuple[float, float, float]:
    """Distance to the next cluster, spread in an image and in a group, in which both public forms are the same."""
    unit = np.mean([np.linalg.norm(row - z.reshape(-1, z.shape[2]).mean(0)) for row in z.reshape(-1, z.shape[2])])
    inside, between, within = [], [], []
    for labels, image in zip(images, z, strict=True):
        inside.append(np.mean([spread(image[labels == k]) for k in set(labels) if (labels == k).sum() > 1]))
    for number, (labels, centres) in enumerate(groups):
        x = z[8 * number : 8 * number + 8].reshape(-1, z.shape[2])
        for label, row in zip(labels, x, strict=True):
            between.append(min(np.linalg.norm(row - centre) for k, centre in enumerate(centres) if k != label))
        within += [spread(x[labels == k]) for k in range(len(centres)) if (labels == k).sum() > 1]
    return np.mean(between) / unit, np.mean(inside) / unit, np.mean(within) / unit


def test_it_is_the_authors_measure_and_not_the_regularisers(monkeypatch) -> None:
    x, seen, orders = patches(), [], []
    of, rand = Clusters.of, torch.rand
    monkeypatch.setattr(Clusters, "of", lambda *given: seen.append(of(*given)) or seen[-1])
    monkeypatch.setattr(torch, "rand", lambda *shape, **how: orders.append(rand(*shape, **how)) or orders[-1])
    measured = dense_structure(x)
    z = x.double().numpy()
    z = z / np.linalg.norm(z, axis=2, keepdims=True)
    images, groups = seen[:16], seen[16:]
    assert [len(clusters.centres) for clusters in groups] == [24, 24] and len(images) == 16
    expected = terms(
        z, [some.labels.numpy() for some in images], [(some.labels.numpy(), some.centres.numpy()) for some in groups]
    )
    assert (measured.inter, measured.intra_image, measured.intra_group) == pytest.approx(expected, rel=1e-10)
    order = orders[0].argsort(1).numpy()
    of_measure = np.mean([rank(z[np.arange(16), order[:, place]]) for place in range(12)])
    of_regulariser = rank(z.reshape(-1, 10))
    assert measured.dimension == pytest.approx(of_measure, rel=1e-10)
    assert abs(of_measure - of_regulariser) > 0.02, "the two public forms disagree"
    assert measured.value == pytest.approx(expected[0] + of_measure - (expected[1] + expected[2]) / 2, rel=1e-10)


def test_clusters_are_those_of_rows_around_far_centres() -> None:
    x = torch.cat([torch.full((20, 3), 10.0 * k) + torch.rand(20, 3) for k in range(3)]).double()
    clusters = Clusters.of(x, 3, torch.Generator().manual_seed(1))
    assert sorted(map(tuple, clusters.labels.view(3, 20).tolist())) == sorted((k,) * 20 for k in range(3))
    assert torch.allclose(clusters.centres[clusters.labels[0]], x[:20].mean(0))
    alone = Clusters.of(torch.zeros(5, 2).double(), 3, torch.Generator())
    assert len(alone.centres) == 1 and alone.to_next() == 0


def test_it_is_the_same_at_every_call_and_noise_is_wide_and_of_many_dimensions() -> None:
    clear, noise = dense_structure(patches(noise=0.1)), dense_structure(patches(noise=3.0))
    assert clear.intra_image < noise.intra_image and clear.intra_group < noise.intra_group
    assert clear.inter < noise.inter and clear.value < noise.value, "a number of one network over time, not of networks"
    assert dense_structure(patches(noise=0.1)) == clear
    scaled = dense_structure(1e3 * patches(noise=0.1))
    assert scaled.value == pytest.approx(clear.value, abs=1e-9)


def test_what_cannot_be_measured_is_said() -> None:
    with pytest.raises(UserError, match="two images and 4 patches or more"):
        dense_structure(torch.ones(4, 3, 8))
    with pytest.raises(UserError, match="all patches are alike"):
        dense_structure(torch.ones(4, 9, 8))
    with pytest.raises(UserError, match="finite"):
        dense_structure(torch.full((4, 9, 8), math.nan))
    assert ours.GLOBAL == ours.LOCAL * ours.TOGETHER
