"""Regression targets of a network's patches: the whitened components of a teacher's feature map of the first view."""

from typing import TYPE_CHECKING, Literal, get_args

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from sslkit.data.loader import batches_in_order, evenly
from sslkit.errors import UserError, check_one_of
from sslkit.layers.heads import mlp
from sslkit.priors._of_run import RunPrior
from sslkit.priors._targets import PriorTargets, regression_loss
from sslkit.priors.base import NetworkPrior, to_float

if TYPE_CHECKING:
    from sslkit.data.sources.named import Images

TokenChoice = Literal["pooled", "patches", "both"]
# images, and patches of them, that the whitening is fitted to: far above the number of components, in round numbers
IMAGES, PATCHES, AT_ONCE = 1000, 10_000, 32


def check_tokens(tokens: str, prior: object, owner: str) -> bool:
    """Return whether patches are learned. Raises UserError, in the owner's name, for a prior that has none."""
    check_one_of(f"{owner}.tokens", tokens, get_args(TokenChoice))
    if tokens == "pooled":
        return False
    if not isinstance(prior, NetworkPrior):
        name = getattr(prior, "name", prior)
        raise UserError(f"{owner}.tokens={tokens}: prior {name} has no patches: give timm:NAME or zoo:ENTRY, or pooled")
    if not isinstance(prior, RunPrior):  # those have their network later, from a timm network or an error
        prior.maps(torch.zeros(1, prior.channels, prior.size, prior.size))
    return True


class PatchRegression(PriorTargets):
    """mean[1 - cos(g(student's patch), W (teacher's patch - mean))] over the teacher's grid, as of pooled features.

    g: a projector of its own on the student's map, which is resampled to the teacher's grid (bilinear), so that any
        network may learn from any other. The teacher sees the view resized and normalised as it was trained.
    channels: of the student's map. hidden: width of g.
    """

    kind = ("patches",)

    def __init__(self, prior: NetworkPrior, channels: int, *, hidden: int, components: int, owner: str) -> None:
        super().__init__(prior, components=components, mode="view", size=None, precision="float32", owner=owner)
        self.head: nn.Sequential = mlp(channels, hidden, components)

    def sample(self, dataset: "Images") -> Tensor:
        """(n, A) patches of clean images."""
        parts = []
        for _, batch in batches_in_order(dataset, evenly(len(dataset), IMAGES), AT_ONCE):
            patches = self.prior.maps(to_float(batch["images"].to(self.mean.device))).patches
            rows = patches.flatten(2).mT.flatten(0, 1)
            parts.append(rows[evenly(len(rows), max(1, PATCHES * AT_ONCE // min(len(dataset), IMAGES)))].cpu())
        return torch.cat(parts)

    def forward(self, patches: Tensor, view: Tensor) -> Tensor:
        """The loss over all ranks of the student's patches (N_local, F, H, W), fp32, and a view (N_local, C, S, S)."""
        with torch.no_grad(), torch.autocast(view.device.type, enabled=False):
            teacher = self.prior.maps(view).patches
            target = self.whiten(teacher.flatten(2).mT.flatten(0, 1))
        if patches.shape[2:] != teacher.shape[2:]:
            patches = F.interpolate(patches, teacher.shape[2:], mode="bilinear", align_corners=False)
        predicted = self.head(patches.flatten(2).mT.flatten(0, 1))
        return regression_loss(predicted[None], target[None])
