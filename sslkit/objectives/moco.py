"""MoCo v2: find the teacher's key of the same image among a queue of others (Chen et al. 2020, arXiv 2003.04297)."""

from collections.abc import Sequence

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from sslkit.data.views.recipe import MOCO
from sslkit.embeddings import Embeddings, mean_over_ranks, own_rows, stack
from sslkit.layers import teacher
from sslkit.layers.heads import mlp
from sslkit.layers.norm_statistics import encode
from sslkit.layers.queue import Queue
from sslkit.layers.similarities import log_sum_exp
from sslkit.objectives.base import Objective, check_above_zero
from sslkit.options.ranges import Rows, Share, Temperature, Width


class MoCo(Objective):
    """align + constrain is InfoNCE (He et al. 2020, arXiv 1911.05722, eq. 1): view 1 is the query, view 2 the key.

    queue_size: number of older keys used as negatives. The published value is for ImageNet. The queue starts as random
        unit vectors, which are easy negatives until keys replace them, and a queue longer than an epoch holds older
        keys of the same images: use at most the size of the data set (4096 is usual for CIFAR-10).
    temperature: divides every cosine.
    momentum: of the teacher, constant (0.99 for short runs: at 0.999 it needs thousands of steps to follow).
    hidden: width of the projector; None takes the backbone's width (2048 for a ResNet-50, as published).
    dim: width of z.

    e.z is (1, N, dim), the queries; e.target (1, N, dim), the keys, with one more set for each further clip of a video:
    then the loss is the mean over the sets and the first enters the queue (the code of Feichtenhofer et al. 2021, arXiv
    2104.14558).
    """

    views = MOCO

    def __init__(
        self,
        backbone: nn.Module,
        *,
        queue_size: Rows = 65_536,
        temperature: Temperature = 0.2,
        momentum: Share = 0.999,
        hidden: Width | None = None,
        dim: Width = 128,
    ) -> None:
        super().__init__(backbone)
        check_above_zero(temperature=temperature)
        self.temperature = temperature
        self.momentum = teacher.check_momentum(momentum)
        self.dim = dim
        self.projector = mlp(backbone.width, hidden or backbone.width, dim, norm=False)
        self.teacher = teacher.copy_of(self.backbone, self.projector)
        self.queue = Queue(queue_size, dim)

    def embed(self, views: Sequence[Tensor], index: Tensor, generator: torch.Generator | None = None) -> Embeddings:
        """Embed the first view with the student, the others with the teacher."""
        query, *keys = views
        key = torch.cat(keys)
        h = self.backbone(query)
        z = self.projector(h)
        with teacher.inference(self.teacher):
            target = encode(self.teacher, key, generator)
        z, h = stack(1, z, h)
        (target,) = stack(len(keys), target)
        return Embeddings(z=z, h=h, target=target, index=index)

    def align(self, e: Embeddings) -> Tensor:
        """Minus the mean cosine of query and key, over the temperature."""
        return -self._positives(e).mean()

    def constrain(self, e: Embeddings) -> Tensor:
        """Mean log-sum-exp of each query's cosines with its key and with the queue."""
        query = F.normalize(own_rows(e.z)[0], dim=-1) / self.temperature
        negatives = log_sum_exp(query, self.queue.rows)
        return mean_over_ranks(torch.logaddexp(own_rows(self._positives(e)), negatives).mean())

    def _positives(self, e: Embeddings) -> Tensor:
        """(K, N) query . key / temperature for K sets of keys."""
        return F.cosine_similarity(e.z, e.target, dim=-1) / self.temperature

    def observe(self, e: Embeddings) -> None:
        """Push the keys into the queue as the newest negatives."""
        self.queue.push(F.normalize(e.target[0], dim=-1))

    def after_step(self, progress: float) -> None:
        """Update the teacher, batch-norm buffers too."""
        teacher.follow(self.teacher, self.backbone, self.projector, momentum=self.momentum)
