"""The network that names actions: a video backbone, dropout, and a linear layer."""

import copy
from collections import OrderedDict

import torch
from torch import Tensor, nn

from evaluation.features.models import LoadedModel
from evaluation.results.statistics import generator


class Detached(nn.Module):
    """A backbone that is not trained: always in eval mode, and without gradient."""

    def __init__(self, backbone: nn.Module) -> None:
        super().__init__()
        self.backbone = backbone.requires_grad_(False).eval()

    def train(self, mode: bool = True) -> "Detached":
        self.training = mode
        return self

    @torch.no_grad()
    def forward(self, clips: Tensor) -> Tensor:
        return self.backbone(clips)


def build_classifier(model: LoadedModel, protocol: str, classes: int, *, dropout: float, seed: int) -> nn.Sequential:
    """`backbone`, `dropout`, `head`: normalised clips (B, C, T, S, S) -> (B, classes).

    protocol: "linear" freezes the backbone with its running statistics, "fine_tune" takes a copy of it that learns.
    seed: of the head's weights, from N(0, 0.01^2); its intercepts are 0.
    """
    backbone = copy.deepcopy(model.backbone)
    backbone = Detached(backbone) if protocol == "linear" else backbone.requires_grad_(True)
    head = nn.utils.skip_init(nn.Linear, model.width, classes)
    start = generator(seed, "action head").normal(0, 0.01, (classes, model.width))
    with torch.no_grad():
        head.weight.copy_(torch.from_numpy(start))
        head.bias.zero_()
    return nn.Sequential(OrderedDict(backbone=backbone, dropout=nn.Dropout(dropout), head=head))


def learned(net: nn.Sequential) -> nn.Module:
    """The part of a classifier that training changes: all of it, or the head alone."""
    return net.head if isinstance(net.backbone, Detached) else net


def normalize(pixels: Tensor, model: LoadedModel) -> Tensor:
    """Clips (B, C, T, S, S) in [0, 1] as the network takes them."""
    mean, std = (pixels.new_tensor(values).view(-1, 1, 1, 1) for values in (model.mean, model.std))
    return (pixels - mean) / std
