"""Overlap of pairs of boxes, against torchvision."""

import torch
from torchvision.ops import box_iou

from evaluation.transferability._objects import iou_of_pairs


def test_overlap_is_that_of_torchvision() -> None:
    corners = torch.rand(2, 50, 4, generator=torch.Generator().manual_seed(0), dtype=torch.float64)
    a, b = (torch.cat([one[:, :2], one[:, :2] + one[:, 2:]], 1) for one in corners)
    assert torch.allclose(iou_of_pairs(a, b), box_iou(a, b).diagonal())


def test_boxes_that_are_empty_or_inside_out_overlap_nothing() -> None:
    whole = torch.tensor([[0.0, 0.0, 1.0, 1.0]] * 3, dtype=torch.float64)
    bad = torch.tensor([[0.5, 0.5, 0.5, 0.9], [0.9, 0.9, 0.1, 0.1], [0.8, 0.2, 0.2, 0.8]], dtype=torch.float64)
    assert iou_of_pairs(whole, bad).tolist() == [0, 0, 0]
