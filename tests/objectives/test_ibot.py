"""iBOT against lightly's two losses and a loop, its masking against lightly's masked ViT, its centres' recursions."""

import math

import pytest
import timm
import torch
import torch.nn.functional as F
from lightly.loss import DINOLoss, IBOTPatchLoss
from lightly.models.modules import MaskedVisionTransformerTIMM
from masked_crops import (
    BAD_OPTIONS,
    check_defaults,
    check_large_embeddings,
    check_recipe,
    embed,
    last_layer,
    masked_crops,
    one_step,
    pictures,
    refused,
    small,
    small_vit,
    temperature_of,
)
from torch import Tensor, nn

from sslkit import backbones
from sslkit.layers import masked_vit, masks
from sslkit.objectives.ibot import IBOT, MaskedCrops, number_masked

ROTARY = ["vit_small_patch16_rope_224", "vit_small_patch16_rope_mixed_224"]


def oracle(objective: IBOT, e: MaskedCrops) -> Tensor:
    """lightly's losses of views and of masked patches, on logits, with the objective's centres and epoch."""
    k, t = len(objective.center), temperature_of(objective)
    student, teacher = objective.prototypes.weight, objective.teacher[2].weight.detach()
    views = DINOLoss(k, student_temp=objective.temperature)
    views.center = objective.center.to(e.z.dtype).view(1, 1, k).clone()
    crops = e.z if e.local is None else torch.cat([e.z, e.local])
    loss = views(list(last_layer(e.target, teacher)), list(last_layer(crops, student)), teacher_temp=t)
    patches = IBOTPatchLoss(k, t, objective.temperature)
    patches.center.center = objective.patch_center.to(e.z.dtype).view(1, k).clone()
    grid = e.mask.flatten(0, 1).unflatten(1, objective.backbone.net.patch_embed.grid_size)
    masked = patches(last_layer(e.token_target, teacher), last_layer(e.tokens, student), grid)
    return loss + objective.patch_weight * masked


def ibot(net: dict | None = None, **options) -> IBOT:
    return small(IBOT, net, **options)


@pytest.mark.parametrize(
    ("n", "n_local", "epoch", "options"),
    [
        (5, 3, 1, {}),
        (3, 0, 40, {}),
        (7, 4, 2, {"teacher_temperature": 0.09, "warmup_epochs": 5, "patch_weight": 2.5}),
        (6, 1, 9, {"teacher_temperature": 0.2, "warmup_epochs": 5, "temperature": 0.3, "prototypes": 40}),
    ],
)
def test_align_is_lightlys_losses(n: int, n_local: int, epoch: int, options: dict) -> None:
    objective = ibot(**options)
    objective.epoch = epoch
    e = masked_crops(n, n_local)
    ours, theirs = objective.align(e), oracle(objective, e)
    torch.testing.assert_close(ours, theirs, rtol=1e-6, atol=0)  # lightly holds its temperatures in fp32
    leaves = [x for x in (e.z, e.local, e.tokens, objective.prototypes.weight) if x is not None]
    for mine, its in zip(*(torch.autograd.grad(loss, leaves) for loss in (ours, theirs)), strict=True):
        assert mine.abs().max() > 1e-4
        torch.testing.assert_close(mine, its, rtol=1e-5, atol=1e-8)
    assert objective.constrain(e) is None


def test_the_patches_term_is_the_papers_loop() -> None:
    objective = ibot(temperature=0.2, teacher_temperature=0.05, warmup_teacher_temperature=0.05, patch_weight=1.7)
    objective.epoch = 1
    e = masked_crops()
    teacher = (last_layer(e.token_target, objective.teacher[2].weight) - objective.patch_center) / 0.05
    student = last_layer(e.tokens, objective.prototypes.weight).detach() / 0.2
    total, row = 0.0, 0
    for masked in e.mask.flatten(0, 1).sum(1).tolist():
        own = 0.0
        for _ in range(masked):
            p, q = ([math.exp(x) for x in side[row]] for side in (teacher, student))
            own -= sum(a / sum(p) * math.log(b / sum(q)) for a, b in zip(p, q, strict=True))
            row += 1
        total += own / masked if masked else 0.0
    assert row == len(e.tokens)
    loss = objective.align(e).item()
    watched = {k: v.item() for k, v in objective.watched.items()}
    assert watched["patches"] == pytest.approx(total / (2 * 5), rel=1e-10)
    assert loss == pytest.approx(watched["class"] + 1.7 * watched["patches"], rel=1e-12)


def test_masked_patches_are_counted_row_by_row_and_an_image_has_one_share_of_the_mean() -> None:
    mask = torch.tensor([[0, 1, 0, 1], [0, 0, 0, 0], [1, 0, 0, 0], [1, 1, 1, 1]]).bool()
    chosen, weight = number_masked(mask, torch.empty(0))
    assert chosen.tolist() == [1, 3, 8, 12, 13, 14, 15]
    assert weight.tolist() == pytest.approx([1 / 8, 1 / 8, 1 / 4, *[1 / 16] * 4])
    chosen, weight = number_masked(torch.zeros(3, 4, dtype=torch.bool), torch.empty(0))
    assert chosen.shape == weight.shape == (0,)


def test_each_centre_follows_its_own_teacher_logits_and_the_loss_sees_the_old_one() -> None:
    objective = ibot(center_momentum=0.8)
    views, patches = objective.center.clone(), objective.patch_center.clone()
    for seed, share in ((0, 0.4), (1, -1.0), (2, 0.1)):
        e = masked_crops(share=share, seed=seed)
        torch.testing.assert_close(objective.align(e), oracle(objective, e), rtol=1e-6, atol=0)
        torch.testing.assert_close((objective.center, objective.patch_center), (views, patches))  # align is pure
        objective.observe(e)
        weight = objective.teacher[2].weight
        views = 0.8 * views + 0.2 * last_layer(e.target, weight).flatten(0, 1).mean(0)
        if len(e.tokens):  # a step without a masked patch keeps the patches' centre
            patches = 0.8 * patches + 0.2 * last_layer(e.token_target, weight).mean(0)
        assert bool(len(e.tokens)) == (share > 0)
        torch.testing.assert_close((objective.center, objective.patch_center), (views, patches))


@pytest.mark.parametrize("net", [{}, {"global_pool": "avg"}, {"global_pool": "avg", "fc_norm": True}])
def test_the_student_is_lightlys_masked_vit_and_the_teacher_sees_everything(net: dict) -> None:
    objective = ibot(net, mask_probability=0.6, mask_share=(0.3, 0.6)).eval()
    with torch.no_grad():  # a student that is not its teacher
        objective.backbone.net.cls_token.copy_(torch.randn(24))
    views = pictures()
    e = embed(objective, views)
    assert e.mask.shape == (2, 4, 16) and e.mask.any() and not e.mask.any(-1).all()
    assert not torch.equal(e.mask[0], e.mask[1])
    timms, slow = objective.backbone.net, objective.teacher[0].net
    lightlys = MaskedVisionTransformerTIMM(
        timms, nn.Parameter(objective.mask_token[None, None]), "skip", pos_embed_initialization="skip"
    )
    tokens, targets = [], []
    for v in range(2):
        seen = lightlys.encode(views[v], mask=F.pad(e.mask[v], (1, 0)))  # no mask on the class token
        whole = slow.forward_features(views[v])
        torch.testing.assert_close(e.h[v], timms.forward_head(seen))
        torch.testing.assert_close(e.z[v], objective.projector(timms.forward_head(seen)))
        torch.testing.assert_close(e.target[v], objective.teacher[1](slow.forward_head(whole)))
        tokens.append(objective.projector(timms.fc_norm(seen[:, 1:]))[e.mask[v]])
        targets.append(objective.teacher[1](slow.fc_norm(whole[:, 1:]))[e.mask[v]])
    torch.testing.assert_close((e.tokens, e.token_target), (torch.cat(tokens), torch.cat(targets)))
    assert e.tokens.requires_grad and not e.token_target.requires_grad


def test_pixels_of_masked_patches_do_not_reach_the_student() -> None:
    objective = ibot(mask_probability=1.0, mask_share=(0.3, 0.5)).eval()
    views = pictures()
    e = embed(objective, views)
    assert e.mask.any(-1).all()
    covered = e.mask.unflatten(2, (4, 4)).repeat_interleave(4, 2).repeat_interleave(4, 3)
    hidden = embed(objective, [torch.where(covered[v, :, None], 1 - x, x) for v, x in enumerate(views)])
    torch.testing.assert_close((hidden.tokens, hidden.z), (e.tokens, e.z))
    for before, after in ((e.token_target, hidden.token_target), (e.target.flatten(0, 1), hidden.target.flatten(0, 1))):
        assert ((after - before).abs().amax(1) > 1e-6).all()
    visible = embed(objective, [torch.where(covered[v, :, None], x, 1 - x) for v, x in enumerate(views)])
    assert ((visible.tokens - e.tokens).abs().amax(1) > 1e-6).all()
    with torch.no_grad():
        objective.mask_token.copy_(torch.randn(24))
    other = embed(objective, views)
    assert ((other.tokens - e.tokens).abs().amax(1) > 1e-6).all()
    assert torch.equal(other.token_target, e.token_target)


@pytest.mark.parametrize("name", ["vit_small_patch16_dinov3", "eva02_tiny_patch14_224", *ROTARY])
def test_the_masked_encoder_on_a_rotary_network_is_timms_with_the_token_for_the_patch(name: str) -> None:
    torch.manual_seed(0)
    sizes = {"img_size": 16, "patch_size": 4, "embed_dim": 32, "depth": 2, "num_heads": 2}
    net = timm.create_model(name, num_classes=0, in_chans=1, **sizes).double()
    with torch.no_grad():  # larger weights, so that positions count
        for p in net.parameters():
            p.add_(torch.randn_like(p) * 0.1)
    images, token, mask = pictures()[0], torch.randn(32).double(), torch.rand(4, 16) < 0.4
    whole = masked_vit.encode_masked(net, images)
    torch.testing.assert_close(whole, net.forward_features(images))
    masked = masked_vit.encode_masked(net, images, mask, token)
    net.patch_embed.register_forward_hook(lambda _, __, x: torch.where(mask.view(*x.shape[:-1], 1), token, x))
    torch.testing.assert_close(masked, net.forward_features(images))
    assert not torch.allclose(masked, whole, atol=1e-3)
    chosen = mask.flatten().nonzero()[:, 0]
    rows = masked_vit.patch_rows(net, masked, chosen)
    torch.testing.assert_close(rows, net.fc_norm(masked[:, net.num_prefix_tokens :])[mask])


def test_half_of_the_images_are_masked_by_uniform_shares() -> None:
    objective = ibot(mask_probability=0.5, mask_share=(0.1, 0.5))
    n = 20_000
    share = objective.shares(n, torch.Generator().manual_seed(0))
    masked = share[share > 0]
    assert len(masked) / n == pytest.approx(0.5, abs=4 * 0.5 / n**0.5)
    assert 0.1 <= masked.min() < 0.101 and 0.499 < masked.max() <= 0.5
    expected = torch.linspace(0.1, 0.5, len(masked))
    torch.testing.assert_close(masked.sort().values, expected, rtol=0, atol=0.4 * 2 / len(masked) ** 0.5)
    for probability, count in ((0.0, 0), (1.0, n)):
        objective.mask_probability = probability
        assert (objective.shares(n, None) > 0).sum() == count


@pytest.mark.parametrize(("side", "smallest"), [(2, 1), (4, 1), (8, 4), (14, 16)])
def test_masks_are_blocks_of_the_published_size(side: int, smallest: int, monkeypatch: pytest.MonkeyPatch) -> None:
    objective = ibot({"img_size": side, "patch_size": 1}, mask_share=(0.3, 0.5))
    asked, draw = [], masks.draw_blocks
    monkeypatch.setattr(masks, "draw_blocks", lambda *args, **options: asked.append(options) or draw(*args, **options))
    mask = objective.draw_mask(200, torch.Generator().manual_seed(0))
    assert asked == [{"smallest": smallest}]
    share = objective.shares(200, torch.Generator().manual_seed(0))
    assert mask.shape == (200, side**2) and (mask.sum(1) <= share * side**2).all()
    assert 0.3 < (share > 0).float().mean() < 0.7 and mask.any() and not mask[share == 0].any()


def test_the_picture_shows_the_masks_of_the_step_and_only_the_generator_draws_them() -> None:
    objective = ibot()
    state = torch.get_rng_state()
    e = embed(objective, pictures(), seed=5)
    shown = objective.hidden(4, torch.Generator().manual_seed(5))
    assert torch.equal(state, torch.get_rng_state())
    assert [(name, one.view) for name, one in shown.items()] == [("student 1", 0), ("student 2", 1)]
    assert torch.equal(torch.stack([one.mask for one in shown.values()]), e.mask)


def test_the_teacher_is_the_moving_average_of_backbone_head_and_last_layer() -> None:
    objective = ibot(momentum=0.9)
    start = [p.clone() for p in objective.teacher.parameters()]
    student = [p for module in objective.student() for p in module.parameters()]
    with torch.no_grad():
        for p in student:
            p.add_(torch.randn_like(p))
    objective.after_step(progress=0.25)
    m = 1 - (1 - 0.9) * (math.cos(math.pi * 0.25) + 1) / 2
    for before, fast, slow in zip(start, student, objective.teacher.parameters(), strict=True):
        torch.testing.assert_close(slow, m * before + (1 - m) * fast)
        assert not slow.requires_grad


def test_the_shared_last_layer_is_frozen_at_first() -> None:
    objective = ibot(freeze_last_layer=2)
    for epoch in range(3):
        objective.epoch = epoch
        for loss in (objective.align(masked_crops()), objective.align_patches(masked_crops())):
            (grad,) = torch.autograd.grad(loss, objective.prototypes.weight, allow_unused=True)
            assert (grad is not None) == (epoch == 2)


@pytest.mark.parametrize(("option", "value"), BAD_OPTIONS)
def test_bad_options_are_named(option: str, value: object) -> None:
    refused("ibot", option, **{option: value})


def test_a_network_without_a_grid_of_patches_is_refused() -> None:
    refused("ibot", r"narrow_resnet.*narrow_vit", "narrow_resnet")
    refused("ibot", r"ibot.*1 x 1.*larger images", small_vit(patch_size=16))


def test_recipe_and_defaults_are_the_published_ones() -> None:
    check_recipe(IBOT.views, (0.25, 1.0), [((0.05, 0.25), 96)] * 10)
    objective = IBOT(backbones.build(small_vit(), image_size=16, in_chans=1))
    assert objective.prototypes.weight.shape == (8192, 256) and not objective.mask_token.any()
    check_defaults(objective)
    assert (objective.momentum, objective.center_momentum) == (0.996, 0.9) and not objective.mask_token.any()


def test_a_step_without_a_masked_patch_is_dinos_and_trains_everything() -> None:
    m, e, _ = one_step("ibot", "narrow_vit", mask_probability=0.0)
    assert not e.mask.any() and len(e.tokens) == 0 and m.objective.watched["patches"] == 0
    assert m.objective.watched["class"] > 0 and not m.objective.mask_token.grad.any()
    assert not m.objective.patch_center.any() and m.objective.center.any()


NIGHTLY = [pytest.param(name, marks=pytest.mark.nightly) for name in ("vit_tiny_patch16_224", "eva02_tiny_patch14_224")]


@pytest.mark.filterwarnings("ignore:.*dead.*")
@pytest.mark.parametrize("name", ["vit_small_patch16_dinov3", *NIGHTLY])
def test_class_token_and_rotary_networks_train(name: str) -> None:
    m, e, _ = one_step("ibot", name)
    assert e.mask.any() and m.objective.mask_token.grad.any() and m.objective.patch_center.any()


def test_large_embeddings_and_small_temperatures_stay_finite() -> None:
    check_large_embeddings(ibot(temperature=1e-3, warmup_teacher_temperature=1e-4, teacher_temperature=1e-4))
