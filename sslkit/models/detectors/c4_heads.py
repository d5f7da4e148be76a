"""The heads of a C4 detector: boxes and masks share one pass through layer4, as in detectron2's Res5ROIHeads."""

from torch import Tensor, cat, nn
from torchvision.models.detection.roi_heads import RoIHeads, fastrcnn_loss, maskrcnn_loss

Targets = list[dict[str, Tensor]]


class C4Heads(RoIHeads):
    """torchvision's RoIHeads, except that masks are trained on the maps that the box head computed for its regions.

    torchvision would pool the foreground regions again and pass them through layer4 alone, so that layer4's batch norm,
    which is trained here, would normalise over the foreground for masks and over all regions for boxes. At test time
    masks are predicted from the detected boxes, as in torchvision and in detectron2.

    pool: regions -> (K, C, 14, 14). res5: layer4 and batch norm. mask_predictor: None for boxes only.
    regions: training regions sampled per image. All other numbers are detectron2's, which equal torchvision's.
    """

    def __init__(
        self, pool: nn.Module, res5: nn.Module, box_predictor: nn.Module, mask_predictor: nn.Module | None, regions: int
    ) -> None:
        box_head = nn.Sequential()
        box_head.add_module("res5", res5)
        box_head.add_module("pool", nn.AdaptiveAvgPool2d(1))
        box_head.add_module("flat", nn.Flatten())
        masks = {} if mask_predictor is None else {"mask_roi_pool": pool, "mask_head": res5}
        super().__init__(
            pool,
            box_head,
            box_predictor,
            fg_iou_thresh=0.5,
            bg_iou_thresh=0.5,
            batch_size_per_image=regions,
            positive_fraction=0.25,
            bbox_reg_weights=(10.0, 10.0, 5.0, 5.0),
            score_thresh=0.05,
            nms_thresh=0.5,
            detections_per_img=100,
            mask_predictor=mask_predictor,
            **masks,
        )

    def forward(
        self,
        features: dict[str, Tensor],
        proposals: list[Tensor],
        image_shapes: list[tuple[int, int]],
        targets: Targets | None = None,
    ) -> tuple[list[dict[str, Tensor]], dict[str, Tensor]]:
        if not self.training:
            return super().forward(features, proposals, image_shapes, targets)
        regions, matched, labels, offsets = self.select_training_samples(proposals, targets)
        maps = self.box_head.res5(self.box_roi_pool(features, regions, image_shapes))
        scores, deltas = self.box_predictor(self.box_head.flat(self.box_head.pool(maps)))
        classifier, box = fastrcnn_loss(scores, deltas, labels, offsets)
        losses = {"loss_classifier": classifier, "loss_box_reg": box}
        if self.mask_predictor is not None:
            losses["loss_mask"] = self._mask_loss(maps, regions, matched, labels, targets)
        return [], losses

    def _mask_loss(
        self, maps: Tensor, regions: list[Tensor], matched: list[Tensor], labels: list[Tensor], targets: Targets
    ) -> Tensor:
        """Mask loss of the foreground regions. maps: (K, C, h, w), of the regions of all images."""
        objects = [label > 0 for label in labels]
        foreground, which = (
            [values[mask] for values, mask in zip(parts, objects, strict=True)] for parts in (regions, matched)
        )
        outlines, classes = ([target[key] for target in targets] for key in ("masks", "labels"))
        return maskrcnn_loss(self.mask_predictor(maps[cat(objects)]), foreground, outlines, classes, which)
