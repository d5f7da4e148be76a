"""Crowding, rank, spectrum and uniformity against plain loops and the identities they obey."""

import math

import numpy as np
import pytest
import torch
import torch.nn.functional as F

from sslkit.errors import UserError
from sslkit.numerics import diagnostics


def cloud(n: int = 60, d: int = 8, classes: int = 4) -> tuple[torch.Tensor, torch.Tensor]:
    g = torch.Generator().manual_seed(1)
    y = torch.arange(n) % classes
    return torch.randn(classes, d, generator=g)[y] + torch.randn(n, d, generator=g), y


@pytest.mark.parametrize("centroid", ["mean", "unit"])
def test_crowding_is_the_papers_double_loop(centroid: str) -> None:
    x, y = cloud()
    z = [v / np.linalg.norm(v) for v in x.double().numpy()]
    mu, var = [], []
    for c in range(4):
        rows = [z[i] for i in range(len(z)) if y[i] == c]
        m = sum(rows) / len(rows)
        m = m / np.linalg.norm(m) if centroid == "unit" else m
        mu.append(m)
        var.append(sum(np.sum((r - m) ** 2) for r in rows) / len(rows))
    pairs = [np.linalg.norm(mu[i] - mu[j]) for i in range(4) for j in range(i + 1, 4)]
    got = diagnostics.crowding(x, y, centroid)
    assert got.inter == pytest.approx(np.mean(pairs), rel=1e-10)
    assert got.intra == pytest.approx(np.mean(var), rel=1e-10)


def test_crowding_obeys_the_two_identities() -> None:
    x, y = cloud()
    z = F.normalize(x.double(), dim=1)
    mu = torch.stack([z[y == c].mean(0) for c in range(4)])
    got = diagnostics.crowding(x, y)
    assert got.intra == pytest.approx((1 - mu.square().sum(1)).mean().item(), rel=1e-10)
    mean_squared = torch.pdist(mu).square().mean().item()
    k = 4
    assert mean_squared == pytest.approx(
        2 * k / (k - 1) * (1 - got.intra - mu.mean(0).square().sum().item()), rel=1e-10
    )


def test_crowding_leaves_single_images_out_and_says_so() -> None:
    x, y = cloud()
    with_single = diagnostics.crowding(torch.cat([x, x[:1]]), torch.cat([y, torch.tensor([9])]))
    assert with_single.left_out == 1 and with_single.inter == pytest.approx(diagnostics.crowding(x, y).inter)
    with pytest.raises(UserError, match="two classes"):
        diagnostics.crowding(x, torch.zeros(len(x), dtype=torch.long))


def test_rankme_of_known_spectra() -> None:
    q = torch.linalg.qr(torch.randn(50, 6, dtype=torch.double, generator=torch.Generator().manual_seed(0)))[0]
    assert diagnostics.rankme(q) == pytest.approx(6, rel=1e-4)
    assert diagnostics.rankme(q[:, :1] @ torch.ones(1, 6, dtype=torch.double)) == pytest.approx(1, rel=1e-3)


def test_alpha_req_recovers_a_power_law() -> None:
    g = torch.Generator().manual_seed(0)
    n, d = 400, 20
    q = torch.randn(n, d, dtype=torch.double, generator=g)
    q = torch.linalg.qr(q - q.mean(0))[0]
    z = q * torch.arange(1, d + 1).double().pow(-1.5 / 2)
    assert diagnostics.alpha_req(z) == pytest.approx(1.5, rel=1e-6)
    assert diagnostics.alpha_req(z, first=3, last=10) == pytest.approx(1.5, rel=1e-6)


def test_lidar_counts_directions_between_images_only() -> None:
    g = torch.Generator().manual_seed(0)
    centres = torch.zeros(300, 10).double()
    centres[:, :3] = torch.randn(300, 3, generator=g).double()
    z = centres.repeat_interleave(4, 0) + 0.01 * torch.randn(1200, 10, generator=g).double()
    assert diagnostics.lidar(z, torch.arange(300).repeat_interleave(4)) == pytest.approx(3, rel=0.05)


def test_uniformity_and_alignment_are_their_loops() -> None:
    x, _ = cloud(12)
    z = F.normalize(x.double(), dim=1)
    terms = [math.exp(-2 * (z[i] - z[j]).square().sum()) for i in range(12) for j in range(i)]
    assert diagnostics.uniformity(x) == pytest.approx(math.log(sum(terms) / len(terms)), rel=1e-9)
    assert diagnostics.alignment(x, x) == 0
    flipped = diagnostics.alignment(x, -x)
    assert flipped == pytest.approx(4)


@pytest.mark.parametrize("f", [diagnostics.rankme, diagnostics.alpha_req, diagnostics.uniformity])
def test_nan_features_are_refused(f) -> None:
    with pytest.raises(UserError, match="finite"):
        f(torch.full((4, 3), float("nan")))


def test_class_geometry_reads_memory_mapped_arrays_in_blocks(tmp_path, monkeypatch) -> None:
    x, y = cloud()
    np.save(tmp_path / "x.npy", x.numpy())
    whole = diagnostics.class_geometry(x, y, centroid="mean")
    monkeypatch.setattr(diagnostics, "BLOCK", 7)
    mapped = diagnostics.class_geometry(np.load(tmp_path / "x.npy", mmap_mode="r"), y.numpy(), centroid="mean")
    torch.testing.assert_close(mapped.distance, whole.distance, rtol=1e-12, atol=1e-12)
    torch.testing.assert_close(mapped.variance, whole.variance, rtol=1e-12, atol=1e-12)


def test_fisher_ratio_is_the_trace_ratio_of_equal_classes() -> None:
    x, y = cloud()
    z = F.normalize(x.double(), dim=1)
    mu = torch.stack([z[y == c].mean(0) for c in range(4)])
    between = torch.cov(mu.T).trace()
    within = sum(torch.cov(z[y == c].T, correction=0).trace() for c in range(4)) / 4
    assert diagnostics.class_geometry(x, y, centroid="mean").fisher_ratio() == pytest.approx(
        (between / within).item(), rel=1e-10
    )


def test_spectra_from_moments_are_those_of_the_svd() -> None:
    x, _ = cloud(500, 24)
    x = x * torch.logspace(0, -4, 24)
    whole = diagnostics.Moments.from_rows(x[:200]) + diagnostics.Moments.from_rows(x[200:])
    assert diagnostics.effective_rank(whole.singular_values()) == pytest.approx(diagnostics.rankme(x), rel=1e-6)
    assert diagnostics.decay(whole.eigenvalues(), 2, 20) == pytest.approx(diagnostics.alpha_req(x, 2, 20), rel=1e-6)
    part = diagnostics.Moments.from_rows(x) - diagnostics.Moments.from_rows(x[:100])
    assert diagnostics.effective_rank(part.singular_values()) == pytest.approx(diagnostics.rankme(x[100:]), rel=1e-6)


def test_the_rank_from_moments_where_most_directions_are_empty() -> None:
    g = torch.Generator().manual_seed(0)
    x = torch.randn(400, 3, generator=g).double() @ torch.randn(3, 256, generator=g).double()
    s = diagnostics.Moments.from_rows(x).singular_values()
    assert diagnostics.effective_rank(s) == pytest.approx(diagnostics.rankme(x), rel=1e-3)


@pytest.mark.parametrize("n", [0, 1])
def test_uniformity_needs_a_pair(n: int) -> None:
    with pytest.raises(UserError, match=f"at least two rows, got {n}"):
        diagnostics.uniformity(torch.ones(n, 3))


def test_uniformity_does_not_depend_on_its_blocks(monkeypatch) -> None:
    x, _ = cloud(50)
    whole = diagnostics.uniformity(x)
    monkeypatch.setattr(diagnostics, "BLOCK", 7)
    assert diagnostics.uniformity(x) == pytest.approx(whole, rel=1e-12)
    squared = torch.pdist(F.normalize(x.double(), dim=1)).square()
    assert diagnostics.uniformity(x, t=400) == pytest.approx(
        (torch.logsumexp(-400 * squared, 0) - math.log(len(squared))).item(), rel=1e-9
    )


def groups_of(rows: int, each: int) -> torch.Tensor:
    return torch.arange(rows // each).repeat_interleave(each)


@pytest.mark.parametrize("scale", [1e-20, 1e20])
def test_the_scale_of_features_changes_no_diagnostic(scale: float) -> None:
    z, y = cloud()
    z = z.double()
    for measure in (
        lambda z: diagnostics.crowding(z, y).inter,
        lambda z: diagnostics.crowding(z, y, "unit").intra,
        lambda z: diagnostics.class_geometry(z, y, centroid="mean").fisher_ratio(),
        diagnostics.rankme,
        diagnostics.alpha_req,
        diagnostics.uniformity,
        lambda z: diagnostics.alignment(z[:30], z[30:]),
    ):
        assert measure(scale * z) == pytest.approx(measure(z), rel=1e-9)


@pytest.mark.parametrize("centroid", ["mean", "unit"])
@pytest.mark.parametrize("offset", [0.0, 1e3])
def test_classes_of_equal_rows_do_not_vary(centroid: str, offset: float) -> None:
    x = offset + torch.randn(7, 61, generator=torch.Generator().manual_seed(0))
    for each in (3, 30, 37):
        found = diagnostics.class_geometry(x.repeat_interleave(each, 0), groups_of(7 * each, each), centroid)
        assert found.variance.tolist() == [0.0] * 7 and found.inter() > 0 and math.isinf(found.fisher_ratio())
    tight = x.double().repeat_interleave(30, 0)
    tight += 1e-5 * tight.norm(dim=1).mean() * torch.randn(tight.shape, generator=torch.Generator().manual_seed(1))
    assert diagnostics.class_geometry(tight, groups_of(210, 30), centroid).variance.min() > 1e-10


@pytest.mark.parametrize("scale", [1e-20, 1.0, 1e20])
def test_equal_rows_have_one_direction_and_no_spectrum(scale: float) -> None:
    row = 1000 * torch.randn(16, generator=torch.Generator().manual_seed(0), dtype=torch.float64)
    z = scale * row.repeat(100, 1)
    assert diagnostics.rankme(z) == pytest.approx(1, abs=1e-4)
    assert diagnostics.lidar(z, groups_of(100, 5)) == pytest.approx(1, abs=1e-4)
    with pytest.raises(UserError, match="two eigenvalues above zero"):
        diagnostics.alpha_req(z)


def test_lidar_of_large_copied_features_is_that_without_the_copies_directions() -> None:
    """Half of the columns are copies: 8 directions are empty, and at 1e20 their delta is lost in rounding."""
    z = torch.randn(100, 16, generator=torch.Generator().manual_seed(1), dtype=torch.float64)
    z[:, 8:] = z[:, :8]
    far, near = (diagnostics.lidar(scale * z, groups_of(100, 5)) for scale in (1e20, 1e3))
    assert far == pytest.approx(near, rel=0.01)


def test_an_offset_leaves_the_spectrum_its_empty_directions() -> None:
    rng = torch.Generator().manual_seed(0)
    z = torch.randn(600, 32, generator=rng, dtype=torch.float64)
    z[:, 16:] = z[:, :16] @ torch.randn(16, 16, generator=rng, dtype=torch.float64)
    around = torch.full((32,), 1000.0, dtype=torch.float64)
    parts = [diagnostics.Moments.from_rows(part, around) for part in (z + around).split(200)]
    moments = parts[0] + parts[1] + parts[2]
    assert diagnostics.directions(moments.eigenvalues()) == 16
    assert diagnostics.decay(moments.eigenvalues()) == pytest.approx(diagnostics.alpha_req(z), rel=1e-6)
    assert diagnostics.effective_rank(moments.singular_values()) == pytest.approx(
        diagnostics.rankme(z + around), rel=1e-3
    )
    assert (moments - parts[0]).n == 400
