"""C4: Faster and Mask R-CNN on the map of layer3 of a ResNet, with layer4 as the head of every region.

torchvision has no such model; this one is built from its parts. Sources: He et al. 2016 (arXiv 1512.03385, appendix A),
Ren et al. 2015 (arXiv 1506.01497), He et al. 2017 (arXiv 1703.06870, figure 4 left), and the public configuration of
MoCo (He et al. 2020, arXiv 1911.05722), including its extra batch norm after layer4.

Differences from detectron2, the source of the published numbers, that come from torchvision: the box loss (smooth L1
with beta 1/9 instead of L1); a regressor and a mask predictor with untrained outputs for the background; sides of
resized images are rounded down; ground-truth masks are resized rather than redrawn from polygons, and predicted masks
are pasted into boxes of whole pixels, one pixel wider. A difference of this library: voc_ap.py does not round.
"""

from collections import OrderedDict

from torch import Tensor, nn
from torchvision.models._utils import IntermediateLayerGetter
from torchvision.models.detection import FasterRCNN
from torchvision.models.detection.anchor_utils import AnchorGenerator
from torchvision.models.detection.faster_rcnn import FastRCNNPredictor
from torchvision.models.detection.mask_rcnn import MaskRCNNPredictor
from torchvision.ops import roi_align

from sslkit.models.detectors.body import Fixed, check_resnet, resnet_body
from sslkit.models.detectors.c4_heads import C4Heads
from sslkit.models.detectors.sizes import Sizes
from sslkit.models.model import Model

POOLED = 14  # side, in cells, of a region pooled from layer3's map; layer4 halves it
MASK_WIDTH = 256  # channels, as published (He et al. 2017, Mask R-CNN)
check = check_resnet


class SingleMapRoIAlign(nn.Module):
    """Pool regions of one map of given stride to (K, C, size, size): aligned, adaptive number of samples per cell.

    torchvision's MultiScaleRoIAlign infers the stride from the size of the padded map.
    """

    def __init__(self, size: int, stride: int) -> None:
        super().__init__()
        self.output_size, self.scale = (size, size), 1 / stride

    def forward(self, features: dict[str, Tensor], boxes: list[Tensor], _shapes: list[tuple[int, int]]) -> Tensor:
        return roi_align(features["0"], boxes, self.output_size, self.scale, sampling_ratio=0, aligned=True)


def build(model: Model, classes: int, *, masks: bool, tune: str, sizes: Sizes) -> FasterRCNN:
    """Build Faster R-CNN, or Mask R-CNN whose mask head shares layer4 with the box head.

    classes: number of object classes, without the background. Other arguments: `evaluation.detection.build_detector`.

    Parameters of a ResNet-50, 20 classes: 33,242,356 for boxes, 35,345,161 with masks, of 20 classes each. These are
    the backbone without classifier (23,508,032), batch norm after layer4 (4,096), region proposals (3x3 and two 1x1
    convolutions, 9,515,083), scores and boxes for 21 classes with the background (215,145), and for masks a transposed
    convolution and 21 maps (2,102,805); layer4, which both heads use, counts once. Batch norm's running statistics
    are not counted.
    """
    body = resnet_body(model)
    stride, channels, width = body.strides[2], body.channels[2], body.channels[3]
    layer4, shared = body.net.layer4, IntermediateLayerGetter(body.net, {"layer3": "0"})
    if tune == "none":
        layer4, shared = Fixed(layer4), Fixed(shared)
    shared.out_channels = channels
    res5 = nn.Sequential(OrderedDict(layer4=layer4, norm=nn.BatchNorm2d(width)))
    boxes = box_predictor(width, classes)
    detector = FasterRCNN(
        shared,
        rpn_anchor_generator=AnchorGenerator((sizes.anchors,), ((0.5, 1.0, 2.0),)),
        box_head=nn.Identity(),
        box_predictor=boxes,
        image_mean=model.mean,
        image_std=model.std,
        **sizes.arguments(sizes.candidates),
    )
    outlines = mask_predictor(width, classes) if masks else None
    detector.roi_heads = C4Heads(SingleMapRoIAlign(POOLED, stride), res5, boxes, outlines, sizes.rois)
    return detector


def mask_predictor(width: int, classes: int) -> MaskRCNNPredictor:
    """Predict one mask of twice the side for each class and the background; weights from N(0, 0.001^2)."""
    predictor = MaskRCNNPredictor(width, MASK_WIDTH, classes + 1)
    nn.init.normal_(predictor.mask_fcn_logits.weight, std=0.001)
    return predictor


def box_predictor(width: int, classes: int) -> FastRCNNPredictor:
    """Predict scores and boxes of each class and the background; weights from N(0, 0.01^2) and N(0, 0.001^2)."""
    predictor = FastRCNNPredictor(width, classes + 1)
    for layer, std in ((predictor.cls_score, 0.01), (predictor.bbox_pred, 0.001)):
        nn.init.normal_(layer.weight, std=std)
        nn.init.zeros_(layer.bias)
    return predictor
