"""The contract of every objective: L_ssl = align + constrain (Song et al. 2024, arXiv 2407.13541, eq. 1)."""

from collections.abc import Sequence
from dataclasses import dataclass, field, fields, replace
from typing import Any, ClassVar

import torch
from torch import Tensor, nn

from sslkit import distributed
from sslkit.data.views import ViewRecipe

CONTRACT = "Objective"


def wide(x: Tensor) -> Tensor:
    """What the losses see: half precisions become fp32, fp64 stays."""
    return x if x.dtype is torch.float64 else x.float()


def along(dim: int | None, **options: Any) -> Any:
    """A field of Embeddings whose dimension `dim` counts images; None: it stays on its rank."""
    return field(metadata={"batch": dim}, **options)


@dataclass
class Embeddings:
    """All that a loss may see of one step: N images, V views of each.

    z: (V, N, D) projected embeddings, fp32, with gradient.
    h: (V, N, F) backbone features, fp32.
    target: (V, N, D) what z is aligned to, fp32, without gradient; None if nothing but z.
    index: (N,) row of each image in the data set, for cached priors.
    views: V tensors (N_local, C, H, W) in [0, 1], this rank's augmented images; None outside a Method.

    A subclass declares with `along` which dimension of its field counts images, so that ranks can be joined.
    """

    z: Tensor = along(1)
    h: Tensor = along(1)
    target: Tensor | None = along(1)
    index: Tensor = along(0)
    views: Sequence[Tensor] | None = along(None, default=None)

    def gathered(self) -> "Embeddings":
        """The same step over all ranks: N becomes the global batch, gradients flow back to each rank."""
        if distributed.world_size() == 1:
            return self
        dims = {f.name: f.metadata["batch"] for f in fields(self)}  # KeyError: the field does not say
        own = {k: getattr(self, k) for k, dim in dims.items() if dim is not None}
        return replace(self, **{k: distributed.gather(v, dims[k]) for k, v in own.items() if v is not None})


class Objective(nn.Module):
    """An objective owns its heads and its teacher; it never sees the trainer.

    backbone: maps (B, C, H, W) images to (B, backbone.width) features.
    Subclasses set `views`, make `self.projector` and put `self.dim`, the width of z.
    """

    views: ClassVar[ViewRecipe]
    dim: int

    def __init__(self, backbone: nn.Module) -> None:
        super().__init__()
        self.backbone = backbone

    def embed(self, views: Sequence[Tensor], index: Tensor) -> Embeddings:
        """Views are V tensors (N, C, H, W) of one resolution. Autocast ends here: the losses see fp32."""
        h = self.backbone(torch.cat(list(views)))
        z = self.projector(h)
        h, z = (wide(x).unflatten(0, (len(views), -1)) for x in (h, z))
        return Embeddings(z=z, h=h, target=None, index=index)

    def align(self, e: Embeddings) -> Tensor:
        """Pulls the views of one image together. Scalar, fp32."""
        raise NotImplementedError

    def constrain(self, e: Embeddings) -> Tensor | None:
        """What keeps the embeddings from collapsing; None where the architecture does it."""
        return None

    def observe(self, e: Embeddings) -> None:
        """Sees every training batch of all ranks after its losses, without gradient: a queue or a centre fills here."""

    def after_step(self, progress: float) -> None:
        """The constraint on the update rule (a teacher), after an optimiser step. progress runs from 0 to 1."""
