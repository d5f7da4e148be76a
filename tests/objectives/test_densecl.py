"""DenseCL against lightly's NT-Xent with a memory bank, against MoCo and loops over eqs. 1 to 3; its two queues.

Its path of shuffled batch norm is in tests/layers/test_norm_statistics.py.
"""

import math

import pytest
import torch
from lightly.loss import NTXentLoss
from torch import Tensor, nn

import sslkit
from sslkit import backbones
from sslkit.data.views.recipe import MOCO
from sslkit.errors import UserError
from sslkit.objectives.densecl import DenseCL, DensePairs, matches
from sslkit.objectives.moco import MoCo

NAMED = {"backbone": "narrow_resnet", "image_size": 32, "in_chans": 1}


def oracle(objective: DenseCL, e: DensePairs) -> Tensor:
    """Lightly's loss of the images and of the places, as if each place were an image."""
    losses = []
    for query, key, queue in (
        (e.z, e.target, objective.queue),
        (e.tokens, e.token_target, objective.dense_queue),
    ):
        loss = NTXentLoss(temperature=objective.temperature, memory_bank_size=tuple(queue.rows.shape))
        loss.memory_bank.bank = queue.rows.clone()
        losses.append(loss(query.reshape(-1, objective.dim), key.reshape(-1, objective.dim)))
    return (1 - objective.weight) * losses[0] + objective.weight * losses[1]


def densecl(size: int = 40, **options) -> DenseCL:
    """A map of 3 x 3 places."""
    torch.manual_seed(0)
    backbone = backbones.build("narrow_resnet", image_size=size, in_chans=1)
    return DenseCL(backbone, **{"dim": 6, "queue_size": 20, **options})


def drawn(n: int, places: int = 4, dim: int = 6, scale: float = 1.0) -> DensePairs:
    g = torch.Generator().manual_seed(n)
    z, target = torch.randn(2, 1, n, dim, generator=g, dtype=torch.double) * scale
    tokens, matched = torch.randn(2, 1, n, places, dim, generator=g, dtype=torch.double) * scale
    z, tokens = z.requires_grad_(), tokens.requires_grad_()
    pooled = torch.randn(1, n, dim, generator=g, dtype=torch.double)
    return DensePairs(
        z=z, h=z, target=target, index=torch.arange(n), tokens=tokens, token_target=matched, pooled=pooled
    )


def views(n: int = 4, size: int = 40) -> list[Tensor]:
    g = torch.Generator().manual_seed(9)
    return [torch.rand(n, 1, size, size, generator=g) for _ in range(2)]


def total(objective: DenseCL, e: DensePairs) -> Tensor:
    return objective.align(e) + objective.constrain(e)


def info_nce(query: Tensor, key: Tensor, negatives: Tensor, temperature: float) -> float:
    """Eq. 1 for one query."""
    query = query / query.norm()
    positive = math.exp((query @ key / key.norm()).item() / temperature)
    others = [math.exp((query @ row / row.norm()).item() / temperature) for row in negatives.double()]
    return -math.log(positive / (positive + sum(others)))


def best(query: Tensor, keys: Tensor) -> int:
    """The number of the key with the largest cosine."""
    cosines = [(query @ key / query.norm() / key.norm()).item() for key in keys]
    return max(range(len(cosines)), key=cosines.__getitem__)


@pytest.mark.parametrize("weight", [0.5, 0.0, 0.7, 1.0])
@pytest.mark.parametrize("queue_size", [1, 30])
@pytest.mark.parametrize(("n", "places", "temperature"), [(2, 1, 0.2), (7, 4, 0.07), (3, 9, 0.5)])
def test_align_plus_constrain_is_lightlys_memory_bank(
    n: int, places: int, temperature: float, queue_size: int, weight: float
) -> None:
    objective = densecl(queue_size=queue_size, temperature=temperature, weight=weight).double()
    e = drawn(n, places)
    ours, theirs = total(objective, e), oracle(objective, e)
    torch.testing.assert_close(ours, theirs)
    for field, active in ((e.z, weight < 1), (e.tokens, weight > 0)):
        mine, its = (torch.autograd.grad(v, field, retain_graph=True)[0] for v in (ours, theirs))
        assert (mine.abs().max() > 1e-4) == active
        torch.testing.assert_close(mine, its)


def test_align_plus_constrain_is_the_papers_loop_over_images_and_places() -> None:
    objective = densecl(queue_size=3, temperature=0.3, weight=0.4).double()
    e = drawn(4, places=5)
    of_images = [info_nce(q, k, objective.queue.rows, 0.3) for q, k in zip(e.z[0], e.target[0], strict=True)]
    of_places = [
        info_nce(e.tokens[0, n, s], e.token_target[0, n, s], objective.dense_queue.rows, 0.3)
        for n in range(4)
        for s in range(5)
    ]
    assert total(objective, e).item() == pytest.approx(0.6 * sum(of_images) / 4 + 0.4 * sum(of_places) / 20, rel=1e-6)


def test_without_weight_of_the_places_it_is_moco_with_the_same_weights() -> None:
    torch.manual_seed(0)
    theirs = MoCo(backbones.build("narrow_resnet", image_size=40, in_chans=1), dim=6, queue_size=20)
    ours = densecl(weight=0.0)
    ours.backbone.load_state_dict(theirs.backbone.state_dict())
    ours.projector.load_state_dict(theirs.projector.state_dict())
    ours.teacher[0].load_state_dict(theirs.teacher[0].state_dict())
    ours.teacher[1].load_state_dict(theirs.teacher[1].state_dict())
    ours.queue.rows = theirs.queue.rows.clone()
    mine, its = (objective.embed(views(), torch.arange(4)) for objective in (ours, theirs))
    for name in ("z", "h", "target"):
        torch.testing.assert_close(getattr(mine, name), getattr(its, name))
    torch.testing.assert_close(ours.align(mine), theirs.align(its))
    torch.testing.assert_close(ours.constrain(mine), theirs.constrain(its))


def test_matches_are_the_largest_cosines_of_a_loop() -> None:
    g = torch.Generator().manual_seed(0)
    query, key = (torch.randn(3, places, 5, generator=g) * torch.rand(3, places, 1, generator=g) for places in (8, 8))
    found = matches(query, key)
    assert found.tolist() == [[best(query[n, s], key[n]) for s in range(8)] for n in range(3)]
    assert torch.equal(matches(query, query), torch.arange(8).expand(3, 8))


def test_half_precision_does_not_choose_the_match() -> None:
    """The features are made fp32 to be matched; bf16 cannot tell a cosine of 0.9 from one of 0.902."""
    g = torch.Generator().manual_seed(0)
    image = torch.randn(8, 1, 32, generator=g)
    query, key = (image + torch.randn(8, 49, 32, generator=g) for _ in range(2))
    expected = matches(query, key)
    with torch.autocast("cpu", torch.bfloat16):
        found = matches(query, key)
    assert (found != expected).sum().item() == 0


def test_places_are_matched_by_the_backbones_features_and_take_the_keys_projections() -> None:
    objective = densecl(hidden=7)
    with torch.no_grad():  # the teacher is not the student
        for p in objective.teacher.parameters():
            p.add_(0.1 * torch.randn(p.shape, generator=torch.Generator().manual_seed(1)))
    query, key = views()
    e = objective.embed([query, key], torch.arange(4))
    (ours, pooled), (theirs, their_pooled) = (
        objective.backbone.feature_map(query),
        objective.teacher[0].feature_map(key),
    )
    places = [maps.flatten(2).mT for maps in (ours, theirs)]
    assert places[0].shape == (4, 9, objective.backbone.width)
    torch.testing.assert_close(e.h[0], pooled)
    torch.testing.assert_close(e.z[0], objective.projector(pooled))
    torch.testing.assert_close(e.target[0], objective.teacher[1](their_pooled))
    torch.testing.assert_close(e.tokens[0], objective.dense_projector(places[0]))
    projected = objective.teacher[2](places[1])
    chosen = [[best(places[0][n, s], places[1][n]) for s in range(9)] for n in range(4)]
    assert len({place for row in chosen for place in row}) > 1 and chosen != [list(range(9))] * 4
    torch.testing.assert_close(e.token_target[0], torch.stack([projected[n, row] for n, row in enumerate(chosen)]))
    torch.testing.assert_close(e.pooled[0], projected.mean(1))
    assert e.z.requires_grad and e.tokens.requires_grad
    assert not any(x.requires_grad for x in (e.target, e.token_target, e.pooled))


def test_the_losses_see_the_old_queues_and_observe_appends_keys_and_means_of_their_places() -> None:
    m = sslkit.method("densecl", objective={"queue_size": 10, "dim": 6}, **NAMED)
    queues = (m.objective.queue, m.objective.dense_queue)
    expected = [queue.rows.clone() for queue in queues]
    assert not torch.equal(*expected)
    for step in range(4):  # 16 keys into 10 rows
        g = torch.Generator().manual_seed(step)
        images = torch.randint(0, 256, (4, 1, 32, 32), dtype=torch.uint8, generator=g)
        terms, e = m.step(images, torch.arange(4))
        after = [queue.rows for queue in queues]
        for queue, rows in zip(queues, expected, strict=True):
            queue.rows = rows.clone()
        torch.testing.assert_close(terms["loss"], oracle(m.objective, e))
        terms["loss"].backward()
        for i in range(4):
            for rows, new in zip(expected, (e.target[0, i], e.pooled[0, i]), strict=True):
                rows[(4 * step + i) % 10] = new / new.norm()
        for queue, rows, right in zip(queues, after, expected, strict=True):
            queue.rows = rows
            torch.testing.assert_close(rows, right)
    m.eval()
    m.step(images, torch.arange(4))
    assert all(torch.equal(queue.rows, rows) for queue, rows in zip(queues, after, strict=True))


def test_the_teacher_follows_as_a_moving_average_with_both_projectors() -> None:
    objective = densecl(momentum=0.9)
    start = {k: v.clone() for k, v in objective.teacher.state_dict().items()}
    student = nn.Sequential(objective.backbone, objective.projector, objective.dense_projector)
    assert start.keys() == student.state_dict().keys()
    with torch.no_grad():
        for p in student.parameters():
            p.add_(1)
        objective.backbone.net.bn1.running_mean.fill_(3)
    for steps, progress in ((1, 0.2), (2, 1.0)):  # constant, whatever the progress
        objective.after_step(progress)
        kept = 0.9**steps
        for k, fast in student.state_dict().items():
            if fast.is_floating_point():
                slow = objective.teacher.state_dict()[k]
                torch.testing.assert_close(slow, kept * start[k] + (1 - kept) * fast, msg=lambda m, k=k: f"{k}: {m}")
    assert not any(p.requires_grad for p in objective.teacher.parameters())


def test_large_embeddings_and_a_small_temperature_stay_finite() -> None:
    objective = densecl(temperature=1e-3)
    e = drawn(4, scale=1e4)
    z, tokens = (x.detach().float().requires_grad_() for x in (e.z, e.tokens))
    e = DensePairs(z=z, h=z, target=e.target.float(), index=e.index, tokens=tokens, token_target=e.token_target.float())
    loss = total(objective, e)
    loss.backward()
    assert loss.isfinite() and loss.dtype is torch.float32
    assert z.grad.isfinite().all() and tokens.grad.isfinite().all()


def test_the_map_may_have_other_channels_than_the_pooled_features() -> None:
    backbone = backbones.build("mobilenetv3_small_050", image_size=64, in_chans=3)
    before = {k: v.clone() for k, v in backbone.state_dict().items()}
    channels = backbone.map_channels()
    assert channels != backbone.width and backbone.training
    assert all(torch.equal(v, before[k]) for k, v in backbone.state_dict().items())  # no batch was seen
    objective = DenseCL(backbone, dim=6, queue_size=20, hidden=9)
    assert [m.in_features for m in (objective.projector[0], objective.dense_projector[0])] == [backbone.width, channels]
    g = torch.Generator().manual_seed(0)
    e = objective.embed([torch.rand(3, 3, 64, 64, generator=g) for _ in range(2)], torch.arange(3))
    assert e.h.shape == (1, 3, backbone.width) and e.tokens.shape == e.token_target.shape == (1, 3, 16, 6)


def test_both_heads_are_two_layers_without_batch_norm_as_wide_as_the_backbone() -> None:
    objective = densecl()
    for head in (objective.projector, objective.dense_projector):
        assert [type(m).__name__ for m in head] == ["Linear", "ReLU", "Linear"]
        assert head[0].weight.shape == (128, 128) and head[2].weight.shape == (6, 128)


def test_options_and_views_are_the_published_ones() -> None:
    objective = DenseCL(backbones.build("narrow_resnet", image_size=16, in_chans=1))
    assert (objective.weight, objective.temperature, objective.momentum, objective.dim) == (0.5, 0.2, 0.999, 128)
    assert len(objective.queue) == len(objective.dense_queue) == 65_536
    assert DenseCL.views is MOCO and [view.scale for view in DenseCL.views.each()] == [(0.2, 1.0)] * 2


@pytest.mark.parametrize(
    ("option", "value"),
    [("temperature", 0.0), ("temperature", -1.0), ("momentum", 1.5), ("queue_size", 0), ("queue_size", 2.5)],
)
def test_bad_options_are_named_in_one_line(option: str, value: float) -> None:
    with pytest.raises(UserError, match=option) as found:
        densecl(**{option: value})
    assert "\n" not in str(found.value)


@pytest.mark.parametrize(("option", "value"), [("weight", 1.5), ("weight", -0.1), ("temperature", 0.0), ("dim", 0)])
def test_the_method_names_a_bad_option_in_one_line(option: str, value: float) -> None:
    with pytest.raises(UserError, match=option) as found:
        sslkit.method("densecl", objective={option: value}, **NAMED)
    assert "\n" not in str(found.value)


@pytest.mark.parametrize(
    ("name", "options"), [("narrow_vit", {}), ("narrow_slow", {"in_chans": 3}), ("narrow_slow", {"frames": 4})]
)
def test_networks_without_a_map_of_an_image_are_refused_in_one_line(name: str, options: dict) -> None:
    backbone = backbones.build(name, **{"image_size": 32, "in_chans": 3, **options})
    with pytest.raises(UserError, match=rf"densecl.*{name}.*resnet50") as found:
        DenseCL(backbone)
    assert "\n" not in str(found.value)


def test_a_plain_module_without_a_map_is_refused() -> None:
    net = nn.Sequential(nn.Flatten(), nn.Linear(256, 5))
    with pytest.raises(UserError, match="Sequential gives no feature map"):
        DenseCL(backbones.build(net, image_size=16, in_chans=1))
