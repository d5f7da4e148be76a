"""SwAV: predict the cluster of one view from another, clusters of equal size (Caron et al. 2020, arXiv 2006.09882)."""

from collections.abc import Sequence

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from sslkit.data.views.recipe import View, ViewRecipe
from sslkit.embeddings import mean_over_ranks, own_rows
from sslkit.layers.heads import mlp
from sslkit.layers.prototypes import (
    Crops,
    check_options,
    embed_crops,
    held,
    predict_swapped,
    prediction_head,
    sinkhorn,
)
from sslkit.layers.queue import Queue
from sslkit.objectives.base import Objective
from sslkit.options.ranges import Count, Depth, OptionalRows, Prototypes, Temperature, Width

_GLOBAL = View(scale=(0.14, 1.0))


class SwAV(Objective):
    """Each full-size view gets a code over the prototypes, and all other crops of the image predict it.

    Collapse is prevented by Sinkhorn, which shares the global batch equally among the prototypes.
    z: the projections of the full-size views, before their normalisation; e.local holds those of the local crops.

    prototypes: clusters, K; 3000 as published for the 1.3 million images of ImageNet, a few hundred for 10,000 images.
    temperature: divides the scores of the prediction. epsilon: divides the scores of the codes: smaller means
        sharper codes. iterations: of Sinkhorn.
    queue_size: older embeddings per view added to the batch in Sinkhorn (published for batches of 256); 0: none, as
        for batches of thousands.
    queue_start: epoch from which the queue is used.
    freeze_prototypes: number of first epochs in which the prototypes are not trained (published: one epoch at a
        batch of 256, the first 313 steps at 4096).
    hidden: width of the projector; None takes the backbone's (2048 for a ResNet-50, as published). dim: width of z.
    Raises UserError for fewer than two prototypes and for temperatures or iterations that are not above 0.
    """

    views = ViewRecipe((_GLOBAL, _GLOBAL), local=View(scale=(0.05, 0.14), size=96), n_local=6)

    def __init__(
        self,
        backbone: nn.Module,
        *,
        prototypes: Prototypes = 3000,
        temperature: Temperature = 0.1,
        epsilon: Temperature = 0.05,
        iterations: Depth = 3,
        queue_size: OptionalRows = 3840,
        queue_start: Count = 15,
        freeze_prototypes: Count = 1,
        hidden: Width | None = None,
        dim: Width = 128,
    ) -> None:
        super().__init__(backbone)
        check_options("swav", prototypes, temperature=temperature, epsilon=epsilon, iterations=iterations)
        self.temperature, self.epsilon, self.iterations = temperature, epsilon, iterations
        self.queue_start, self.freeze_prototypes = queue_start, freeze_prototypes
        self.dim = dim
        self.projector = mlp(backbone.width, hidden or backbone.width, dim)
        self.prototypes = nn.Linear(dim, prototypes, bias=False)
        self.queues = nn.ModuleList(Queue(queue_size, dim) for _ in self.views.views if queue_size)
        self.after_step(0.0)

    def embed(self, views: Sequence[Tensor], index: Tensor, generator: torch.Generator | None = None) -> Crops:
        """Embed the views, one forward per resolution."""
        return embed_crops(self.backbone, self.projector, views, len(self.views.views), index)

    def align(self, e: Crops) -> Tensor:
        """The swapped prediction: each code with the log-softmax of all other crops, mean over pairs and images.

        The gathered tensors are z, D = 128 numbers each, not the K = 3000 scores. The codes need the scores of the
        global batch, for V of its V + L crops and without gradient; each rank computes the predictions, with gradient,
        only for its own images, at the cost of one device.
        """
        z = e.directions()
        codes = own_rows(self.codes(z[: len(e.z)]))
        prototypes = held(self.prototypes.weight, bool(self.frozen()))
        return mean_over_ranks(predict_swapped(codes, own_rows(z), prototypes, self.temperature))

    @torch.no_grad()
    def codes(self, z: Tensor) -> Tensor:
        """(V, N, D) of length 1 -> (V, N, K), by Sinkhorn over the batch and the queue."""
        n = z.shape[1]
        if self.uses_queue:
            older = torch.stack([queue.rows[: queue.filled] for queue in self.queues])
            z = torch.cat([z, older.to(z.dtype)], 1)
        return sinkhorn(z @ self.prototypes.weight.T, self.epsilon, self.iterations)[:, :n]

    def source_head(self) -> nn.Sequential:
        """The prediction of a crop over the prototypes."""
        return prediction_head(self.projector, self.prototypes.weight, self.temperature)

    @property
    def uses_queue(self) -> bool:
        """True in epochs whose codes include the queue."""
        return len(self.queues) > 0 and self.epoch >= self.queue_start

    def observe(self, e: Crops) -> None:
        """Push the embeddings of each view into its own queue."""
        if self.uses_queue:
            for queue, z in zip(self.queues, F.normalize(e.z, dim=-1), strict=True):
                queue.push(z)

    def frozen(self) -> list[nn.Parameter]:
        """The prototypes, in the first epochs."""
        return [self.prototypes.weight] if self.epoch < self.freeze_prototypes else []

    @torch.no_grad()
    def after_step(self, progress: float) -> None:
        """Normalise every prototype to length 1."""
        self.prototypes.weight.copy_(F.normalize(self.prototypes.weight, dim=1))
