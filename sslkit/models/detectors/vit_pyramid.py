"""A plain ViT with a simple feature pyramid (ViTDet: Li et al. 2022, arXiv 2203.16527, section 3).

torchvision has no such part: the pyramid is built here from its LayerNorm2d and LastLevelMaxPool and from PyTorch's
transposed convolutions, and the heads are those of fpn.py. Unlike in ViTDet, every block attends to
the whole image, and the heads are torchvision's smaller ones: results are not comparable with ViTDet's.
"""

import copy
import math
from collections import OrderedDict

from torch import Tensor, nn
from torchvision.models.convnext import LayerNorm2d
from torchvision.models.detection import FasterRCNN
from torchvision.ops.feature_pyramid_network import LastLevelMaxPool

from sslkit.errors import UserError
from sslkit.models.detectors.body import Fixed, check_images
from sslkit.models.detectors.fpn import LEVELS, WIDTH, on_pyramid
from sslkit.models.detectors.sizes import Sizes
from sslkit.models.model import Model

STRIDES = (4, 8, 16, 32)  # pixels, of a ResNet's pyramid too (Li et al. 2022, ViTDet)


class TokenMap(nn.Module):
    """timm's VisionTransformer as (B, C, H, W) -> (B, F, H / patch, W / patch); positions are interpolated."""

    def __init__(self, net: nn.Module) -> None:
        super().__init__()
        self.net, self.patch = net, net.patch_embed.patch_size[0]

    def forward(self, x: Tensor) -> Tensor:
        tokens = self.net.forward_features(x)[:, self.net.num_prefix_tokens :]
        return tokens.transpose(1, 2).unflatten(2, (x.shape[-2] // self.patch, -1)).contiguous()


class SimplePyramid(nn.Module):
    """Convert one map to maps of strides 4, 8, 16 and 32, and one pooled from the last."""

    def __init__(self, body: nn.Module, width: int, patch: int) -> None:
        super().__init__()
        self.body = body
        self.levels = nn.ModuleList(_level(width, patch, stride) for stride in STRIDES)
        self.pooled = LastLevelMaxPool()
        self.out_channels = WIDTH

    def forward(self, x: Tensor) -> dict[str, Tensor]:
        last = self.body(x)
        maps = [level(last) for level in self.levels]
        maps, names = self.pooled(maps, maps, list(LEVELS))
        return OrderedDict(zip(names, maps, strict=True))


def check(model: Model) -> None:
    """Raises UserError unless the network is a plain ViT with patches of 1, 2, 4, 8, 16 or 32 pixels."""
    check_images(model)
    if not model.backbone.is_vit:
        raise UserError(
            f"{model.name} is {type(model.net).__name__}: arch=vit_pyramid takes timm's VisionTransformer; "
            "for a ResNet use arch=c4 or arch=fpn"
        )
    patch = model.net.patch_embed.patch_size[0]
    if patch not in (1, 2, *STRIDES):
        raise UserError(f"{model.name} has patches of {patch} pixels: arch=vit_pyramid needs 1, 2, 4, 8, 16 or 32")


def build(model: Model, classes: int, *, masks: bool, tune: str, sizes: Sizes) -> FasterRCNN:
    """Build Faster or Mask R-CNN on a plain ViT (`mae` entries, timm's vit_* and deit_*); see `build_detector`.

    Raises UserError as `check` does.
    """
    check(model)
    net = _any_size(copy.deepcopy(model.net).requires_grad_(True))
    patch = net.patch_embed.patch_size[0]
    body: nn.Module = TokenMap(net)
    if tune == "none":
        body = Fixed(body)
    pyramid = SimplePyramid(body, net.num_features, patch)
    return on_pyramid(pyramid, model, classes, masks=masks, sizes=sizes)


def _any_size(net: nn.Module) -> nn.Module:
    """Make timm's network accept any size that its patches divide, and drop the layers for pooled features."""
    from timm.layers.format import Format

    net.fc_norm, net.head = nn.Identity(), nn.Identity()
    net.dynamic_img_size = True
    net.patch_embed.strict_img_size, net.patch_embed.flatten = False, False
    net.patch_embed.output_fmt = Format.NHWC
    return net


def _level(width: int, patch: int, stride: int) -> nn.Sequential:
    """(B, width, h, w) of patches -> (B, WIDTH, h * patch / stride, w * patch / stride)."""
    layers: list[nn.Module] = []
    for step in range(max(int(math.log2(patch / stride)), 0)):
        if step:
            layers += [LayerNorm2d(width), nn.GELU()]
        layers += [nn.ConvTranspose2d(width, width // 2, 2, 2)]
        width //= 2
    if stride > patch:
        layers += [nn.MaxPool2d(stride // patch)]
    layers += [nn.Conv2d(width, WIDTH, 1, bias=False), LayerNorm2d(WIDTH)]
    layers += [nn.Conv2d(WIDTH, WIDTH, 3, padding=1, bias=False), LayerNorm2d(WIDTH)]
    return nn.Sequential(*layers)
