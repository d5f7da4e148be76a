"""MAE against loops, and its whole step against the published one in the order of the image."""

import pytest
import timm
import torch
from lightly.models import utils as lightly_utils
from lightly.models.modules import MaskedVisionTransformerTIMM
from torch import Tensor, nn

import sslkit
from sslkit import backbones
from sslkit.data.views.augmentation import augment
from sslkit.embeddings import Tokens
from sslkit.errors import UserError
from sslkit.layers import masks
from sslkit.objectives.mae import MAE


def oracle(objective: MAE, e: Tokens) -> Tensor:
    """The mean over hidden patches of the mean squared difference, patch by patch."""
    v, n, m, _ = e.token_target.shape
    patches = [(e.tokens[i, j, k] - e.token_target[i, j, k]) for i in range(v) for j in range(n) for k in range(m)]
    return sum((d * d).sum() / d.numel() for d in patches) / len(patches)


def small_vit(**options) -> nn.Module:
    sizes = {"img_size": 16, "patch_size": 4, "embed_dim": 24, "depth": 2, "num_heads": 2, "num_classes": 0}
    torch.manual_seed(0)
    return timm.create_model("vit_tiny_patch16_224", **(sizes | options))


def mae(in_chans: int = 3, net: dict | None = None, **options) -> MAE:
    network = small_vit(in_chans=in_chans, **(net or {}))
    size = network.patch_embed.img_size[0]
    return MAE(backbones.build(network, image_size=size, in_chans=in_chans), **{"sets": 2, **options})


def images(n: int = 5, in_chans: int = 3) -> Tensor:
    return torch.rand(n, in_chans, 16, 16, generator=torch.Generator().manual_seed(1))


def embed(objective: MAE, x: Tensor, seed: int = 0) -> Tokens:
    return objective.embed([x], torch.arange(len(x)), torch.Generator().manual_seed(seed))


@pytest.mark.parametrize(("v", "n", "m", "p"), [(1, 2, 3, 4), (2, 5, 12, 48), (3, 4, 1, 2)])
def test_align_is_the_mean_over_hidden_patches(v: int, n: int, m: int, p: int) -> None:
    g = torch.Generator().manual_seed(v)
    prediction = torch.randn(v, n, m, p, dtype=torch.float64, generator=g, requires_grad=True)
    pixels = torch.randn(v, n, m, p, dtype=torch.float64, generator=g)
    e = Tokens(z=None, h=None, target=None, index=torch.arange(n), tokens=prediction, token_target=pixels)
    objective = mae()
    ours, theirs = objective.align(e), oracle(objective, e)
    torch.testing.assert_close(ours, theirs)
    torch.testing.assert_close(*(torch.autograd.grad(loss, prediction)[0] for loss in (ours, theirs)))
    assert objective.constrain(e) is None


@pytest.mark.parametrize("normalize_pixels", [True, False])
def test_the_step_is_the_published_one(normalize_pixels: bool) -> None:
    """Lightly's masked encoder, then mask tokens in the order of the image, all patches, and the masked mean."""
    objective = mae(normalize_pixels=normalize_pixels).double().eval()
    x = images().double()
    order = masks.draw_orders(5, 16, torch.Generator().manual_seed(0))
    encoder = MaskedVisionTransformerTIMM(
        objective.backbone.net, weight_initialization="skip", pos_embed_initialization="skip"
    ).double()
    losses = [
        published(objective, encoder, x, torch.cat([order[:, s:], order[:, :s]], 1), normalize_pixels) for s in (0, 4)
    ]
    e = embed(objective, x)
    torch.testing.assert_close(objective.align(e), sum(losses) / 2)
    assert e.tokens.dtype is torch.float64


def published(objective: MAE, encoder: nn.Module, x: Tensor, order: Tensor, normalize: bool) -> Tensor:
    n, length = order.shape
    restore = order.argsort(1)
    keep = torch.cat([torch.zeros(n, 1, dtype=torch.long), order[:, :4] + 1], 1)
    d = objective.decoder
    latent = d.embed(encoder.encode(x, idx_keep=keep))
    tokens = torch.cat([latent[:, 1:], d.mask_token.expand(n, length - 4, -1)], 1)
    tokens = torch.stack([tokens[i, restore[i]] for i in range(n)])
    positions = lightly_utils.get_2d_sine_cosine_positional_embedding(32, 4, cls_token=True)
    tokens = torch.cat([latent[:, :1], tokens], 1) + torch.from_numpy(positions)
    prediction = d.values(d.norm(d.blocks(tokens)))[:, 1:]
    target = lightly_utils.patchify(x, 4)
    if normalize:
        target = (target - target.mean(-1, keepdim=True)) / (target.var(-1, keepdim=True) + 1e-6) ** 0.5
    hidden = torch.ones(n, length, dtype=x.dtype).scatter_(1, order[:, :4], 0.0)
    return (((prediction - target) ** 2).mean(-1) * hidden).sum() / hidden.sum()


@pytest.mark.parametrize("pool", ["avg", "token"])
def test_two_views_of_an_image_are_the_means_of_their_patches(pool: str) -> None:
    objective = mae(net={"global_pool": pool}).eval()
    net = objective.backbone.net
    e = embed(objective, images())
    assert e.z.shape == e.h.shape == (2, 5, 24) and objective.dim == 24
    order = masks.draw_orders(5, 16, torch.Generator().manual_seed(0))
    encoder = MaskedVisionTransformerTIMM(net, weight_initialization="skip", pos_embed_initialization="skip")
    for v in range(2):
        keep = torch.cat([torch.zeros(5, 1, dtype=torch.long), order[:, 4 * v : 4 * v + 4] + 1], 1)
        tokens = encoder.encode(images(), idx_keep=keep)
        torch.testing.assert_close(e.z[v], net.fc_norm(tokens[:, 1:].mean(1)))


def test_one_set_is_one_view_and_the_first_of_two() -> None:
    one, two = mae(sets=1), mae(sets=2)
    two.load_state_dict(one.state_dict())
    a, b = embed(one, images()), embed(two, images())
    assert a.z.shape == (1, 5, 24)
    torch.testing.assert_close(a.z[0], b.z[0])
    torch.testing.assert_close(a.tokens[0], b.tokens[0])


@pytest.mark.parametrize("name", ["mae", "u_mae"])
def test_alone_it_is_the_published_step_and_a_regulariser_gets_two_views(name: str) -> None:
    def sets(plugins: str = "", **objective) -> int:
        how = {"backbone": "narrow_vit", "image_size": 16, "objective": objective}
        return sslkit.method(name + plugins, **how).objective.sets

    assert (sets(), sets("+koleo"), sets("+dsa+guide")) == (1, 2, 2)
    assert (sets(sets=2), sets("+koleo", sets=1), sets(mask_ratio=0.5)) == (2, 1, 1)
    with pytest.raises(UserError, match="sets=2 disjoint visible sets must fit"):
        sets("+koleo", mask_ratio=0.4)


def test_masks_come_from_the_generator_alone() -> None:
    objective = mae()
    state = torch.get_rng_state()
    first, again, other = (embed(objective, images(), seed) for seed in (0, 0, 1))
    assert torch.equal(first.tokens, again.tokens) and not torch.equal(first.token_target, other.token_target)
    assert torch.equal(state, torch.get_rng_state())


@pytest.mark.parametrize(
    "net",
    [
        {"global_pool": "avg"},
        {"global_pool": "token"},
        {"global_pool": "max", "class_token": False},
        {"reg_tokens": 3, "global_pool": "avg"},
        {"no_embed_class": True, "dynamic_img_size": True},
        {"pre_norm": True, "fc_norm": True},
    ],
)
@pytest.mark.parametrize("position", ["sincos", "learned"])
def test_reconstruction_alone_trains_every_parameter(net: dict, position: str) -> None:
    objective = mae(in_chans=1, net=net, position=position)
    objective.align(embed(objective, images(in_chans=1))).backward()
    trained = {name: p for name, p in objective.named_parameters() if p.requires_grad}
    assert all(p.grad is not None and p.grad.isfinite().all() and p.grad.any() for p in trained.values())
    assert ("backbone.net.pos_embed" in trained) == (position == "learned")


def test_the_target_is_given_and_not_learned() -> None:
    x = images().requires_grad_()
    e = embed(mae(), x)
    assert not e.token_target.requires_grad and e.tokens.requires_grad and e.z.requires_grad
    assert e.tokens.shape == e.token_target.shape == (2, 5, 12, 48)
    torch.testing.assert_close(e.token_target.mean(-1), torch.zeros(2, 5, 12), rtol=0, atol=1e-5)
    torch.testing.assert_close(e.token_target.var(-1), torch.ones(2, 5, 12), rtol=1e-3, atol=0)


def test_encoder_exports_as_plain_timm() -> None:
    backbone = backbones.build("narrow_vit", image_size=28, in_chans=1)
    MAE(backbone)
    scope: dict = {}
    exec("\n".join(backbone.recipe.lines), scope)
    plain = scope["net"]
    plain.load_state_dict(backbone.export(), strict=True)
    x = torch.rand(2, 1, 28, 28)
    torch.testing.assert_close(plain.eval()(x), backbone.eval()(x))


@pytest.mark.parametrize(
    ("name", "dim", "depth"), [("vit_base_patch16_224", 512, 8), ("vit_large_patch16_224", 512, 8), ("narrow", 64, 2)]
)
def test_the_decoder_has_the_published_size(name: str, dim: int, depth: int) -> None:
    with torch.device("meta"):
        narrow = {"embed_dim": 96, "depth": 4, "num_heads": 4}
        net = timm.create_model(
            "vit_tiny_patch16_224" if name == "narrow" else name, num_classes=0, **(narrow if name == "narrow" else {})
        )
        decoder = MAE(backbones.build(net, image_size=224, in_chans=3)).decoder
    assert decoder.embed.out_features == dim and len(decoder.blocks) == depth
    assert decoder.blocks[0].attn.num_heads == dim // 32


def test_the_view_is_a_crop_and_a_flip_without_colour() -> None:
    x = torch.full((4, 3, 20, 20), 0.3) * torch.tensor([1.0, 2.0, 3.0]).view(3, 1, 1)
    (view,) = augment(x, MAE.views.at(16), 16, torch.Generator().manual_seed(0))
    torch.testing.assert_close(view, x[..., :16, :16], rtol=0, atol=1e-5)
    assert MAE.views.views[0].scale == (0.2, 1.0) and MAE.views.views[0].flip == 0.5


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"mask_ratio": 0.4}, "mask_ratio=0.4 leaves 10 of 16"),
        ({"mask_ratio": 0.99}, "leaves 0 of 16"),
        ({"mask_ratio": 0.0, "sets": 1}, "leaves 16 of 16"),
        ({"sets": 5}, "sets=5"),
        ({"sets": 0}, "sets=0"),
        ({"position": "rope"}, "position='rope'"),
        ({"decoder_dim": 0}, "decoder_dim=0"),
        ({"decoder_depth": 0}, "decoder_depth=0"),
    ],
)
def test_options_that_cannot_be(options: dict, words: str) -> None:
    with pytest.raises(UserError, match=words):
        mae(**options)


def test_half_of_the_patches_suffice_for_two_sets() -> None:
    assert mae(mask_ratio=0.5).visible == 8 and mae(mask_ratio=0.4, sets=1).visible == 10


def test_a_patch_of_one_value_has_no_variance() -> None:
    with pytest.raises(UserError, match="normalize_pixels=false"):
        mae(in_chans=1, net={"patch_size": 1, "img_size": 4})


def test_a_convolutional_network_is_refused() -> None:
    with pytest.raises(UserError, match=r"narrow_resnet.*narrow_vit"):
        MAE(backbones.build("narrow_resnet", image_size=16, in_chans=3))
