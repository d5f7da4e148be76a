"""Distill: regress what a frozen prior says of each view, and nothing else (feature distillation)."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

import torch
from torch import Tensor, nn

from sslkit.data.views.recipe import SIMCLR
from sslkit.embeddings import Embeddings, along, own_rows, stack, wide
from sslkit.errors import UserError
from sslkit.layers.heads import mlp
from sslkit.objectives.base import Objective
from sslkit.options.ranges import Size, Width
from sslkit.priors._patches import PatchRegression, TokenChoice, check_tokens
from sslkit.priors._targets import Mode, PriorTargets, regression_loss

if TYPE_CHECKING:
    from sslkit.data.sources.named import Images


@dataclass
class Mapped(Embeddings):
    """patches: (N_local, F, H, W) the map of the first view, with gradient; of this rank, not gathered."""

    patches: Tensor | None = along(None, default=None)


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
    tokens: pooled features, patches of the first view, or both, which add up: of a network (timm:NAME, zoo:ENTRY). The
        student's map is resampled to the teacher's grid.
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
        tokens: TokenChoice = "pooled",
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
        self.tokens = tokens
        self.patches: PatchRegression | None = None
        if check_tokens(tokens, self.prior, "objective"):
            how = {"hidden": hidden, "components": dim, "owner": "objective"}
            self.patches = PatchRegression(self.prior, backbone.map_channels(), **how)

    def check(self, dataset: "Images") -> None:
        """Raises UserError for features of a file that do not fit the data set."""
        self.targets.check(dataset)

    def prepare(
        self, dataset: "Images", *, cache: Path | None = None, normalize: Callable[[Tensor], Tensor] = Tensor.float
    ) -> None:
        """Fit the targets to the clean images; see `PriorTargets.prepare`."""
        if self.tokens != "patches":
            self.targets.prepare(dataset, cache=cache)
        if self.patches is not None:
            self.patches.prepare(dataset, cache=cache)

    def embed(self, views: Sequence[Tensor], index: Tensor, generator: torch.Generator | None = None) -> Embeddings:
        """One pass of all views; with tokens, the map of the first."""
        if self.patches is None:
            return super().embed(views, index, generator)
        maps, h = self.backbone.feature_map(torch.cat(list(views)))
        z, h = stack(len(views), self.projector(h), h)
        return Mapped(z=z, h=h, target=None, index=index, patches=wide(maps[: len(views[0])]))

    def describe(self) -> str:
        """A line on the prior."""
        return self.targets.describe()

    def align(self, e: Embeddings) -> Tensor:
        """Mean over all views and ranks of one minus the cosine of z and its target, and of the patches and theirs."""
        of_patches = None if self.patches is None else self.patches(e.patches, e.views[0])
        if self.tokens == "patches":
            return of_patches + 0 * own_rows(e.z).mean()  # whose projector has no other gradient
        pooled = regression_loss(own_rows(e.z), self.targets(e))
        return pooled if of_patches is None else pooled + of_patches
