"""data2vec 2.0 against loops: targets block by block, the decoder module by module, the step mask by mask."""

import itertools

import pytest
import timm
import torch
from timm.models.vision_transformer import ParallelThingsBlock
from torch import Tensor, nn

import sslkit
from sslkit import backbones
from sslkit.data.views.recipe import View
from sslkit.embeddings import Tokens
from sslkit.errors import UserError
from sslkit.objectives.data2vec import NOISE, ConvolutionalDecoder, Data2Vec
from sslkit.runtime import draws

NETS = [
    {"global_pool": "token"},
    {"global_pool": "avg", "class_token": False},
    {"reg_tokens": 3, "global_pool": "avg"},
    {"pre_norm": True, "fc_norm": True},
]


def distance(a: Tensor, b: Tensor) -> Tensor:
    """The mean over rows of the mean squared difference, row by row."""
    rows = zip(a.flatten(0, -2).unbind(), b.flatten(0, -2).unbind(), strict=True)
    each = [(x - y).pow(2).sum() / len(y) for x, y in rows]
    return sum(each) / len(each)


def oracle(objective: Data2Vec, e: Tokens) -> Tensor:
    loss = distance(e.tokens, e.token_target)
    return loss + objective.class_weight * distance(e.z, e.target) if objective.class_weight else loss


def data2vec(net: dict | None = None, **options) -> Data2Vec:
    sizes = {"img_size": 24, "patch_size": 4, "embed_dim": 24, "depth": 3, "num_heads": 2, "num_classes": 0}
    torch.manual_seed(0)
    network = timm.create_model("vit_tiny_patch16_224", **(sizes | (net or {})))
    backbone = backbones.build(network, image_size=24, in_chans=3)
    objective = Data2Vec(backbone, **({"masks": 3, "decoder_depth": 2} | options))
    with torch.no_grad():  # so that the teacher is not the student
        for p in objective.teacher.parameters():
            p.add_(torch.randn_like(p) * 0.02)
    return objective


def generator(seed: int = 0) -> torch.Generator:
    return torch.Generator().manual_seed(seed)


def images() -> Tensor:
    return torch.rand(4, 3, 24, 24, generator=generator(1))


def embed(objective: Data2Vec, x: Tensor, seed: int = 0) -> Tokens:
    return objective.embed([x], torch.arange(len(x)), generator(seed))


def drawn(objective: Data2Vec) -> tuple[Tensor, Tensor]:
    """The orders of a step, and its noise."""
    g = generator()
    orders = objective.draw(4, g)
    return orders, draws.normal((objective.masks, 36, 24), draws.new_key(g), torch.device("cpu")) * 0.01


def encoded(net: nn.Module, image: Tensor, keep: Tensor) -> Tensor:
    """(prefix + K, F) of one image through timm's modules, one after the other."""
    x, prefix = net._pos_embed(net.patch_embed(image[None])), net.num_prefix_tokens
    x = net.norm_pre(torch.cat([x[:, :prefix], x[:, prefix:][:, keep]], 1))
    for block in net.blocks:
        x = block(x)
    return net.norm(x)[0]


@torch.no_grad()
def targets(net: nn.Module, image: Tensor, layers: int) -> Tensor:
    """(L, F): what the MLPs of the last blocks add, normalised over patches, their mean, normalised over channels."""
    x, added = net.norm_pre(net._pos_embed(net.patch_embed(image[None]))), []
    for block in net.blocks:
        x = x + block.attn(block.norm1(x))
        output = block.mlp(block.norm2(x))
        x = x + output
        added.append(output[0, net.num_prefix_tokens :])
    normed = [(a - a.mean(0)) / (a.var(0, unbiased=False) + 1e-5).sqrt() for a in added[-layers:]]
    mean = sum(normed) / layers
    return (mean - mean.mean(1, keepdim=True)) / (mean.var(1, keepdim=True, unbiased=False) + 1e-5).sqrt()


def decoded(decoder: ConvolutionalDecoder, grid: Tensor) -> Tensor:
    """(B, rows, columns, width) through torch's modules, the weights copied into each."""

    def copied(new: nn.Module, layer: nn.Module) -> nn.Module:
        new.load_state_dict(layer.state_dict())
        return new.to(grid)

    x = grid.permute(0, 3, 1, 2)
    for layer in decoder.layers:
        one, dim = layer.in_channels, layer.out_channels
        y = copied(nn.Conv2d(one, dim, kernel_size=3, padding=1, groups=layer.groups), layer)(x).permute(0, 2, 3, 1)
        y = nn.GELU()(nn.LayerNorm(dim, elementwise_affine=False)(y)).permute(0, 3, 1, 2)
        x = x + y if one == dim else y
    return copied(nn.Linear(dim, grid.shape[-1]), decoder.last)(x.permute(0, 2, 3, 1))


@pytest.mark.parametrize("pool", ["avg", "token"])
@pytest.mark.parametrize(("v", "n", "m", "d"), [(1, 2, 3, 4), (3, 5, 12, 24)])
def test_align_is_the_mean_over_hidden_patches_and_over_class_tokens(pool: str, v: int, n: int, m: int, d: int) -> None:
    tokens, patches = torch.randn(2, v, n, m, d, dtype=torch.float64, generator=generator(v))
    z, target = torch.randn(2, v, n, d, dtype=torch.float64, generator=generator(v))
    leaves = [tokens.requires_grad_(), z.requires_grad_()]
    e = Tokens(z=z, h=z, target=target, index=torch.arange(n), tokens=tokens, token_target=patches)
    objective = data2vec(net={"global_pool": pool}, class_weight=0.5)
    ours, theirs = objective.align(e), oracle(objective, e)
    torch.testing.assert_close(ours, theirs)
    grads = [torch.autograd.grad(x, leaves, materialize_grads=True) for x in (ours, theirs)]
    torch.testing.assert_close(*grads)
    assert grads[0][0].any() and grads[0][1].any() == (pool == "token") and objective.constrain(e) is None


@pytest.mark.parametrize("net", NETS)
@pytest.mark.parametrize("layers", [1, 2, 3])
def test_targets_are_a_loop_over_blocks(net: dict, layers: int) -> None:
    objective, x = data2vec(net=net, layers=layers).double().eval(), images().double()
    ours = objective.target(x)
    for image, found in zip(x, ours, strict=True):
        torch.testing.assert_close(found, targets(objective.teacher[0].net, image, layers))
    assert not ours.requires_grad and ours.shape == (4, 36, 24)
    assert not any(block.mlp._forward_hooks for block in objective.teacher[0].net.blocks)  # the hooks are taken away


@pytest.mark.parametrize(("depth", "layers"), [(12, 10), (6, 5), (5, 5), (1, 1)])
def test_the_target_leaves_out_the_first_sixth_of_the_blocks(depth: int, layers: int) -> None:
    assert data2vec(net={"depth": depth}).layers == layers


@pytest.mark.parametrize(("dim", "depth"), [(24, 1), (24, 3), (32, 2), (7, 2)])
def test_the_decoder_is_torchs_modules_one_by_one(dim: int, depth: int) -> None:
    torch.manual_seed(0)
    decoder = ConvolutionalDecoder(24, (3, 5), dim=dim, depth=depth).double()
    x = torch.randn(2, 15, 24, dtype=torch.double)
    torch.testing.assert_close(decoder(x), decoded(decoder, x.view(2, 3, 5, 24)).flatten(1, 2))
    assert len(decoder.layers) == depth and decoder(x).shape == x.shape


def test_sizes_schedules_and_view_are_the_published_ones() -> None:
    with torch.device("meta"):
        net = timm.create_model("vit_base_patch16_224", num_classes=0)
        objective = Data2Vec(backbones.build(net, image_size=224, in_chans=3))
    layers = objective.decoder.layers
    assert [(x.in_channels, x.out_channels, x.groups) for x in layers] == [(768, 768, 16)] * 6
    assert (objective.masks, objective.visible, objective.layers, objective.class_weight) == (16, 39, 10, 0.01)
    assert (objective.side, objective.extra, NOISE) == (3, 0.07, 0.01)
    assert (objective.momenta, objective.anneal) == ((0.9998, 0.99999), 0.27)
    assert Data2Vec.views.each() == (View(scale=(0.2, 1.0), flip=0.5, jitter=0.0, grayscale=0.0, blur=0.0),)


@pytest.mark.parametrize("net", NETS)
def test_the_step_is_a_loop_over_masks_and_images(net: dict) -> None:
    objective, x = data2vec(net=net, class_weight=0.3).double().eval(), images().double()
    network, prefix = objective.backbone.net, objective.backbone.net.num_prefix_tokens
    (orders, noise), patches, pooled = drawn(objective), [], []
    for v, (i, image) in itertools.product(range(3), enumerate(x)):
        visible, hidden = (part.tolist() for part in orders[v, i].split([7, 29]))
        tokens, target = encoded(network, image, visible), targets(objective.teacher[0].net, image, 3)
        rows = dict(zip(visible, network.fc_norm(tokens[prefix:]), strict=True))
        grid = torch.stack([rows.get(k, noise[v, k].double()) for k in range(36)]).view(1, 6, 6, 24)
        predicted = decoded(objective.decoder, grid).view(36, 24)
        patches += [(predicted[k] - target[k]).square().sum() / 24 for k in hidden]
        pooled.append((network.fc_norm(tokens[0]) - target.mean(0)).square().sum() / 24)
    e = embed(objective, x)
    expected = sum(patches) / len(patches)
    if network.global_pool == "token":
        expected = expected + 0.3 * sum(pooled) / len(pooled)
    torch.testing.assert_close(objective.align(e), expected, rtol=1e-6, atol=0)
    leaves = [p for p in objective.backbone.parameters() if p.requires_grad]
    grads = [torch.autograd.grad(loss, leaves) for loss in (objective.align(e), expected)]
    torch.testing.assert_close(*grads, rtol=1e-5, atol=1e-9)
    assert e.z.shape == e.h.shape == (3, 4, 24) and e.tokens.shape == e.token_target.shape == (3, 4, 29, 24)


def test_visible_features_lie_at_their_places_in_the_decoders_grid_and_noise_at_the_others() -> None:
    objective, x, given = data2vec().eval(), images(), []
    objective.decoder.register_forward_pre_hook(lambda _, args: given.append(args[0].unflatten(0, (3, 4))))
    embed(objective, x)
    (grid,), (orders, noise), net = given, drawn(objective), objective.backbone.net
    for v, i in itertools.product(range(3), range(4)):
        visible, hidden = orders[v, i].split([7, 29])
        features = net.fc_norm(encoded(net, x[i], visible)[1:])
        torch.testing.assert_close(grid[v, i, visible], features, rtol=1e-4, atol=1e-5)
        assert torch.equal(grid[v, i, hidden], noise[v, hidden])  # the same for every image
    assert not torch.equal(noise[0], noise[1])


def test_the_student_sees_visible_patches_alone_and_the_teacher_all() -> None:
    objective, x = data2vec(net={"global_pool": "token"}).eval(), images()
    orders, _ = drawn(objective)
    before = embed(objective, x)
    for patch in range(36):
        other, (row, column) = x.clone(), divmod(patch, 6)
        other[0, :, 4 * row : 4 * row + 4, 4 * column : 4 * column + 4] = torch.rand(3, 4, 4, generator=generator(5))
        after = embed(objective, other)
        for v in range(3):
            same = patch not in orders[v, 0, :7].tolist()
            assert torch.equal(before.z[v, 0], after.z[v, 0]) == same
            assert torch.equal(before.tokens[v, 0], after.tokens[v, 0]) == same
            assert not torch.equal(before.token_target[v, 0], after.token_target[v, 0])
            assert not torch.equal(before.target[v, 0], after.target[v, 0])
        assert torch.equal(before.tokens[:, 1:], after.tokens[:, 1:])


def test_all_masks_of_an_image_share_one_pass_of_the_teacher() -> None:
    objective, shapes = data2vec(masks=5), []
    for net in (objective.backbone.net, objective.teacher[0].net):
        for part in (net.patch_embed, net.blocks[0]):
            part.register_forward_pre_hook(lambda _, x: shapes.append(tuple(x[0].shape)))
    e = embed(objective, images())
    assert shapes == [(4, 3, 24, 24), (20, 8, 24), (4, 3, 24, 24), (4, 37, 24)]
    target, (orders, _) = objective.target(images()), drawn(objective)
    for v, i in itertools.product(range(5), range(4)):
        torch.testing.assert_close(e.token_target[v, i], target[i, orders[v, i, 7:]])


@pytest.mark.parametrize("anneal", [0.5, 0.0, 1.0])
def test_the_teachers_momentum_rises_along_a_line_and_then_stays(anneal: float) -> None:
    objective = data2vec(momentum=0.9, final_momentum=0.98, anneal=anneal)
    student = [p.data.add_(1) for p in objective.backbone.parameters()]
    for progress in (0.0, 0.25, 0.5, 0.75, 1.0):
        momentum = 0.98 if progress >= anneal else 0.9 + 0.08 * progress / anneal
        before = [p.clone() for p in objective.teacher.parameters()]
        objective.after_step(progress)
        expected = [momentum * slow + (1 - momentum) * fast for slow, fast in zip(before, student, strict=True)]
        torch.testing.assert_close(list(objective.teacher.parameters()), expected)


def test_the_class_token_learns_the_mean_target_only_where_it_is_pooled() -> None:
    small = {"masks": 2, "decoder_depth": 1, "class_weight": 0.2}
    names = ("vit_tiny_patch16_224", "narrow_vit")
    pooled, mean = (sslkit.method("data2vec", backbone=name, image_size=32, objective=small) for name in names)
    x = torch.rand(3, 3, 32, 32, generator=generator())
    terms, e = pooled.step(x, torch.arange(3))
    assert pooled.objective.class_weight == 0.2 and mean.objective.class_weight == 0
    net, view = pooled.objective.teacher[0].net, pooled.normalize_pixels(e.views[0])
    target = torch.stack([targets(net, one, 10).mean(0) for one in view])
    torch.testing.assert_close(e.target, target.expand(2, 3, 192), rtol=1e-3, atol=1e-4)
    expected = (e.tokens - e.token_target).pow(2).mean() + 0.2 * (e.z - target).pow(2).mean()
    assert terms["align"].item() == pytest.approx(expected.item(), rel=1e-4)
    assert mean.step(x, torch.arange(3))[1].target is None


@pytest.mark.parametrize("net", NETS)
@pytest.mark.parametrize("position", ["sincos", "learned"])
def test_every_parameter_is_trained_and_the_teacher_is_not(net: dict, position: str) -> None:
    objective = data2vec(net=net, position=position)
    objective.align(embed(objective, images())).backward()
    trained = {name: p for name, p in objective.named_parameters() if p.requires_grad}
    assert all(p.grad is not None and p.grad.isfinite().all() and p.grad.any() for p in trained.values())
    assert ("backbone.net.pos_embed" in trained) == (position == "learned") and "teacher" not in str(list(trained))


def test_masks_and_noise_come_from_the_generator_alone_and_are_those_of_the_picture() -> None:
    objective, state = data2vec(), torch.get_rng_state()
    first, again, other = (embed(objective, images(), seed) for seed in (0, 0, 1))
    assert torch.equal(first.tokens, again.tokens) and not torch.equal(first.tokens, other.tokens)
    pictures, (orders, _) = objective.hidden(4, generator()), drawn(objective)
    for v, i in itertools.product(range(2), range(4)):
        assert pictures[f"mask {v + 1}"].mask[i].nonzero()[:, 0].tolist() == sorted(orders[v, i, 7:].tolist())
    assert torch.equal(state, torch.get_rng_state())


@pytest.mark.parametrize("side", [1, 2, 3, 4, 9])
def test_squares_may_have_any_side(side: int) -> None:
    assert embed(data2vec(side=side), images()).tokens.shape == (3, 4, 29, 24)


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"objective": {"mask_ratio": 0.0}}, "mask_ratio=0.0 leaves 64 of 64 patches"),
        ({"objective": {"mask_ratio": 0.995}}, "mask_ratio=0.995 leaves 0 of 64 patches"),
        ({"objective": {"layers": 5}}, "layers=5, and narrow_vit has 4 blocks"),
        ({"objective": {"final_momentum": 1.5}}, "objective option final_momentum must be .* got 1.5"),
        ({"objective": {"position": "rope"}}, "position='rope'"),
        ({"backbone": "narrow_resnet"}, "narrow_resnet.*cannot run on a part of its patches.*narrow_vit"),
        ({"frames": 4}, "data2vec takes images only, and backbone narrow_slow takes clips"),
    ],
)
def test_what_cannot_be_is_named_in_one_line(options: dict, words: str) -> None:
    with pytest.raises(UserError, match=words) as caught:
        sslkit.method("data2vec", image_size=16, **options)
    assert "\n" not in str(caught.value)


def test_blocks_without_one_mlp_are_refused_in_one_line() -> None:
    """As those of vit_small_patch16_18x2_224."""
    with pytest.raises(UserError, match="block") as caught:
        data2vec(net={"block_fn": ParallelThingsBlock})
    assert "\n" not in str(caught.value)
