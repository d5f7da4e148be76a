"""FPN: Faster and Mask R-CNN on a feature pyramid over the four stages of a ResNet (Lin et al. 2017, arXiv 1612.03144).

Uses torchvision's BackboneWithFPN and heads; the ResNet and its strides come from the loaded model.
"""

from torchvision.models.detection import FasterRCNN, MaskRCNN
from torchvision.models.detection.anchor_utils import AnchorGenerator
from torchvision.models.detection.backbone_utils import BackboneWithFPN
from torchvision.models.detection.faster_rcnn import TwoMLPHead
from torchvision.ops import MultiScaleRoIAlign

from sslkit.models.detectors.body import STAGES, Fixed, check_resnet, resnet_body
from sslkit.models.detectors.c4 import box_predictor, mask_predictor
from sslkit.models.detectors.sizes import Sizes
from sslkit.models.model import Model

# channels of the pyramid, of the box head and of the mask head, as published and as torchvision's
WIDTH, HIDDEN, MASK_HIDDEN = 256, 1024, 256
LEVELS = tuple(map(str, range(len(STAGES))))
check = check_resnet


def build(model: Model, classes: int, *, masks: bool, tune: str, sizes: Sizes) -> FasterRCNN:
    """Build Faster or Mask R-CNN with a pyramid of five levels; see `evaluation.detection.build_detector`."""
    body = resnet_body(model)
    pyramid = BackboneWithFPN(body.net, dict(zip(STAGES, LEVELS, strict=True)), list(body.channels), WIDTH)
    if tune == "none":
        pyramid.body = Fixed(pyramid.body)
    return on_pyramid(pyramid, model, classes, masks=masks, sizes=sizes)


def on_pyramid(
    pyramid: BackboneWithFPN, model: Model, classes: int, *, masks: bool, sizes: Sizes, divisor: int = 32
) -> FasterRCNN:
    """Build torchvision's heads on the levels "0" to "3" and "pool" of a pyramid of WIDTH channels.

    divisor: images are padded to multiples of it, in pixels.
    """
    parts = {
        "rpn_anchor_generator": AnchorGenerator(tuple((side,) for side in sizes.anchors), ((0.5, 1.0, 2.0),) * 5),
        "box_roi_pool": _pool(7, sizes),
        "box_head": TwoMLPHead(WIDTH * 7 * 7, HIDDEN),
        "image_mean": model.mean,
        "image_std": model.std,
        "size_divisible": divisor,
        **sizes.arguments(sizes.level_candidates),
    }
    if not masks:
        return FasterRCNN(pyramid, box_predictor=box_predictor(HIDDEN, classes), **parts)
    detector = MaskRCNN(pyramid, classes + 1, mask_roi_pool=_pool(14, sizes), **parts)
    detector.roi_heads.box_predictor = box_predictor(HIDDEN, classes)
    detector.roi_heads.mask_predictor = mask_predictor(MASK_HIDDEN, classes)
    return detector


def _pool(size: int, sizes: Sizes) -> MultiScaleRoIAlign:
    return MultiScaleRoIAlign(LEVELS, size, sampling_ratio=2, canonical_scale=round(sizes.canonical))
