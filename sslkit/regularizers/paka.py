"""PaKa: align the kernel of an image's patches with that of an earlier network (2025, arXiv 2509.05606)."""

import torch
from torch import Tensor

from sslkit.embeddings import Maps
from sslkit.options.ranges import ChosenRatio, ChosenShare, Rows, Size, Weight
from sslkit.regularizers.base import Anchor, tokens
from sslkit.runtime.device import to_device_of

LEAST = 1e-12  # under the root: a map that is equal at all positions has a kernel of 0


class Paka(Anchor):
    """weight * mean[1 - <K, K'> / (|K| |K'|)] of the kernels K = Z Z^T of each image's patches Z, centred twice.

    It is 1 - CKA with linear kernels: unlike `gram` it leaves the scale, the mean and rotations of the patches free.

    patches: positions in the kernel, drawn anew in each step, the same in both networks; all, if there are fewer.
    Its options prior, prior_size, prior_precision, weight, balance and balance_until are those of every anchor.
    """

    name = "paka"

    def __init__(
        self,
        dim: int,
        *,
        prior: str = "start",
        prior_size: Size | None = None,
        prior_precision: str = "float32",
        patches: Rows = 256,
        weight: Weight = 1.0,
        balance: ChosenRatio = None,
        balance_until: ChosenShare = None,
    ) -> None:
        super().__init__(
            dim,
            prior=prior,
            prior_size=prior_size,
            prior_precision=prior_precision,
            weight=weight,
            balance=balance,
            balance_until=balance_until,
        )
        self.patches = patches

    def distance(self, student: Maps, anchor: Maps, order: Tensor) -> Tensor:
        """1 - cos is half the squared difference of the kernels of norm 1, which is exactly 0 for equal ones."""
        some = to_device_of(order[: self.patches], student.patches)
        ours, theirs = (unit_kernel(x[:, some]) for x in tokens(student, anchor))
        return (ours - theirs).square().sum((1, 2)).mean() / 2


def unit_kernel(z: Tensor) -> Tensor:
    """(N, P, F) -> the kernels Z Z^T (N, P, P), double-centred, of Frobenius norm 1, or 0 where Z does not vary.

    Centring the rows of Z is what centring its kernel twice is.
    """
    z = z - z.mean(1, keepdim=True)
    kernel = z @ z.mT
    square = kernel.square().sum((1, 2), keepdim=True)
    return kernel * torch.rsqrt(square.clamp(min=LEAST))
