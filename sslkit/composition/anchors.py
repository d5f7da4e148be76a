"""The networks that a run is held near: made from the one in training, shared, and shown the first view whole."""

from collections.abc import Sequence

import torch
from torch import Tensor, nn

from sslkit.backbones.base import Backbone
from sslkit.embeddings import Whole
from sslkit.objectives.base import Objective
from sslkit.priors._of_run import RunPrior
from sslkit.priors.base import NetworkPrior
from sslkit.priors.epoch import EpochCopy, EpochPrior
from sslkit.regularizers.base import Regularizer, see

Normalization = tuple[tuple[float, ...], tuple[float, ...]]


class Anchors(nn.Module):
    """The networks of the members' priors that are the run's own, and the first view's pass for those that read it.

    Members with the same prior get one object, and so one pass a step. copies: of prior=epoch:K, by K.
    Raises UserError as `RunPrior.bind` and `Regularizer.fit_to` do.
    """

    def __init__(
        self, members: Sequence[Objective | Regularizer], backbone: Backbone, normalize: Normalization, seed: int
    ) -> None:
        super().__init__()
        self.copies = nn.ModuleDict()
        for member in members:
            if isinstance(member.prior, RunPrior):
                member.prior.bind(backbone, normalize, seed)
        readers = [member for member in members if isinstance(member, Regularizer) and member.needs_whole]
        shared: dict[tuple, NetworkPrior] = {}
        for member in readers:
            key = (member.prior.name, member.prior.size, member.prior.precision)
            member.prior = shared.setdefault(key, member.prior)
        self.priors = list(shared.values())
        for prior in self.priors:
            if isinstance(prior, EpochPrior):
                prior.copy = self.copies[str(prior.after)] = EpochCopy(prior.network, prior.after)
        for member in readers:
            member.fit_to(backbone)

    @property
    def last_epoch(self) -> int:
        """The largest K of prior=epoch:K; 0 without one."""
        return max((copy.after for copy in self.copies.values()), default=0)

    def forward(
        self, backbone: Backbone, view: Tensor, pixels: Tensor, epoch: int, generator: torch.Generator | None
    ) -> Whole | None:
        """The first view as the network sees it whole, once each anchor has seen it; None if nothing reads it.

        view: (N, C, H, W) in [0, 1]; pixels: the same, normalised. epoch: number of finished ones. generator: see
        `Objective.embed`.
        """
        if not self.priors:
            return None
        for copy in self.copies.values() if backbone.training else ():
            copy.take(backbone, epoch)
        student = see(backbone, pixels)
        for prior in self.priors:
            if not isinstance(prior, EpochPrior) or prior.is_taken:
                prior.maps(view)  # here, in the number format of the student's pass
        order = torch.randperm(student.patches[0, 0].numel(), generator=generator)
        return Whole(view, student, order)
