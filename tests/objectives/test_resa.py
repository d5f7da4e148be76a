"""ReSA against the authors' equations number by number in fp64; its assignment, teacher and views."""

import math
from itertools import permutations

import pytest
import torch
from torch import Tensor

from sslkit import backbones
from sslkit.errors import UserError
from sslkit.objectives.resa import Assigned, ReSA, assignment


def resa(**options) -> ReSA:
    torch.manual_seed(0)
    return ReSA(backbones.build("narrow_resnet", image_size=16, in_chans=1), **{"dim": 5, "hidden": 16, **options})


def drawn(n: int = 6, v: int = 2, dtype: torch.dtype = torch.double) -> Assigned:
    g = torch.Generator().manual_seed(n)
    prediction, target = (torch.randn(v, n, 5, generator=g, dtype=dtype) for _ in range(2))
    features = torch.randn(n, 7, generator=g, dtype=dtype)
    near = features + 0.3 * torch.randn(n, 7, generator=g, dtype=dtype)
    prediction.requires_grad_()
    own = {"features": features, "teacher_features": near}
    return Assigned(z=prediction, h=prediction, target=target, index=torch.arange(n), prediction=prediction, **own)


def cosine(a: Tensor, b: Tensor) -> Tensor:
    return a @ b / (a.norm() * b.norm())


def balanced(features: Tensor, others: Tensor, epsilon: float, iterations: int) -> list[list[float]]:
    """Sinkhorn in plain Python: each column is divided by its sum, then each row by its own."""
    n = len(features)
    q = [[math.exp(cosine(features[i], others[j]).item() / epsilon) for j in range(n)] for i in range(n)]
    for _ in range(iterations):
        columns = [sum(q[i][j] for i in range(n)) for j in range(n)]
        q = [[q[i][j] / columns[j] for j in range(n)] for i in range(n)]
        q = [[share / sum(row) for share in row] for row in q]
    return q


def oracle(objective: ReSA, e: Assigned) -> Tensor:
    """Mean of both cross-entropies, image by image, over the ordered pairs of views."""
    q = balanced(e.features, e.teacher_features, objective.epsilon, objective.iterations)
    n, losses = len(q), []
    for a, b in permutations(range(len(e.target)), 2):
        s = [[cosine(x, y) / objective.temperature for y in e.target[b].double()] for x in e.prediction[a].double()]
        rows = [sum(torch.exp(one) for one in row).log() for row in s]
        columns = [sum(torch.exp(s[i][j]) for i in range(n)).log() for j in range(n)]
        pairs = [(i, j) for i in range(n) for j in range(n)]
        losses.append(sum(q[i][j] * (rows[i] - s[i][j] + columns[j] - s[i][j]) for i, j in pairs) / (2 * n))
    return sum(losses) / len(losses)


@pytest.mark.parametrize(
    ("n", "v", "options"),
    [
        (6, 2, {}),
        (2, 2, {"temperature": 0.1}),
        (5, 3, {"epsilon": 0.2, "iterations": 1}),
        (9, 2, {"iterations": 7, "temperature": 1.0}),
    ],
)
def test_align_plus_constrain_is_the_authors_loss(n: int, v: int, options: dict) -> None:
    objective, e = resa(**options), drawn(n, v)
    both = objective.align(e) + objective.constrain(e), oracle(objective, e)
    torch.testing.assert_close(*both, rtol=1e-10, atol=1e-12)
    mine, its = (torch.autograd.grad(loss, e.prediction)[0] for loss in both)
    assert its.abs().max() > 1e-3
    torch.testing.assert_close(mine, its, rtol=1e-9, atol=1e-12)


def test_in_fp32_it_agrees_to_the_fifth_digit() -> None:
    objective, e = resa(), drawn(dtype=torch.float32)
    ours, theirs = objective.align(e) + objective.constrain(e), oracle(objective, e)
    torch.testing.assert_close(ours.double(), theirs, rtol=1e-5, atol=1e-5)
    torch.testing.assert_close(*(torch.autograd.grad(x, e.prediction)[0] for x in (ours, theirs)), rtol=1e-5, atol=1e-6)


def test_rows_sum_to_one_and_columns_nearly() -> None:
    g = torch.Generator().manual_seed(0)
    features, others = torch.randn(2, 64, 16, generator=g)
    few, many = (assignment(features, others, 0.05, iterations) for iterations in (3, 2000))
    for a in (few, many):
        torch.testing.assert_close(a.sum(1), torch.ones(64))
    assert (many.sum(0) - 1).abs().max() < 1e-2 < 3e-2 < (few.sum(0) - 1).abs().max()


def test_equal_features_belong_to_all_alike() -> None:
    a = assignment(torch.ones(4, 3), torch.ones(4, 3), 0.05, 3)
    torch.testing.assert_close(a, torch.full((4, 4), 0.25))
    zero = assignment(torch.zeros(4, 3), torch.zeros(4, 3), 0.05, 3)  # a network that has collapsed
    torch.testing.assert_close(zero, torch.full((4, 4), 0.25))


def test_images_of_one_cluster_share_what_is_assigned() -> None:
    g = torch.Generator().manual_seed(0)
    clusters = torch.eye(4)[torch.arange(12) % 4]
    near = clusters + 0.02 * torch.randn(12, 4, generator=g)
    a = assignment(near, near, 0.05, 3)
    same = (torch.arange(12) % 4)[:, None] == torch.arange(12) % 4
    assert (a * same).sum(1).min() > 0.999 and a.diagonal().max() < 0.5


def test_the_assignment_is_of_the_first_views_features_without_gradient() -> None:
    objective, g = resa(), torch.Generator().manual_seed(3)
    with torch.no_grad():
        for p in objective.teacher.parameters():
            p.add_(0.1 * torch.randn(p.shape, generator=g))
    views = [torch.rand(6, 1, 16, 16, generator=g) for _ in range(2)]
    e = objective.embed(views, torch.arange(6))
    assert e.z.shape == e.target.shape == e.prediction.shape == (2, 6, 5) and e.h.shape == (2, 6, 128)
    torch.testing.assert_close(e.features, e.h[0])
    torch.testing.assert_close(e.teacher_features, objective.teacher[0](views[0]))
    torch.testing.assert_close(e.target, torch.stack([objective.teacher(view) for view in views]))
    assert not (e.features.requires_grad or e.teacher_features.requires_grad or e.target.requires_grad)
    (objective.align(e) + objective.constrain(e)).backward()
    assert all(p.grad is None for p in objective.teacher.parameters())
    assert objective.projector[0].weight.grad.abs().max() > 0


def test_batch_norms_see_one_view_at_a_time() -> None:
    objective, g = resa(), torch.Generator().manual_seed(3)
    views = [torch.rand(6, 1, 16, 16, generator=g) for _ in range(2)]
    e = objective.embed(views, torch.arange(6))
    torch.testing.assert_close(e.z.mean(1), torch.zeros(2, 5), atol=1e-5, rtol=0)  # the projector ends in a batch norm
    torch.testing.assert_close(e.target.std(1, correction=0), torch.ones(2, 5), atol=1e-2, rtol=0)


def test_the_heads_of_a_vit_have_no_batch_norm_and_begin_as_glorots() -> None:
    objective = ReSA(backbones.build("narrow_vit", image_size=16, in_chans=1), dim=5, hidden=16)
    kinds = [type(layer).__name__ for head in (objective.projector, objective.predictor) for layer in head]
    assert kinds == ["Linear", "GELU", "Linear", "GELU", "Linear", "LayerNorm", "Linear", "GELU", "Linear"]
    for layer in (objective.projector[2], objective.predictor[1]):
        most = math.sqrt(6 / sum(layer.weight.shape))
        assert 0.8 * most < layer.weight.abs().max() <= most and layer.bias.abs().max() == 0
    assert objective.teacher[1][0].weight.equal(objective.projector[0].weight)


def test_the_first_view_is_only_cropped_and_flipped() -> None:
    weak, strong = ReSA.views.at(224).each()
    assert (weak.jitter, weak.grayscale, weak.blur, weak.solarize) == (0.0, 0.0, 0.0, 0.0)
    assert (strong.scale, strong.blur, strong.solarize, strong.hue) == ((0.2, 1.0), 0.5, 0.2, 0.1)


@pytest.mark.parametrize("options", [{"temperature": 0.0}, {"epsilon": 0.0}])
def test_a_divisor_of_zero_is_refused_by_name(options: dict) -> None:
    with pytest.raises(UserError, match=next(iter(options))):
        resa(**options)
