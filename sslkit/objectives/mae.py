"""MAE: reconstruct the hidden three quarters of an image from the rest (He et al. 2022, arXiv 2111.06377)."""

from collections.abc import Sequence

import torch
from torch import Tensor, nn

from sslkit.data.views.recipe import View, ViewRecipe
from sslkit.embeddings import Tokens, mean_over_ranks, stack, wide
from sslkit.errors import UserError
from sslkit.layers import masked_vit, masks
from sslkit.objectives.base import Hidden, Objective
from sslkit.options.ranges import Depth, Share, Width
from sslkit.runtime.device import to_device_of


class MAE(Objective):
    """The encoder sees a quarter of the patches; a light decoder predicts the pixels of the others.

    The encoder is a plain ViT of timm, or one of its Eva networks (EVA-02, DINOv3).
    Regularisers need two views of an image: beside them its patches are shuffled once, the first and the second quarter
    are encoded separately (one forward of 2 N short sequences), and each reconstructs all patches hidden from it. That
    costs half of a full forward in the encoder, and twice the paper's step, which has one set.
    z and h are the mean of a set's patches, whatever the network pools. A network that pools its class token is
    evaluated by that token, which reconstruction trains only through attention; global_pool="avg" suits MAE. The
    decoder reads the tokens after the network's last norm. The network keeps its initial weights (the paper: Xavier),
    so that a pretrained network can be trained further.

    mask_ratio: share of hidden patches. sets: visible sets of an image, disjoint: sets * (1 - mask_ratio) <= 1.
        None takes two beside a regulariser, otherwise the paper's one.
    decoder_dim: None takes two thirds of the encoder's width, in steps of 32, at most the published 512 (ViT-B: 512).
    decoder_depth: None takes two thirds of the encoder's blocks, at most the published 8 (ViT-B: 8).
    normalize_pixels: normalise the target of each patch by its own mean and variance.
    position: sincos writes the paper's fixed embedding into the network; learned trains the network's own, for
        networks with pretrained weights. Rotary positions (DINOv3) are kept in both.
    """

    views = ViewRecipe((View(scale=(0.2, 1.0), jitter=0.0, grayscale=0.0, blur=0.0),))
    families = ("vit",)
    continued = masked_vit.OWN_POSITIONS
    compares_views = False

    def __init__(
        self,
        backbone: nn.Module,
        *,
        mask_ratio: Share = 0.75,
        sets: Depth | None = None,
        decoder_dim: Width | None = None,
        decoder_depth: Depth | None = None,
        normalize_pixels: bool = True,
        position: str = "sincos",
    ) -> None:
        super().__init__(backbone)
        net = backbone.net
        backbone.check_images("mae and u_mae take images")
        masked_vit.check(net, backbone.recipe.name)
        self.dim = backbone.width
        self.patches, self.mask_ratio = net.patch_embed.num_patches, mask_ratio
        self.chooses_sets = sets is None
        self._take(1 if sets is None else sets)
        self.patch = net.patch_embed.patch_size
        self.normalize_pixels = normalize_pixels
        values = self.patch[0] * self.patch[1] * backbone.in_chans
        if normalize_pixels and values < 2:
            raise UserError("a patch of one value has no variance: take larger patches, or normalize_pixels=false")
        masked_vit.set_positions(net, position)
        dim = masked_vit.decoder_width(backbone.width, most=512) if decoder_dim is None else decoder_dim
        depth = min(8, max(1, len(net.blocks) * 2 // 3)) if decoder_depth is None else decoder_depth
        grid = net.patch_embed.grid_size
        self.decoder = masked_vit.Decoder(backbone.width, grid, values, dim=dim, depth=depth)

    def _take(self, sets: int) -> None:
        self.sets, self.visible = sets, _visible(self.patches, self.mask_ratio, sets)

    def expect_regularizers(self) -> None:
        """Embed two views of an image."""
        if self.chooses_sets:
            self._take(2)

    def embed(self, views: Sequence[Tensor], index: Tensor, generator: torch.Generator | None = None) -> Tokens:
        """views: one tensor (N, C, H, W). One forward of the encoder over all visible sets, one of the decoder."""
        (images,) = views
        orders = masks.draw_orders(len(images), self.backbone.net.patch_embed.num_patches, generator)
        visible, hidden = masks.split_orders(to_device_of(orders, images), self.sets, self.visible)
        tokens = masked_vit.encode(self.backbone.net, images, visible)
        pooled = masked_vit.mean_of_patches(self.backbone.net, tokens)
        # fc_norm is the last norm of a network that pools before it, and the identity in others.
        normed = self.backbone.net.fc_norm(tokens)
        predicted = self.decoder(normed, visible.flatten(0, 1), hidden.flatten(0, 1))
        z, prediction = stack(self.sets, pooled, predicted)
        pixels = masked_vit.pick(self.targets(images), hidden)
        return Tokens(z=z, h=z, target=None, index=index, tokens=prediction, token_target=pixels)

    @torch.no_grad()
    def targets(self, images: Tensor) -> Tensor:
        """(N, L, P) the decoder's target for every patch of the normalised images."""
        patches = wide(masked_vit.patchify(images, self.patch))
        return masked_vit.standardize(patches) if self.normalize_pixels else patches

    def hidden(self, n: int, generator: torch.Generator | None) -> dict[str, Hidden]:
        """The patches hidden from each set."""
        orders = masks.draw_orders(n, self.backbone.net.patch_embed.num_patches, generator)
        _, hidden = masks.split_orders(orders, self.sets, self.visible)
        rows = torch.zeros(self.sets, *orders.shape, dtype=torch.bool).scatter_(2, hidden, True)
        return {f"visible {k}" if self.sets > 1 else "visible": Hidden(row) for k, row in enumerate(rows, 1)}

    def align(self, e: Tokens) -> Tensor:
        """Mean squared error over the hidden patches of all images and ranks."""
        return mean_over_ranks((e.tokens - e.token_target).square().mean())


def _visible(patches: int, mask_ratio: float, sets: int) -> int:
    """Number of visible patches in a set."""
    visible = round(patches * (1 - mask_ratio))
    if sets < 1 or not 1 <= visible < patches or sets * visible > patches:
        raise UserError(
            f"mask_ratio={mask_ratio} leaves {visible} of {patches} patches visible: at least 1 must be visible, 1 "
            f"hidden, and sets={sets} disjoint visible sets must fit; 0.75 suits, and sets=1 needs no second set"
        )
    return visible
