"""The patch embedding of a ViT as a matrix product against the convolution."""

import copy

import pytest
import timm
import torch
from torch import nn

from sslkit import backbones
from sslkit.layers.patch_convolution import PatchConvolution, use_products


@pytest.mark.parametrize(("size", "patch"), [((8, 8), (4, 4)), ((11, 14), (3, 4))])
@pytest.mark.parametrize("bias", [True, False])
def test_a_product_is_the_convolution_and_has_its_gradient(size, patch, bias: bool) -> None:
    torch.manual_seed(0)
    layer = PatchConvolution(3, 5, patch, stride=patch, bias=bias).double()
    plain = copy.deepcopy(layer)
    x = torch.randn(2, 3, *size, dtype=torch.float64)
    want, got = plain(x), layer.product(x)
    assert got.shape == want.shape
    torch.testing.assert_close(got, want)
    slope = torch.randn_like(want)
    want.backward(slope)
    got.backward(slope)
    torch.testing.assert_close(layer.weight.grad, plain.weight.grad)


def test_half_precision_rounds_as_the_convolution_does() -> None:
    torch.manual_seed(0)
    layer = PatchConvolution(3, 16, 8, stride=8)
    x = torch.rand(2, 3, 32, 32)
    with torch.autocast("cpu", torch.bfloat16):
        got, want = layer.product(x), layer(x)
    assert got.dtype == want.dtype == torch.bfloat16
    torch.testing.assert_close(got, want, atol=2e-2, rtol=2e-2)


@pytest.mark.parametrize("name", ["narrow_vit", "vit_tiny_patch16_224", "eva02_tiny_patch14_224"])
def test_every_vit_computes_products_and_keeps_the_names_of_its_weights(name: str) -> None:
    body = backbones.build(name, image_size=28 if name.startswith("eva") else 32, in_chans=3)
    assert type(body.net.patch_embed.proj) is PatchConvolution
    assert {"patch_embed.proj.weight", "patch_embed.proj.bias"} <= body.net.state_dict().keys()


def test_another_convolution_stays() -> None:
    embedding = nn.Module()
    embedding.proj = nn.Conv2d(3, 4, 4, stride=2)
    use_products(embedding)
    assert type(embedding.proj) is nn.Conv2d
    hybrid = timm.create_model("resnet10t").conv1
    use_products(hybrid)
    assert not any(isinstance(layer, PatchConvolution) for layer in hybrid.modules())
