"""Gram: keep the similarities of an image's patches near those of an earlier network (Siméoni et al. 2025)."""

import torch.nn.functional as F
from torch import Tensor

from sslkit.embeddings import Maps
from sslkit.regularizers.base import Anchor, tokens


class Gram(Anchor):
    """weight * mean squared difference of the P x P cosines of each image's patches (arXiv 2508.10104, DINOv3).

    The anchor may be of any width, and see larger views (prior_size): its map is resized to the student's grid.
    Its options prior, prior_size, prior_precision, weight, balance and balance_until are those of every anchor.
    """

    name = "gram"

    def distance(self, student: Maps, anchor: Maps, order: Tensor) -> Tensor:
        ours, theirs = (F.normalize(x, dim=2) for x in tokens(student, anchor))
        return (ours @ ours.mT - theirs @ theirs.mT).square().mean()
