"""DenseCL: MoCo on the image and on the places of its map, for detection (Wang et al. 2021, arXiv 2011.09157)."""

from collections.abc import Sequence
from dataclasses import dataclass

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from sslkit.data.views.recipe import MOCO
from sslkit.embeddings import Tokens, along, mean_over_ranks, own_rows, stack, wide
from sslkit.errors import UserError
from sslkit.layers import teacher
from sslkit.layers.heads import mlp
from sslkit.layers.norm_statistics import encode
from sslkit.layers.queue import Queue
from sslkit.layers.similarities import log_sum_exp
from sslkit.objectives.base import Objective, check_above_zero
from sslkit.options.ranges import Rows, Share, Temperature, Width


@dataclass
class DensePairs(Tokens):
    """tokens, token_target: (1, N, P, D) projected places of the query and the matching ones of the key.

    pooled: (1, N, D) the mean of the key's projected places, for the queue.
    """

    pooled: Tensor | None = along(1, default=None)


class DenseCL(Objective):
    """(1 - weight) times InfoNCE of the images plus weight times InfoNCE of the places of the last feature map.

    The match of a place in the query is the place of the key with the largest cosine of the backbone's features, before
    projection. The negatives of places are means over the maps of older keys, in a queue of their own.
    z: the queries' projections, (1, N, dim); target: the keys'.

    weight: of the places (lambda of the paper).
    queue_size, temperature, momentum: as in MoCo.
    hidden: width of both projectors; None takes the backbone's (2048 for a ResNet-50, as published).
    dim: width of z and of the places.
    Raises UserError for a network without a feature map.
    """

    views = MOCO
    most_views = 2

    def __init__(
        self,
        backbone: nn.Module,
        *,
        weight: Share = 0.5,
        queue_size: Rows = 65_536,
        temperature: Temperature = 0.2,
        momentum: Share = 0.999,
        hidden: Width | None = None,
        dim: Width = 128,
    ) -> None:
        super().__init__(backbone)
        if backbone.is_vit or backbone.item.axes:
            raise UserError(
                f"densecl needs the feature map of a convolutional network for images, and {backbone.recipe.name} has "
                "none: take narrow_resnet, resnet50 or another ResNet of timm; for a ViT take ibot or dinov2"
            )
        check_above_zero(temperature=temperature)
        self.weight, self.temperature = weight, temperature
        self.momentum = teacher.check_momentum(momentum)
        self.dim = dim
        channels = backbone.map_channels()
        self.projector = mlp(backbone.width, hidden or backbone.width, dim, norm=False)
        self.dense_projector = mlp(channels, hidden or backbone.width, dim, norm=False)
        self.teacher = teacher.copy_of(self.backbone, self.projector, self.dense_projector)
        self.queue = Queue(queue_size, dim)
        self.dense_queue = Queue(queue_size, dim)

    def embed(self, views: Sequence[Tensor], index: Tensor, generator: torch.Generator | None = None) -> DensePairs:
        """Embed the first view with the student and the second with the teacher, and match their places."""
        query, key = views
        h, z, features, places = parts(self.backbone, self.projector, self.dense_projector, query)
        with teacher.inference(self.teacher):
            joined = encode(_Joined(self.teacher), key, generator)
            widths = [self.dim, features.shape[1:].numel(), places.shape[1:].numel()]
            target, others, keys = joined.split(widths, dim=1)
            keys = keys.unflatten(1, places.shape[1:])
            match = matches(wide(features), wide(others.unflatten(1, features.shape[1:])))
            matched = keys.gather(1, match[..., None].expand_as(places))
            pooled = keys.mean(1)
        z, h, places, target, matched, pooled = stack(1, z, h, places, target, matched, pooled)
        return DensePairs(z=z, h=h, target=target, index=index, tokens=places, token_target=matched, pooled=pooled)

    def align(self, e: DensePairs) -> Tensor:
        """Minus the mean cosines of images and of matching places, over the temperature."""
        places = mean_over_ranks(F.cosine_similarity(e.tokens, e.token_target, dim=-1).mean())
        images = F.cosine_similarity(e.z, e.target, dim=-1).mean()
        return -((1 - self.weight) * images + self.weight * places) / self.temperature

    def constrain(self, e: DensePairs) -> Tensor:
        """Mean log-sum-exp of the cosines with the own key and the queue, of images and of places."""
        images = mean_over_ranks(self.spread(own_rows(e.z), own_rows(e.target), self.queue).mean())
        places = mean_over_ranks(self.spread(e.tokens, e.token_target, self.dense_queue).mean())
        return (1 - self.weight) * images + self.weight * places

    def spread(self, query: Tensor, key: Tensor, queue: Queue) -> Tensor:
        """(..., D) -> (...): log-sum-exp of the cosines with the key and the queue, over the temperature."""
        query = F.normalize(query, dim=-1) / self.temperature
        positive = (query * F.normalize(key, dim=-1)).sum(-1)
        return torch.logaddexp(positive, log_sum_exp(query, queue.rows))

    def observe(self, e: DensePairs) -> None:
        """Push the keys, and the means of their places, into the queues."""
        self.queue.push(F.normalize(e.target[0], dim=-1))
        self.dense_queue.push(F.normalize(e.pooled[0], dim=-1))

    def after_step(self, progress: float) -> None:
        """Update the teacher, batch-norm buffers too."""
        student = (self.backbone, self.projector, self.dense_projector)
        teacher.follow(self.teacher, *student, momentum=self.momentum)


class _Joined(nn.Module):
    """The teacher's projection, features and projected places of an image as one row, to be shuffled together."""

    def __init__(self, modules: nn.Sequential) -> None:
        super().__init__()
        self.parts = modules

    def forward(self, x: Tensor) -> Tensor:
        _, z, features, places = parts(*self.parts, x)
        return torch.cat([z, features.flatten(1).to(z.dtype), places.flatten(1)], dim=1)


def parts(
    backbone: nn.Module, projector: nn.Module, dense: nn.Module, images: Tensor
) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    """Pooled features (N, F), their projection (N, D), the map's places (N, P, C) and their projection (N, P, D)."""
    maps, h = backbone.feature_map(images)
    features = maps.flatten(2).mT
    return h, projector(h), features, dense(features)


@torch.no_grad()
def matches(query: Tensor, key: Tensor) -> Tensor:
    """(N, P): for each place (N, P, C) of the query the number of the key's with the largest cosine."""
    with torch.autocast(query.device.type, enabled=False):  # half precision would choose among near ones
        return (F.normalize(query, dim=-1) @ F.normalize(key, dim=-1).mT).argmax(-1)
