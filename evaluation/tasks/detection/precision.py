"""bfloat16 where the time goes, float32 for boxes.

torchvision decodes boxes in the type of the network's outputs: under an autocast of the whole detector their corners
would be rounded to bfloat16, which around 600 knows only every fourth pixel.
"""

from collections.abc import Callable
from contextlib import AbstractContextManager
from functools import partial
from typing import TYPE_CHECKING, Any

from torch import Tensor

from sslkit.runtime.device import autocast

if TYPE_CHECKING:  # importing it takes more than a second
    from torchvision.models.detection import FasterRCNN


def set_precision(detector: "FasterRCNN", precision: str) -> "FasterRCNN":
    """The same detector, whose layers compute in `precision` ("float32" or "bfloat16") and hand on float32.

    Proposals, regions, losses and decoded boxes are float32 in any case.
    """
    if precision == "float32":
        return detector
    heads, within = detector.roi_heads, partial(autocast, precision, next(detector.parameters()).device)
    head = getattr(heads.box_head, "res5", heads.box_head)  # C4's heads call layer4 by itself, for masks too
    layers = (head, heads.box_predictor, heads.mask_head, heads.mask_predictor)
    for layer in dict.fromkeys((detector.backbone, detector.rpn.head, *layers)):
        if layer is not None:
            layer.forward = partial(_within, layer.forward, within)
    return detector


def _within(forward: Callable[..., Any], context: Callable[[], AbstractContextManager], *given: Any) -> Any:
    with context():
        return _float(forward(*given))


def _float(found: Any) -> Any:
    """Tensors as float32, also in the lists, tuples and dicts that torchvision's parts give."""
    if isinstance(found, Tensor):
        return found.float()
    if isinstance(found, dict):
        return type(found)((name, _float(value)) for name, value in found.items())
    return type(found)(_float(value) for value in found)
