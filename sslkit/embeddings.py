"""The input of every loss for one step, and how tensors are joined over views and shared among ranks."""

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, fields, replace
from itertools import groupby
from typing import Any

import torch
from torch import Tensor, nn

from sslkit.runtime import distributed


def wide(x: Tensor) -> Tensor:
    """The precision of the losses: half precisions become fp32, fp64 stays."""
    return x if x.dtype is torch.float64 else x.float()


def stack(v: int, *rows: Tensor) -> tuple[Tensor, ...]:
    """Each (V N, ...), ordered view by view, as (V, N, ...) in fp32."""
    return tuple(wide(x).unflatten(0, (v, -1)) for x in rows)


def each_resolution(views: Sequence[Tensor]) -> list[Tensor]:
    """Neighbouring views of one size joined along the batch, so that a multi-crop step runs one forward per size."""
    return [torch.cat(list(group)) for _, group in groupby(views, key=lambda view: view.shape[-2:])]


def own_rows(x: Tensor, dim: int = 1) -> Tensor:
    """This rank's part of a gathered tensor (V, N, ...). dim: the dimension that counts the images of all ranks."""
    n = x.shape[dim] // distributed.world_size()
    return x.narrow(dim, distributed.rank() * n, n)


def mean_over_ranks(loss: Tensor) -> Tensor:
    """The mean of the ranks' losses, each over its own rows, with the full gradient on every rank."""
    return distributed.sum_over_ranks(loss) / distributed.world_size()


@contextmanager
def outputs_of(*modules: nn.Module) -> Iterator[list[Tensor]]:
    """Collect what the modules return while the context is open, in the order of their calls."""
    outputs: list[Tensor] = []
    handles = [module.register_forward_hook(lambda _, __, output: outputs.append(output)) for module in modules]
    try:
        yield outputs
    finally:
        for handle in handles:
            handle.remove()


def along(dim: int | None, **options: Any) -> Any:
    """A field of Embeddings whose dimension `dim` counts images; None: it is not gathered over ranks."""
    return field(metadata={"batch": dim}, **options)


@dataclass
class Maps:
    """A network's last feature map and pooled features. patches: (N, F, H, W). pooled: (N, width)."""

    patches: Tensor
    pooled: Tensor


@dataclass
class Whole:
    """A view as the network in training sees it when nothing is masked, for what compares networks: this rank's.

    view: (N, C, H, W) in [0, 1]. student: its maps of the view in eval mode, as they are used after training, with
    gradient. order: a random order of the map's H * W positions, on the CPU, the same on all ranks.
    """

    view: Tensor
    student: Maps
    order: Tensor


@dataclass
class Embeddings:
    """The input of every loss for one step: N images, V views of each.

    z: (V, N, D) projected embeddings of the first V views of the recipe, fp32, with gradient. V counts full-size
        views that are comparable: local crops have a field of their own.
    h: (V, N, F) backbone features, fp32.
    target: (V, N, D) alignment target of z, fp32, without gradient; None to align z with itself.
    index: (N,) row of each image in the data set, for cached priors.
    of_views: place of the view behind each of the V; None: view 0, 1, ..., and from the first again.
    views: V tensors (N_local, C, H, W) in [0, 1], this rank's augmented images behind z; None outside a Method.
    labels: (N,) int64, -1 where unknown; None unless the objective asks for them.
    slow: (N, F) features of each image's first view by a slow copy of the backbone, fp32, without gradient; None
        unless a regulariser has prior=self.
    whole: the first view without masks, not gathered; None unless a regulariser reads maps.

    A subclass declares with `along` the dimension of its field that counts images, so that ranks can be joined.
    """

    z: Tensor = along(1)
    h: Tensor = along(1)
    target: Tensor | None = along(1)
    index: Tensor = along(0)
    of_views: Sequence[int] | None = along(None, default=None)
    views: Sequence[Tensor] | None = along(None, default=None)
    labels: Tensor | None = along(0, default=None)
    slow: Tensor | None = along(0, default=None)
    whole: Whole | None = along(None, default=None)

    def gather(self) -> "Embeddings":
        """The same step over all ranks: N becomes the global batch, gradients flow back to each rank.

        The rows are ordered rank by rank; `distributed.in_batch_order` restores the order of one process.
        """
        if distributed.world_size() == 1:
            return self
        dims = {f.name: f.metadata["batch"] for f in fields(self)}  # KeyError: field declared without `along`
        values = {k: getattr(self, k) for k, dim in dims.items() if dim is not None}
        return replace(self, **{k: distributed.gather(v, dims[k]) for k, v in values.items() if v is not None})


@dataclass
class Predicted(Embeddings):
    """The input of a loss between a predictor's output and the target. prediction: (V, N, D), of each z."""

    prediction: Tensor | None = along(1, default=None)


@dataclass
class Tokens(Embeddings):
    """The input of a loss on the patches of a ViT, besides the pooled z and h: this rank's, not gathered.

    tokens: (..., D) predictions for the patches that are learned from, fp32, with gradient.
    token_target: (..., D) their targets, fp32, without gradient.
    token_weight: (...) weight of each patch in the mean over this rank's images; None: all are equal.
    """

    tokens: Tensor | None = along(None, default=None)
    token_target: Tensor | None = along(None, default=None)
    token_weight: Tensor | None = along(None, default=None)
