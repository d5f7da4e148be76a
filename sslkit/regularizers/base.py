"""The contract of every regulariser: named, weighted terms on the embeddings of any objective."""

import math
from collections.abc import Mapping
from numbers import Real
from pathlib import Path
from typing import TYPE_CHECKING, ClassVar, Literal

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from sslkit.backbones.base import Backbone
from sslkit.embeddings import Embeddings, Maps, mean_over_ranks, wide
from sslkit.errors import UserError, format_value
from sslkit.options.ranges import ChosenRatio, ChosenShare, Size, Weight
from sslkit.priors import build
from sslkit.priors.base import NetworkPrior, Prior
from sslkit.priors.epoch import EpochPrior
from sslkit.priors.start import StartPrior

if TYPE_CHECKING:
    from sslkit.data.sources.named import Images

CONTRACT = "Regularizer"
# Balance and its end beside objectives that do not compare views: recipes/benchmarks/plugins.
BESIDE_OTHERS = 0.03, 1.0
Place = Literal["z", "h", "map"]


class Regularizer(nn.Module):
    """A regulariser is built with `dim`, the width of what it reads, and its options; it never sees the objective.

    reads: the embeddings that it is for, projected (z) or the backbone's (h); an option of this name chooses. map: of
        the backbone, see e.whole.
    prior: the frozen features that it learns from, if there are some; a method gives it the networks of the run.
    balance: ratio of the norms of its gradient and the objective's, to which `sslkit.method` scales its terms; None
        leaves them as they are. The factor multiplies the loss, and so the gradients of its own layers too. See
        `sslkit.composition.balance`.
    balance_until: finished share of the run from which on the factor is kept; 1 follows the gradients to the end.
        None is `until`, or what is chosen with balance="auto". Refused where there is no balance.
    until: default of balance_until beside a balance that is a number.
    automatic: balance and balance_until by whether the objective compares views, of a regulariser that takes
        balance="auto".
    remedy: the balance that is advised where its gradient swamps the objective's.
    watched: detached scalars of the last call of `terms` to log; not part of the loss. Where processes share the pairs
        of a step, each has those of its own part.
    needs_images: whether `terms` reads its images; False saves a run on image files from making them for each batch.
    needs_whole: whether it reads e.whole, the first view without masks.
    needs_slow: whether it reads e.slow, the features of a slow copy of the backbone (prior=self).
    """

    reads: Place = "z"
    needs_images: bool = True
    needs_slow: bool = False
    needs_whole: bool = False
    automatic: ClassVar[Mapping[bool, tuple[float | None, float]]] = {}
    until: ClassVar[float] = 1.0
    remedy: str = "1"
    prior: Prior | None = None

    def __init__(self, *, balance: ChosenRatio = None, balance_until: ChosenShare = None) -> None:
        super().__init__()
        waits = balance == "auto" and bool(self.automatic)
        if balance is not None and not waits and not (isinstance(balance, Real) and 0 < balance < math.inf):
            words = "auto, a number above 0," if self.automatic else "a number above 0,"
            raise UserError(f"balance must be {words} or None for no balance, got {format_value(balance)}")
        if balance_until is not None and not 0 <= balance_until <= 1:
            raise UserError(f"balance_until must be from 0 to 1, a share of the run, got {balance_until}")
        self.balance, self.balance_until = balance, balance_until
        if not waits:
            self._settle(balance, self.until)
        self.choice = ""  # in words, of what was automatic
        self.watched: dict[str, Tensor] = {}

    def beside(self, *, compares_views: bool) -> None:
        """Called once, before training, with what the objective is: makes the choice of balance="auto"."""
        balance, until = self.automatic.get(compares_views, (None, 1.0))
        self.remedy = "1" if balance is None else "auto"
        if self.balance == "auto":
            self._settle(balance, until)
            if balance is not None:
                self.choice = in_words(balance, self.balance_until, compares_views)

    def _settle(self, balance: float | None, until: float) -> None:
        if balance is None and self.balance_until is not None:
            raise UserError(
                f"{type(self).__name__}: balance_until={self.balance_until:g} is the end of a balance, and there is "
                "none: give a balance too, or leave it out"
            )
        self.balance = balance
        if self.balance_until is None:
            self.balance_until = until

    def fit_to(self, backbone: Backbone) -> None:
        """Called once, before training, with the network. Raises UserError for one that it is not for."""

    def check(self, dataset: "Images") -> None:
        """Called before a run's folder is made. Raises UserError for a data set that an option does not fit."""

    def prepare(self, dataset: "Images", *, cache: Path | None = None, steps: int = 0) -> None:
        """Called once before training with the clean training images, on all ranks; for priors and neighbours.

        cache: folder for files that later runs can reuse, which all ranks may write: `sslkit.runtime.waiting` lets them
        take turns. steps: of the whole run, 0 if unknown.
        """

    def describe(self) -> str:
        """One line for the start of a run, such as its prior; empty for none. The choice of balance="auto" follows."""
        return ""

    def weights(self) -> dict[str, float]:
        """The factor that each of its terms contains, by the term's name; 1 for those left out."""
        return {}

    def terms(self, e: Embeddings, images: Tensor | None) -> dict[str, Tensor]:
        """Weighted scalars by name.

        e: the step over all ranks (`Embeddings.gather`); e.index is gathered as well, e.views is not.
        images: (N_local, C, H, W) this rank's clean images, uint8 or float in [0, 1]; may be None if needs_images is
            False.
        """
        raise NotImplementedError


def in_words(balance: float, until: float, compares_views: bool) -> str:
    """A choice of balance="auto" for the start of a run."""
    how = f"balance {balance:g}" + f" until {until:.0%} of the run" * (until < 1)
    return f"{how}, chosen for objectives that {'compare' if compares_views else 'do not compare'} views"


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
