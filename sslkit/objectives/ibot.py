"""iBOT: DINO on the crops and on masked patches, whose targets are the teacher's (Zhou et al. 2022, 2111.07832)."""

from collections.abc import Sequence
from dataclasses import dataclass, replace

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from sslkit.data.views.recipe import View, ViewRecipe
from sslkit.embeddings import Tokens, along, each_resolution, mean_over_ranks, stack, wide
from sslkit.errors import UserError
from sslkit.layers import masked_vit, masks, teacher
from sslkit.layers.prototypes import Crops, held
from sslkit.layers.similarities import cross_entropy
from sslkit.objectives.base import Hidden
from sslkit.objectives.dino import DINO
from sslkit.options.ranges import Count, PartialShare, Prototypes, Share, Temperature, Weight, Width
from sslkit.runtime import distributed, draws
from sslkit.runtime.device import to_device_of

_VIEW = View(scale=(0.25, 1.0), brightness=0.4, contrast=0.4, saturation=0.2, hue=0.1)


@dataclass
class MaskedCrops(Crops, Tokens):
    """Crops whose full-size views are partly masked, for the student.

    tokens, token_target: (T, D) bottlenecks of the T masked patches of all views of this rank.
    token_weight: (T,) one over the number of masked patches in the same view, times V N: the sum over the patches is
        the mean over the views and images, of which those without a mask add 0.
    mask: (V, N, L) bool, the masked patches, in the order of tokens; not gathered.
    """

    mask: Tensor | None = along(None, default=None)


class IBOT(DINO):
    """DINO's loss on the pooled features, and on each masked patch the cross-entropy with the teacher's of that patch.

    The student sees full-size views with a learned token in the place of the masked patches, and whole local crops; the
    teacher sees everything. Head and prototypes are shared by views and patches, as published; each has a centre of its
    own. The class term is on what the network pools: a network with global_pool="token" has the paper's.
    The centre of the patches follows the masked ones, as in the code of DINOv2; iBOT's code takes all patches.
    z, target, local: as in DINO. `watched` has both terms of align.

    mask_probability: share of the views that are masked.
    mask_share: smallest and largest share of masked patches in such a view, uniform between; blocks of at least
        (side // 3)^2 patches for a grid of side x side, height / width from 0.3 to 1 / 0.3.
    patch_weight: of the patches' term.
    prototypes: number K, of views and patches; 8192 as published for ImageNet.
    teacher_temperature, warmup_epochs: published for ViTs: from 0.04 to 0.07 within 30 epochs.
    Others as in DINO: momentum, temperature, warmup_teacher_temperature, center_momentum, freeze_last_layer, hidden,
    dim, batch_norm.
    Raises UserError for a network without patches, and for a grid of less than 2 x 2 of them.
    """

    families = ("vit",)
    views = ViewRecipe(
        (replace(_VIEW, blur=1.0), replace(_VIEW, blur=0.1, solarize=0.2)),
        local=replace(_VIEW, scale=(0.05, 0.25), size=96),
        n_local=10,
    )

    def __init__(
        self,
        backbone: nn.Module,
        *,
        prototypes: Prototypes = 8192,
        momentum: Share = 0.996,
        temperature: Temperature = 0.1,
        warmup_teacher_temperature: Temperature = 0.04,
        teacher_temperature: Temperature = 0.07,
        warmup_epochs: Count = 30,
        center_momentum: Share = 0.9,
        freeze_last_layer: Count = 1,
        hidden: Width = 2048,
        dim: Width = 256,
        batch_norm: bool = False,
        mask_probability: Share = 0.5,
        mask_share: Sequence[PartialShare] = (0.1, 0.5),
        patch_weight: Weight = 1.0,
    ) -> None:
        name = type(self).__name__.lower()
        check_grid(name, backbone)
        super().__init__(
            backbone,
            prototypes=prototypes,
            momentum=momentum,
            temperature=temperature,
            warmup_teacher_temperature=warmup_teacher_temperature,
            teacher_temperature=teacher_temperature,
            warmup_epochs=warmup_epochs,
            center_momentum=center_momentum,
            freeze_last_layer=freeze_last_layer,
            hidden=hidden,
            dim=dim,
            batch_norm=batch_norm,
        )
        self.mask_probability = mask_probability
        self.mask_share = check_shares(name, mask_share)
        self.patch_weight = patch_weight
        self.mask_token = nn.Parameter(torch.zeros(backbone.net.embed_dim))
        self.register_buffer("patch_center", torch.zeros(prototypes))

    def embed(self, views: Sequence[Tensor], index: Tensor, generator: torch.Generator | None = None) -> MaskedCrops:
        """Embed the masked views and the local crops with the student, the whole views with the teacher."""
        v = len(self.views.views)
        full = torch.cat(list(views[:v]))
        drawn = torch.cat([self.draw_mask(len(views[0]), generator) for _ in range(v)])
        chosen, weight = number_masked(drawn, full)
        mask = to_device_of(drawn, full)
        net = self.backbone.net
        tokens = masked_vit.encode_masked(net, full, mask, self.mask_token)
        h = torch.cat([net.forward_head(tokens), *(self.backbone(pixels) for pixels in each_resolution(views[v:]))])
        z, predicted = self.project(h, masked_vit.patch_rows(net, tokens, chosen))
        with teacher.inference(self.teacher[:-1]):
            slow = self.teacher[0].net
            seen = masked_vit.encode_masked(slow, full)
            target, token_target = self.project_slowly(
                slow.forward_head(seen), masked_vit.patch_rows(slow, seen, chosen)
            )
        (target,) = stack(v, target)
        z, h = stack(len(views), z, h)
        return MaskedCrops(
            z=z[:v],
            h=h[:v],
            target=target,
            index=index,
            local=z[v:] if len(views) > v else None,
            tokens=wide(predicted),
            token_target=wide(token_target),
            token_weight=weight,
            mask=mask.unflatten(0, (v, -1)),
        )

    def project(self, pooled: Tensor, patches: Tensor) -> tuple[Tensor, Tensor]:
        """The student's bottlenecks of pooled features (B, F) and of patches (T, F), in one pass of the shared head."""
        return self.projector(torch.cat([pooled, patches])).tensor_split([len(pooled)])

    def project_slowly(self, pooled: Tensor, patches: Tensor) -> tuple[Tensor, Tensor]:
        """The teacher's."""
        return self.teacher[1](torch.cat([pooled, patches])).tensor_split([len(pooled)])

    def patch_last(self) -> nn.Linear:
        """The student's prototypes of the patches."""
        return self.prototypes

    def draw_mask(self, n: int, generator: torch.Generator | None) -> Tensor:
        """(n, L) bool, the masked patches of one view of this rank's n images."""
        grid = self.backbone.net.patch_embed.grid_size
        return masks.draw_blocks(n, grid, self.shares(n, generator), generator, smallest=max(min(grid) // 3, 1) ** 2)

    def shares(self, n: int, generator: torch.Generator | None) -> Tensor:
        """(n,) the share of masked patches of each of this rank's images: 0, or uniform."""
        low, high = self.mask_share
        whole, share = draws.uniform(draws.own_rows(n), (2,), generator).unbind(1)
        return torch.where(whole < self.mask_probability, low + (high - low) * share, 0.0)

    def hidden(self, n: int, generator: torch.Generator | None) -> dict[str, Hidden]:
        """The masked patches of the full-size views."""
        drawn = [self.draw_mask(n, generator) for _ in self.views.views]
        return {f"student {k + 1}": Hidden(mask, view=k) for k, mask in enumerate(drawn)}

    def align(self, e: MaskedCrops) -> Tensor:
        """DINO's loss on the views plus patch_weight times that of the masked patches (eqs. 1 and 2)."""
        views, patches = super().align(e), self.align_patches(e)
        self.watched |= {"class": views.detach(), "patches": patches.detach()}
        return views + self.patch_weight * patches

    def align_patches(self, e: MaskedCrops) -> Tensor:
        """Cross-entropy of the teacher's softmax of each masked patch with the student's; mean over views and ranks."""
        prototypes = F.normalize(held(self.patch_last().weight, bool(self.frozen())), dim=1)
        rows, codes = F.normalize(e.tokens, dim=-1) / self.temperature, self.patch_codes(e.token_target)
        losses = cross_entropy(rows, prototypes, codes, tf32=self.mixed)
        return mean_over_ranks(e.token_weight.to(losses) @ losses)

    def frozen(self) -> list[nn.Parameter]:
        """The prototypes of views and of patches, in the first epochs."""
        return [*super().frozen(), self.patch_last().weight] if self.epoch < self.freeze_last_layer else []

    @torch.no_grad()
    def patch_codes(self, target: Tensor) -> Tensor:
        """The teacher's distribution of the masked patches: bottlenecks (T, D) -> (T, K)."""
        return self.softmax_of_centred(target, self.patch_center)

    def observe(self, e: MaskedCrops) -> None:
        """Move both centres towards the teacher's mean logits, of the views and of the masked patches of all ranks."""
        super().observe(e)
        rows = F.normalize(e.token_target, dim=-1)
        count = distributed.sum_over_ranks(rows.new_full((), len(rows)))
        mean = distributed.sum_over_ranks(rows.sum(0)) / count.clamp(min=1)
        logits = F.normalize(self.teacher[2].weight, dim=1) @ mean
        # a step without a masked patch keeps the centre
        self.patch_center.lerp_(logits.to(self.patch_center), (1 - self.center_momentum) * count.clamp(max=1))


def number_masked(mask: Tensor, like: Tensor) -> tuple[Tensor, Tensor]:
    """Numbers (T,) of the masked patches in the flattened (B, L), and their weights (T,), on the device of `like`.

    mask: (B, L) bool on the CPU. A weight is one over B and the number of masked patches of the same row.
    """
    chosen = mask.flatten().nonzero()[:, 0]
    each = 1 / (mask.sum(1).clamp(min=1) * len(mask))
    return to_device_of(chosen, like), to_device_of(each[chosen // mask.shape[1]], like)


def check_grid(name: str, backbone: nn.Module) -> None:
    """Raises UserError for a network without patches, and for less than 2 x 2 of them."""
    masked_vit.check_images(name, backbone)
    rows, columns = backbone.net.patch_embed.grid_size
    if min(rows, columns) < 2:
        raise UserError(
            f"{name} masks blocks of patches, and images of {backbone.image_size} pixels have {rows} x {columns} of "
            f"{backbone.patch} pixels: take larger images, or a network with smaller patches"
        )


def check_shares(name: str, shares: Sequence[float]) -> tuple[float, float]:
    """The shares as a pair. Raises UserError unless they are two numbers that rise, from 0 to below 1."""
    if len(shares) != 2 or not 0 <= shares[0] <= shares[1] < 1:
        raise UserError(f"{name}: mask_share must be two shares, low and high, from 0 to below 1, got {list(shares)}")
    return shares[0], shares[1]
