"""Distill: regress what a frozen prior says of each view, and nothing else (feature distillation)."""

from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING

from torch import Tensor, nn

from sslkit.data.views.recipe import SIMCLR
from sslkit.embeddings import Embeddings, own_rows
from sslkit.errors import UserError
from sslkit.layers.heads import mlp
from sslkit.objectives.base import Objective
from sslkit.options.ranges import Size, Width
from sslkit.priors._targets import Mode, PriorTargets, regression_loss

if TYPE_CHECKING:
    from sslkit.data.sources.named import Images


class Distill(Objective):
    """mean[1 - cos(z, W (prior(view) - mean))] as the only loss: the regulariser `guide` without an objective.

    With prior=timm:NAME or clip it distils a foundation model into a smaller network, on unlabelled images; with a
    prior without download it is the control of `guide` that says what the prior alone can teach.
    W: see `sslkit.priors._targets.PriorTargets`.

    prior: pca, hog, sift, identity, clip[:MODEL[:PRETRAINED]], timm:NAME[:FILE], zoo:ENTRY, features:FILE.npy or
        package.module:function.
    prior_size: side in pixels of the prior's input; None is the prior's default.
    prior_precision: float32, or bfloat16 for networks.
    mode: features of each view, or of the clean image for all its views (cached); auto: view, but cached for a file.
    dim: width of z, the principal components to regress. hidden: width of the projector.
    """

    views = SIMCLR
    families = ("resnet", "vit")
    compares_views = False

    def __init__(
        self,
        backbone: nn.Module,
        *,
        prior: str | Callable[[Tensor], Tensor] = "pca",
        prior_size: Size | None = None,
        prior_precision: str = "float32",
        mode: Mode = "auto",
        dim: Width = 128,
        hidden: Width = 256,
    ) -> None:
        super().__init__(backbone)
        self.dim = dim
        self.targets = PriorTargets(
            prior, size=prior_size, precision=prior_precision, mode=mode, components=dim, owner="objective"
        )
        self.prior = self.targets.prior
        if self.targets.of_itself:
            raise UserError(
                "objective.prior=self is the network that distill trains: it has nothing to learn from itself"
            )
        self.projector = mlp(backbone.width, hidden, dim)

    def check(self, dataset: "Images") -> None:
        """Raises UserError for features of a file that do not fit the data set."""
        self.targets.check(dataset)

    def prepare(
        self, dataset: "Images", *, cache: Path | None = None, normalize: Callable[[Tensor], Tensor] = Tensor.float
    ) -> None:
        """Fit the targets to the clean images; see `PriorTargets.prepare`."""
        self.targets.prepare(dataset, cache=cache)

    def describe(self) -> str:
        """A line on the prior."""
        return self.targets.describe()

    def align(self, e: Embeddings) -> Tensor:
        """Mean over all views and ranks of one minus the cosine of z and its target."""
        return regression_loss(own_rows(e.z), self.targets(e))
