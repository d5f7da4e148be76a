"""The action classifier: a video backbone, dropout, and a linear layer."""

import copy
from collections import OrderedDict

import torch
from torch import Tensor, nn

from evaluation.results.statistics import generator
from sslkit.models.model import Model
from sslkit.runtime.device import to_device_of


class Detached(nn.Module):
    """A frozen backbone: always in eval mode, without gradient."""

    def __init__(self, backbone: nn.Module) -> None:
        super().__init__()
        self.backbone = backbone.requires_grad_(False).eval()

    def train(self, mode: bool = True) -> "Detached":
        self.training = mode
        return self

    @torch.no_grad()
    def forward(self, clips: Tensor) -> Tensor:
        return self.backbone(clips)


def build_classifier(model: Model, protocol: str, classes: int, *, dropout: float, seed: int) -> nn.Sequential:
    """Build `backbone`, `dropout`, `head`: normalised clips (B, C, T, S, S) -> (B, classes).

    protocol: "linear" freezes the backbone and its running statistics, "fine_tune" trains a copy of it.
    seed: random seed of the head's weights, drawn from N(0, 0.01^2); its biases are 0.
    """
    backbone = copy.deepcopy(model.backbone)
    backbone = Detached(backbone) if protocol == "linear" else backbone.requires_grad_(True)
    head = nn.utils.skip_init(nn.Linear, model.width, classes)
    start = generator(seed, "action head").normal(0, 0.01, (classes, model.width))
    with torch.no_grad():
        head.weight.copy_(torch.from_numpy(start))
        head.bias.zero_()
    return nn.Sequential(OrderedDict(backbone=backbone, dropout=nn.Dropout(dropout), head=head))


def trained_part(net: nn.Sequential) -> nn.Module:
    """The trained part of a classifier: all of it, or the head only."""
    return net.head if isinstance(net.backbone, Detached) else net


def normalize(pixels: Tensor, model: Model) -> Tensor:
    """Normalise clips (B, C, T, S, S) in [0, 1] by the model's mean and standard deviation."""
    numbers = torch.tensor([model.mean, model.std], dtype=pixels.dtype)
    mean, std = to_device_of(numbers, pixels).view(2, -1, 1, 1, 1)
    return (pixels - mean) / std
