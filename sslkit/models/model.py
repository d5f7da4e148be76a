"""A network with the preparation of its images: what `sslkit.load` returns."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Any, Self

import torch
from PIL import Image
from torch import Tensor, nn

from sslkit.backbones.base import Backbone
from sslkit.backbones.words import PIXELS
from sslkit.data.decode.pixels import square
from sslkit.data.decode.scale import Scale
from sslkit.data.images import Images
from sslkit.data.items import Item
from sslkit.data.resizing import Resizing
from sslkit.errors import UserError
from sslkit.models.answers import Answers, peek
from sslkit.models.cost import count_multiply_adds
from sslkit.models.normalizing import normalize_pixels
from sslkit.models.passes import APPLIED, FeatureTable, Rows, open_all, run_all, tell_of_unreadable
from sslkit.models.predictions import Predictions
from sslkit.models.ranges import as_trained
from sslkit.runtime.callers import public
from sslkit.runtime.context import Runtime
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
    dense: the detector or segmenter that the entry keeps beside them, which `predict` uses; else None.
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
    dense: nn.Module | None = field(default_factory=lambda: None, repr=False)

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
    def device(self) -> torch.device:
        """Where its weights lie; the CPU for a network without any."""
        return next(self.net.parameters(), torch.empty(0)).device

    @property
    def classes(self) -> tuple[str, ...] | None:
        """The names of the classes or numbers that it tells; None where it tells none."""
        teller = self.classifier or self.dense
        return teller and teller.classes

    @cached_property
    def multiply_adds(self) -> float:
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
        features = self._features(pixels)
        return features if self.head is None else self.head(features)

    def transform(self, picture: Image.Image) -> Tensor:
        """The pixels (C, S, S) uint8 of a picture of any size, upright: `model(model.transform(picture)[None])`.

        `normalize` of them is what `transform` gives in the lines that load an export.
        Raises UserError for a network of clips, and UnreadableImage for a damaged file.
        """
        _check_item(self.item, self.name)
        how = self.resizing.of_images()
        fitting = how["fit"], how["interpolation"], self.scale and self.scale.range
        return torch.from_numpy(
            square(picture, self.image_size, self.in_chans, *fitting, resize=how["resize"])[0].copy()
        )

    @public(*APPLIED)
    def features(self, images: Any, split: str | None = None, *, runtime: Runtime) -> FeatureTable:
        """The features of every image of a source, in its order, computed anew; with a classifier too.

            table = model.features("path/to/images")
            table.ids, table.x  # N paths, (N, D) float32

        images: of `sslkit.open_images`, or the path of an image. split: of the source; None for all.
        Images that cannot be read are left out, with a warning. Raises UserError for what cannot be opened.
        """
        return FeatureTable.join(run_all(self._features, self, open_all(self, images, split), runtime))

    @public(*APPLIED)
    def predict(self, images: Any, split: str | None = None, *, runtime: Runtime) -> Answers:
        """The classes with their probabilities, or the numbers, of every image of a source: `Predictions`.

            predictions = model.predict("path/to/images")
            print(predictions)
            predictions.write("predictions.csv")

        Of a detector they are the boxes, `Detections`; of a segmenter the classes of all pixels, `Masks`.
        images, split: as of `features`. Raises UserError for a model that has none of these, too.
        """
        first, parts = peek(batch for batch, _ in self.predict_parts(open_all(self, images, split), runtime))
        predictions = type(first).join(parts)
        tell_of_unreadable(predictions.unreadable)
        return predictions

    def check_predicting(self) -> None:
        """Raises UserError for a model without a classifier, a detector and a segmenter."""
        if self.classifier is None and self.dense is None:
            raise UserError(
                f"{self.name} has no classifier, and so no classes: it gives features, model.features(images); "
                "recipes/finetune.py makes a model that predicts, recipes/detect.py one of boxes"
            )

    def predict_parts(self, opened: Sequence[Images], runtime: Runtime) -> Iterator[tuple[Answers, Rows]]:
        """Yield the predictions of each batch of open images, and its rows. Raises UserError as `predict` does."""
        self.check_predicting()
        if self.classifier is None:
            yield from self.dense.predict_parts(self, opened, runtime)
            return
        about = {name: getattr(self.classifier, name) for name in ("classes", "link", "half_widths")}
        for batch in run_all(lambda pixels: self.classifier.predictions(self(pixels)), self, opened, runtime):
            yield Predictions(batch.names, values=batch.x, unreadable=tuple(batch.bad), **about), batch

    def _features(self, pixels: Tensor) -> Tensor:
        return self.backbone(self.normalize(pixels))

    def normalize(self, pixels: Tensor) -> Tensor:
        """Return pixels (N, C, S, S) less `mean` and over `std`; see `normalizing.normalize_pixels`."""
        return normalize_pixels(pixels, self.mean, self.std, self.name, self.scale and self.scale.range)

    def clean(self, images: Images, *, resize: int | None = None, interpolation: str | None = None) -> Images:
        """Return the images as the squares that the network sees.

        resize: length of the shorter side before the crop; None: the model's own. interpolation: likewise.
        Raises UserError for a size below image_size, and for videos or a network of clips, which only the protocol
        "action" supports.
        """
        _check_item(self.item, self.name)
        _check_item(images.item, images.name)
        resizing = self.seeing(resize, interpolation).resizing
        return self.with_scale(images, channels=self.in_chans, **resizing.of_images())

    def seeing(self, resize: int | None, interpolation: str | None) -> Self:
        """Return the same network with squares of another resizing; None: its own. Raises UserError as `clean` does.

        Of raw pixels, the control, a square is always the whole image, however networks crop theirs.
        """
        resize = None if self.source == PIXELS else resize
        if resize is not None and resize < self.image_size:
            raise UserError(f"resize={resize} is less than the crop of {self.image_size} pixels that {self.name} takes")
        if resize is None and interpolation is None:
            return self
        return replace(self, resizing=self.resizing.at(resize, interpolation))

    def with_scale(self, images: Images, **options: Any) -> Images:
        """Return `images.at(**options)`, stored values scaled as in the training unless that was given."""
        return as_trained(images, self.scale, self.name, **options)


def _check_item(item: Item, name: str) -> None:
    if item.axes:
        raise UserError(f"{name} uses {item.about}, not images: use recipes/action_eval.py")
