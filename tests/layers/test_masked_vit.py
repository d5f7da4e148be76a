"""The masked ViT against timm's own forward, lightly's pieces and plain loops."""

import numpy as np
import pytest
import timm
import torch
from lightly.models import utils as lightly_utils
from lightly.models.modules import MaskedVisionTransformerTIMM
from torch import nn

from sslkit.errors import UserError
from sslkit.layers import masked_vit, masks
from sslkit.runtime import distributed

VARIANTS = {
    "class token": {},
    "class token, pooled": {"global_pool": "avg"},
    "no class token": {"class_token": False, "global_pool": "avg"},
    "registers": {"reg_tokens": 4},
    "registers alone": {"class_token": False, "reg_tokens": 4, "global_pool": "avg"},
    "dynamic size": {"dynamic_img_size": True},
    "positions of patches only": {"no_embed_class": True, "reg_tokens": 2},
    "norm before the blocks": {"pre_norm": True},
    "fc_norm after the class token": {"fc_norm": True},
    "a rectangle": {"img_size": (8, 16), "patch_size": (2, 4)},
    "distilled": {"model_name": "deit_tiny_distilled_patch16_224"},
    "layer scale, qk norm": {"init_values": 0.1, "qk_norm": True},
}


def vit(**options) -> nn.Module:
    options = {
        "model_name": "vit_tiny_patch16_224",
        "img_size": 16,
        "patch_size": 4,
        "embed_dim": 24,
        "depth": 2,
        "num_heads": 2,
    } | options
    torch.manual_seed(0)
    net = timm.create_model(num_classes=0, **options)
    masked_vit.check(net, "vit")
    for token in (net.cls_token, net.reg_token, getattr(net, "dist_token", None)):
        if token is not None:
            nn.init.normal_(token)  # timm's start at 1e-6, where a forgotten token would not show
    return net


def images(net: nn.Module, n: int = 3) -> torch.Tensor:
    return torch.randn(n, 3, *net.patch_embed.img_size, generator=torch.Generator().manual_seed(1))


@pytest.mark.parametrize("variant", VARIANTS)
def test_all_patches_visible_is_timms_forward(variant: str) -> None:
    net = vit(**VARIANTS[variant])
    x = images(net)
    everything = torch.arange(net.patch_embed.num_patches).expand(1, len(x), -1)
    tokens = masked_vit.encode(net, x, everything)
    torch.testing.assert_close(tokens, net.forward_features(x))
    torch.testing.assert_close(net.forward_head(tokens), net(x))


@pytest.mark.parametrize("variant", ["class token", "class token, pooled", "dynamic size", "norm before the blocks"])
def test_a_part_of_the_patches_is_lightlys_encoding(variant: str) -> None:
    net = vit(**VARIANTS[variant])
    x = images(net)
    visible, _ = masks.split_orders(masks.draw_orders(3, 16, torch.Generator().manual_seed(2)), 2, 5)
    theirs = MaskedVisionTransformerTIMM(net, weight_initialization="skip", pos_embed_initialization="skip")
    first = torch.zeros(3, 1, dtype=torch.long)
    expected = [theirs.encode(x, idx_keep=torch.cat([first, keep + 1], 1)) for keep in visible]
    torch.testing.assert_close(masked_vit.encode(net, x, visible), torch.cat(expected))


@pytest.mark.parametrize("variant", ["registers", "no class token", "positions of patches only"])
def test_hidden_pixels_are_not_seen_and_visible_ones_are(variant: str) -> None:
    net = vit(**VARIANTS[variant])
    x = images(net, 1)
    visible = torch.tensor([[[2, 9]]])
    seen = masked_vit.encode(net, x, visible)
    assert seen.shape == (1, net.num_prefix_tokens + 2, 24)
    other = x.clone()
    other[:, :, 8:12, 8:12] += 1  # patch 10
    torch.testing.assert_close(masked_vit.encode(net, other, visible), seen, rtol=0, atol=0)
    other[:, :, 8:12, 4:8] += 1  # patch 9
    assert not torch.allclose(masked_vit.encode(net, other, visible), seen)


def test_gradient_checkpoints_change_nothing() -> None:
    net = vit()
    visible = torch.tensor([[[2, 9], [0, 1], [3, 3]]])
    expected = masked_vit.encode(net, images(net), visible)
    net.set_grad_checkpointing()
    torch.testing.assert_close(masked_vit.encode(net, images(net), visible), expected)


def test_views_of_another_size_are_refused() -> None:
    net = vit(dynamic_img_size=True)
    with pytest.raises(UserError, match=r"4 patches.*4 x 4"):
        masked_vit.encode(net, torch.zeros(2, 3, 8, 8), torch.zeros(1, 2, 3, dtype=torch.long))


def test_patchify_is_lightlys_and_cuts_what_is_left_over() -> None:
    x = torch.randn(2, 3, 12, 12)
    assert torch.equal(masked_vit.patchify(x, (4, 4)), lightly_utils.patchify(x, 4))
    odd = torch.randn(2, 1, 7, 9)
    patches = masked_vit.patchify(odd, (3, 2))
    assert patches.shape == (2, 8, 6)
    for row in range(2):
        for column in range(4):
            expected = odd[1, 0, 3 * row : 3 * row + 3, 2 * column : 2 * column + 2].flatten()
            assert torch.equal(patches[1, 4 * row + column], expected)


def test_standardize_takes_the_unbiased_variance() -> None:
    x = torch.randn(2, 5, 12, dtype=torch.float64)
    a = x.numpy()
    expected = (a - a.mean(-1, keepdims=True)) / np.sqrt(a.var(-1, ddof=1, keepdims=True) + 1e-6)
    torch.testing.assert_close(masked_vit.standardize(x), torch.from_numpy(expected))
    flat = masked_vit.standardize(torch.full((1, 4, 12), 0.3))
    assert flat.abs().max() < 1e-3


def test_sincos_is_lightlys_and_knows_rows_from_columns() -> None:
    expected = lightly_utils.get_2d_sine_cosine_positional_embedding(24, 5, cls_token=False)
    torch.testing.assert_close(masked_vit.sincos((5, 5), 24), torch.from_numpy(expected).float(), rtol=1e-5, atol=1e-6)
    wide = masked_vit.sincos((2, 3), 8).unflatten(0, (2, 3))
    for row in range(2):
        for column in range(3):
            angles = [[x, x / 100] for x in (column, row)]
            by_hand = np.concatenate([np.r_[np.sin(a), np.cos(a)] for a in angles])
            np.testing.assert_allclose(wide[row, column], by_hand, atol=1e-6)


@pytest.mark.parametrize("variant", ["class token", "no class token", "registers", "positions of patches only"])
def test_fixed_positions_are_zero_for_class_and_registers(variant: str) -> None:
    net = vit(**VARIANTS[variant])
    masked_vit.set_positions(net, "sincos")
    prefix = 0 if net.no_embed_class else net.num_prefix_tokens
    assert not net.pos_embed.requires_grad
    assert net.pos_embed[0, :prefix].eq(0).all()
    assert torch.equal(net.pos_embed[0, prefix:], masked_vit.sincos((4, 4), 24))


def test_orders_are_permutations_from_the_generator_alone() -> None:
    state = torch.get_rng_state()
    orders = masks.draw_orders(7, 49, torch.Generator().manual_seed(3))
    again = masks.draw_orders(7, 49, torch.Generator().manual_seed(3))
    other = masks.draw_orders(7, 49, torch.Generator().manual_seed(4))
    assert torch.equal(orders.sort(1).values, torch.arange(49).expand(7, -1))
    assert torch.equal(orders, again) and not torch.equal(orders, other)
    assert torch.equal(torch.get_rng_state(), state)
    assert len(orders.unique(dim=0)) == 7


def test_ranks_share_out_the_orders_of_one_process(monkeypatch) -> None:
    alone = masks.draw_orders(6, 9, torch.Generator().manual_seed(3))
    monkeypatch.setattr(distributed, "world_size", lambda: 2)
    for rank in range(2):
        monkeypatch.setattr(distributed, "rank", lambda rank=rank: rank)
        own = masks.draw_orders(3, 9, torch.Generator().manual_seed(3))
        assert torch.equal(own, alone[rank::2])


@pytest.mark.parametrize(("sets", "visible"), [(1, 5), (2, 5), (3, 4), (4, 4)])
def test_the_sets_of_an_image_are_disjoint_and_each_hides_the_rest(sets: int, visible: int) -> None:
    orders = masks.draw_orders(6, 16, torch.Generator().manual_seed(0))
    seen, hidden = masks.split_orders(orders, sets, visible)
    assert seen.shape == (sets, 6, visible) and hidden.shape == (sets, 6, 16 - visible)
    for n in range(6):
        assert len(seen[:, n].unique()) == sets * visible
        for v in range(sets):
            assert set(seen[v, n].tolist()) | set(hidden[v, n].tolist()) == set(range(16))


def test_pick_takes_rows_image_by_image() -> None:
    x = torch.randn(3, 7, 2)
    index = torch.randint(7, (2, 3, 4))
    picked = masked_vit.pick(x, index)
    assert all(torch.equal(picked[v, n, k], x[n, index[v, n, k]]) for v in range(2) for n in range(3) for k in range(4))


def test_every_patch_is_hidden_equally_often() -> None:
    _, hidden = masks.split_orders(masks.draw_orders(4000, 16, torch.Generator().manual_seed(0)), 2, 4)
    share = hidden.flatten(1).flatten().bincount(minlength=16) / (2 * 4000)
    assert (share - 0.75).abs().max() < 0.02  # the standard deviation is 0.005


def test_decoder_knows_patches_by_their_number_not_by_their_order() -> None:
    torch.manual_seed(0)
    decoder = masked_vit.Decoder(24, (4, 4), 48, dim=32, depth=2)
    encoded = torch.randn(2, 1 + 5, 24)
    order = torch.stack([torch.randperm(16) for _ in range(2)])
    visible, hidden = order[:, :5], order[:, 5:]
    expected = decoder(encoded, visible, hidden)
    assert expected.shape == (2, 11, 48)
    turn = torch.tensor([3, 1, 0, 4, 2])
    turned = torch.cat([encoded[:, :1], encoded[:, 1:][:, turn]], 1)
    torch.testing.assert_close(decoder(turned, visible[:, turn], hidden), expected)
    torch.testing.assert_close(decoder(encoded, visible, hidden.flip(1)), expected.flip(1))
    assert not torch.allclose(decoder(encoded, visible.flip(1), hidden), expected)
    assert not torch.allclose(decoder(encoded + torch.eye(6, 24), visible, hidden), expected)


@pytest.mark.parametrize(("dim", "depth"), [(0, 1), (40, 1), (-32, 1), (32, 0)])
def test_decoder_of_another_width_is_refused(dim: int, depth: int) -> None:
    with pytest.raises(UserError, match=f"decoder_dim={dim}, decoder_depth={depth}"):
        masked_vit.Decoder(24, (4, 4), 48, dim=dim, depth=depth)


def test_initial_weights_of_the_decoder_are_the_papers() -> None:
    torch.manual_seed(0)
    decoder = masked_vit.Decoder(24, (4, 4), 48, dim=64, depth=1)
    for layer in (decoder.embed, decoder.blocks[0].attn.qkv, decoder.blocks[0].mlp.fc2, decoder.values):
        bound = (6 / sum(layer.weight.shape)) ** 0.5
        assert 0.95 * bound < layer.weight.abs().max() <= bound and layer.bias.eq(0).all()
    assert 0.01 < decoder.mask_token.std() < 0.03


@pytest.mark.parametrize("name", ["resnet18", "swin_tiny_patch4_window7_224", "convnext_atto", "vit_tiny_r_s16_p8_224"])
def test_other_networks_are_refused_in_one_line(name: str) -> None:
    with torch.device("meta"):
        net = timm.create_model(name, num_classes=0)
    with pytest.raises(UserError, match=f"{name}.*narrow_vit") as error:
        masked_vit.check(net, name)
    assert "\n" not in str(error.value)


@pytest.mark.parametrize(
    ("options", "idle"), [({"num_classes": 5}, "head"), ({"num_classes": 0, "global_pool": "map"}, "attn_pool")]
)
def test_layers_that_nothing_would_train_are_refused(options: dict, idle: str) -> None:
    net = timm.create_model("vit_tiny_patch16_224", embed_dim=24, depth=1, num_heads=2, **options)
    with pytest.raises(UserError, match=rf"untrained layers \({idle}\).*num_classes=0"):
        masked_vit.check(net, "mine")


def test_a_network_without_positions_is_refused() -> None:
    with pytest.raises(UserError, match="position embedding"):
        vit(pos_embed="none")
