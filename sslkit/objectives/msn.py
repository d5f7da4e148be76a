"""MSN: a masked view and small crops take the whole view's prototypes (Assran et al. 2022, arXiv 2204.07141)."""

from collections.abc import Sequence
from dataclasses import replace

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from sslkit.data.views.recipe import View, ViewRecipe
from sslkit.embeddings import each_resolution, mean_over_ranks, own_rows, stack
from sslkit.errors import UserError
from sslkit.layers import masked_vit, masks, teacher
from sslkit.layers.heads import mlp
from sslkit.layers.prototypes import Crops, check_options, prediction_head, sinkhorn_of_ranks
from sslkit.layers.similarities import log_sum_exp, product, total_of_blocks
from sslkit.objectives.base import Hidden, WithTeacher
from sslkit.options.ranges import Count, PartialShare, Prototypes, Share, Temperature, Weight, Width
from sslkit.runtime.device import to_device_of

_VIEW = View(scale=(0.3, 1.0), brightness=0.4, contrast=0.4, saturation=0.4, hue=0.1)


class MSN(WithTeacher):
    """Cross-entropy of the teacher's prototypes of a whole view with the student's of anchors; their mean is spread.

    The anchors are a second full-size view with dropped patches, and the local crops ("focal" views), whole. The
    authors' code drops patches of both, the same ones of all images.
    z: the masked view's projections, (1, N, D); target: the teacher's of the first view; e.local: of the local crops.

    prototypes: number K; 1024 as published for ImageNet.
    mask_ratio: share of dropped patches of the anchor (published: 0.15 for ViT-S/16, 0.3 for ViT-B/16, 0.7 for ViT-L).
    temperature: of the anchors. sharpening: divides the temperature's inverse for the targets: 0.25 is a temperature of
        0.025.
    iterations: of Sinkhorn on the targets; 0: none.
    entropy: weight of me-max, the entropy of the mean prediction (lambda of the paper).
    momentum: of the teacher at the start; it rises to 1 as a cosine.
    hidden: width of the three-layer projector. dim: width of z.
    Raises UserError for fewer than two prototypes and for temperatures that are not above 0.
    """

    families = ("vit",)
    views = ViewRecipe((_VIEW, _VIEW), local=replace(_VIEW, scale=(0.05, 0.3), size=96), n_local=10)
    most_views = 2

    def __init__(
        self,
        backbone: nn.Module,
        *,
        prototypes: Prototypes = 1024,
        mask_ratio: PartialShare = 0.15,
        temperature: Temperature = 0.1,
        sharpening: Temperature = 0.25,
        iterations: Count = 3,
        entropy: Weight = 1.0,
        momentum: Share = 0.996,
        hidden: Width = 2048,
        dim: Width = 256,
    ) -> None:
        super().__init__(backbone)
        masked_vit.check_images("msn", backbone)
        check_options("msn", prototypes, temperature=temperature, sharpening=sharpening)
        patches = backbone.net.patch_embed.num_patches
        self.visible = round(patches * (1 - mask_ratio))
        if self.visible < 1:
            raise UserError(f"msn: mask_ratio={mask_ratio} leaves none of {patches} patches: take a smaller one")
        self.temperature, self.sharpening, self.iterations = temperature, sharpening, iterations
        self.entropy = entropy
        self.dim = dim
        self.projector = mlp(backbone.width, hidden, dim, layers=3)
        self.prototypes = nn.Linear(dim, prototypes, bias=False)
        self.copy_teacher(momentum)

    def embed(self, views: Sequence[Tensor], index: Tensor, generator: torch.Generator | None = None) -> Crops:
        """Embed the first view with the teacher, the masked second one and the local crops with the student."""
        whole, anchor, *local = views
        net = self.backbone.net
        orders = masks.draw_orders(len(anchor), net.patch_embed.num_patches, generator)
        visible = to_device_of(orders[None, :, : self.visible], anchor)
        masked = net.forward_head(masked_vit.encode(net, anchor, visible))
        h = torch.cat([masked, *(self.backbone(pixels) for pixels in each_resolution(local))])
        with teacher.inference(self.teacher):
            (target,) = stack(1, self.teacher(whole))
        z, h = stack(1 + len(local), self.projector(h), h)
        return Crops(z=z[:1], h=h[:1], target=target, index=index, of_views=(1,), local=z[1:] if local else None)

    def hidden(self, n: int, generator: torch.Generator | None) -> dict[str, Hidden]:
        """The dropped patches of the anchor."""
        orders = masks.draw_orders(n, self.backbone.net.patch_embed.num_patches, generator)
        dropped = torch.zeros_like(orders, dtype=torch.bool).scatter_(1, orders[:, self.visible :], True)
        return {"anchor": Hidden(dropped, view=1)}

    def align(self, e: Crops) -> Tensor:
        """Cross-entropy of the target's codes with each anchor's softmax, mean over anchors and images (eq. 1)."""
        anchors, prototypes = own_rows(e.directions()) / self.temperature, F.normalize(self.prototypes.weight, dim=1)
        # the codes sum to 1, and code . (C anchor) = (C' code) . anchor is a product in D, not in K
        expected = self.codes(own_rows(e.target)[0]) @ prototypes
        losses = log_sum_exp(anchors, prototypes, tf32=self.mixed) - (anchors * expected).sum(-1)
        return mean_over_ranks(losses.mean())

    @torch.no_grad()
    def codes(self, target: Tensor) -> Tensor:
        """The sharpened softmax of the teacher's projections (N, D), by Sinkhorn over all ranks: (N, K)."""
        rows = F.normalize(target, dim=-1) / (self.temperature * self.sharpening)
        scores = product(rows, F.normalize(self.prototypes.weight, dim=1), tf32=self.mixed)
        return sinkhorn_of_ranks(F.log_softmax(scores, dim=-1), 1.0, self.iterations)

    def constrain(self, e: Crops) -> Tensor:
        """entropy times log K minus the entropy of the mean softmax of all anchors: 0 if they use all alike."""
        anchors = own_rows(e.directions()).flatten(0, 1)
        prototypes = F.normalize(self.prototypes.weight, dim=1)

        def predict(rows: Tensor) -> Tensor:
            return F.softmax(rows / self.temperature @ prototypes.T, dim=-1).sum(0)

        mean = mean_over_ranks(total_of_blocks(predict, len(prototypes), anchors) / len(anchors))
        return self.entropy * (torch.special.xlogy(mean, mean * len(mean))).sum()

    def source_head(self) -> nn.Sequential:
        """The softmax of an anchor over the prototypes."""
        return prediction_head(self.projector, self.prototypes.weight, self.temperature)
