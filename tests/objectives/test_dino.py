"""DINO against lightly's loss; centre, teacher and temperatures against their recursions."""

import math

import numpy as np
import pytest
import torch
import torch.nn.functional as F
from lightly.loss import DINOLoss

import sslkit
from sslkit import backbones
from sslkit.errors import UserError
from sslkit.layers.prototypes import Crops
from sslkit.objectives.dino import DINO


def dino(**options) -> DINO:
    torch.manual_seed(0)
    net = backbones.build("narrow_resnet", image_size=16, in_chans=1)
    objective = DINO(net, **{"prototypes": 11, "dim": 6, "hidden": 16, **options})
    with torch.no_grad():  # so that the student's last layer is not the teacher's
        objective.prototypes.weight.add_(torch.randn_like(objective.prototypes.weight))
        objective.center.copy_(torch.randn(objective.center.shape) * 0.3)
    return objective


def crops(n: int = 9, n_local: int = 3, dim: int = 6, seed: int = 1) -> Crops:
    g = torch.Generator().manual_seed(seed)
    z, target, local = (torch.randn(v, n, dim, generator=g, dtype=torch.double) for v in (2, 2, n_local))
    z, local = z.requires_grad_(), local.requires_grad_()
    return Crops(z=z, h=z, target=target, index=torch.arange(n), local=local if n_local else None)


def last_layer(x: torch.Tensor, weight: torch.Tensor) -> torch.Tensor:
    """Weight norm with a norm of one on the normalised bottleneck, one prototype at a time."""
    x = x / x.norm(dim=-1, keepdim=True)
    return torch.stack([x @ (row / row.norm()) for row in weight.to(x.dtype)], -1)


def oracle(objective: DINO, e: Crops) -> torch.Tensor:
    """lightly's, on logits, with the objective's centre and epoch."""
    k = len(objective.center)
    start, end = objective.temperatures
    loss = DINOLoss(k, start, end, objective.warmup_epochs, objective.temperature, objective.center_momentum)
    loss.center = objective.center.to(e.z.dtype).view(1, 1, k).clone()
    student = e.z if e.local is None else torch.cat([e.z, e.local])
    teacher_logits = last_layer(e.target, objective.teacher[-1].weight.detach())
    student_logits = last_layer(student, objective.prototypes.weight)
    return loss(list(teacher_logits), list(student_logits), epoch=objective.epoch)


@pytest.mark.parametrize(
    ("n", "n_local", "epoch", "options"),
    [
        (9, 3, 1, {}),
        (2, 0, 4, {}),
        (7, 8, 2, {"teacher_temperature": 0.07, "warmup_epochs": 5}),
        (16, 1, 30, {"teacher_temperature": 0.2, "warmup_epochs": 5, "temperature": 0.3, "prototypes": 40}),
    ],
)
def test_align_is_lightlys_loss(n: int, n_local: int, epoch: int, options: dict) -> None:
    objective = dino(**options).double()
    objective.epoch = epoch
    e = crops(n, n_local)
    ours, theirs = objective.align(e), oracle(objective, e)
    # lightly holds its temperatures in fp32
    torch.testing.assert_close(ours, theirs, rtol=1e-6, atol=1e-7)
    leaves = [x for x in (e.z, e.local, objective.prototypes.weight) if x is not None]
    for mine, its in zip(*(torch.autograd.grad(loss, leaves) for loss in (ours, theirs)), strict=True):
        assert mine.abs().max() > 1e-4
        torch.testing.assert_close(mine, its, rtol=1e-5, atol=1e-7)
    assert objective.constrain(e) is None


def test_the_loss_is_the_papers_loop() -> None:
    objective = dino(temperature=0.1, teacher_temperature=0.05, warmup_teacher_temperature=0.05).double()
    objective.epoch = 1
    e = crops(n=4, n_local=2)
    teacher = (last_layer(e.target, objective.teacher[-1].weight) - objective.center) / 0.05
    student = last_layer(torch.cat([e.z, e.local]).detach(), objective.prototypes.weight.detach()) / 0.1
    total, pairs = 0.0, 0
    for t in range(2):
        for s in range(4):
            if s == t:
                continue
            pairs += 1
            for i in range(4):
                p = [math.exp(x) for x in teacher[t, i]]
                q = [math.exp(x) for x in student[s, i]]
                total -= sum(a / sum(p) * math.log(b / sum(q)) for a, b in zip(p, q, strict=True)) / 4
    assert objective.align(e).item() == pytest.approx(total / pairs, rel=1e-10)


def test_the_centre_is_the_moving_average_of_the_mean_logits_and_the_loss_sees_the_old_one() -> None:
    objective = dino(center_momentum=0.8).double()
    center = objective.center.clone()
    for seed in range(3):
        e = crops(seed=seed)
        torch.testing.assert_close(objective.align(e), oracle(objective, e), rtol=1e-6, atol=1e-7)
        torch.testing.assert_close(objective.center, center)  # align is pure
        objective.observe(e)
        logits = last_layer(e.target, objective.teacher[-1].weight)
        center = 0.8 * center + 0.2 * torch.stack([row for view in logits for row in view]).mean(0)
        torch.testing.assert_close(objective.center, center)


def test_centring_takes_away_what_all_images_share() -> None:
    objective = dino(center_momentum=0.0, prototypes=6).double()
    with torch.no_grad():
        objective.teacher[-1].weight.copy_(torch.eye(6))
    e = crops(n=64)
    e.target[..., 2] += 20  # every image goes to prototype 2
    objective.center.zero_()

    def used() -> int:
        best = (objective.logits(e.target) - objective.center).argmax(-1)
        return len(best.unique())

    assert used() == 1
    objective.observe(e)
    assert used() == 6


@pytest.mark.parametrize(("start", "end", "epochs"), [(0.04, 0.07, 30), (0.04, 0.04, 0), (0.02, 0.07, 1)])
def test_the_teachers_temperature_is_a_line_and_then_constant(start: float, end: float, epochs: int) -> None:
    objective = dino(warmup_teacher_temperature=start, teacher_temperature=end, warmup_epochs=epochs)
    expected = [*np.linspace(start, end, epochs), end, end]
    for epoch, temperature in enumerate(expected):
        objective.epoch = epoch
        assert objective.teacher_temperature() == pytest.approx(temperature)


def test_the_last_layer_is_frozen_at_first() -> None:
    objective = dino(freeze_last_layer=2).double()
    values = []
    for epoch, moves in ((0, False), (1, False), (2, True)):
        objective.epoch = epoch
        loss = objective.align(crops())
        (grad,) = torch.autograd.grad(loss, objective.prototypes.weight, allow_unused=True)
        assert (grad is not None) == moves == (not objective.frozen())
        values.append(loss.item())
    assert values[0] == pytest.approx(values[2], abs=1e-12)


def test_the_last_layers_norm_means_nothing() -> None:
    objective = dino().double()
    before = objective.align(crops()).item()
    with torch.no_grad():
        for layer in (objective.prototypes, objective.teacher[-1]):
            layer.weight.mul_(torch.arange(1.0, 12.0).view(-1, 1))
    assert objective.align(crops()).item() == pytest.approx(before, rel=1e-12)


def test_the_teacher_is_the_moving_average_of_backbone_head_and_last_layer() -> None:
    objective = dino(momentum=0.9)
    start = [p.clone() for p in objective.teacher.parameters()]
    with torch.no_grad():
        for module in objective.student():
            for p in module.parameters():
                p.add_(1)
        objective.backbone.net.bn1.running_mean.fill_(3)
    objective.after_step(progress=0.25)
    m = 1 - (1 - 0.9) * (math.cos(math.pi * 0.25) + 1) / 2
    student = [p for module in objective.student() for p in module.parameters()]
    for before, fast, slow in zip(start, student, objective.teacher.parameters(), strict=True):
        torch.testing.assert_close(slow, m * before + (1 - m) * fast)
        assert not slow.requires_grad
    running = objective.teacher[0].net.bn1.running_mean
    torch.testing.assert_close(running, torch.full_like(running, 3 * (1 - m)))


def test_the_student_sees_all_crops_and_the_teacher_the_full_size_ones() -> None:
    objective = dino()
    seen = {"student": [], "teacher": []}
    objective.backbone.register_forward_pre_hook(lambda _, x: seen["student"].append(tuple(x[0].shape)))
    objective.teacher[0].register_forward_pre_hook(lambda _, x: seen["teacher"].append(tuple(x[0].shape)))
    views = [torch.rand(4, 1, 16, 16) for _ in range(2)] + [torch.rand(4, 1, 7, 7) for _ in range(8)]
    e = objective.embed(views, torch.arange(4))
    assert seen == {"student": [(8, 1, 16, 16), (32, 1, 7, 7)], "teacher": [(8, 1, 16, 16)]}
    assert e.z.shape == (2, 4, 6) and e.local.shape == (8, 4, 6) and e.target.shape == (2, 4, 6)
    assert e.z.requires_grad and e.local.requires_grad and not e.target.requires_grad
    loss = objective.align(e)
    loss.backward()
    assert all(p.grad is None for p in objective.teacher.parameters())


def test_a_vit_takes_the_small_crops() -> None:
    m = sslkit.method("dino", image_size=28, in_chans=1, objective={"prototypes": 32, "hidden": 64, "dim": 16})
    assert m.backbone.is_vit  # the paper's first family
    g = torch.Generator().manual_seed(0)
    images = torch.randint(0, 256, (4, 1, 28, 28), dtype=torch.uint8, generator=g)
    _, e = m.step(images, torch.arange(4))
    assert e.local.shape == (8, 4, 16) and e.z.shape == (2, 4, 16)
    assert {view.shape[-1] for view in m.make_views(images)} == {28, 12}


def test_the_recipe_is_the_published_one() -> None:
    first, second, *local = DINO.views.at(224).each()
    assert (first.scale, first.blur, first.solarize, first.size) == ((0.4, 1.0), 1.0, 0.0, None)
    assert (second.scale, second.blur, second.solarize, second.size) == ((0.4, 1.0), 0.1, 0.2, None)
    assert len(local) == 8
    assert {(v.scale, v.blur, v.solarize, v.size) for v in local} == {((0.05, 0.4), 0.5, 0.0, 96)}
    assert {(v.brightness, v.contrast, v.saturation, v.hue, v.jitter) for v in (first, second, *local)} == {
        (0.4, 0.4, 0.2, 0.1, 0.8)
    }


@pytest.mark.parametrize("batch_norm", [False, True])
def test_the_head_has_three_layers_drawn_as_published_at_its_width(batch_norm: bool) -> None:
    objective = dino(hidden=256, dim=64, batch_norm=batch_norm)
    layers = [m for m in objective.projector if isinstance(m, torch.nn.Linear)]
    assert [(m.in_features, m.out_features) for m in layers] == [(128, 256), (256, 256), (256, 64)]
    for layer in layers:  # 0.02 for the published 2048 inputs
        expected = 0.02 * (2048 / layer.in_features) ** 0.5
        assert layer.weight.std().item() == pytest.approx(expected, rel=0.05) and not layer.bias.any()
    norms = sum(isinstance(m, torch.nn.BatchNorm1d) for m in objective.projector)
    assert norms == (2 if batch_norm else 0)


def test_large_embeddings_and_small_temperatures_stay_finite() -> None:
    objective = dino(temperature=1e-3, warmup_teacher_temperature=1e-4, teacher_temperature=1e-4)
    e = crops()
    e = Crops(z=(e.z.detach() * 1e4).float().requires_grad_(), h=e.h, target=e.target.float() * 1e4, index=e.index)
    loss = objective.align(e)
    loss.backward()
    assert loss.isfinite() and e.z.grad.isfinite().all() and loss.dtype is torch.float32


@pytest.mark.parametrize(
    ("options", "word"),
    [
        ({"prototypes": 1}, "prototypes must be at least 2, got 1"),
        ({"temperature": 0.0}, "temperature=0.0"),
        ({"teacher_temperature": 0.0}, "teacher_temperature=0.0"),
        ({"warmup_teacher_temperature": -0.1}, "teacher_temperature=-0.1"),
    ],
)
def test_bad_options_are_named(options: dict, word: str) -> None:
    with pytest.raises(UserError, match=word):
        dino(**options)


def test_targets_change_nothing_of_the_students_gradient_when_the_teacher_is_uniform() -> None:
    """A teacher that tells nothing asks for the uniform softmax: equal cosines to all prototypes lose nothing."""
    objective = dino(teacher_temperature=1e6, warmup_teacher_temperature=1e6, prototypes=6).double()
    objective.epoch = 1
    with torch.no_grad():
        objective.prototypes.weight.copy_(torch.eye(6))
    e = crops(n_local=0)
    e.z = torch.ones_like(e.z).requires_grad_()
    loss = objective.align(e)
    assert loss.item() == pytest.approx(math.log(6), rel=1e-5)
    loss.backward()
    torch.testing.assert_close(e.z.grad, torch.zeros_like(e.z), rtol=0, atol=1e-6)
    uniform = F.softmax(objective.logits(e.target) / 1e6, dim=-1)
    torch.testing.assert_close(uniform, torch.full_like(uniform, 1 / 6), rtol=1e-5, atol=0)
