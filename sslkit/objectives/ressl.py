"""ReSSL: match a strong view's similarities to older images to a weak view's (Zheng et al. 2021, arXiv 2107.09282)."""

from collections.abc import Sequence

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from sslkit.data.views.recipe import MOCO, WEAK, ViewRecipe
from sslkit.embeddings import Embeddings, mean_over_ranks, own_rows, stack
from sslkit.layers import teacher
from sslkit.layers.heads import mlp
from sslkit.layers.queue import Queue
from sslkit.layers.similarities import total_of_blocks
from sslkit.objectives.base import Objective, check_above_zero
from sslkit.options.ranges import Rows, Share, Temperature, Width


class ReSSL(Objective):
    """Without negatives: the student learns the teacher's sharpened similarities to the queue.

    queue_size: number of older images that a view is compared to (published: 131,072 on ImageNet, 4096 on CIFAR). It
        starts as random unit vectors, which carry little information until embeddings replace them: use at most the
        size of the data set, and less for short runs.
    temperature: of the student's similarities.
    teacher_temperature: of the teacher's, below the student's.
    momentum: of the teacher, constant (0.99 for short runs).
    hidden: width of the projector; None takes twice the backbone's (4096 for a ResNet-50, as published).
    dim: width of z; None takes a quarter of the backbone's (512 for a ResNet-50, 128 for a ResNet-18, as published).

    e.z is (1, N, dim), of the strong view; e.target the teacher's, of the weak one.
    """

    views = ViewRecipe((MOCO.views[0], WEAK))
    most_views = 2

    def __init__(
        self,
        backbone: nn.Module,
        *,
        queue_size: Rows = 131_072,
        temperature: Temperature = 0.1,
        teacher_temperature: Temperature = 0.04,
        momentum: Share = 0.999,
        hidden: Width | None = None,
        dim: Width | None = None,
    ) -> None:
        super().__init__(backbone)
        check_above_zero(temperature=temperature, teacher_temperature=teacher_temperature)
        self.temperature = temperature
        self.teacher_temperature = teacher_temperature
        self.momentum = teacher.check_momentum(momentum)
        self.dim = dim or max(backbone.width // 4, 1)
        self.projector = mlp(backbone.width, hidden or 2 * backbone.width, self.dim, norm=False)
        self.teacher = teacher.copy_of(self.backbone, self.projector)
        self.queue = Queue(queue_size, self.dim)

    def embed(self, views: Sequence[Tensor], index: Tensor, generator: torch.Generator | None = None) -> Embeddings:
        """Embed the strong view with the student, the weak one with the teacher."""
        strong, weak = views
        h = self.backbone(strong)
        z = self.projector(h)
        with teacher.inference(self.teacher):
            target = self.teacher(weak)
        z, h, target = stack(1, z, h, target)
        return Embeddings(z=z, h=h, target=target, index=index)

    def align(self, e: Embeddings) -> Tensor:
        """Cross-entropy of the student's similarities with the teacher's, mean over images (algorithm 1)."""
        z, target = own_rows(e.z)[0], own_rows(e.target)[0]
        return mean_over_ranks(total_of_blocks(self._relational, len(self.queue), z, target) / len(z))

    def _relational(self, z: Tensor, target: Tensor) -> Tensor:
        """The sum over the rows."""
        relation = self._similarities(target, self.teacher_temperature).softmax(1)
        return F.cross_entropy(self._similarities(z, self.temperature), relation, reduction="sum")

    def _similarities(self, z: Tensor, temperature: float) -> Tensor:
        """(N, queue_size) cosines with the queue, over the temperature."""
        return F.normalize(z, dim=-1) / temperature @ self.queue.rows.T

    def observe(self, e: Embeddings) -> None:
        """Push the teacher's embeddings into the queue."""
        self.queue.push(F.normalize(e.target[0], dim=-1))

    def after_step(self, progress: float) -> None:
        """Update the teacher, batch-norm buffers too."""
        teacher.follow(self.teacher, self.backbone, self.projector, momentum=self.momentum)
