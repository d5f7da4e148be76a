"""What two views of each image tell without labels: whether one is found by the other, and how features lie."""

import torch
from torch import Tensor

from sslkit.numerics import diagnostics

MOST = 1000  # images: an interval of three points; finding one of few is easy, so compare at one number
FEWEST = 20  # images: of fewer the first answer is right too often by chance


def find_other_views(first: Tensor, second: Tensor) -> Tensor:
    """Return (N,) bool: whether the nearest second view of each first, by cosine, is that of the same image.

    first, second: (N, D) features of the two views. A tie is not right.
    """
    similarity = diagnostics.unit_rows(first) @ diagnostics.unit_rows(second).T
    same = similarity.diagonal().clone()
    similarity.fill_diagonal_(-torch.inf)
    return same > similarity.amax(1)


def compare_views(first: Tensor, second: Tensor) -> dict[str, float]:
    """Compare the features (N, D) of two views of N images.

    found: the share of `find_other_views`. alignment: mean squared distance of the two views of an image; uniformity:
    of the first views (Wang & Isola 2020, arXiv 2005.10242). lidar: of both (Thilak et al. 2023, arXiv 2312.04000).
    n: N.
    """
    views = torch.stack([first, second], 1).flatten(0, 1).double()
    return {
        "found": find_other_views(first, second).double().mean().item(),
        "alignment": diagnostics.alignment(first, second),
        "uniformity": diagnostics.uniformity(first),
        "lidar": diagnostics.lidar(views, torch.arange(len(first)).repeat_interleave(2)),
        "n": len(first),
    }
