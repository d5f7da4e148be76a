"""A prior's features of the images of a step, for regularisers that compare pairs: looked up, computed or its own."""

from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Literal, get_args

import torch
from torch import Tensor, nn

from sslkit.embeddings import Embeddings, own_rows
from sslkit.errors import UserError, check_one_of
from sslkit.priors import build
from sslkit.priors._features import FeatureTable, features_of, fit, tabulate
from sslkit.priors.epoch import of_all_steps
from sslkit.priors.features import FilePrior
from sslkit.priors.self import SelfPrior, slow_features
from sslkit.runtime import distributed

if TYPE_CHECKING:
    from sslkit.data.sources.named import Images

Mode = Literal["cached", "view"]


class StepFeatures(nn.Module):
    """The features of a step's images, (N, A), or of its views, (V N, A), in the order of the batch.

    prior, size, precision: see `sslkit.priors.build`. mode: cached, of each clean image for all its views, looked up;
        or view, of each augmented view. prior=self has those of the first view for all views.
    owner: name of the regulariser, for messages.
    Raises UserError for a prior that has no features of views, with mode=view.
    """

    def __init__(
        self,
        prior: str | Callable[[Tensor], Tensor],
        *,
        mode: Mode,
        size: int | None,
        precision: str,
        owner: str,
    ) -> None:
        super().__init__()
        check_one_of(f"{owner}.mode", mode, get_args(Mode))
        only = {"features": "clean images", "self": "the first view"}.get(str(prior).partition(":")[0])
        if mode == "view" and only:
            raise UserError(f"{owner}.prior={prior} has features of {only} only: use method.{owner}.mode=cached")
        self.mode, self.owner = mode, owner
        self.prior = of_all_steps(build(prior, size=size, precision=precision), owner)
        self.of_itself = isinstance(self.prior, SelfPrior)
        self.table = FeatureTable(self.prior.array) if isinstance(self.prior, FilePrior) else None
        self.register_buffer("place", torch.zeros(()), persistent=False)  # tracks the module's device

    def prepare(self, dataset: "Images", *, cache: Path | None, whole: bool = False) -> None:
        """Fit the prior, and read or compute the features of every clean image if they are looked up.

        whole: also with mode=view. cache: folder for both, keyed by content. All ranks must call this.
        """
        if self.prior.needs_fit:
            fit(self.prior, dataset, cache=cache)
        if (self.mode == "cached" or whole) and not self.of_itself:
            self.table = tabulate(self.prior, dataset, cache=cache, device=self.place.device)

    def describe(self) -> str:
        """A line on the prior."""
        if self.of_itself:
            return "prior self: the features of a slow copy of the network, which needs no download"
        if self.prior.name == "pca":
            return f"prior pca, which needs no download; the paper's is CLIP: method.{self.owner}.prior=clip"
        return f"prior {self.prior.name}"

    def of_images(self, e: Embeddings, index: Tensor, images: Tensor | None, *, gathered: bool = True) -> Tensor:
        """(N, A) of the images with these rows of the data set, `index` (N,).

        images: (N_local, C, H, W) this rank's clean images, read only without a table.
        gathered: False for this rank's images alone.
        """
        if self.of_itself:
            return self._slow(e, gathered)
        if self.table is not None:
            return self.table.rows(index)
        if images is None:
            raise UserError(
                f"{self.owner} reads the clean images of each batch until method.prepare(images) has been called: call "
                "it before the loop, or give CroppedImages(..., whole=True)"
            )
        return _join_ranks(features_of(self.prior, images, self.owner, "the clean images"), 0, gathered)

    def of_views(self, e: Embeddings, *, gathered: bool = True) -> Tensor:
        """(V N, A) of the augmented views, view by view."""
        if e.views is None:
            raise UserError(
                f"{self.owner}.mode=view needs the augmented views (e.views), which are missing: use mode=cached"
            )
        features = torch.stack([features_of(self.prior, view, self.owner) for view in e.views])  # (V, N_local, A)
        return _join_ranks(features, 1, gathered).flatten(0, 1)

    def _slow(self, e: Embeddings, gathered: bool) -> Tensor:
        features = slow_features(e, self.owner)
        return distributed.in_batch_order(features, 0) if gathered else own_rows(features, 0)


def _join_ranks(features: Tensor, dim: int, gathered: bool) -> Tensor:
    return distributed.in_batch_order(distributed.gather(features, dim), dim) if gathered else features
