"""A network with the preparation of its images: what `sslkit.load` returns."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any, Self

import torch
from torch import Tensor, nn

from sslkit.backbones.base import Backbone
from sslkit.data.decode.scale import Scale
from sslkit.data.images import Images
from sslkit.data.items import Item
from sslkit.data.resizing import Resizing
from sslkit.errors import UserError
from sslkit.models.cost import count_multiply_adds
from sslkit.models.normalizing import normalize_pixels
from sslkit.models.ranges import as_trained
from sslkit.zoo.classifier import Classifier
from sslkit.zoo.entry import ZooEntry


@dataclass(eq=False)
class Model(nn.Module):
    """A network that takes pixels: `model(pixels)` are features, or the outputs of its classifier if it has one.

        model = sslkit.load("runs/zoo/NAME")
        features = model(pixels)  # uint8, or floats in [0, 1], (N, C, S, S) -> (N, model.width)

    A module in eval mode: `to`, `state_dict` and the like are torch's. It is called without gradient; to train, take
    `net`, which takes pixels that are normalised already, `net(model.normalize(pixels))`.
    net: the plain network, normalised (N, C, S, S) -> (N, width). backbone: the same, in sslkit's wrapper.
    name: for tables. digest: sha256 of structure and weights of the network, without its heads.
    image_size: side S in pixels. resizing: how pictures become squares of it.
    in_chans, mean, std: of the pixels in [0, 1].
    scale: how stored values became bytes in its training; None if that is not known.
    entry: the zoo entry of the network, where results are stored; else None. card: of the entry whose weights these
        are, also where another pooling is no entry; {} for others.
    stride: of a network of clips, the distance between two of its frames; None if that is not known.
    source_head: the linear layer of its pretraining task on these features, for timm's models and the wheels; else
        None.
    classifier: what turns its features into classes or numbers, where the entry keeps one; else None.
    source: the word or the folder that named the weights; "" for a module.
    """

    backbone: Backbone = field(repr=False)
    name: str
    digest: str
    resizing: Resizing
    mean: tuple[float, ...]
    std: tuple[float, ...]
    scale: Scale | None = None
    entry: ZooEntry | None = field(default=None, repr=False)
    card: Mapping[str, Any] = field(default_factory=dict, repr=False)
    stride: int | None = None
    source_head: nn.Module | None = field(default_factory=lambda: None, repr=False)  # no attribute of the class
    classifier: Classifier | None = field(default=None, repr=False)
    source: str = ""

    def __new__(cls, *_: Any, **__: Any) -> Self:
        self = super().__new__(cls)
        nn.Module.__init__(self)  # before the fields are set
        return self

    def __post_init__(self) -> None:
        self.head = self.classifier and self.classifier.layers  # moves with the network
        self.eval()

    @property
    def net(self) -> nn.Module:
        return self.backbone.net

    @property
    def width(self) -> int:
        return self.backbone.width

    @property
    def image_size(self) -> int:
        return self.backbone.image_size

    @property
    def in_chans(self) -> int:
        return self.backbone.in_chans

    @property
    def classes(self) -> tuple[str, ...] | None:
        """The names of the classes or numbers that its classifier tells; None without one."""
        return self.classifier and self.classifier.classes

    @cached_property
    def multiply_adds(self) -> int:
        """The cost of an image or clip, see `count_multiply_adds`."""
        return count_multiply_adds(self.net, self.backbone.input_shape(self.image_size))

    @property
    def item(self) -> Item:
        """The kind of input of the network: images, or clips (B, C, T, S, S)."""
        return self.backbone.item

    @torch.no_grad()
    def forward(self, pixels: Tensor) -> Tensor:
        """Features (N, width) of pixels (N, C, S, S), or the outputs (N, K) of the classifier before its link.

        pixels: see `normalize`; probabilities of classes are `model.classifier.predictions(outputs)`.
        """
        features = self.backbone(self.normalize(pixels))
        return features if self.head is None else self.head(features)

    def normalize(self, pixels: Tensor) -> Tensor:
        """Return pixels (N, C, S, S) less `mean` and over `std`; see `normalizing.normalize_pixels`."""
        return normalize_pixels(pixels, self.mean, self.std, self.name, self.scale and self.scale.range)

    def clean(self, images: Images, *, resize: int | None = None, interpolation: str | None = None) -> Images:
        """Return the images as the squares that the network sees.

        resize: length of the shorter side before the crop; None: the model's own. interpolation: likewise.
        Raises UserError for a size below image_size, and for videos or a network of clips, which only the protocol
        "action" supports.
        """
        for item, who in ((self.item, self.name), (images.item, images.name)):
            if item.axes:
                raise UserError(f"{who} uses {item.about}, not images: use recipes/action_eval.py")
        asked = {"resize": resize, "interpolation": interpolation}
        how = self.resizing.of_images() | {name: value for name, value in asked.items() if value is not None}
        if how["resize"] < self.image_size:
            raise UserError(f"resize={resize} is less than the crop of {self.image_size} pixels that {self.name} takes")
        return self.with_scale(images, channels=self.in_chans, **how)

    def with_scale(self, images: Images, **options: Any) -> Images:
        """Return `images.at(**options)`, stored values scaled as in the training unless that was given."""
        return as_trained(images, self.scale, self.name, **options)
