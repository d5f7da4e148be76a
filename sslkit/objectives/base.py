"""The contract of every objective: L_ssl = align + constrain (Song et al. 2024, arXiv 2407.13541, eq. 1)."""

from collections.abc import Sequence
from typing import ClassVar

import torch
from torch import Tensor, nn

from sslkit.data.views import ViewRecipe
from sslkit.embeddings import Embeddings, stacked

CONTRACT = "Objective"


class Objective(nn.Module):
    """An objective owns its heads and its teacher; it never sees the trainer.

    backbone: maps (B, C, H, W) images to (B, backbone.width) features; where it takes clips, (B, C, T, H, W), so are
        the views, and there may be more full-size ones than the recipe has: one for each clip of a video.
    Subclasses set `views`, make `self.projector` if they have one, and put `self.dim`, the width of z.

    families: kinds of backbone that the paper trains, the default one first: "resnet", "vit".
    needs_labels: whether the loss reads e.labels.
    most_views: full-size views that the loss can compare; None: any number.
    least_images: fewest images of a step, over all ranks, that the loss is defined for; least_images_hint: what the
        error about it proposes beside a larger batch.
    epoch, progress: set by `Method` before every step and restored with it: the epoch that the step belongs to, and
        the share of the run's steps that is done, 0 to 1. For schedules.
    watched: what the last step would like to have logged beside its terms, detached scalars.
    """

    views: ClassVar[ViewRecipe]
    families: ClassVar[tuple[str, ...]] = ("resnet",)
    needs_labels: ClassVar[bool] = False
    most_views: ClassVar[int | None] = None
    dim: int
    least_images: int = 2
    least_images_hint: str = ""

    def __init__(self, backbone: nn.Module) -> None:
        super().__init__()
        self.backbone = backbone
        self.epoch = 0
        self.progress = 0.0
        self.watched: dict[str, Tensor] = {}

    def embed(self, views: Sequence[Tensor], index: Tensor, generator: torch.Generator | None = None) -> Embeddings:
        """views: tensors (N, C, H, W), normalised, in the order of the recipe: those of one size are neighbours.

        generator: on the CPU, in the same state on every rank: masks and permutations are drawn from it for the images
            of all ranks, of which this rank has the rows rank, rank + world_size, ...; None takes torch's own.
        Autocast ends here: the losses see fp32.
        """
        h = self.backbone(torch.cat(list(views)))
        z, h = stacked(len(views), self.projector(h), h)
        return Embeddings(z=z, h=h, target=None, index=index)

    def align(self, e: Embeddings) -> Tensor:
        """Pulls the views of one image together. Scalar, fp32. e holds the images of all ranks."""
        raise NotImplementedError

    def constrain(self, e: Embeddings) -> Tensor | None:
        """What keeps the embeddings from collapsing; None where the architecture does it."""
        return None

    def observe(self, e: Embeddings) -> None:
        """Sees every training batch of all ranks after its losses, without gradient: a queue or a centre fills here."""

    def after_step(self, progress: float) -> None:
        """The constraint on the update rule (a teacher), after an optimiser step. progress runs from 0 to 1."""

    def constant_lr(self) -> Sequence[nn.Parameter]:
        """Parameters whose learning rate neither warms up nor decays."""
        return ()
