"""data2vec 2.0: regress the teacher's averaged layers at the hidden patches (Baevski et al. 2023, arXiv 2212.07525)."""

import math
from collections.abc import Sequence

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from sslkit.data.views.recipe import WEAK, ViewRecipe
from sslkit.embeddings import Tokens, mean_over_ranks, outputs_of, stack, wide
from sslkit.errors import UserError
from sslkit.layers import masked_vit, masks, teacher
from sslkit.numerics import schedules
from sslkit.objectives.base import Hidden, Objective
from sslkit.options.ranges import Depth, PartialShare, Share, Size, Weight, Width
from sslkit.runtime import draws
from sslkit.runtime.device import to_device_of

NOISE = 0.01  # standard deviation of what stands for a hidden patch in the decoder


class Data2Vec(Objective):
    """Several masks of an image share one pass of the teacher; a small convolutional decoder predicts its features.

    The target of a patch is the mean over the teacher's last blocks of what their MLPs add, each normalised over the
    image's patches (instance norm), and then over channels (layer norm). The loss is the squared distance at the hidden
    patches, here the mean over channels (the authors' code: the sum over their square root).
    The authors' blocks normalise after the sum (post-norm), those of timm before each part.
    The noise that stands for hidden patches is drawn for each mask and patch and shared by the images of a batch.
    z and h: (masks, N, width) what the network pools of each visible part.

    masks: masks of an image (published: 16 for ViT-B).
    mask_ratio: share of hidden patches.
    side: of the squares of visible patches.
    extra: share of the grid that the squares cover above that of the visible patches, before surplus ones are removed.
    layers: number of last blocks in the target; None takes all but the first sixth (published: 10 of 12, 18 of 24).
    class_weight: of the squared distance of the pooled features to the mean target of the image's patches, for networks
        that pool their class token (the paper's 0.01; the authors' code adds it over images instead of averaging).
    decoder_dim: None takes the network's width (published: 768).
    decoder_depth: number of layers, whose convolutions have 16 groups, or as many as divide the widths.
    momentum, final_momentum: of the teacher: it rises from one to the other along a line, and then stays.
    anneal: finished share of the run at which final_momentum is reached.
    position: as in MAE.
    Raises UserError for a network without patches, and for a mask that hides none or all of them.
    """

    families = ("vit",)
    continued = masked_vit.OWN_POSITIONS
    compares_views = False
    views = ViewRecipe((WEAK,))

    def __init__(
        self,
        backbone: nn.Module,
        *,
        masks: Depth = 16,
        mask_ratio: PartialShare = 0.8,
        side: Size = 3,
        extra: Share = 0.07,
        layers: Depth | None = None,
        class_weight: Weight = 0.01,
        decoder_dim: Width | None = None,
        decoder_depth: Depth = 6,
        momentum: Share = 0.9998,
        final_momentum: Share = 0.99999,
        anneal: Share = 0.27,
        position: str = "sincos",
    ) -> None:
        super().__init__(backbone)
        masked_vit.check_images("data2vec", backbone)
        net = backbone.net
        length = net.patch_embed.num_patches
        self.masks, self.side, self.extra = masks, side, extra
        self.visible = round(length * (1 - mask_ratio))
        if not 1 <= self.visible < length:
            raise UserError(
                f"data2vec: mask_ratio={mask_ratio} leaves {self.visible} of {length} patches visible: at least 1 must "
                "be visible and 1 hidden; take another mask_ratio, larger images, or smaller patches"
            )
        self.layers = layers or max(len(net.blocks) - len(net.blocks) // 6, 1)
        if self.layers > len(net.blocks):
            raise UserError(f"data2vec: layers={layers}, and {backbone.recipe.name} has {len(net.blocks)} blocks")
        if not all(isinstance(getattr(block, "mlp", None), nn.Module) for block in net.blocks):
            raise UserError(
                f"data2vec: the blocks of {backbone.recipe.name} have no single MLP, whose output is the target: take "
                "narrow_vit, vit_small_patch16_224 or another plain ViT of timm"
            )
        masked_vit.set_positions(net, position)
        self.class_weight = class_weight if net.global_pool == "token" else 0.0
        self.momenta, self.anneal = (teacher.check_momentum(momentum), teacher.check_momentum(final_momentum)), anneal
        self.dim = backbone.width
        dim = decoder_dim or backbone.width
        self.decoder = ConvolutionalDecoder(backbone.width, net.patch_embed.grid_size, dim=dim, depth=decoder_depth)
        self.teacher = teacher.copy_of(self.backbone)

    def embed(self, views: Sequence[Tensor], index: Tensor, generator: torch.Generator | None = None) -> Tokens:
        """views: one tensor (N, C, H, W). One forward of the student on all visible parts, one of the teacher."""
        (images,) = views
        net = self.backbone.net
        orders = to_device_of(self.draw(len(images), generator), images)
        visible, hidden = orders.tensor_split([self.visible], dim=-1)
        shape = self.masks, orders.shape[-1], net.embed_dim
        noise = NOISE * draws.normal(shape, draws.new_key(generator), images.device)
        tokens = masked_vit.encode(net, images, visible)
        patches = net.fc_norm(tokens[:, net.num_prefix_tokens :])
        grid = noise.repeat_interleave(len(images), dim=0).to(patches.dtype)
        grid = grid.scatter(1, visible.flatten(0, 1)[..., None].expand_as(patches), patches)
        (predicted,) = stack(self.masks, self.decoder(grid))
        target = self.target(images)
        z, h = stack(self.masks, net.forward_head(tokens), net.forward_head(tokens))
        return Tokens(
            z=z,
            h=h,
            target=target.mean(1).expand_as(z) if self.class_weight else None,
            index=index,
            tokens=predicted.gather(2, hidden[..., None].expand(*hidden.shape, predicted.shape[-1])),
            token_target=masked_vit.pick(target, hidden),
        )

    def draw(self, n: int, generator: torch.Generator | None) -> Tensor:
        """(masks, n, L) an order of the patches for each mask, the visible ones first."""
        grid = self.backbone.net.patch_embed.grid_size
        each = [
            masks.draw_inverse_blocks(n, grid, self.visible, generator, side=self.side, extra=self.extra)
            for _ in range(self.masks)
        ]
        return torch.stack(each)

    def hidden(self, n: int, generator: torch.Generator | None) -> dict[str, Hidden]:
        """The hidden patches of the first two masks."""
        orders = self.draw(n, generator)[:2]
        rows = torch.zeros(orders.shape, dtype=torch.bool).scatter_(2, orders[..., self.visible :], True)
        return {f"mask {k}": Hidden(row) for k, row in enumerate(rows, 1)}

    @torch.no_grad()
    def target(self, images: Tensor) -> Tensor:
        """(N, L, F) the targets of all patches, fp32."""
        net = self.teacher[0].net
        with teacher.inference(net), outputs_of(*(block.mlp for block in net.blocks[-self.layers :])) as added:
            masked_vit.encode_masked(net, images)
        normed = [F.instance_norm(wide(tokens[:, net.num_prefix_tokens :]).mT) for tokens in added]
        mean = torch.stack(normed).mean(0).mT
        return F.layer_norm(mean, mean.shape[-1:])

    def align(self, e: Tokens) -> Tensor:
        """Mean squared distance at the hidden patches of all masks, images and ranks, plus that of the class token."""
        loss = mean_over_ranks((e.tokens - e.token_target).square().mean())
        return loss + self.class_weight * (e.z - e.target).square().mean() if self.class_weight else loss

    def after_step(self, progress: float) -> None:
        """Update the teacher; its momentum rises along a line and then stays."""
        momentum = schedules.along_line(*self.momenta, min(progress / self.anneal, 1.0) if self.anneal else 1.0)
        teacher.follow(self.teacher, self.backbone, momentum=momentum)


class ConvolutionalDecoder(nn.Module):
    """(B, L, width) features of the visible patches and noise -> (B, L, width) predictions for all patches.

    A layer: grouped 3 x 3 convolution, layer norm over channels, GELU, added to its input if that is as wide.
    """

    def __init__(self, width: int, grid: tuple[int, int], *, dim: int, depth: int) -> None:
        super().__init__()
        self.grid = grid
        widths = [width] + [dim] * (depth - 1)
        self.layers = nn.ModuleList(
            nn.Conv2d(inputs, dim, 3, padding=1, groups=math.gcd(16, inputs, dim)) for inputs in widths
        )
        self.last = nn.Linear(dim, width)

    def forward(self, x: Tensor) -> Tensor:
        x = x.mT.unflatten(2, self.grid)
        for layer in self.layers:
            y = layer(x).movedim(1, -1)
            y = F.gelu(F.layer_norm(y, y.shape[-1:])).movedim(-1, 1)
            x = x + y if x.shape == y.shape else y
        return self.last(x.flatten(2).mT)
