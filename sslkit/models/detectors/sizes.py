"""Sizes of a detector's images and anchors, and its numbers of regions."""

from dataclasses import dataclass
from typing import Any

from sslkit.errors import UserError

LEAST = 96  # pixels: below, torchvision cannot infer the stride of a padded map from its size
PUBLISHED_SIDE = 800  # image side of the published anchor sizes


@dataclass(frozen=True)
class Sizes:
    """Sizes of images, anchors and regions; defaults are detectron2's for C4 (regions at test: MoCo's) and for FPN.

    sides: lengths of the resized shorter side, in pixels; training samples one per image, tests use the last.
    longest: upper bound of the longer side. anchors: five sides of square anchors in pixels of the resized image.
    candidates: anchors kept before non-maximum suppression in training and in tests. level_candidates: the same for
    each level of a pyramid. proposals: regions kept after it. rois: regions per image that train the heads.
    Raises UserError for sides below 96 pixels and for a number of anchors other than five.
    """

    sides: tuple[int, ...] = (PUBLISHED_SIDE,)
    longest: int = 1333
    anchors: tuple[int, ...] = (32, 64, 128, 256, 512)
    candidates: tuple[int, int] = (12000, 6000)
    level_candidates: tuple[int, int] = (2000, 1000)
    proposals: tuple[int, int] = (2000, 1000)
    rois: int = 512

    def __post_init__(self) -> None:
        if not self.sides or min(self.sides) < LEAST:
            raise UserError(f"sides must be pixels of the shorter side, each at least {LEAST}, got {list(self.sides)}")
        if len(self.anchors) != 5:
            raise UserError(f"anchors must be five sides in pixels, got {list(self.anchors)}")

    @property
    def canonical(self) -> float:
        """Side of a box that is assigned to stride 16 of a pyramid: 224 of 800 pixels (FPN, eq. 1)."""
        return 224 * self.sides[-1] / PUBLISHED_SIDE

    def arguments(self, candidates: tuple[int, int]) -> dict[str, Any]:
        """Arguments of torchvision's FasterRCNN. candidates: per map (`candidates` or `level_candidates`)."""
        return {
            "min_size": self.sides,
            "max_size": self.longest,
            "rpn_pre_nms_top_n_train": candidates[0],
            "rpn_pre_nms_top_n_test": candidates[1],
            "rpn_post_nms_top_n_train": self.proposals[0],
            "rpn_post_nms_top_n_test": self.proposals[1],
            "box_batch_size_per_image": self.rois,
        }
