"""Forms of `guide` that guide_study.py tries: on an earlier layer, with the network's own features, neighbours."""

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from sslkit.composition.method import Method
from sslkit.embeddings import Embeddings
from sslkit.layers.heads import mlp
from sslkit.options.ranges import Ratio, Share
from sslkit.priors._targets import regression_loss, whitening
from sslkit.regularizers.guide import Guide

ROWS = 10_000  # largest data set of the study


class Earlier(Guide):
    """guide on the third stage of narrow_resnet, averaged over places, instead of on h.

    It does not reach the last layer, so that it has no share: its weight is 10, about what the balance finds.
    """

    def __init__(self, dim: int, *, balance: Ratio = 3.0, balance_until: Share = 0.1) -> None:
        super().__init__(dim, balance=balance, balance_until=balance_until)
        self.projector = mlp(dim // 2, 256, 128)
        self.seen: list[Tensor] = []

    def begin(self, method: Method) -> None:
        """Keep what the third stage of the student returns."""

        def keep(module: nn.Module, given: tuple[Tensor], out: Tensor) -> None:
            if module.training:  # not what the judges see
                self.seen.append(out)

        method.backbone.net.layer3.register_forward_hook(keep)

    def terms(self, e: Embeddings, images: Tensor | None) -> dict[str, Tensor]:
        (maps,) = self.seen
        self.seen.clear()
        predicted = self.projector(maps.mean((2, 3))).unflatten(0, e.h.shape[:2])
        return {"guide": 10 * regression_loss(predicted, self.targets(e))}


class Own(Guide):
    """From half of the run on, the network's own features of each image, as of the first half, are the prior."""

    def __init__(self, dim: int, *, balance: Ratio = 3.0, balance_until: Share = 0.1) -> None:
        super().__init__(dim, balance=balance, balance_until=balance_until)
        self.second = mlp(dim, 256, 128)
        self.register_buffer("memory", torch.zeros(ROWS, dim))
        self.register_buffer("known", torch.zeros(ROWS, dtype=torch.bool))
        self.found: Tensor | None = None
        self.method: list[Method] = []  # no submodule

    def begin(self, method: Method) -> None:
        """Follow the progress of the run."""
        self.method = [method]

    def terms(self, e: Embeddings, images: Tensor | None) -> dict[str, Tensor]:
        if self.method[0].progress < 0.5:
            self.memory[e.index], self.known[e.index] = e.h.detach().mean(0), True
            return super().terms(e, images)
        if self.found is None:
            self.found = whitening(self.memory[self.known], 128, "own")
        target = (self.memory[e.index] - self.found[0]) @ self.found[1:].T
        predicted = self.second(e.h.flatten(0, 1)).unflatten(0, e.h.shape[:2])
        unused = 0 * sum(p.sum() for p in self.projector.parameters())
        return {"guide": regression_loss(predicted, target.expand(len(e.h), -1, -1)) + unused}


class Neighbours(Guide):
    """guide, and the nearest image of the batch by the prior as a further positive: its h is pulled to the image's."""

    def terms(self, e: Embeddings, images: Tensor | None) -> dict[str, Tensor]:
        own = super().terms(e, images)["guide"]
        a = F.normalize(self.targets(e).mean(0), dim=1)
        nearest = (a @ a.T).fill_diagonal_(-2).argmax(1)
        z = F.normalize(e.z, dim=-1)
        pulled = 1 - (z.mean(0) * z.mean(0)[nearest]).sum(-1).mean()
        return {"guide": own + 0.5 * pulled}
