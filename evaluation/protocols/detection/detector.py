"""build_detector: Faster or Mask R-CNN on the backbone of a loaded model."""

import hashlib
import importlib
from typing import TYPE_CHECKING, Any

import torch

from evaluation.features.models import LoadedModel, load_model
from evaluation.protocols.detection.body import check_trainable
from evaluation.protocols.detection.sizes import Sizes
from sslkit.errors import UserError
from sslkit.members import nearest

if TYPE_CHECKING:  # importing it takes more than a second
    from torchvision.models.detection import FasterRCNN

ARCHITECTURES = ("c4", "fpn", "vit_pyramid")


def build_detector(
    model: Any,
    classes: int,
    *,
    arch: str = "c4",
    masks: bool = False,
    trainable: str = "full",
    sizes: Sizes | None = None,
    seed: int = 0,
) -> "FasterRCNN":
    """A torchvision detector on a copy of a model's network, in training mode; the model stays as it is.

    model: see `evaluation.load_model`; a ResNet for "c4" and "fpn", a plain ViT for "vit_pyramid". Its mean and
        standard deviation normalise the images, which the detector resizes itself.
    classes: of objects, without the background; labels are 1 to classes.
    masks: Mask R-CNN instead of Faster R-CNN.
    trainable: "full" tunes every layer, batch norm too; "frozen" keeps the backbone (for "c4" layer4 too) and its
        batch statistics as they are and trains what was added.
    sizes: see `Sizes`. seed: of the new layers' weights.

    It takes a list of (in_chans, H, W) floats in [0, 1] (`as_input` makes them) and, in training, a list of
    {"boxes": (n, 4) x0 y0 x1 y1 in pixels, "labels": (n,) int64, "masks": (n, H, W) uint8}; it gives a dict of losses
    in training and else a list of {"boxes", "labels", "scores", "masks": (n, 1, H, W) in [0, 1]}.
    Raises UserError for an unknown arch and for a network that does not fit it.
    """
    check_trainable(trainable)
    if isinstance(classes, bool) or not isinstance(classes, int) or classes < 1:
        raise UserError(f"classes={classes!r} must be the number of kinds of objects, from 1")
    loaded = load_model(model)
    check_fit(loaded, arch)
    build = importlib.import_module(f"evaluation.protocols.detection.{arch}").build
    with torch.random.fork_rng(devices=[]):
        torch.default_generator.manual_seed(seed_of("detector", seed))
        detector = build(loaded, classes, masks=masks, trainable=trainable, sizes=sizes or Sizes())
    return detector.train()


def check_fit(model: LoadedModel, arch: str) -> None:
    """Raises UserError for an unknown arch and for a network that does not fit it; nothing is built."""
    if arch not in ARCHITECTURES:
        raise UserError(f"there is no arch {arch!r}: {nearest(str(arch), ARCHITECTURES)}")
    importlib.import_module(f"evaluation.protocols.detection.{arch}").check(model)


def seed_of(purpose: str, *numbers: int) -> int:
    """The seed of one purpose's draws: no two share one."""
    text = " ".join([purpose, *map(str, numbers)])
    return int.from_bytes(hashlib.blake2b(text.encode(), digest_size=7).digest(), "little")
