"""MEC against float64 matrix powers, the exact log-determinant and its schedules."""

from itertools import permutations

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor

from sslkit import backbones
from sslkit.embeddings import Predicted
from sslkit.errors import UserError
from sslkit.objectives.mec import MEC, higher_traces

SHAPES = [(9, 7), (7, 9), (8, 8), (2, 5), (30, 3)]  # more images, more dimensions


def power_series(p: Tensor, z: Tensor, distortion: float, order: int) -> Tensor:
    """-log det(I + lambda P Z^T) / (lambda m), cut after `order` terms, from whole m x m matrices."""
    m = len(p)
    lam = p.shape[1] / (m * distortion)
    p, z = (x / x.norm(dim=1, keepdim=True) for x in (p.double(), z.double()))
    c = lam * torch.stack([torch.stack([(p[i] * z[j]).sum() for j in range(m)]) for i in range(m)])
    log = sum((-1) ** (k + 1) / k * torch.linalg.matrix_power(c, k) for k in range(1, order + 1))
    return -log.trace() / (lam * m)


def oracle(objective: MEC, e: Predicted) -> Tensor:
    distortion = objective.distortion * (1 + 7 * max(0.0, 1 - objective.progress / objective.warmup))
    pairs = list(permutations(range(len(e.z)), 2))
    return sum(power_series(e.prediction[a], e.target[b], distortion, 4) for a, b in pairs) / len(pairs)


def build(**options) -> MEC:
    return MEC(backbones.build("narrow_resnet", image_size=16, in_chans=1), **{"dim": 6, "hidden": 8, **options})


def drawn(v: int, n: int, d: int) -> Predicted:
    g = torch.Generator().manual_seed(n * d)
    target = torch.randn(v, n, d, generator=g, dtype=torch.double)
    prediction = (target.flip(0) + torch.randn(v, n, d, generator=g, dtype=torch.double)).requires_grad_()
    return Predicted(z=prediction, h=prediction, target=target, index=torch.arange(n), prediction=prediction)


@pytest.mark.parametrize("progress", [0.0, 0.04, 0.5])
@pytest.mark.parametrize("v", [2, 3])
@pytest.mark.parametrize(("n", "d"), SHAPES)
def test_align_plus_constrain_is_the_series(n: int, d: int, v: int, progress: float) -> None:
    e, objective = drawn(v, n, d), build(distortion=0.1 * d)
    objective.progress = progress
    both = objective.align(e) + objective.constrain(e), oracle(objective, e)
    torch.testing.assert_close(*both, rtol=1e-9, atol=1e-12)
    torch.testing.assert_close(*(torch.autograd.grad(x, e.prediction)[0] for x in both), rtol=1e-8, atol=1e-10)


def test_fp32_is_as_exact() -> None:
    e, objective = drawn(2, 64, 48), build()
    narrow = Predicted(
        z=e.z.float(), h=e.h.float(), target=e.target.float(), index=e.index, prediction=e.prediction.float()
    )
    ours = objective.align(narrow) + objective.constrain(narrow)
    torch.testing.assert_close(ours.double(), oracle(objective, e), rtol=1e-5, atol=1e-5)


def test_the_series_is_near_the_log_determinant_where_it_converges() -> None:
    e, objective = drawn(2, 12, 30), build(distortion=60.0)
    objective.progress = 1.0
    exact = []
    for a, b in ((0, 1), (1, 0)):
        c = F.normalize(e.prediction[a], dim=1) @ F.normalize(e.target[b], dim=1).T / (12 * 2.0)
        exact.append(-torch.logdet(torch.eye(12, dtype=c.dtype) + c) * 2.0)
    ours = objective.align(e) + objective.constrain(e)
    torch.testing.assert_close(ours, sum(exact) / 2, rtol=1e-4, atol=0)


def test_align_is_the_first_term() -> None:
    e, objective = drawn(2, 9, 7), build()
    first = (
        power_series(e.prediction[0], e.target[1], 1.0, 1) + power_series(e.prediction[1], e.target[0], 1.0, 1)
    ) / 2
    torch.testing.assert_close(objective.align(e), first)


def test_rows_and_columns_have_the_same_traces() -> None:
    p, z = torch.randn(2, 9, 5, generator=torch.Generator().manual_seed(0), dtype=torch.double)
    pad = torch.zeros(9, 5, dtype=torch.double)  # ten columns: the 9 x 9 product is taken
    wide = higher_traces(torch.cat([p, pad], 1), torch.cat([z, pad], 1), 0.3)
    torch.testing.assert_close(higher_traces(p, z, 0.3), wide)


def test_one_point_costs_more_than_spread_ones() -> None:
    objective = build()
    losses = []
    for z in (torch.eye(16), torch.ones(16, 16)):
        e = Predicted(z=z.repeat(2, 1, 1), h=z, target=z.repeat(2, 1, 1), index=None, prediction=z.repeat(2, 1, 1))
        losses.append(objective.align(e) + objective.constrain(e))
    assert losses[0] < losses[1]


def test_the_distortion_falls_from_eight_times_its_value() -> None:
    objective = build(distortion=64.0, warmup=0.1)
    for progress, times in ((0.0, 8.0), (0.05, 4.5), (0.1, 1.0), (1.0, 1.0)):
        objective.progress = progress
        assert objective.distortion_now() == pytest.approx(64 * times)
    still = build(warmup=0.0)
    assert still.distortion_now() == still.distortion


def test_the_target_is_the_teachers_and_follows() -> None:
    objective = build(momentum=0.5)
    views = [torch.rand(4, 1, 16, 16, generator=torch.Generator().manual_seed(k)) for k in range(2)]
    e = objective.embed(views, torch.arange(4))
    assert not e.target.requires_grad and e.prediction.requires_grad and e.z.shape == (2, 4, 6)
    with torch.no_grad():
        objective.projector[0].weight.add_(1)
    before = objective.teacher[1][0].weight.clone()
    objective.after_step(progress=0.0)
    torch.testing.assert_close(objective.teacher[1][0].weight, before + 0.5)


def test_published_widths_and_views() -> None:
    backbone = backbones.build("narrow_resnet", image_size=16, in_chans=1)
    objective = MEC(backbone)
    linear = [m for m in (*objective.projector, *objective.predictor) if isinstance(m, torch.nn.Linear)]
    w = backbone.width
    assert [m.out_features for m in linear] == [w, w, w, w // 4, w]
    assert isinstance(objective.projector[-1], torch.nn.BatchNorm1d) and not objective.projector[-1].affine
    first, second = objective.views.views
    assert first.scale == second.scale == (0.2, 1.0) and (first.blur, second.blur, second.solarize) == (1.0, 0.1, 0.2)


def test_a_distortion_of_0_is_refused() -> None:
    with pytest.raises(UserError, match=r"distortion=0\.0 must be above 0"):
        build(distortion=0.0)
