"""ReLIC v2 against loops over its eqs. 1 and 2 in fp64, crop by crop; its negatives, teacher and crops."""

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor

from sslkit import backbones
from sslkit.errors import UserError
from sslkit.objectives.relic_v2 import Contrasted, ReLICv2, draw_others


def relic_v2(**options) -> ReLICv2:
    torch.manual_seed(0)
    return ReLICv2(backbones.build("narrow_resnet", image_size=16, in_chans=1), **{"dim": 6, "hidden": 16, **options})


def drawn(n: int = 9, n_local: int = 3, negatives: int = 4, scale: float = 1.0, dtype=torch.double) -> Contrasted:
    g = torch.Generator().manual_seed(n)
    z, local = (scale * torch.randn(v, n, 6, generator=g, dtype=dtype) for v in (2, n_local))
    target = scale * torch.randn(2, n, 6, generator=g, dtype=dtype)
    others = draw_others(n, negatives, g)
    local = local.requires_grad_() if n_local else None
    z.requires_grad_()
    return Contrasted(z=z, h=z, target=target, index=torch.arange(n), local=local, negatives=others)


def likelihood(anchor: Tensor, crops: Tensor, i: int, others: list[int], temperature: float) -> Tensor:
    """Eq. 1: the softmax of an anchor's cosines with the own crop, row i, and with those of the others."""
    cosines = [anchor @ crops[k] / anchor.norm() / crops[k].norm() for k in (i, *others)]
    scores = torch.stack([torch.exp(c / temperature) for c in cosines])
    return scores / scores.sum()


def oracle(objective: ReLICv2, e: Contrasted) -> Tensor:
    """The authors' pseudo-code, pair by pair and image by image, in fp64."""
    crops = [*e.z, *(e.local if e.local is not None else [])]
    losses = []
    for student in crops:
        for teacher in e.target:
            for i, others in enumerate(e.negatives.tolist()):
                t = objective.temperature
                p = likelihood(student[i].double(), teacher.double(), i, others, t)
                q = likelihood(teacher[i].double(), student.double(), i, others, t)
                divergence = (p * p.log()).sum().detach() - (p * q.log()).sum()
                losses.append(-objective.contrast * p[0].log() + objective.invariance * divergence)
    return torch.stack(losses).mean()


def views(n: int = 5, local: int = 2) -> list[Tensor]:
    g = torch.Generator().manual_seed(9)
    sizes = [16] * 4 + [8] * local
    return [torch.rand(n, 1, size, size, generator=g) for size in sizes]


@pytest.mark.parametrize(
    ("n", "n_local", "negatives", "options"),
    [
        (9, 3, 4, {}),
        (2, 0, 10, {}),
        (5, 1, 4, {"temperature": 0.1}),
        (7, 2, 1, {"contrast": 0.0}),
        (7, 2, 3, {"invariance": 0.0, "contrast": 1.0}),
    ],
)
def test_align_plus_constrain_is_the_pseudo_code(n: int, n_local: int, negatives: int, options: dict) -> None:
    objective, e = relic_v2(**options), drawn(n, n_local, negatives)
    ours, theirs = objective.align(e) + objective.constrain(e), oracle(objective, e)
    torch.testing.assert_close(ours, theirs, rtol=1e-10, atol=1e-12)
    leaves = [x for x in (e.z, e.local) if x is not None]
    for mine, its in zip(*(torch.autograd.grad(loss, leaves) for loss in (ours, theirs)), strict=True):
        assert mine.abs().max() > 1e-4
        torch.testing.assert_close(mine, its, rtol=1e-9, atol=1e-12)


def test_in_fp32_it_agrees_to_the_fifth_digit() -> None:
    objective, e = relic_v2(), drawn(dtype=torch.float32)
    ours, theirs = objective.align(e) + objective.constrain(e), oracle(objective, e)
    torch.testing.assert_close(ours.double(), theirs, rtol=1e-5, atol=1e-5)
    for mine, its in zip(*(torch.autograd.grad(loss, (e.z, e.local)) for loss in (ours, theirs)), strict=True):
        torch.testing.assert_close(mine, its, rtol=1e-5, atol=1e-5)


def test_with_all_others_it_is_info_nce_of_the_batch() -> None:
    objective, e = relic_v2(contrast=1.0, invariance=0.0), drawn(8, 0, negatives=99)
    assert e.negatives.shape == (8, 7)
    losses = [
        F.cross_entropy(F.normalize(z, dim=-1) @ F.normalize(t, dim=-1).T / 0.3, torch.arange(8))
        for z in e.z
        for t in e.target
    ]
    torch.testing.assert_close(objective.align(e) + objective.constrain(e), torch.stack(losses).mean())


def test_the_invariance_is_zero_where_both_likelihoods_are_equal() -> None:
    objective, e = relic_v2(contrast=0.0), drawn(6, 0)
    e.z = e.target = e.z.detach()[:1].requires_grad_()
    assert objective.align(e).item() == pytest.approx(0, abs=1e-12)  # scores of a crop with itself are symmetric
    assert objective.align(drawn(6, 0)).item() > 0.01 and objective.constrain(e).item() == 0


def test_large_logits_stay_finite() -> None:
    objective, e = relic_v2(temperature=0.003), drawn(scale=1e4, dtype=torch.float32)
    loss = objective.align(e) + objective.constrain(e)
    loss.backward()
    assert loss.isfinite() and e.z.grad.isfinite().all()


@pytest.mark.parametrize(("n", "most"), [(2, 10), (5, 4), (40, 10), (3, 1)])
def test_negatives_are_different_others(n: int, most: int) -> None:
    others = draw_others(n, most, torch.Generator().manual_seed(0))
    assert others.shape == (n, min(most, n - 1)) and others.dtype == torch.int64
    for i, row in enumerate(others.tolist()):
        assert i not in row and len(set(row)) == len(row) and set(row) < set(range(n))


def test_every_other_image_is_as_often_a_negative() -> None:
    g = torch.Generator().manual_seed(0)
    counts = torch.zeros(6, 6)
    for _ in range(800):
        counts.scatter_add_(1, draw_others(6, 2, g), torch.ones(6, 2))
    share = counts / 800 + 0.4 * torch.eye(6)
    assert (share - 0.4).abs().max() < 0.07  # four standard deviations


def test_of_two_ranks_each_has_its_rows_of_one_draw(monkeypatch: pytest.MonkeyPatch) -> None:
    """Rank r has the images r, r + 2, ... of a batch; gathered, its i-th image is row 4 r + i."""
    one = draw_others(8, 3, torch.Generator().manual_seed(5))
    monkeypatch.setattr("sslkit.runtime.distributed.world_size", lambda: 2)
    for rank in range(2):
        monkeypatch.setattr("sslkit.runtime.distributed.rank", lambda r=rank: r)
        own = draw_others(4, 3, torch.Generator().manual_seed(5))
        assert torch.equal(own, one[rank::2] % 2 * 4 + one[rank::2] // 2)


def test_the_student_sees_all_crops_and_the_teacher_the_full_size_ones() -> None:
    objective = relic_v2()
    with torch.no_grad():
        objective.teacher[1][0].weight.mul_(torch.rand_like(objective.teacher[1][0].weight))
    e = objective.embed(views(), torch.arange(5), torch.Generator().manual_seed(0))
    assert e.z.shape == e.target.shape == (4, 5, 6) and e.local.shape == (2, 5, 6) and e.h.shape == (4, 5, 128)
    torch.testing.assert_close(e.target.flatten(0, 1), objective.teacher(torch.cat(views()[:4])))
    assert e.z.requires_grad and e.local.requires_grad and not e.target.requires_grad
    assert torch.equal(e.negatives, draw_others(5, 10, torch.Generator().manual_seed(0)))
    (objective.align(e) + objective.constrain(e)).backward()
    assert all(p.grad is None for p in objective.teacher.parameters())


def test_the_recipe_is_byols_views_twice_and_two_small_crops() -> None:
    *full, one, two = ReLICv2.views.at(224).each()
    assert [(v.scale, v.blur, v.solarize, v.size) for v in full] == [
        ((0.08, 1.0), 1.0, 0.0, None),
        ((0.08, 1.0), 0.1, 0.2, None),
    ] * 2
    assert one == two and (one.scale, one.size) == ((0.05, 0.14), 96)


def test_a_temperature_of_zero_is_refused_by_name() -> None:
    with pytest.raises(UserError, match="temperature"):
        relic_v2(temperature=0.0)
