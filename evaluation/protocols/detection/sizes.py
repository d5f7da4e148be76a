"""Sizes of a detector: of its images, its anchors and how many regions it looks at."""

from dataclasses import dataclass
from typing import Any

from sslkit.errors import UserError

LEAST = 96  # pixels: below, torchvision cannot tell the stride of a padded map from its size
PUBLISHED_SIDE = 800  # that the published sizes of anchors belong to


@dataclass(frozen=True)
class Sizes:
    """Defaults: detectron2's configuration of C4, with MoCo's numbers of tested regions, and of FPN for its levels.

    sides: what the shorter side is brought to, in pixels; one is drawn for each training image, tests take the last.
    longest: no side becomes longer. anchors: five sides of square anchors in pixels of the resized image.
    candidates: anchors kept before non-maximum suppression in training and in tests. level_candidates: those of each
    level of a pyramid. proposals: regions kept after it. rois: regions of an image that the heads learn from.
    Raises UserError for sides below 96 pixels and another number of anchors.
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
            raise UserError(f"sides={list(self.sides)} must be pixels of the shorter side, from {LEAST}")
        if len(self.anchors) != 5:
            raise UserError(f"anchors={list(self.anchors)} must be five sides in pixels")

    @property
    def canonical(self) -> float:
        """Side of the box that a pyramid looks for at stride 16: 224 of 800 pixels (FPN, eq. 1)."""
        return 224 * self.sides[-1] / PUBLISHED_SIDE

    def arguments(self, candidates: tuple[int, int]) -> dict[str, Any]:
        """As torchvision's FasterRCNN takes them. candidates: of one map (`candidates`, or `level_candidates`)."""
        return {
            "min_size": self.sides,
            "max_size": self.longest,
            "rpn_pre_nms_top_n_train": candidates[0],
            "rpn_pre_nms_top_n_test": candidates[1],
            "rpn_post_nms_top_n_train": self.proposals[0],
            "rpn_post_nms_top_n_test": self.proposals[1],
            "box_batch_size_per_image": self.rois,
        }
