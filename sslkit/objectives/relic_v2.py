"""ReLIC v2: InfoNCE with few negatives, and likelihoods invariant to views (Tomasev et al. 2022, arXiv 2201.05119)."""

from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np
import torch
from torch import Tensor, nn

from sslkit.data.views.recipe import BYOL, View, ViewRecipe
from sslkit.embeddings import along, mean_over_ranks, own_rows, stack
from sslkit.layers import teacher
from sslkit.layers.heads import mlp
from sslkit.layers.prototypes import Crops, embed_crops
from sslkit.objectives.base import WithTeacher, check_above_zero
from sslkit.options.ranges import Rows, Share, Temperature, Weight, Width
from sslkit.runtime import distributed, draws
from sslkit.runtime.device import to_device_of

_LOCAL: View = replace(BYOL.views[1], scale=(0.05, 0.14), size=96)


@dataclass
class Contrasted(Crops):
    """negatives: (n, M) int64, for each of this rank's images M others, as rows of the images of all ranks."""

    negatives: Tensor | None = along(None, default=None)


class ReLICv2(WithTeacher):
    """align + constrain is contrast times InfoNCE plus invariance times a KL divergence, mean over pairs of crops.

    A pair is one of all C crops, seen by the student, and one of the V full-size crops, seen by the teacher: the same
    crop too, V C pairs as in the authors' pseudo-code. p(x1; x2) of eq. 1 is a softmax over the image and its M
    negatives, of the cosines of the student's crop 1 with the teacher's crops 2, over the temperature.

    z: the student's projections of the full-size crops, (V, N, D); target: the teacher's, (V, N, D); e.local: the
    student's of the local crops. There is no predictor: in the pseudo-code the teacher averages all of the student.

    Left out: the saliency masks, with which the paper removes the background of some full-size crops. They need a
    saliency network. Published accuracies are with them.
    The paper's pseudo-code was at hand, its text was not: eqs. 1 and 2, the temperature and the number and scale of the
    crops are from memory, unchecked; negatives, contrast and invariance are those of a public reimplementation of
    SemPPL, which extends ReLIC v2; the teacher's momentum is BYOL's.
    Read so, where the paper leaves it open: p(x2; x1) of the invariance is the softmax of the teacher's crop 2 with the
    student's crops 1, since local crops are not seen by the teacher. The gradient of eq. 2 is stopped in the entropy
    alone. Full-size crops have the two distributions of BYOL's views in turn, and the head is BYOL's: the
    authors' public code evaluates only, and holds these two. Negatives are the images that follow in a random order of
    the batch, which are M of the others, each set as likely.

    temperature: divides every cosine.
    negatives: number M of other images that an image is compared to; the whole batch, if it has fewer.
    contrast: weight of InfoNCE (alpha of the paper).
    invariance: weight of the KL divergence (beta of the paper).
    momentum: of the teacher at the start; it rises to 1 as a cosine.
    hidden: width of the projector; None takes twice the backbone's (4096 for a ResNet-50, as in BYOL).
    dim: width of z.
    """

    views = ViewRecipe(BYOL.views * 2, local=_LOCAL, n_local=2)

    def __init__(
        self,
        backbone: nn.Module,
        *,
        temperature: Temperature = 0.3,
        negatives: Rows = 10,
        contrast: Weight = 0.3,
        invariance: Weight = 5.0,
        momentum: Share = 0.996,
        hidden: Width | None = None,
        dim: Width = 256,
    ) -> None:
        super().__init__(backbone)
        check_above_zero(temperature=temperature)
        self.temperature, self.negatives = temperature, negatives
        self.contrast, self.invariance = contrast, invariance
        self.dim = dim
        self.projector = mlp(backbone.width, hidden or 2 * backbone.width, dim)
        self.copy_teacher(momentum)

    def embed(self, views: Sequence[Tensor], index: Tensor, generator: torch.Generator | None = None) -> Contrasted:
        """Embed all crops with the student, the full-size ones with the teacher, and draw the negatives."""
        full = self.full_size(views)
        e = embed_crops(self.backbone, self.projector, views, full, index)
        with teacher.inference(self.teacher):
            (target,) = stack(full, self.teacher(torch.cat(list(views[:full]))))
        drawn = to_device_of(draw_others(len(index), self.negatives, generator), index)
        return Contrasted(z=e.z, h=e.h, target=target, index=index, local=e.local, negatives=drawn)

    def align(self, e: Contrasted) -> Tensor:
        """contrast times minus the cosine of a pair over the temperature, plus invariance times KL(p(x1) || p(x2))."""
        there, back = self._scores(e)
        p, log_q = there.softmax(-1), back.log_softmax(-1)
        entropy = (p * there.log_softmax(-1)).sum(-1).detach()
        divergence = entropy - (p * log_q).sum(-1)
        return mean_over_ranks((self.invariance * divergence - self.contrast * there[..., 0]).mean())

    def constrain(self, e: Contrasted) -> Tensor:
        """contrast times the mean log-sum-exp of the scores with the image's own crop and its negatives."""
        return mean_over_ranks(self.contrast * torch.logsumexp(self._scores(e)[0], dim=-1).mean())

    def _scores(self, e: Contrasted) -> tuple[Tensor, Tensor]:
        """(C, V, n, 1 + M) cosines over the temperature, of this rank's n images: the own one first, then negatives.

        The student's crops with the teacher's of all images, and the teacher's with the student's of all images.
        """
        student, target = e.directions(), nn.functional.normalize(e.target, dim=-1)
        of_rank = own_rows(torch.arange(student.shape[1], device=student.device), dim=0)
        rows = torch.cat([of_rank[:, None], e.negatives], dim=1)
        there = torch.einsum("cnd,vnmd->cvnm", own_rows(student), target[:, rows])
        back = torch.einsum("vnd,cnmd->cvnm", own_rows(target), student[:, rows])
        return there / self.temperature, back / self.temperature


def draw_others(n: int, most: int, generator: torch.Generator | None) -> Tensor:
    """(n, M) int64 on the CPU: for each of this rank's n images at most `most` others, different ones, at random.

    They are rows of the images of all ranks, rank by rank. An image's others are those that follow it in one random
    order of all: of one image every set of others is as likely, and N images take N random numbers, not N^2.
    """
    world = distributed.world_size()
    images, key = n * world, draws.new_key(generator)
    position = draws.shuffle(np.array(draws.own_rows(n)), images, key)
    following = np.arange(1, 1 + min(most, images - 1))
    others = torch.from_numpy(draws.shuffle((position[:, None] + following) % images, images, key, back=True))
    return others % world * n + others // world  # image i of the batch is row i // world of rank i % world
