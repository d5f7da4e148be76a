"""What holds a network near an earlier one: both see the first view whole, and a subclass compares them."""

from typing import ClassVar

import torch
import torch.nn.functional as F
from torch import Tensor

from sslkit.backbones.base import Backbone
from sslkit.embeddings import Embeddings, Maps, mean_over_ranks, wide
from sslkit.errors import UserError
from sslkit.options.ranges import ChosenRatio, ChosenShare, Size, Weight
from sslkit.priors import build
from sslkit.priors.base import NetworkPrior
from sslkit.priors.epoch import EpochPrior
from sslkit.priors.start import StartPrior
from sslkit.regularizers.base import Regularizer


class Anchor(Regularizer):
    """weight * distance(network in training, anchor), each given the first view without masks, in eval mode.

    A masked student against a whole anchor, as in a published code, would have to become blind to masks; and batch
    norms that see a batch differ from those that keep their statistics. So the student has a pass of its own for all
    anchors, and each anchor one. Equal networks have a term of exactly 0. Before epoch K prior=epoch:K has no term.

    prior: start (the weights of init=, kept frozen), epoch:K (the network after epoch K), random (the control),
        timm:NAME[:FILE] or zoo:ENTRY.
    prior_size: side in pixels of what the anchor sees, the view resized; None is the prior's default.
    prior_precision: float32, or bfloat16 for networks that are not of the run.
    weight: multiplies the term; a balance cancels it, unless it is 0.
    balance: ratio of its gradient's norm to the objective's, see `sslkit.composition.balance`; None leaves the weight.
    balance_until: finished share of the run in which the ratio is kept.
    """

    needs_images = False
    needs_whole = True
    reads = "map"
    name: ClassVar[str]
    has_same_width: ClassVar[bool] = False

    def __init__(
        self,
        dim: int,
        *,
        prior: str = "start",
        prior_size: Size | None = None,
        prior_precision: str = "float32",
        weight: Weight = 1.0,
        balance: ChosenRatio = None,
        balance_until: ChosenShare = None,
    ) -> None:
        super().__init__(balance=balance, balance_until=balance_until)
        self.weight, self.is_untrained = weight, False
        self.prior = build(prior, size=prior_size, precision=prior_precision)
        if not isinstance(self.prior, NetworkPrior):
            raise UserError(f"{self.name}.prior={self.prior.name} has no network: give start, random, timm:NAME, ...")

    @torch.no_grad()
    def fit_to(self, backbone: Backbone) -> None:
        """Raises UserError for a network without a map, and for an anchor that cannot be compared with it."""
        self.is_untrained = isinstance(self.prior, StartPrior) and backbone.recipe.origin is None
        pixels = torch.zeros(2, *backbone.input_shape()).to(next(backbone.parameters()))
        student, anchor = see(backbone, pixels), self.prior.maps(pixels)
        widths = student.pooled.shape[1], anchor.pooled.shape[1]
        if self.has_same_width and len(set(widths)) > 1:
            raise UserError(
                f"{self.name}: the network has {widths[0]} features and prior {self.prior.name} has {widths[1]}: give "
                "an anchor of the same network, or +guide, which learns to predict others"
            )
        grids = student.patches.shape[2:], anchor.patches.shape[2:]
        if not self.has_same_width and min(grid.numel() for grid in grids) < 2:
            raise UserError(
                f"{self.name} compares patches, and the maps of the network and of prior {self.prior.name} have "
                f"{' and '.join(f'{tall} x {wide}' for tall, wide in grids)} positions: give a larger image_size"
            )

    def describe(self) -> str:
        """A line on the anchor."""
        line = f"held near prior {self.prior.name}: one pass more of the network and one of the anchor a step"
        return line + "; these are random weights, as there is no init=" * self.is_untrained

    def weights(self) -> dict[str, float]:
        return {self.name: self.weight}

    def terms(self, e: Embeddings, images: Tensor | None) -> dict[str, Tensor]:
        """{name: the term}, equal on every rank; none before the epoch of prior=epoch:K."""
        if isinstance(self.prior, EpochPrior) and not self.prior.is_taken:
            return {}
        student, anchor = e.whole.student, self.prior.maps(e.whole.view)
        distance = mean_over_ranks(self.distance(student, anchor, e.whole.order))
        return {self.name: self.weight * distance}

    def distance(self, student: Maps, anchor: Maps, order: Tensor) -> Tensor:
        """Mean over this rank's images, fp32; 0 for equal maps. order: see `embeddings.Whole`."""
        raise NotImplementedError


def see(backbone: Backbone, pixels: Tensor) -> Maps:
    """The maps of normalised pixels (N, C, H, W) in eval mode, fp32, with gradient."""
    training = backbone.training
    patches, pooled = backbone.eval().feature_map(pixels)
    backbone.train(training)
    return Maps(wide(patches), wide(pooled))


def tokens(student: Maps, anchor: Maps) -> tuple[Tensor, Tensor]:
    """The patches of both, (N, P, F) and (N, P, A), at the positions of the student's grid.

    An anchor of another grid is resized bicubic and without antialias, as in the code of DINOv3 (Siméoni et al. 2025);
    with antialias a finer map would be smoothed first, and its Gram matrix another one.
    """
    patches = anchor.patches.to(student.patches)
    if patches.shape[2:] != student.patches.shape[2:]:
        patches = F.interpolate(patches, student.patches.shape[2:], mode="bicubic", align_corners=False)
    return student.patches.flatten(2).mT, patches.flatten(2).mT
