"""Retain: keep the network's features near those of an earlier one, such as the weights it started from."""

import torch.nn.functional as F
from torch import Tensor

from sslkit.embeddings import Maps
from sslkit.regularizers.base import Anchor


class Retain(Anchor):
    """weight * mean[1 - cos(h, anchor's h)] of the features that the network is used by, pooled or of a class token.

    Unlike `guide` it has no head and no whitening between, which could turn while the features change. The difference
    of unit vectors, squared and halved, is the same number, and exactly 0 for equal ones.
    Its options prior, prior_size, prior_precision, weight, balance and balance_until are those of every anchor.
    """

    name = "retain"
    has_same_width = True

    def distance(self, student: Maps, anchor: Maps, order: Tensor) -> Tensor:
        difference = F.normalize(student.pooled, dim=1) - F.normalize(anchor.pooled.to(student.pooled), dim=1)
        return difference.square().sum(1).mean() / 2
