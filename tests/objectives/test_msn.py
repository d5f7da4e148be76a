"""MSN against lightly's loss and a loop over its eq. 1; what masked anchors, focal crops and the teacher see."""

import inspect
import math

import pytest
import torch
from lightly.loss.msn_loss import MSNLoss
from lightly.models.modules import MaskedVisionTransformerTIMM
from lightly.transforms import MSNTransform
from torch import Tensor

import sslkit
from sslkit import backbones
from sslkit.errors import UserError
from sslkit.layers.prototypes import Crops
from sslkit.objectives.msn import MSN

NAMED = {"backbone": "narrow_vit", "image_size": 16, "in_chans": 1}


def oracle(objective: MSN, e: Crops) -> Tensor:
    """Lightly's, all anchors in one tensor, view by view."""
    anchors = e.z if e.local is None else torch.cat([e.z, e.local])
    loss = MSNLoss(objective.temperature, objective.iterations, objective.entropy)
    weight = objective.prototypes.weight.to(e.z.dtype)
    return loss(anchors.flatten(0, 1), e.target[0], weight, target_sharpen_temperature=objective.sharpening)


def msn(backbone: dict | None = None, **options) -> MSN:
    torch.manual_seed(0)
    built = {"image_size": 16, "in_chans": 1, **(backbone or {})}
    net = backbones.build(built.pop("name", "narrow_vit"), **built)
    return MSN(net, **{"prototypes": 11, "dim": 6, "hidden": 16, "mask_ratio": 0.5, **options})


def crops(n: int = 9, n_local: int = 3, dim: int = 6, seed: int = 1) -> Crops:
    g = torch.Generator().manual_seed(seed)
    z, target, local = (torch.randn(v, n, dim, generator=g, dtype=torch.double) for v in (1, 1, n_local))
    z, local = z.requires_grad_(), local.requires_grad_()
    return Crops(z=z, h=z, target=target, index=torch.arange(n), local=local if n_local else None)


def views(n: int = 4, n_local: int = 2) -> list[Tensor]:
    g = torch.Generator().manual_seed(3)
    return [torch.rand(n, 1, size, size, generator=g) for size in [16] * 2 + [8] * n_local]


def embed(objective: MSN, given: list[Tensor], seed: int = 0) -> Crops:
    return objective.embed(given, torch.arange(len(given[0])), torch.Generator().manual_seed(seed))


def dropped(objective: MSN, n: int, seed: int = 0) -> Tensor:
    """(n, L) bool, of the step with this seed."""
    return objective.hidden(n, torch.Generator().manual_seed(seed))["anchor"].mask


def on_pixels(objective: MSN, patches: Tensor) -> Tensor:
    """(n, L) bool -> (n, 1, H, W)."""
    side = objective.backbone.patch
    grid = patches.view(len(patches), 1, *objective.backbone.net.patch_embed.grid_size)
    return grid.repeat_interleave(side, 2).repeat_interleave(side, 3)


def total(objective: MSN, e: Crops) -> Tensor:
    return objective.align(e) + objective.constrain(e)


@pytest.mark.parametrize(
    ("n", "n_local", "options"),
    [
        (9, 3, {}),
        (2, 0, {"iterations": 0}),
        (7, 10, {"iterations": 0, "entropy": 0.0}),
        (16, 1, {"temperature": 0.3, "prototypes": 40, "entropy": 5.0}),
        (5, 2, {"iterations": 1, "sharpening": 0.6}),
    ],
)
def test_align_plus_constrain_is_lightlys_loss(n: int, n_local: int, options: dict) -> None:
    objective = msn(**options).double()
    e = crops(n, n_local)
    ours, theirs = total(objective, e), oracle(objective, e)
    torch.testing.assert_close(ours, theirs, rtol=1e-5, atol=1e-8)
    leaves = [x for x in (e.z, e.local, objective.prototypes.weight) if x is not None]
    for mine, its in zip(*(torch.autograd.grad(loss, leaves) for loss in (ours, theirs)), strict=True):
        assert mine.abs().max() > 1e-4
        torch.testing.assert_close(mine, its, rtol=1e-5, atol=1e-8)


@pytest.mark.parametrize("iterations", [0, 3])
def test_the_loss_is_eq_1_with_me_max_in_a_loop(iterations: int) -> None:
    """With log K, which is constant, so that the term is 0 at best."""
    objective = msn(temperature=0.2, sharpening=0.5, iterations=iterations, entropy=0.7, prototypes=5).double()
    e = crops(n=4, n_local=2)
    prototypes = [q / q.norm() for q in objective.prototypes.weight.detach()]

    def softmax(z: Tensor, temperature: float) -> list[float]:
        powers = [math.exp((z @ q / z.norm()).item() / temperature) for q in prototypes]
        return [p / sum(powers) for p in powers]

    targets = [softmax(z, 0.2 * 0.5) for z in e.target[0]]
    for _ in range(iterations):
        columns = [sum(row[k] for row in targets) for k in range(5)]
        targets = [[p / columns[k] for k, p in enumerate(row)] for row in targets]
        targets = [[p / sum(row) for p in row] for row in targets]
    loss, mean = 0.0, [0.0] * 5
    for view in torch.cat([e.z, e.local]).detach():
        for i, z in enumerate(view):
            for k, p in enumerate(softmax(z, 0.2)):
                loss -= targets[i][k] * math.log(p) / 12
                mean[k] += p / 12
    entropy = -sum(p * math.log(p) for p in mean)
    assert objective.align(e).item() == pytest.approx(loss, rel=1e-10)
    assert objective.constrain(e).item() == pytest.approx(0.7 * (math.log(5) - entropy), rel=1e-10)


def test_me_max_is_nothing_for_anchors_that_use_all_prototypes_alike_and_most_for_one_prototype() -> None:
    objective = msn(prototypes=6, temperature=0.01).double()
    with torch.no_grad():
        objective.prototypes.weight.copy_(torch.eye(6))
    e = crops(n=6, n_local=0)
    for z, expected in ((torch.eye(6), 0.0), (torch.eye(6)[2].expand(6, 6), math.log(6))):
        e.z = z[None].double()
        assert objective.constrain(e).item() == pytest.approx(expected, abs=1e-9)


def test_sinkhorn_gives_every_prototype_as_many_targets() -> None:
    objective = msn(iterations=60, prototypes=5, sharpening=0.9).double()
    target = crops(n=40).target[0] + torch.ones(6)  # all lean to the same prototypes
    codes = objective.codes(target)
    torch.testing.assert_close(codes.sum(1), torch.ones(40).double())
    torch.testing.assert_close(codes.sum(0), torch.full((5,), 8.0).double(), rtol=1e-2, atol=0)
    objective.iterations = 0
    assert objective.codes(target).sum(0).max() > 12


def test_the_masked_anchor_does_not_see_dropped_patches() -> None:
    objective = msn()
    whole, anchor, *local = views()
    e = embed(objective, [whole, anchor, *local])
    mask = on_pixels(objective, dropped(objective, 4))
    assert mask.float().mean().item() == 0.5
    other = torch.rand(anchor.shape, generator=torch.Generator().manual_seed(5))
    unseen = embed(objective, [whole, torch.where(mask, other, anchor), *local])
    assert torch.equal(unseen.z, e.z) and torch.equal(unseen.h, e.h) and torch.equal(unseen.local, e.local)
    seen = embed(objective, [whole, torch.where(mask, anchor, other), *local])
    assert ((seen.h - e.h).abs().amax(-1) > 1e-3).all()


def test_the_anchor_is_lightlys_encoder_of_the_visible_patches() -> None:
    objective = msn()
    given = views()
    e = embed(objective, given)
    visible = [(~row).nonzero()[:, 0] for row in dropped(objective, 4)]
    assert len({tuple(row.tolist()) for row in visible}) > 1  # each image has a mask of its own
    net = objective.backbone.net
    encoder = MaskedVisionTransformerTIMM(net, weight_initialization="skip", pos_embed_initialization="skip")
    keep = torch.stack([torch.cat([torch.zeros(1, dtype=torch.long), row + 1]) for row in visible])
    h = net.fc_norm(encoder.encode(given[1], idx_keep=keep)[:, 1:].mean(1))
    torch.testing.assert_close(e.h[0], h, rtol=1e-4, atol=1e-5)


def test_without_a_mask_the_anchor_is_the_whole_view() -> None:
    objective = msn(mask_ratio=0.0)
    given = views(n_local=0)
    e = embed(objective, given)
    torch.testing.assert_close(e.h[0], objective.backbone(given[1]), rtol=1e-4, atol=1e-5)
    assert e.local is None and not dropped(objective, 4).any()


def test_the_teacher_sees_the_first_view_and_the_student_the_others() -> None:
    objective = msn()
    with torch.no_grad():  # the teacher is not the student
        for p in objective.teacher.parameters():
            p.add_(0.1 * torch.randn(p.shape, generator=torch.Generator().manual_seed(1)))
    given = views(n_local=3)
    seen = []
    objective.backbone.register_forward_pre_hook(lambda _, x: seen.append(tuple(x[0].shape)))
    e = embed(objective, given)
    assert seen == [(12, 1, 8, 8)]  # focal crops are whole, in one forward
    torch.testing.assert_close(e.target[0], objective.teacher(given[0]))
    h = torch.cat([e.h[0], objective.backbone(torch.cat(given[2:]))])
    z = objective.projector(h).unflatten(0, (4, 4))
    torch.testing.assert_close(e.z, z[:1])
    torch.testing.assert_close(e.local, z[1:])
    assert e.z.requires_grad and e.local.requires_grad and not e.target.requires_grad
    total(objective, e).backward()
    assert all(p.grad is None for p in objective.teacher.parameters())


def test_masks_come_from_the_generator_alone() -> None:
    objective = msn()
    state = torch.get_rng_state()
    first, again, other = (embed(objective, views(), seed) for seed in (0, 0, 1))
    assert torch.equal(first.z, again.z) and not torch.equal(first.z, other.z)
    assert torch.equal(torch.get_rng_state(), state)


def test_the_teacher_is_the_moving_average_of_backbone_and_projector() -> None:
    objective = msn(momentum=0.9)
    start = {k: v.clone() for k, v in objective.teacher.state_dict().items()}
    student = torch.nn.Sequential(objective.backbone, objective.projector)
    with torch.no_grad():
        for p in (*student.parameters(), objective.projector[1].running_mean):
            p.add_(1)
    objective.after_step(progress=0.25)
    m = 1 - (1 - 0.9) * (math.cos(math.pi * 0.25) + 1) / 2
    for k, fast in student.state_dict().items():
        expected = m * start[k] + (1 - m) * fast if fast.is_floating_point() else fast
        torch.testing.assert_close(objective.teacher.state_dict()[k], expected, msg=lambda s, k=k: f"{k}: {s}")
    assert not any(p.requires_grad for p in objective.teacher.parameters())


def test_large_embeddings_and_small_temperatures_stay_finite() -> None:
    objective = msn(temperature=1e-3, sharpening=1e-2)
    e = crops()
    z, local = (x.detach().float().mul(1e4).requires_grad_() for x in (e.z, e.local))
    e = Crops(z=z, h=z, target=e.target.float() * 1e4, index=e.index, local=local)
    loss = total(objective, e)
    loss.backward()
    assert loss.isfinite() and loss.dtype is torch.float32
    assert all(x.grad.isfinite().all() for x in (z, local, objective.prototypes.weight))


def test_the_head_has_three_layers_with_batch_norm_between() -> None:
    layers = [m for m in msn(hidden=16, dim=6).projector if isinstance(m, torch.nn.Linear)]
    assert [(m.in_features, m.out_features) for m in layers] == [(96, 16), (16, 16), (16, 6)]
    assert sum(isinstance(m, torch.nn.BatchNorm1d) for m in msn().projector) == 2


def test_options_are_the_published_ones() -> None:
    objective = MSN(backbones.build("narrow_vit", image_size=16, in_chans=1))
    assert objective.prototypes.weight.shape == (1024, 256) and objective.dim == 256
    assert (objective.temperature, objective.sharpening, objective.entropy) == (0.1, 0.25, 1.0)
    assert (objective.iterations, objective.momentum) == (3, 0.996)
    assert objective.visible == round(0.85 * objective.backbone.net.patch_embed.num_patches)


def test_the_recipe_has_two_views_and_ten_focal_crops_as_published() -> None:
    first, second, *local = MSN.views.at(224).each()
    assert first == second and (first.scale, first.size) == ((0.3, 1.0), None)
    assert len(local) == 10 and {(v.scale, v.size) for v in local} == {((0.05, 0.3), 96)}
    assert {(v.jitter, v.grayscale, v.blur, v.sigma, v.solarize) for v in (first, *local)} == {
        (0.8, 0.2, 0.5, (0.1, 2.0), 0.0)
    }


def test_the_colour_change_is_simclrs_with_one_strength() -> None:
    """Lightly's multiplies SimCLR's 0.8, 0.8, 0.8 and 0.2 by one number."""
    known = inspect.signature(MSNTransform).parameters
    theirs = [known[f"cj_{name}"].default for name in ("bright", "contrast", "sat", "hue")]
    for view in MSN.views.at(224).each():
        ours = (view.brightness, view.contrast, view.saturation, view.hue)
        ratios = [mine / its for mine, its in zip(ours, theirs, strict=True)]
        assert ratios == pytest.approx([ratios[0]] * 4)


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"prototypes": 1}, "msn: prototypes must be at least 2, got 1"),
        ({"temperature": 0.0}, "msn: temperature=0.0"),
        ({"sharpening": -0.25}, "msn: sharpening=-0.25"),
        ({"momentum": 1.5}, "momentum must be from 0 to 1, got 1.5"),
        ({"mask_ratio": 0.999}, r"msn: mask_ratio=0.999 leaves none of \d+ patches"),
        ({"backbone": {"name": "narrow_resnet"}}, r"narrow_resnet.*narrow_vit"),
        ({"backbone": {"name": "narrow_slow", "in_chans": 3, "frames": 4}}, "msn takes images only, .*narrow_slow"),
    ],
)
def test_bad_options_and_networks_are_named_in_one_line(options: dict, words: str) -> None:
    with pytest.raises(UserError, match=words) as found:
        msn(**options)
    assert "\n" not in str(found.value)


@pytest.mark.parametrize(("option", "value"), [("mask_ratio", 1.0), ("entropy", -1.0), ("iterations", -1), ("dim", 0)])
def test_the_method_names_a_bad_option_in_one_line(option: str, value: float) -> None:
    with pytest.raises(UserError, match=option) as found:
        sslkit.method("msn", objective={option: value}, **NAMED)
    assert "\n" not in str(found.value)
