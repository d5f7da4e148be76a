"""The backbone of a detector: a copy of a loaded model's network, with its measured channels and strides."""

import copy
from dataclasses import dataclass

import torch
from torch import Tensor, nn

from sslkit.data.views.color import LUMA
from sslkit.errors import UserError
from sslkit.models.model import Model

STAGES = ("layer1", "layer2", "layer3", "layer4")
TUNE = ("all", "none")


@dataclass(frozen=True)
class ResNetBody:
    """A copy of a ResNet with all weights trainable, and the shapes of the outputs of its four stages.

    channels, strides: of the maps of layer1 to layer4; strides in pixels of the image, measured, since stems for
    small images downsample less.
    """

    net: nn.Module
    channels: tuple[int, ...]
    strides: tuple[int, ...]


class Fixed(nn.Module):
    """A frozen module: always in eval mode, weights without gradient, fixed running statistics."""

    def __init__(self, inner: nn.Module) -> None:
        super().__init__()
        self.inner = inner.requires_grad_(False)
        self.eval()

    def train(self, mode: bool = True) -> "Fixed":
        return super().train(False)

    def forward(self, x: Tensor) -> Tensor:
        return self.inner(x)


def resnet_body(model: Model) -> ResNetBody:
    """Copy the model's ResNet (timm or torchvision, basic or bottleneck blocks, any stem).

    Raises UserError for another network, and for inputs without exactly one or three channels.
    """
    check_resnet(model)
    net = copy.deepcopy(model.net).requires_grad_(True)
    channels, strides = _measure(net, model.in_chans)
    return ResNetBody(net, channels, strides)


def check_resnet(model: Model) -> None:
    """Raises UserError unless the network is a ResNet for images of one or three channels."""
    check_images(model)
    if not is_resnet(model.net):
        raise UserError(
            f"{model.name} is {type(model.net).__name__}: a C4 or FPN detector takes a ResNet of timm or torchvision; "
            "for a plain ViT use arch=vit_pyramid"
        )


def is_resnet(net: nn.Module) -> bool:
    """Return True for timm's and torchvision's ResNet, whose children run in order under a ResNet's names."""
    from timm.models.resnet import ResNet
    from torchvision.models.resnet import ResNet as TorchvisionResNet

    return isinstance(net, (ResNet, TorchvisionResNet)) and all(hasattr(net, stage) for stage in STAGES)


def check_images(model: Model) -> None:
    """Raises UserError for a video network, and for a network of neither RGB nor gray images."""
    if model.item.axes:
        raise UserError(
            f"{model.name} takes {model.item.about}, but detection needs an image model: evaluate it with "
            "recipes/action_eval.py"
        )
    if model.in_chans not in (1, 3):
        raise UserError(f"{model.name} takes images of {model.in_chans} channels; detection needs 3 (RGB) or 1 (gray)")


def check_tune(tune: str) -> None:
    """Raises UserError unless it is "all" or "none"."""
    if tune not in TUNE:
        raise UserError(f"tune={tune!r} must be {' or '.join(TUNE)}")


def as_input(image: Tensor, in_chans: int) -> Tensor:
    """(3, H, W) uint8 -> (in_chans, H, W) float in [0, 1], not yet normalised.

    in_chans=1 returns the ITU-R BT.601 luma, as in pretraining.
    """
    pixels = image.float() / 255
    if in_chans == 1:
        pixels = (pixels * pixels.new_tensor(LUMA).view(3, 1, 1)).sum(0, keepdim=True)
    return pixels


@torch.no_grad()
def _measure(net: nn.Module, in_chans: int) -> tuple[tuple[int, ...], tuple[int, ...]]:
    """Channels and strides of the stages' maps, measured on a blank image of 128 x 128 pixels."""
    training, side, x = net.training, 128, torch.zeros(1, in_chans, 128, 128)
    net.eval()
    maps = {}
    for name, module in net.named_children():
        x = module(x)
        if name in STAGES:
            maps[name] = x
        if name == STAGES[-1]:
            break
    net.train(training)
    return tuple(maps[s].shape[1] for s in STAGES), tuple(side // maps[s].shape[-1] for s in STAGES)
