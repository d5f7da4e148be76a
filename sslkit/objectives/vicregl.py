"""VICRegL: VICReg on the views and on matching places of their maps (Bardes et al. 2022, arXiv 2210.01571)."""

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import combinations

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from sslkit.data.views.augmentation import Views
from sslkit.data.views.recipe import BYOL
from sslkit.embeddings import Embeddings, along, stack
from sslkit.errors import UserError
from sslkit.layers.heads import mlp
from sslkit.objectives.base import Objective
from sslkit.objectives.vicreg import covariance, invariance, variance
from sslkit.options.ranges import Rows, Share, Weight, Width
from sslkit.runtime.device import to_device_of


@dataclass
class Local(Embeddings):
    """The input of VICRegL's local loss, on the P places of the feature maps.

    local: (V, N, P, L) projected features of each place. places: (V, N, P, 2) its position in the image, down and
    across, as shares of the image's sides. matches: (2, K, M, N) pairs of a place and its match, as v * P + p; the M
    closest pairs of each of K matchings, best first: by feature and by location, from each view to each.
    """

    local: Tensor | None = along(1, default=None)
    places: Tensor | None = along(1, default=None)
    matches: Tensor | None = along(3, default=None)


def cell_centres(boxes: Tensor, height: int, width: int) -> Tensor:
    """Positions of a feature map's cells in the image: (..., 5) -> (..., height * width, 2), down and across.

    boxes: top, left, height, width of the crop as shares of the image, and 1 if it was mirrored.
    """
    top, left, tall, wide, flip = boxes[..., None].unbind(-2)
    down = (torch.arange(height, device=boxes.device, dtype=boxes.dtype) + 0.5) / height
    across = (torch.arange(width, device=boxes.device, dtype=boxes.dtype) + 0.5) / width
    y = top + tall * down
    x = left + wide * torch.where(flip > 0, 1 - across, across)
    y, x = torch.broadcast_tensors(y[..., :, None], x[..., None, :])
    return torch.stack([y, x], -1).flatten(-3, -2)


def closest(distance: Tensor, count: int) -> tuple[Tensor, Tensor]:
    """The `count` rows of distances (N, P, P') nearest to any column, and those columns: (N, count) each.

    Of equal ones, which crops of whole pixels often have, the first: topk would take others on a GPU than on a CPU.
    """
    nearest, column = distance.min(-1)
    row = nearest.sort(stable=True).indices[:, :count]
    return row, column.gather(1, row)


@torch.no_grad()
def match(local: Tensor, places: Tensor, count: int) -> Tensor:
    """The matches (2, K, M, N) of Local, K = 2 V (V - 1), M = min(count, P)."""
    v, _, p, _ = local.shape
    pairs = []
    for a, b in combinations(range(v), 2):
        location = torch.cdist(places[a], places[b], compute_mode="donot_use_mm_for_euclid_dist")
        for distance in (torch.cdist(local[a], local[b]), location):
            for here, there, d in ((a, b, distance), (b, a, distance.mT)):
                row, column = closest(d, min(count, p))
                pairs.append(torch.stack([row + here * p, column + there * p]).mT)
    return torch.stack(pairs, 1)


class VICRegL(Objective):
    """alpha times VICReg on the views and 1 - alpha times VICReg on pairs of matching places of their feature maps.

    Places are matched twice, in both directions: to the nearest feature (L2), and to the nearest place of the image,
    from the crops' boxes. Only the closest matches of an image are used, `num_matches` of them: the first number and
    the second have equal weight. (The authors' code uses all matches by feature by default.)
    The statistics over images are computed for each rank of match: the best of every image, the second best, and so on.
    The paper's sums of the four matchings are means over directions here and sums over the two kinds, as in the
    authors' code.
    Two full-size views with BYOL's augmentations, the paper's recipe for ResNets; no small crops.
    `watched` has the variance and covariance of both halves separately.

    alpha: weight of the global loss; the local loss has 1 - alpha.
    num_matches: numbers of matches used. A map with fewer places has as many matches as places: at 28 pixels the last
        map of a ResNet has 4 to 16.
    invariance, variance, covariance: weights of the three terms.
    hidden: width of the three-layer expander; None takes four times the backbone's (8192 for a ResNet-50, as
        published). dim: width of z; None likewise.
    local_dim: width of the three-layer projector of the places; None takes a quarter of the backbone's (512 for a
        ResNet-50, as published).
    Raises UserError for an alpha outside 0 to 1, for no matches, and for views without boxes.
    """

    views = BYOL

    def __init__(
        self,
        backbone: nn.Module,
        *,
        alpha: Share = 0.75,
        num_matches: Sequence[Rows] = (20, 4),
        invariance: Weight = 25.0,
        variance: Weight = 25.0,
        covariance: Weight = 1.0,
        hidden: Width | None = None,
        dim: Width | None = None,
        local_dim: Width | None = None,
    ) -> None:
        super().__init__(backbone)
        if not 0 <= alpha <= 1:
            raise UserError(f"vicregl: alpha must be from 0 to 1, got {alpha}")
        if not num_matches or min(num_matches) < 1:
            raise UserError(f"vicregl: num_matches must be numbers of at least 1, got {list(num_matches)}")
        self.alpha, self.num_matches = alpha, tuple(num_matches)
        self.invariance, self.variance, self.covariance = invariance, variance, covariance
        self.dim = dim or 4 * backbone.width
        local_dim = local_dim or max(backbone.width // 4, 1)
        channels = backbone.map_channels()
        self.projector = mlp(backbone.width, hidden or 4 * backbone.width, self.dim, layers=3)
        self.local_projector = mlp(channels, local_dim, local_dim, layers=3)

    def embed(self, views: Sequence[Tensor], index: Tensor, generator: torch.Generator | None = None) -> Local:
        """Embed the views in one forward; each rank matches the places of its own images."""
        if not isinstance(views, Views):
            raise UserError("vicregl needs views made by sslkit's augment, with the `boxes` of the crops")
        maps, h = self.backbone.feature_map(torch.cat(list(views)))
        cells = maps.flatten(2).mT  # (V N, P, F)
        local = self.local_projector(cells.flatten(0, 1)).unflatten(0, cells.shape[:2])
        z, h, local = stack(len(views), self.projector(h), h, local)
        places = cell_centres(to_device_of(views.boxes.to(local.dtype), local), *maps.shape[-2:])
        with torch.autocast(local.device.type, enabled=False):
            matches = match(local, places, max(self.num_matches))
        return Local(z=z, h=h, target=None, index=index, local=local, places=places, matches=matches)

    def align(self, e: Local) -> Tensor:
        """The weighted invariance of views and of matched places."""
        local = self._over_matches(invariance(gather_matches(e)))
        return self.invariance * (self.alpha * invariance(e.z) + (1 - self.alpha) * local)

    def constrain(self, e: Local) -> Tensor:
        """The weighted variances and covariances of views and of matched places."""
        pairs = gather_matches(e)
        terms = {
            "variance": self.alpha * self.variance * variance(e.z).mean(),
            "covariance": self.alpha * self.covariance * covariance(e.z).mean(),
            "local_variance": (1 - self.alpha) * self.variance * self._over_matches(variance(pairs).mean(0)),
            "local_covariance": (1 - self.alpha) * self.covariance * self._over_matches(covariance(pairs).mean(0)),
        }
        self.watched |= {name: term.detach() for name, term in terms.items()}
        return torch.stack(list(terms.values())).sum()

    def _over_matches(self, x: Tensor) -> Tensor:
        """One number from the values of each matching and rank of match (K, M).

        The mean over the first num_matches[0] ranks and that over the first num_matches[1], averaged; then the sum
        of the two kinds of matching, each averaged over its directions.
        """
        rank = torch.arange(x.shape[1], device=x.device)
        counts = [min(count, x.shape[1]) for count in self.num_matches]
        share = torch.stack([(rank < count).to(x) / count for count in counts]).mean(0)
        return 2 * (x @ share).mean()


def gather_matches(e: Local) -> Tensor:
    """The features of the matched places, (2, K, M, N, L)."""
    v, n, p, _ = e.local.shape
    rows = e.local.transpose(0, 1).flatten(0, 2)  # (N V P, L)
    first = torch.arange(n, device=rows.device) * (v * p)
    return F.embedding(e.matches + first, rows)
