"""Guide: regress what a frozen prior says of each view, beside the objective."""

from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, ClassVar

from torch import Tensor

from sslkit.backbones.base import Backbone
from sslkit.embeddings import Embeddings, own_rows, wide
from sslkit.layers.heads import mlp
from sslkit.options.ranges import ChosenShare, Ratio, Size, Weight, Width
from sslkit.priors._patches import PatchRegression, TokenChoice, check_tokens
from sslkit.priors._targets import Mode, PriorTargets, regression_loss
from sslkit.regularizers.base import Regularizer

if TYPE_CHECKING:
    from sslkit.data.sources.named import Images

UNTIL = 0.1  # chosen on held-out images: recipes/benchmarks/constants.json


class Guide(Regularizer):
    """weight * mean[1 - cos(g(h), W (prior(view) - mean))], g a projector of its own on the backbone's features h.

    W: the whitened principal components of the prior's features of the clean images, see
        `sslkit.priors._targets.PriorTargets`. The target of a view is the prior of that view, not of its image, so that
        the network is not taught to ignore what the views differ in. MAE's parts of a view have one target.
    With a network as prior (timm:NAME, clip) this is distillation of that network.

    prior: pca, hog, sift, identity (the pixels), clip[:MODEL[:PRETRAINED]], timm:NAME[:FILE], zoo:ENTRY,
        features:FILE.npy, self (a slow copy of the network in training) or package.module:function.
    prior_size: side in pixels of the prior's input; None is the prior's default.
    prior_precision: float32, or bfloat16 for networks.
    mode: features of each view, or of the clean image for all its views (cached); auto: view, but cached for a file.
    tokens: pooled features, or patches of the first view without masks, or both: of a network (timm:NAME, zoo:ENTRY,
        start, ...). The student's map is resampled to the teacher's grid; its pass is one more in a step.
    components: principal components to regress. hidden: width of the projector g.
    weight: multiplies the term; a balance cancels it, unless it is 0.
    balance: ratio of its gradient's norm to the objective's, see `sslkit.composition.balance`; None leaves the weight.
    balance_until: finished share of the run in which the ratio is kept; None is 0.1. Then the factor is: the ratio
        falls as the prior is learned, and the objective takes over.
    """

    needs_images = False
    reads = "h"
    until: ClassVar = UNTIL

    def __init__(
        self,
        dim: int,
        *,
        prior: str | Callable[[Tensor], Tensor] = "pca",
        prior_size: Size | None = None,
        prior_precision: str = "float32",
        mode: Mode = "auto",
        components: Width = 128,
        hidden: Width = 256,
        tokens: TokenChoice = "pooled",
        weight: Weight = 1.0,
        balance: Ratio = 3.0,
        balance_until: ChosenShare = None,
    ) -> None:
        super().__init__(balance=balance, balance_until=balance_until)
        self.weight = weight
        self.targets = PriorTargets(
            prior, size=prior_size, precision=prior_precision, mode=mode, components=components, owner="guide"
        )
        self.prior = self.targets.prior
        self.needs_whole = check_tokens(tokens, self.prior, "guide")
        self.hidden, self.tokens = hidden, tokens
        if tokens != "patches":
            self.projector = mlp(dim, hidden, components)

    def fit_to(self, backbone: Backbone) -> None:
        """Make the projector of patches, of the width of the network's map; the prior may be shared by now."""
        if self.needs_whole:
            self.targets.prior = self.prior
            how = {"hidden": self.hidden, "components": self.targets.components, "owner": "guide"}
            self.patches = PatchRegression(self.prior, backbone.map_channels(), **how)

    def check(self, dataset: "Images") -> None:
        """Raises UserError for features of a file that do not fit the data set."""
        self.targets.check(dataset)

    def prepare(self, dataset: "Images", *, cache: Path | None = None, steps: int = 0) -> None:
        """Fit the targets to the clean images; see `PriorTargets.prepare`."""
        if self.tokens != "patches":
            self.targets.prepare(dataset, cache=cache)
        if self.needs_whole:
            self.patches.prepare(dataset, cache=cache)

    @property
    def needs_slow(self) -> bool:
        return self.targets.of_itself

    def describe(self) -> str:
        """A line on the prior."""
        return self.targets.describe()

    def weights(self) -> dict[str, float]:
        terms = {"pooled": ("guide",), "patches": ("guide/patches",)}.get(self.tokens, ("guide", "guide/patches"))
        return dict.fromkeys(terms, self.weight)

    def terms(self, e: Embeddings, images: Tensor | None) -> dict[str, Tensor]:
        """{"guide": the term, "guide/patches": that of patches}, equal on every rank, as `tokens` says.

        Needs e.views, except with cached features.
        """
        terms = {}
        if self.needs_whole:
            terms["guide/patches"] = self.weight * self.patches(e.whole.student.patches, e.whole.view)
        return terms if self.tokens == "patches" else terms | self._of_pooled(e)

    def _of_pooled(self, e: Embeddings) -> dict[str, Tensor]:
        h = wide(own_rows(e.h))  # (V, N_local, F)
        predicted = self.projector(h.flatten(0, 1)).unflatten(0, h.shape[:2])
        loss = regression_loss(predicted, self.targets(e))
        self.watched = {"guide/cosine": 1 - loss.detach()}
        return {"guide": self.weight * loss}
