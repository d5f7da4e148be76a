"""DINOv2 against lightly's Sinkhorn and KoLeo and a loop, its heads, its masks' exact share, and two processes."""

import math
import warnings
from pathlib import Path

import pytest
import torch
import torch.distributed as dist
from forks import WORLD, start_ranks
from lightly.loss import KoLeoLoss
from lightly.loss.swav_loss import sinkhorn as lightlys_sinkhorn
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
from sslkit.layers.prototypes import sinkhorn_of_ranks
from sslkit.objectives.dinov2 import DINOv2
from sslkit.objectives.ibot import MaskedCrops


def oracle(objective: DINOv2, e: MaskedCrops) -> Tensor:
    """Cross-entropies with lightly's Sinkhorn codes of both views together, lightly's KoLeo of each view."""
    t, s = temperature_of(objective), objective.temperature
    codes = lightlys_sinkhorn(last_layer(e.target, objective.teacher[2].weight).flatten(0, 1), 3, t)
    codes = codes.unflatten(0, e.target.shape[:2])
    crops = e.z if e.local is None else torch.cat([e.z, e.local])
    predicted = (last_layer(crops, objective.prototypes.weight) / s).log_softmax(-1)
    pairs = [(a, b) for a in range(len(e.z)) for b in range(len(crops)) if a != b]
    views = sum(-(codes[a] * predicted[b]).sum(-1).mean() for a, b in pairs) / len(pairs)
    codes = lightlys_sinkhorn(last_layer(e.token_target, objective.patch_teacher[1].weight), 3, t)
    predicted = (last_layer(e.tokens, objective.patch_prototypes.weight) / s).log_softmax(-1)
    each = iter(-(codes * predicted).sum(-1))
    rows = [[next(each) for _ in range(count)] for count in e.mask.sum(-1).flatten().tolist()]
    patches = sum(sum(row) / len(row) for row in rows if row) / len(rows)
    spread = sum(KoLeoLoss()(h) for h in e.h) / len(e.h)
    return views + objective.patch_weight * patches + objective.koleo_weight * spread


def dinov2(net: dict | None = None, **options) -> DINOv2:
    return small(DINOv2, net, **options)


def alternating(scores: Tensor, temperature: float, iterations: int) -> Tensor:
    """DINOv2's code in plain Python: prototypes share the samples equally, then each sample's codes sum to 1."""
    q = [[math.exp(x / temperature) for x in row] for row in scores.tolist()]
    samples, prototypes = scores.shape
    for _ in range(iterations):
        for k in range(prototypes):
            total = sum(row[k] for row in q)
            for row in q:
                row[k] /= total * prototypes
        q = [[x / (sum(row) * samples) for x in row] for row in q]
    return torch.tensor(q, dtype=torch.double) * samples


@pytest.mark.parametrize(
    ("n", "n_local", "epoch", "options"),
    [
        (5, 3, 1, {}),
        (3, 0, 40, {}),
        (7, 4, 2, {"teacher_temperature": 0.09, "warmup_epochs": 5, "patch_weight": 2.5, "koleo_weight": 3.0}),
        (6, 1, 9, {"teacher_temperature": 0.2, "warmup_epochs": 5, "temperature": 0.3, "prototypes": 40}),
    ],
)
def test_the_loss_is_that_of_lightlys_parts(n: int, n_local: int, epoch: int, options: dict) -> None:
    objective = dinov2(**options)
    objective.epoch = epoch
    e = masked_crops(n, n_local)
    ours, theirs = objective.align(e) + objective.constrain(e), oracle(objective, e)
    torch.testing.assert_close(ours, theirs, rtol=1e-7, atol=0)
    leaves = [x for x in (e.z, e.h, e.local, e.tokens) if x is not None]
    leaves += [objective.prototypes.weight, objective.patch_prototypes.weight]
    for mine, its in zip(*(torch.autograd.grad(loss, leaves) for loss in (ours, theirs)), strict=True):
        assert mine.abs().max() > 1e-4
        torch.testing.assert_close(mine, its, rtol=1e-6, atol=1e-8)


def test_the_two_terms_of_align_are_the_loop_in_plain_python() -> None:
    objective = dinov2(temperature=0.2, warmup_epochs=0, teacher_temperature=0.06)
    objective.epoch = 1
    e = masked_crops(n=3, n_local=2)
    objective.align(e)

    def entropy(code: Tensor, student: Tensor) -> float:
        q = [math.exp(x / 0.2) for x in student.tolist()]
        return -sum(a * math.log(b / sum(q)) for a, b in zip(code.tolist(), q, strict=True))

    codes = alternating(last_layer(e.target, objective.teacher[2].weight).flatten(0, 1), 0.06, 3)
    student = last_layer(torch.cat([e.z, e.local]), objective.prototypes.weight).detach()
    pairs = [(a, b, i) for a in range(2) for b in range(4) for i in range(3) if a != b]
    views = sum(entropy(codes[3 * a + i], student[b, i]) for a, b, i in pairs) / len(pairs)
    codes = alternating(last_layer(e.token_target, objective.patch_teacher[1].weight), 0.06, 3)
    student = last_layer(e.tokens, objective.patch_prototypes.weight).detach()
    each = map(entropy, codes, student)
    rows = [[next(each) for _ in range(count)] for count in e.mask.sum(-1).flatten().tolist()]
    patches = sum(sum(row) / len(row) for row in rows if row) / 6
    watched = {k: v.item() for k, v in objective.watched.items()}
    assert watched == pytest.approx({"class": views, "patches": patches}, rel=1e-10)


@pytest.mark.parametrize(("rows", "prototypes"), [(12, 5), (3, 20), (1, 4)])
@pytest.mark.parametrize(("temperature", "iterations"), [(0.04, 3), (0.07, 1), (1.0, 8)])
def test_sinkhorn_is_the_loop_of_alternating_normalisation(
    rows: int, prototypes: int, temperature: float, iterations: int, generator: torch.Generator
) -> None:
    scores = torch.rand(rows, prototypes, generator=generator, dtype=torch.double) * 2 - 1
    before = scores.clone()
    codes = sinkhorn_of_ranks(scores, temperature, iterations)
    torch.testing.assert_close(codes, alternating(scores, temperature, iterations), rtol=1e-11, atol=1e-14)
    torch.testing.assert_close(codes.sum(1), torch.ones(rows, dtype=torch.double))
    assert torch.equal(scores, before)


def test_sinkhorn_shares_the_batch_equally_and_takes_no_rows_and_small_temperatures(generator: torch.Generator) -> None:
    scores = torch.rand(12, 4, generator=generator)
    scores[:, 1] += 5  # one prototype for all
    torch.testing.assert_close(sinkhorn_of_ranks(scores, 0.5, 200).sum(0), torch.full((4,), 3.0), rtol=1e-4, atol=0)
    assert sinkhorn_of_ranks(scores, 1e-4, 3).isfinite().all()
    assert sinkhorn_of_ranks(torch.zeros(0, 4), 0.1, 3).shape == (0, 4)


def test_the_options_are_those_of_sinkhorn_at_the_teachers_temperature() -> None:
    objective = dinov2(iterations=7, warmup_teacher_temperature=0.05, teacher_temperature=0.11, warmup_epochs=4)
    e = masked_crops()
    for epoch, t in ((0, 0.05), (1, 0.07), (4, 0.11)):
        objective.epoch = epoch
        for codes, logits in (
            (objective.codes(e.target).flatten(0, 1), last_layer(e.target, objective.teacher[2].weight).flatten(0, 1)),
            (objective.patch_codes(e.token_target), last_layer(e.token_target, objective.patch_teacher[1].weight)),
        ):
            torch.testing.assert_close(codes, alternating(logits, t, 7))


def test_koleo_spreads_the_features_of_each_view_and_not_the_views_of_an_image() -> None:
    objective = dinov2(koleo_weight=0.1)
    e = masked_crops()
    unit = e.h.detach() / e.h.detach().norm(dim=-1, keepdim=True)
    nearest = [min((h[i] - h[j]).norm().item() for j in range(5) if j != i) for h in unit for i in range(5)]
    assert objective.constrain(e).item() == pytest.approx(-0.1 * sum(map(math.log, nearest)) / len(nearest), rel=1e-6)
    first = e.h[:1].detach()
    e.h = torch.cat([first, first * 3])  # the same features in both views, whose length means nothing
    twice = objective.constrain(e).item()
    e.h = first
    assert twice == pytest.approx(objective.constrain(e).item(), rel=1e-6)


@pytest.mark.parametrize(("n", "p", "count"), [(8, 0.5, 4), (50, 0.3, 15), (9, 0.4, 3), (1, 0.5, 0), (6, 1.0, 6)])
def test_exactly_that_share_of_the_images_is_masked_by_shares_spread_evenly(n: int, p: float, count: int) -> None:
    objective = dinov2(mask_probability=p, mask_share=(0.2, 0.6))
    found = set()
    for seed in range(20):
        share = objective.shares(n, torch.Generator().manual_seed(seed))
        masked = share[share > 0].sort().values
        assert share.shape == (n,) and len(masked) == count
        parts = torch.linspace(0.2, 0.6, count + 1)  # one in each of equal parts
        assert count == 0 or ((masked >= parts[:-1]) & (masked <= parts[1:])).all()
        found.add(tuple((share > 0).tolist()))
    assert len(found) > 5 or count in (0, n)  # at random places


def test_each_view_has_its_own_masked_half_of_the_images() -> None:
    objective = dinov2({"img_size": 8, "patch_size": 1}, mask_share=(0.3, 0.5))
    first, second = (one.mask for one in objective.hidden(40, torch.Generator().manual_seed(0)).values())
    assert all(mask.any(1).sum() == 20 and (mask.sum(1) <= 32).all() for mask in (first, second))
    assert not torch.equal(first.any(1), second.any(1))


def test_patches_have_a_head_and_prototypes_of_their_own() -> None:
    objective = dinov2().eval()
    objective.epoch = 1
    with torch.no_grad():
        for p in objective.patch_teacher.parameters():
            p.add_(torch.randn_like(p) * 0.1)
    views = pictures()
    e = embed(objective, views)
    timms, slow = objective.backbone.net, objective.teacher[0].net
    whole = [slow.forward_features(view)[:, 1:][mask] for view, mask in zip(views, e.mask, strict=True)]
    torch.testing.assert_close(e.token_target, objective.patch_teacher[0](torch.cat(whole)))
    patches = objective.align_patches(e)
    views = objective.align(e) - patches
    heads = {"views": ("projector", "prototypes"), "patches": ("patch_projector", "patch_prototypes")}
    for loss, own in ((patches, "patches"), (views, "views")):
        for term, modules in heads.items():
            weights = [p for module in modules for p in getattr(objective, module).parameters()]
            grads = torch.autograd.grad(loss, weights, allow_unused=True, retain_graph=True)
            moved = [grad is not None and grad.abs().max().item() > 1e-9 for grad in grads]
            assert all(moved) if term == own else not any(moved)
        assert torch.autograd.grad(loss, timms.patch_embed.proj.weight, retain_graph=True)[0].any()


def test_both_teachers_are_moving_averages_and_there_are_no_centres() -> None:
    objective = dinov2(momentum=0.9)
    pairs = [
        (objective.teacher, (objective.backbone, objective.projector, objective.prototypes)),
        (objective.patch_teacher, (objective.patch_projector, objective.patch_prototypes)),
    ]
    start = [[p.clone() for p in slow.parameters()] for slow, _ in pairs]
    with torch.no_grad():
        for _, student in pairs:
            for p in nn.ModuleList(student).parameters():
                p.add_(torch.randn_like(p))
    objective.after_step(progress=0.25)
    m = 1 - (1 - 0.9) * (math.cos(math.pi * 0.25) + 1) / 2
    for before, (slow, student) in zip(start, pairs, strict=True):
        own = nn.ModuleList(student).parameters()
        for old, fast, new in zip(before, own, slow.parameters(), strict=True):
            torch.testing.assert_close(new, m * old + (1 - m) * fast)
            assert not new.requires_grad
    state = {k: v.clone() for k, v in objective.state_dict().items()}
    objective.observe(masked_crops())
    assert not [k for k in state if "center" in k]
    assert all(torch.equal(v, state[k]) for k, v in objective.state_dict().items())


def test_both_last_layers_are_frozen_at_first() -> None:
    objective = dinov2(freeze_last_layer=2)
    for epoch in range(3):
        objective.epoch = epoch
        weights = [objective.prototypes.weight, objective.patch_prototypes.weight]
        for grad in torch.autograd.grad(objective.align(masked_crops()), weights, allow_unused=True):
            assert (grad is not None) == (epoch == 2)
        assert {id(p) for p in objective.frozen()} == ({id(p) for p in weights} if epoch < 2 else set())


@pytest.mark.parametrize(("option", "value"), [*BAD_OPTIONS, ("iterations", 0), ("koleo_weight", -0.1)])
def test_bad_options_are_named(option: str, value: object) -> None:
    refused("dinov2", option, **{option: value})


def test_a_network_without_patches_is_refused() -> None:
    refused("dinov2", r"narrow_resnet.*narrow_vit", "narrow_resnet")


def test_a_refusal_names_dinov2_and_not_its_base_class() -> None:
    said = [
        refused("dinov2", "mask_share", mask_share=(0.5, 0.1)),
        refused("dinov2", "1 x 1", small_vit(patch_size=16)),
    ]
    assert not [line for line in said if "ibot" in line]


def test_recipe_and_defaults_are_the_published_ones() -> None:
    check_recipe(DINOv2.views, (0.32, 1.0), [((0.05, 0.32), 98)] * 8)
    with torch.device("meta"):
        objective = DINOv2(backbones.build(small_vit(), image_size=16, in_chans=1))
    assert objective.prototypes.weight.shape == objective.patch_prototypes.weight.shape == (65536, 256)
    check_defaults(objective)
    assert (objective.iterations, objective.koleo_weight, objective.momentum) == (3, 0.1, 0.992)


def test_a_step_without_a_masked_patch_trains_everything() -> None:
    m, e, terms = one_step("dinov2", "narrow_vit", mask_probability=0.0)
    assert not e.mask.any() and len(e.tokens) == 0 and m.objective.watched["patches"] == 0
    assert terms["align"] == m.objective.watched["class"] > 0
    assert not any(p.grad.any() for p in (m.objective.mask_token, *m.objective.patch_projector.parameters()))


NIGHTLY = [pytest.param(name, marks=pytest.mark.nightly) for name in ("vit_tiny_patch16_224", "eva02_tiny_patch14_224")]


@pytest.mark.filterwarnings("ignore:.*dead.*")
@pytest.mark.parametrize("name", ["vit_small_patch16_dinov3", *NIGHTLY])
def test_class_token_and_rotary_networks_train(name: str) -> None:
    m, e, terms = one_step("dinov2", name)
    assert e.mask.any(-1).sum(1).tolist() == [2, 2] and m.objective.mask_token.grad.any()
    assert terms.keys() == {"align", "constrain", "loss"}


def test_large_embeddings_and_small_temperatures_stay_finite() -> None:
    check_large_embeddings(dinov2(temperature=1e-3, warmup_teacher_temperature=1e-4, teacher_temperature=1e-4))


def work(rank: int, folder: Path) -> None:
    torch.set_num_threads(1)
    warnings.simplefilter("ignore")
    dist.init_process_group("gloo", init_method=f"file://{folder / 'meet'}", rank=rank, world_size=WORLD)
    scores = torch.randn(9, 5, generator=torch.Generator().manual_seed(0))
    parts = [scores[:4] if rank else scores[4:], scores if rank else scores[:0]]
    torch.save([sinkhorn_of_ranks(part, 0.3, 3) for part in parts], folder / f"{rank}.pt")
    dist.destroy_process_group()


@pytest.mark.nightly
def test_sinkhorn_over_processes_with_unequal_rows_is_that_of_one(tmp_path: Path) -> None:
    start_ranks(work, tmp_path)
    first, second = (torch.load(tmp_path / f"{rank}.pt", weights_only=True) for rank in range(WORLD))
    scores = torch.randn(9, 5, generator=torch.Generator().manual_seed(0))
    for got in (torch.cat([second[0], first[0]]), torch.cat([first[1], second[1]])):
        torch.testing.assert_close(got.double(), alternating(scores, 0.3, 3), rtol=1e-5, atol=1e-6)
