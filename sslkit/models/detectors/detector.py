"""Build Faster or Mask R-CNN on the backbone of a loaded model."""

import importlib
from typing import TYPE_CHECKING

import torch
from torch import Tensor

from sslkit.errors import UserError, format_value
from sslkit.models.detectors.body import as_input, check_tune
from sslkit.models.detectors.sizes import Sizes
from sslkit.models.model import Model
from sslkit.options.members import nearest
from sslkit.runtime.device import seed_of, use_seed

if TYPE_CHECKING:  # importing it takes more than a second
    from torchvision.models.detection import FasterRCNN

INSIDE = 0.5  # smallest mask probability of a pixel of the object, as torchvision's and Detectron2's
ARCHITECTURES = ("c4", "fpn", "vit_pyramid")


def build_detector(
    model: Model,
    classes: int,
    *,
    arch: str = "c4",
    masks: bool = False,
    tune: str,
    sizes: Sizes | None = None,
    seed: int,
) -> "FasterRCNN":
    """Build a torchvision detector, in training mode, on a copy of a model's network; the model is not changed.

    model: of `sslkit.load`; a ResNet for "c4" and "fpn", a plain ViT for "vit_pyramid". Its mean and standard
        deviation normalise the images, which the detector resizes itself.
    classes: number of object classes, without the background; labels are 1 to classes.
    masks: Mask R-CNN instead of Faster R-CNN.
    tune: "all" trains every layer, including batch norm; "none" freezes the backbone (for "c4" layer4 too) and
        its running statistics and trains the new layers only.
    sizes: see `Sizes`. seed: random seed of the new layers' weights.

    Input: a list of (in_chans, H, W) floats in [0, 1] (see `as_input`) and, in training, a list of
    {"boxes": (n, 4) x0 y0 x1 y1 in pixels, "labels": (n,) int64, "masks": (n, H, W) uint8}. Output: a dict of losses
    in training, otherwise a list of {"boxes", "labels", "scores", "masks": (n, 1, H, W) in [0, 1]}.
    Raises UserError for an unknown arch and for a network that does not fit it.
    """
    check_tune(tune)
    if isinstance(classes, bool) or not isinstance(classes, int) or classes < 1:
        raise UserError(
            f"classes, the number of object classes, must be a whole number, at least 1, got {format_value(classes)}"
        )
    check_fit(model, arch)
    build = importlib.import_module(f"sslkit.models.detectors.{arch}").build
    with use_seed(seed_of("detector", seed)):
        detector = build(model, classes, masks=masks, tune=tune, sizes=sizes or Sizes())
    return detector.train()


def check_fit(model: Model, arch: str) -> None:
    """Raises UserError for an unknown arch and for a network that does not fit it; nothing is built."""
    if arch not in ARCHITECTURES:
        raise UserError(f"there is no arch {arch!r}: {nearest(str(arch), ARCHITECTURES)}")
    importlib.import_module(f"sslkit.models.detectors.{arch}").check(model)


@torch.inference_mode()
def detect(detector: "FasterRCNN", image: Tensor, in_chans: int) -> dict[str, Tensor]:
    """Boxes (n, 4) in the image's pixels, scores (n,), labels (n,) from 1, on the CPU, best first; perhaps masks.

    masks: (n, H, W) bool, of a Mask R-CNN. image: (3, H, W) uint8, on the device of the detector, which is in eval
    mode: alone, so that no prediction depends on the padding by other images.
    """
    [detected] = detector([as_input(image, in_chans)])
    if "masks" in detected:
        detected["masks"] = detected["masks"][:, 0] >= INSIDE
    return {name: value.cpu() for name, value in detected.items()}
