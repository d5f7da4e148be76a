"""The masked encoder on timm's Eva networks (EVA, EVA-02, DINOv3, rotary ViTs) against timm's own forward."""

import pytest
import timm
import torch
from torch import Tensor, nn

import sslkit
from sslkit import backbones
from sslkit.errors import UserError
from sslkit.layers import masked_vit, masks

NETWORKS = {
    "DINOv3": {"model_name": "vit_small_patch16_dinov3"},
    "EVA-02": {"model_name": "eva02_tiny_patch14_224"},
    "no rotary positions": {"model_name": "eva02_tiny_patch14_224", "use_rot_pos_emb": False},
    "positions of each block and head": {"model_name": "vit_small_patch16_rope_mixed_224"},
    "rotary ViT": {"model_name": "vit_small_patch16_rope_224"},
}


def eva(name: str, **options) -> nn.Module:
    """A small network of the same make, of larger weights than at the start, where attention hardly counts."""
    torch.manual_seed(0)
    small = {"img_size": 16, "patch_size": 4, "embed_dim": 32, "depth": 2, "num_heads": 2}
    net = timm.create_model(num_classes=0, **small, **NETWORKS[name], **options)
    masked_vit.check(net, name)
    with torch.no_grad():
        for key, value in net.named_parameters():
            if value.dim() < 2 or "token" in key or "pos_embed" in key:
                value.add_(torch.randn_like(value) * 0.3)
            elif "attn" in key:
                value.mul_(20)
    return net


def images(n: int = 3) -> Tensor:
    return torch.randn(n, 3, 16, 16, generator=torch.Generator().manual_seed(1))


class Keep(nn.Module):
    """Stands in for timm's patch dropout: keeps the patches of `visible` (B, K)."""

    def __init__(self, visible: Tensor, prefix: int) -> None:
        super().__init__()
        self.visible, self.prefix = visible, prefix

    def forward(self, x: Tensor) -> tuple[Tensor, Tensor]:
        first, patches = x.tensor_split([self.prefix], dim=1)
        rows = torch.arange(len(x))[:, None]
        return torch.cat([first, patches[rows, self.visible]], 1), self.visible


@pytest.mark.parametrize("dynamic", [False, True])
@pytest.mark.parametrize("name", NETWORKS)
def test_all_patches_visible_is_timms_forward(name: str, dynamic: bool) -> None:
    net = eva(name, dynamic_img_size=dynamic)
    x = images()
    everything = torch.arange(16).expand(1, len(x), -1)
    tokens = masked_vit.encode(net, x, everything)
    torch.testing.assert_close(tokens, net.forward_features(x))
    torch.testing.assert_close(net.forward_head(tokens), net(x))


@pytest.mark.parametrize("name", NETWORKS)
def test_a_part_of_the_patches_is_timms_patch_dropout(name: str) -> None:
    net = eva(name)
    x = images()
    visible, _ = masks.split_orders(masks.draw_orders(3, 16, torch.Generator().manual_seed(2)), 2, 5)
    ours = masked_vit.encode(net, x, visible)
    net.set_grad_checkpointing()
    torch.testing.assert_close(masked_vit.encode(net, x, visible), ours)
    net.set_grad_checkpointing(False)
    theirs = []
    for keep in visible:
        net.patch_drop = Keep(keep, net.num_prefix_tokens)
        theirs.append(net.forward_features(x))
    torch.testing.assert_close(ours, torch.cat(theirs))


@pytest.mark.parametrize("name", ["DINOv3", "rotary ViT", "positions of each block and head"])
def test_rotary_positions_matter_and_belong_to_the_patch(name: str) -> None:
    net = eva(name)
    x = images()
    visible = torch.tensor([[[2, 9, 7]] * 3])
    turned = masked_vit.encode(net, x, visible.flip(2))
    prefix = net.num_prefix_tokens
    expected = masked_vit.encode(net, x, visible)
    torch.testing.assert_close(
        turned[:, prefix:].flip(1), expected[:, prefix:], atol=1e-5, rtol=1e-4
    )  # attention knows no order
    apart = masked_vit.encode(net, x.roll(4, dims=3), torch.tensor([[[3, 10, 4]] * 3]))  # the same pixels, elsewhere
    assert not torch.allclose(apart[:, prefix:], expected[:, prefix:], atol=1e-2)


def test_patch_dropout_of_the_network_is_refused() -> None:
    with pytest.raises(UserError, match="patch_drop_rate=0"):
        eva("EVA-02", patch_drop_rate=0.5)


MINUTES = pytest.mark.nightly


@pytest.mark.filterwarnings("ignore:.*dead.*")
@pytest.mark.parametrize("name", ["vit_small_patch16_dinov3", "eva02_tiny_patch14_224"])
@pytest.mark.parametrize(
    "objective", ["mae", "dino", *(pytest.param(name, marks=MINUTES) for name in ("u_mae", "moco_v3", "vicregl"))]
)
def test_objectives_of_vits_train_it(objective: str, name: str) -> None:
    """A step at a size of its own, with multi-crop for DINO: every trained parameter gets a gradient."""
    options = {"prototypes": 16, "hidden": 16, "dim": 8} if objective == "dino" else {}
    views = {"local_size": 16} if objective == "dino" else {}
    method = sslkit.method(objective, backbone=name, image_size=32, in_chans=1, objective=options, views=views)
    assert method.backbone.is_vit and method.backbone.patch == 4
    terms = method(torch.randint(0, 256, (4, 1, 32, 32), dtype=torch.uint8), torch.arange(4))
    terms["loss"].backward()
    assert terms["loss"].isfinite()
    idle = [key for key, p in method.backbone.named_parameters() if p.requires_grad and p.grad is None]
    assert not idle


@pytest.mark.parametrize("name", ["vit_small_patch16_dinov3", "eva02_tiny_patch14_224"])
def test_features_of_another_size_are_those_of_a_network_made_for_it(name: str) -> None:
    body = backbones.build(name, image_size=32, in_chans=3).eval()
    plain = timm.create_model(name, num_classes=0, img_size=32, patch_size=4).eval()
    plain.load_state_dict(body.export(), strict=True)
    x = torch.rand(2, 3, 32, 32)
    with torch.no_grad():
        torch.testing.assert_close(body(x), plain(x))
