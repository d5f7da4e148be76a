"""I-JEPA against a loop over images and blocks, and its predictor against lightly's."""

import pytest
import timm
import torch
from lightly.models import utils as lightly_utils
from lightly.models.modules.ijepa_timm import IJEPAPredictorTIMM
from torch import Tensor, nn

import sslkit
from sslkit import backbones
from sslkit.data.views.augmentation import augment
from sslkit.embeddings import Tokens
from sslkit.errors import UserError
from sslkit.objectives.ijepa import IJEPA

NETS = [
    {"global_pool": "avg"},
    {"global_pool": "token"},
    {"global_pool": "avg", "class_token": False},
    {"reg_tokens": 3, "global_pool": "avg"},
    {"no_embed_class": True, "dynamic_img_size": True},
    {"pre_norm": True, "fc_norm": True},
]


def oracle(objective: IJEPA, e: Tokens) -> Tensor:
    """The mean over images, blocks and patches of the mean squared difference, patch by patch."""
    patches = zip(e.tokens.flatten(0, 2).unbind(), e.token_target.flatten(0, 2).unbind(), strict=True)
    distances = [(p - t).pow(2).sum() / len(t) for p, t in patches]
    return sum(distances) / len(distances)


def small_vit(**options) -> nn.Module:
    sizes = {"img_size": 24, "patch_size": 4, "embed_dim": 24, "depth": 3, "num_heads": 2, "num_classes": 0}
    torch.manual_seed(0)
    return timm.create_model("vit_tiny_patch16_224", **(sizes | options))


def ijepa(in_chans: int = 3, net: dict | None = None, **options) -> IJEPA:
    network = small_vit(in_chans=in_chans, **(net or {}))
    size = network.patch_embed.img_size[0]
    objective = IJEPA(backbones.build(network, image_size=size, in_chans=in_chans), **options)
    with torch.no_grad():  # so that the teacher is not the student
        for p in objective.teacher.parameters():
            p.add_(torch.randn_like(p) * 0.02)
    return objective


def images(n: int = 4, in_chans: int = 3) -> Tensor:
    return torch.rand(n, in_chans, 24, 24, generator=torch.Generator().manual_seed(1))


def generator(seed: int = 0) -> torch.Generator:
    return torch.Generator().manual_seed(seed)


def embed(objective: IJEPA, x: Tensor, seed: int = 0) -> Tokens:
    return objective.embed([x], torch.arange(len(x)), generator(seed))


def repainted(x: Tensor, patch: int) -> Tensor:
    """The first image with other pixels in one patch of the 6 x 6."""
    x, (row, column) = x.clone(), divmod(patch, 6)
    x[0, :, 4 * row : 4 * row + 4, 4 * column : 4 * column + 4] = torch.rand(x.shape[1], 4, 4, generator=generator(5))
    return x


@pytest.mark.parametrize(("n", "b", "m", "d"), [(1, 2, 3, 4), (5, 4, 6, 24), (4, 1, 1, 2)])
def test_align_is_the_mean_over_the_patches_of_all_blocks(n: int, b: int, m: int, d: int) -> None:
    prediction, target = torch.randn(2, n, b, m, d, dtype=torch.float64, generator=generator())
    prediction.requires_grad_()
    e = Tokens(z=None, h=None, target=None, index=torch.arange(n), tokens=prediction, token_target=target)
    objective = ijepa()
    ours, theirs = objective.align(e), oracle(objective, e)
    torch.testing.assert_close(ours, theirs)
    torch.testing.assert_close(*(torch.autograd.grad(loss, prediction)[0] for loss in (ours, theirs)))
    assert objective.constrain(e) is None


def encoded(net: nn.Module, image: Tensor, keep: Tensor) -> Tensor:
    """(prefix + K, F) of one image through timm's modules, one after the other."""
    x, prefix = net._pos_embed(net.patch_embed(image[None])), net.num_prefix_tokens
    x = net.norm_pre(torch.cat([x[:, :prefix], x[:, prefix:][:, keep]], 1))
    for block in net.blocks:
        x = block(x)
    return net.fc_norm(net.norm(x))[0]


def predicted(objective: IJEPA, tokens: Tensor, context: Tensor, block: Tensor) -> Tensor:
    """(M, F) predictions of one block: context with positions, mask tokens with those that are asked for."""
    d, prefix = objective.predictor, len(tokens) - len(context)
    positions = lightly_utils.get_2d_sine_cosine_positional_embedding(d.embed.out_features, 6, cls_token=False)
    positions = torch.from_numpy(positions).to(tokens.dtype)
    x = tokens @ d.embed.weight.T + d.embed.bias
    known = [x[prefix + k] + positions[patch] for k, patch in enumerate(context)]
    asked = [d.mask_token + positions[patch] for patch in block]
    x = torch.stack([*x[:prefix], *known, *asked])[None]
    for layer in d.blocks:
        x = layer(x)
    return (d.norm(x[0, -len(block) :])) @ d.values.weight.T + d.values.bias


@pytest.mark.parametrize("net", NETS)
def test_the_step_is_a_loop_over_images_and_blocks(net: dict) -> None:
    objective = ijepa(net=net).double().eval()
    x, (context, blocks) = images().double(), objective.draw(4, generator())
    losses = []
    for i, image in enumerate(x):
        tokens = encoded(objective.backbone.net, image, context[i])
        teacher = objective.teacher[0].net
        whole = teacher.fc_norm(teacher.forward_features(image[None]))[0, teacher.num_prefix_tokens :]
        mean, var = whole.mean(1, keepdim=True), whole.var(1, keepdim=True, unbiased=False)
        whole = ((whole - mean) / (var + 1e-5).sqrt()).detach()
        for block in blocks[i]:
            difference = predicted(objective, tokens, context[i], block) - torch.stack([whole[j] for j in block])
            losses.append((difference**2).sum() / difference.numel())
    e = embed(objective, x)
    ours, theirs = objective.align(e), sum(losses) / len(losses)
    torch.testing.assert_close(ours, theirs, rtol=1e-6, atol=0)  # sine-cosine positions are fp32
    leaves = [p for p in objective.parameters() if p.requires_grad]
    for mine, its in zip(*(torch.autograd.grad(loss, leaves) for loss in (ours, theirs)), strict=True):
        torch.testing.assert_close(mine, its, rtol=1e-4, atol=1e-7)
    assert e.tokens.dtype is torch.float64 and len(losses) == 16


def test_the_predictor_is_lightlys() -> None:
    objective = ijepa(net={"class_token": False, "global_pool": "avg"}).double().eval()
    d, (context, blocks) = objective.predictor, objective.draw(4, generator())
    theirs = IJEPAPredictorTIMM(36, depth=len(d.blocks), mlp_dim=24, predictor_embed_dim=32, num_heads=1).double()
    with torch.no_grad():
        theirs.decoder.mask_token.copy_(d.mask_token.view(1, 1, -1))
    copies = (theirs.predictor_embed, theirs.predictor_proj, theirs.decoder.blocks, theirs.decoder.norm)
    for part, its in zip((d.embed, d.values, d.blocks, d.norm), copies, strict=True):
        its.load_state_dict(part.state_dict())
    torch.testing.assert_close(d.positions, theirs.decoder.pos_embed[0])
    x = images().double()
    tokens = torch.stack([encoded(objective.backbone.net, image, keep) for image, keep in zip(x, context, strict=True)])
    expected = theirs(tokens.clone(), [context], list(blocks.unbind(1)))  # block by block, all images of each
    torch.testing.assert_close(embed(objective, x).tokens, expected.unflatten(0, (4, 4)).transpose(0, 1))


def test_the_student_sees_the_context_alone_and_the_teacher_the_whole_image() -> None:
    objective, x = ijepa().eval(), images()
    context, _ = objective.draw(4, generator())
    seen = set(context[0].tolist())
    before = embed(objective, x)
    for patch in set(range(36)) - seen:
        after = embed(objective, repainted(x, patch))
        assert torch.equal(before.z, after.z) and torch.equal(before.tokens, after.tokens)
        assert not torch.equal(before.token_target[0], after.token_target[0])
        assert torch.equal(before.token_target[1:], after.token_target[1:])
    for patch in seen:
        after = embed(objective, repainted(x, patch))
        assert not torch.equal(before.z[:, 0], after.z[:, 0])
        assert all(not torch.equal(a, b) for a, b in zip(before.tokens[0], after.tokens[0], strict=True))
        assert torch.equal(before.z[:, 1:], after.z[:, 1:]) and torch.equal(before.tokens[1:], after.tokens[1:])


def test_one_forward_of_student_and_teacher_serves_all_blocks() -> None:
    objective, shapes = ijepa(targets=3), []
    for network in (objective.backbone.net, objective.predictor, objective.teacher[0].net):
        network.blocks[0].register_forward_pre_hook(lambda _, x: shapes.append(tuple(x[0].shape)))
    e = embed(objective, images())
    context, blocks = objective.draw(4, generator())
    k, m = context.shape[1], blocks.shape[2]
    assert shapes == [(4, 1 + k, 24), (12, 1 + k + m, 32), (4, 37, 24)]
    assert e.tokens.shape == e.token_target.shape == (4, 3, m, 24)


def test_targets_are_normalised_given_and_not_learned() -> None:
    objective, x = ijepa(), images().requires_grad_()
    e = embed(objective, x)
    assert not e.token_target.requires_grad and e.tokens.requires_grad and e.z.requires_grad and e.target is None
    torch.testing.assert_close(e.token_target.mean(-1), torch.zeros(e.token_target.shape[:-1]), rtol=0, atol=1e-5)
    torch.testing.assert_close(e.token_target.var(-1, unbiased=False), torch.ones(e.token_target.shape[:-1]))
    objective.align(e).backward()
    assert all(p.grad is None for p in objective.teacher.parameters())


@pytest.mark.parametrize("pool", ["avg", "token"])
def test_z_is_the_mean_of_the_contexts_patches(pool: str) -> None:
    objective, x = ijepa(net={"global_pool": pool}).eval(), images()
    net, (context, _) = objective.backbone.net, objective.draw(4, generator())
    e = embed(objective, x)
    assert e.z.shape == e.h.shape == (1, 4, 24) and objective.dim == 24
    for i in range(4):
        kept = net._pos_embed(net.patch_embed(x[i : i + 1]))[:, [0, *(context[i] + 1).tolist()]]
        patches = net.norm(net.blocks(net.norm_pre(kept)))[0, 1:]
        for row in (e.z[0, i], e.h[0, i]):
            torch.testing.assert_close(row, net.fc_norm(patches.mean(0)))


@pytest.mark.parametrize("net", NETS)
@pytest.mark.parametrize("position", ["sincos", "learned"])
def test_every_parameter_is_trained(net: dict, position: str) -> None:
    objective = ijepa(in_chans=1, net=net, position=position)
    objective.align(embed(objective, images(in_chans=1))).backward()
    trained = {name: p for name, p in objective.named_parameters() if p.requires_grad}
    assert all(p.grad is not None and p.grad.isfinite().all() and p.grad.any() for p in trained.values())
    assert ("backbone.net.pos_embed" in trained) == (position == "learned")


def test_the_teacher_follows_with_a_momentum_that_rises_to_1_along_a_line() -> None:
    objective = ijepa(momentum=0.9)
    with torch.no_grad():
        for p in objective.backbone.parameters():
            p.add_(1)
    for progress, momentum in ((0.0, 0.9), (0.25, 0.925), (0.5, 0.95), (1.0, 1.0)):
        before = [p.clone() for p in objective.teacher.parameters()]
        objective.after_step(progress)
        students = objective.backbone.parameters()
        for old, fast, slow in zip(before, students, objective.teacher.parameters(), strict=True):
            torch.testing.assert_close(slow, momentum * old + (1 - momentum) * fast)
            assert not slow.requires_grad
    assert all(torch.equal(a, b) for a, b in zip(before, objective.teacher.parameters(), strict=True))
    assert ijepa().momentum == 0.996


def test_masks_come_from_the_generator_alone_and_are_those_of_the_picture() -> None:
    objective = ijepa()
    state = torch.get_rng_state()
    first, again, other = (embed(objective, images(), seed) for seed in (0, 0, 1))
    assert torch.equal(first.tokens, again.tokens) and first.tokens.shape != other.tokens.shape
    context, blocks = objective.draw(4, generator())
    pictures = objective.hidden(4, generator())
    for caption, shown in (("context", context), ("target 1", blocks[:, 0])):
        for i in range(4):
            assert (~pictures[caption].mask[i]).nonzero()[:, 0].tolist() == shown[i].tolist()
    assert torch.equal(state, torch.get_rng_state())
    assert [one.predicted for one in pictures.values()] == [False, True]


def test_the_options_of_the_masks_reach_them() -> None:
    tall = ijepa(targets=2, target_scale=(8 / 36, 8 / 36), target_aspect=(2.0, 2.0), context_scale=(0.25, 0.25))
    context, blocks = tall.draw(50, generator())
    assert blocks.shape == (50, 2, 8) and context.shape[1] <= 9
    rows, columns = blocks // 6, blocks % 6
    assert (rows.amax(-1) - rows.amin(-1) == 3).all() and (columns.amax(-1) - columns.amin(-1) == 1).all()
    few, many = (ijepa(targets=1, context_scale=(0.25, 0.25), least_context=k).draw(50, generator()) for k in (0, 9))
    assert few[0].shape[1] < many[0].shape[1]


@pytest.mark.parametrize(
    ("name", "dim", "depth"), [("vit_base_patch16_224", 384, 6), ("vit_huge_patch14_224", 384, 12), ("narrow", 64, 2)]
)
def test_the_predictor_has_the_published_size(name: str, dim: int, depth: int) -> None:
    narrow = {"embed_dim": 96, "depth": 4, "num_heads": 4} if name == "narrow" else {}
    with torch.device("meta"):
        net = timm.create_model("vit_tiny_patch16_224" if narrow else name, num_classes=0, **narrow)
        predictor = IJEPA(backbones.build(net, image_size=224, in_chans=3)).predictor
    assert predictor.embed.out_features == dim and len(predictor.blocks) == depth
    assert predictor.blocks[0].attn.num_heads == dim // 32 and predictor.values.out_features == net.embed_dim


def test_the_view_is_a_crop_without_flip_and_colour() -> None:
    x = torch.linspace(0.2, 1, 20).expand(8, 3, 20, 20) * torch.tensor([0.5, 0.7, 0.9]).view(3, 1, 1)
    (view,) = augment(x, IJEPA.views.at(16), 16, generator())
    assert (view.diff(dim=-1) >= -1e-5).all()  # never mirrored
    torch.testing.assert_close(view[:, 1] / view[:, 0], torch.full((8, 16, 16), 1.4), rtol=1e-4, atol=0)
    assert IJEPA.views.views[0].scale == (0.3, 1.0) and len(IJEPA.views.each()) == 1


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"target_scale": (0.2, 0.1)}, r"target_scale must be two numbers.*got \[0.2, 0.1\]"),
        ({"target_scale": (0.1,)}, "target_scale must be two numbers"),
        ({"target_scale": (1.0, 1.0)}, "target_scale"),  # leaves no context
        ({"target_aspect": (2.0, 0.5)}, "target_aspect must be two numbers"),
        ({"context_scale": (0.5, 1.5)}, "context_scale must be two numbers.*<= 1"),
        ({"predictor_dim": 33}, "predictor_dim=33"),
        ({"momentum": 1.5}, "momentum must be from 0 to 1, got 1.5"),
        ({"position": "rope"}, "position='rope'"),
        ({"net": {"patch_size": 24}}, "1 x 1 patches of 24 pixels are too few"),
    ],
)
def test_options_that_cannot_be_are_named_in_one_line(options: dict, words: str) -> None:
    with pytest.raises(UserError, match=words) as caught:
        ijepa(**options)
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"backbone": "narrow_resnet"}, "narrow_resnet.*cannot run on a part of its patches.*narrow_vit"),
        ({"frames": 4}, "ijepa takes images only, and backbone narrow_slow takes clips"),
        ({"objective": {"targets": 0}}, "objective option targets must be .* got 0"),
        ({"objective": {"target_scale": [0.1, 1.5]}}, "objective option target_scale must be .*1.5"),
    ],
)
def test_other_networks_and_data_are_refused_in_one_line(options: dict, words: str) -> None:
    with pytest.raises(UserError, match=words) as caught:
        sslkit.method("ijepa", image_size=16, **options)
    assert "\n" not in str(caught.value)
