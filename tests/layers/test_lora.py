"""LoRA: the update is zero at first, reaches whoever reads a weight, and merges exactly; peft's gives the same."""

import copy
import io

import pytest
import timm
import torch
from torch import nn

from sslkit.backbones.base import Backbone, Recipe
from sslkit.backbones.tune import parse
from sslkit.backbones.tuning import train_part
from sslkit.errors import UserError
from sslkit.layers import lora

NETS = {
    "vit_tiny_patch16_224": {"img_size": 32, "depth": 2},
    "eva02_tiny_patch14_224": {"img_size": 28, "depth": 2},  # reads the weight of its qkv and adds biases of its own
    "convnext_atto": {},
    "tf_efficientnet_lite0": {},
    "resnet10t": {},
}


def made(name: str, word: str = "lora(4,8)") -> tuple[Backbone, nn.Module, str]:
    """A network with LoRA, the same one without, in float64, and what was said."""
    torch.manual_seed(3)
    plain = timm.create_model(name, num_classes=0, **NETS[name]).double().eval()
    size = NETS[name].get("img_size", 32)
    body = Backbone(copy.deepcopy(plain).float(), Recipe(name), image_size=size, in_chans=3).double()
    return body, plain, train_part(body, parse(word))


def pixels(body: Backbone) -> torch.Tensor:
    return torch.randn(2, *body.input_shape(), generator=torch.Generator().manual_seed(1)).double()


def drawn(net: nn.Module) -> None:
    """Updates that are not zero."""
    with torch.no_grad():
        for name, p in net.named_parameters():
            if name.endswith("lora_B"):
                p.normal_(std=0.1)


@pytest.mark.parametrize("name", NETS)
def test_it_starts_as_the_network_learns_everywhere_and_merges_to_base_plus_update(name: str) -> None:
    body, plain, told = made(name)
    x = pixels(body)
    torch.testing.assert_close(body.eval()(x), plain(x), rtol=1e-12, atol=1e-12)
    drawn(body)
    torch.manual_seed(0)
    body(x).square().sum().backward()
    updates = {key: p for key, p in body.net.named_parameters() if key.endswith(lora.UPDATES)}
    assert updates and all(p.grad is not None and p.grad.any() for p in updates.values())
    assert not any(p.requires_grad for key, p in body.net.named_parameters() if key not in updates)
    assert f"LoRA rank 4 in {len(updates) // 2} of " in told

    state = body.export()
    assert state.keys() == plain.state_dict().keys()
    for key, value in plain.state_dict().items():
        layer = key.removesuffix(".weight")
        if f"{layer}.lora_A" in updates and key.endswith(".weight"):
            a, b = updates[f"{layer}.lora_A"].detach(), updates[f"{layer}.lora_B"].detach()
            value = value + 8 / 4 * torch.einsum("or,ri->oi", b, a).reshape(value.shape)
            assert not torch.equal(state[key], plain.state_dict()[key])
        torch.testing.assert_close(state[key], value, rtol=1e-13, atol=1e-13)
    before = plain(x)
    plain.load_state_dict(state)
    torch.testing.assert_close(plain(x), body(x), rtol=1e-11, atol=1e-11)
    assert not torch.allclose(plain(x), before)
    after = body(x).detach()
    body.load_exported(state)
    torch.testing.assert_close(body(x), after, rtol=1e-11, atol=1e-11)
    assert all(torch.equal(value, state[key]) for key, value in body.export().items()), "nothing is added twice"


def test_a_copy_has_its_own_update_and_is_written_by_torch() -> None:
    body, _, _ = made("vit_tiny_patch16_224")
    other = copy.deepcopy(body)
    drawn(other)
    x = pixels(body)
    assert not torch.allclose(other(x), body(x))
    file = io.BytesIO()
    torch.save(other, file)
    file.seek(0)
    assert torch.equal(torch.load(file, weights_only=False)(x), other(x))
    assert [key for key, _ in other.named_parameters()] == [key for key, _ in body.named_parameters()]


def test_a_second_injection_finds_no_layer() -> None:
    body, _, _ = made("vit_tiny_patch16_224")
    with pytest.raises(UserError, match="tune=lora: none of 9 layers of vit_tiny_patch16_224 is linear"):
        train_part(body, parse("lora"))


def test_only_the_last_blocks_have_it() -> None:
    body, _, told = made("vit_tiny_patch16_224", "lora(2,blocks=1)")
    names = {key for key, _ in body.net.named_parameters() if key.endswith("lora_A")}
    assert names == {f"blocks.1.{layer}.lora_A" for layer in ("attn.qkv", "attn.proj", "mlp.fc1", "mlp.fc2")}
    assert told == "LoRA rank 2 in 4 of 9 layers (fc1, fc2, proj, qkv)"


@pytest.mark.parametrize(
    ("layer", "can"),
    [
        (nn.Linear(8, 9), True),
        (nn.Conv2d(8, 9, 1), True),
        (nn.Conv2d(8, 9, 3), False),
        (nn.Conv2d(8, 8, 1, groups=2), False),
        (nn.Linear(8, 3), False),
        (nn.modules.linear.NonDynamicallyQuantizableLinear(8, 9), False),
    ],
)
def test_which_layers_can_have_it(layer: nn.Module, can: bool) -> None:
    assert lora.fits(layer, 4) == can


def test_pefts_lora_gives_the_same_outputs_gradients_and_merged_weights() -> None:
    peft = pytest.importorskip("peft")
    body, plain, _ = made("vit_tiny_patch16_224")
    drawn(body)
    targets = ["qkv", "proj", "fc1", "fc2"]
    theirs = peft.get_peft_model(
        plain, peft.LoraConfig(r=4, lora_alpha=8, target_modules=targets, exclude_modules=r"patch_embed\..*")
    ).eval()
    ours = dict(body.net.named_parameters())
    match = {f"base_model.model.{key.replace('lora_A', 'lora_A.default.weight')}": key for key in ours}
    match = {theirs_key.replace("lora_B", "lora_B.default.weight"): key for theirs_key, key in match.items()}
    named = {name: p for name, p in theirs.named_parameters() if "lora_" in name}
    with torch.no_grad():
        for name, p in named.items():
            p.copy_(ours[match[name]])
    x = pixels(body)
    mine, other = body.eval()(x), theirs(x)
    torch.testing.assert_close(mine, other, rtol=1e-9, atol=1e-9)
    mine.square().sum().backward()
    other.square().sum().backward()
    assert len(named) == 16
    for name, p in named.items():
        torch.testing.assert_close(ours[match[name]].grad, p.grad, rtol=1e-8, atol=1e-8)
    merged = theirs.merge_and_unload().state_dict()
    for key, value in body.export().items():
        torch.testing.assert_close(value, merged[key], rtol=1e-12, atol=1e-12)
