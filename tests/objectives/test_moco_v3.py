"""MoCo v3 against loops over its algorithm 1; its frozen patch projection, heads and teacher."""

import pytest
import torch
from torch import Tensor, nn

from sslkit import backbones
from sslkit.embeddings import Predicted
from sslkit.errors import UserError
from sslkit.objectives.moco_v3 import MoCoV3


def contrast(query: Tensor, key: Tensor, temperature: float) -> Tensor:
    """ctr(q, k) of algorithm 1: 2 T times the cross-entropy of finding the own key, image by image."""
    losses = []
    for i, q in enumerate(query):
        logits = torch.stack([q @ k / (q.norm() * k.norm()) / temperature for k in key])
        losses.append(logits.exp().sum().log() - logits[i])
    return 2 * temperature * torch.stack(losses).mean()


def oracle(objective: MoCoV3, e: Predicted) -> Tensor:
    t = objective.temperature
    return contrast(e.prediction[0], e.target[1], t) + contrast(e.prediction[1], e.target[0], t)


def moco_v3(backbone: str = "narrow_resnet", **options) -> MoCoV3:
    torch.manual_seed(0)
    return MoCoV3(backbones.build(backbone, image_size=16, in_chans=1), **{"dim": 6, **options})


def drawn(n: int, scale: float = 1.0) -> Predicted:
    g = torch.Generator().manual_seed(n)
    query, target = torch.randn(2, 2, n, 6, generator=g, dtype=torch.double) * scale
    return Predicted(z=query, h=query, target=target, index=torch.arange(n), prediction=query.requires_grad_())


def views(n: int = 4) -> list[Tensor]:
    g = torch.Generator().manual_seed(9)
    return [torch.rand(n, 1, 16, 16, generator=g) for _ in range(2)]


@pytest.mark.parametrize("n", [2, 9])
@pytest.mark.parametrize("temperature", [0.1, 0.2, 1.0])
def test_align_plus_constrain_is_algorithm_1(n: int, temperature: float) -> None:
    objective, e = moco_v3(temperature=temperature), drawn(n)
    ours, theirs = objective.align(e) + objective.constrain(e), oracle(objective, e)
    torch.testing.assert_close(ours, theirs)
    torch.testing.assert_close(*(torch.autograd.grad(v, e.prediction)[0] for v in (ours, theirs)))


def test_align_alone_pulls_and_constrain_alone_pushes() -> None:
    objective = moco_v3()
    same = torch.ones(2, 3, 6)
    apart = torch.eye(3, 6).expand(2, 3, 6)
    for key, constrain in ((same, 2 * 2 * 0.2 * (torch.tensor(3.0).log() + 5)), (apart, None)):
        e = Predicted(z=key, h=key, target=key, index=torch.arange(3), prediction=key)
        assert objective.align(e).item() == pytest.approx(-4)
        if constrain is not None:
            assert objective.constrain(e).item() == pytest.approx(constrain.item())
            crowded = objective.constrain(e)
        else:
            assert objective.constrain(e) < crowded


def test_large_logits_stay_finite() -> None:
    objective, e = moco_v3(temperature=0.005), drawn(4, 1e4)
    loss = objective.align(e) + objective.constrain(e)
    loss.backward()
    assert loss.isfinite() and e.prediction.grad.isfinite().all()


def test_z_stands_before_the_predictor_and_keys_come_from_the_teacher() -> None:
    objective = moco_v3()
    with torch.no_grad():
        objective.teacher[1][0].weight.mul_(torch.rand_like(objective.teacher[1][0].weight))
    e = objective.embed(views(), torch.arange(4))
    pixels = torch.cat(views())
    z = objective.projector(objective.backbone(pixels))
    torch.testing.assert_close(e.z.flatten(0, 1), z)
    torch.testing.assert_close(e.prediction.flatten(0, 1), objective.predictor(z))
    torch.testing.assert_close(e.target.flatten(0, 1), objective.teacher(pixels))
    assert e.z.shape == e.target.shape == (2, 4, 6) and e.h.shape == (2, 4, 128)
    assert e.prediction.requires_grad and not e.target.requires_grad


def test_the_patch_projection_of_a_vit_stays_as_it_was() -> None:
    objective = moco_v3("narrow_vit")
    patch = objective.backbone.net.patch_embed
    before = [p.clone() for p in patch.parameters()]
    optimizer = torch.optim.SGD([p for p in objective.parameters() if p.requires_grad], 0.1)
    for _ in range(2):
        e = objective.embed(views(), torch.arange(4))
        (objective.align(e) + objective.constrain(e)).backward()
        optimizer.step()
        objective.after_step(0.5)
    assert not any(p.requires_grad for p in patch.parameters())
    missing = [k for k, p in objective.named_parameters() if p.requires_grad and p.grad is None]
    assert not missing
    for kept in (patch, objective.teacher[0].net.patch_embed):
        assert all(torch.equal(a, b) for a, b in zip(before, kept.parameters(), strict=True))


def test_the_positions_of_a_vit_are_sines_unless_it_keeps_its_own() -> None:
    fixed, own = (moco_v3("narrow_vit", position=position) for position in ("sincos", "learned"))
    positions = fixed.backbone.net.pos_embed[0]
    assert not positions.requires_grad and own.backbone.net.pos_embed.requires_grad
    assert positions[0].eq(0).all()  # the class token's
    columns, rows = positions[1:].unflatten(0, fixed.backbone.net.patch_embed.grid_size).chunk(2, dim=-1)
    assert torch.equal(columns, columns[:1].expand_as(columns)) and torch.equal(rows, rows[:, :1].expand_as(rows))
    assert torch.equal(columns[0], rows[:, 0])
    torch.testing.assert_close(rows[:, 0, 0], torch.arange(len(rows)).float().sin())
    assert torch.equal(fixed.teacher[0].net.pos_embed, fixed.backbone.net.pos_embed)
    assert not torch.equal(own.backbone.net.pos_embed, fixed.backbone.net.pos_embed)


def test_positions_that_cannot_be_are_refused() -> None:
    with pytest.raises(UserError, match="sincos or learned"):
        moco_v3("narrow_vit", position="rope")
    backbone = backbones.build("narrow_vit", image_size=16, in_chans=1)
    backbone.net.pos_embed = None
    with pytest.raises(UserError, match="position=learned"):
        MoCoV3(backbone)


def test_a_resnet_trains_whole() -> None:
    assert all(p.requires_grad for p in moco_v3().backbone.parameters())


@pytest.mark.parametrize(("backbone", "layers"), [("narrow_resnet", 2), ("narrow_vit", 3)])
def test_the_heads_are_as_published(backbone: str, layers: int) -> None:
    objective = moco_v3(backbone, dim=7, hidden=20)
    for head, count in ((objective.projector, layers), (objective.predictor, 2)):
        linear = [m for m in head if isinstance(m, nn.Linear)]
        norms = [m for m in head if isinstance(m, nn.BatchNorm1d)]
        assert len(linear) == len(norms) == count and head[-1] is norms[-1] and not norms[-1].affine
        assert all(m.bias is None for m in linear) and all(m.out_features == 20 for m in linear[:-1])
    assert moco_v3().projector[0].out_features == 256
    assert moco_v3("narrow_vit").projector[0].out_features == 16 * 96 // 3
    assert moco_v3(hidden=9).projector[0].out_features == 9


def test_a_temperature_of_zero_is_refused_by_name() -> None:
    with pytest.raises(UserError, match="temperature"):
        moco_v3(temperature=0.0)
