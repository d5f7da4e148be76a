"""I-JEPA: predict the teacher's features of blocks of an image from the rest (Assran et al. 2023, arXiv 2301.08243)."""

from collections.abc import Sequence

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from sslkit.data.views.recipe import View, ViewRecipe
from sslkit.embeddings import Tokens, mean_over_ranks, stack, wide
from sslkit.errors import UserError
from sslkit.layers import masked_vit, masks, teacher
from sslkit.numerics import schedules
from sslkit.objectives.base import Hidden, Objective
from sslkit.options.ranges import Count, Depth, Share, Width
from sslkit.runtime.device import to_device_of


class IJEPA(Objective):
    """The student encodes a context without the target blocks; a predictor is asked for each block, patch by patch.

    The target is the teacher's feature of the patch in the whole image, normalised over its channels (layer norm
    without scale and shift). The loss is the squared distance, as in the paper, here the mean over channels; the
    authors' code takes the smooth L1 distance. Predictor and positions are MAE's decoder and fixed sine-cosine ones.
    There are no augmented views: one crop, no colour changes, no mirroring.
    z and h are the mean of the context's patches, whatever the network pools: (1, N, width).

    targets: number of target blocks. target_scale: share of the image in a block. target_aspect: its height / width.
    context_scale: share of the image in the context, before the targets are taken out.
    least_context: smallest number of patches of a context, if the targets leave as many; 10 as published for 14 x 14.
    predictor_dim: None takes two thirds of the network's width, in steps of 32, at most the published 384.
    predictor_depth: None takes half of the network's blocks, at most the published 12.
    momentum: of the teacher at the start; it rises to 1 along a line.
    position: sincos writes the paper's fixed embedding into the network; learned trains the network's own, for
        networks with pretrained weights. Rotary positions (DINOv3) are kept in both.
    Raises UserError for a network without patches, and for scales that leave no context.
    """

    families = ("vit",)
    continued = masked_vit.OWN_POSITIONS
    compares_views = False
    lengths_vary = True  # the context is what the targets leave
    views = ViewRecipe((View(scale=(0.3, 1.0), flip=0.0, jitter=0.0, grayscale=0.0, blur=0.0),))

    def __init__(
        self,
        backbone: nn.Module,
        *,
        targets: Depth = 4,
        target_scale: Sequence[Share] = (0.15, 0.2),
        target_aspect: Sequence[float] = (0.75, 1.5),
        context_scale: Sequence[Share] = (0.85, 1.0),
        least_context: Count = 10,
        predictor_dim: Width | None = None,
        predictor_depth: Depth | None = None,
        momentum: Share = 0.996,
        position: str = "sincos",
    ) -> None:
        super().__init__(backbone)
        masked_vit.check_images("ijepa", backbone)
        net = backbone.net
        self.grid = net.patch_embed.grid_size
        self.targets, self.least_context = targets, least_context
        self.target_scale = check_range("target_scale", target_scale, most=1)
        self.target_aspect = check_range("target_aspect", target_aspect)
        self.context_scale = check_range("context_scale", context_scale, most=1)
        if self.target_scale[1] >= 1:
            raise UserError(f"ijepa: target_scale={list(target_scale)} leaves no context: take shares below 1")
        if min(self.grid) < 2:
            raise UserError(
                f"ijepa: {self.grid[0]} x {self.grid[1]} patches of {backbone.patch} pixels are too few for a context "
                "and target blocks: take larger images, or a network with smaller patches (at least 2 x 2)"
            )
        masked_vit.set_positions(net, position)
        self.momentum = teacher.check_momentum(momentum)
        self.dim = backbone.width
        dim = predictor_dim or masked_vit.decoder_width(backbone.width, most=384)
        depth = predictor_depth or min(12, max(1, len(net.blocks) // 2))
        self.predictor = masked_vit.Decoder(
            backbone.width, self.grid, backbone.width, dim=dim, depth=depth, name="predictor"
        )
        self.teacher = teacher.copy_of(self.backbone)

    def embed(self, views: Sequence[Tensor], index: Tensor, generator: torch.Generator | None = None) -> Tokens:
        """views: one tensor (N, C, H, W). One forward of the student on the contexts, one of the teacher."""
        (images,) = views
        context, blocks = (to_device_of(x, images) for x in self.draw(len(images), generator))
        net = self.backbone.net
        tokens = masked_vit.encode(net, images, context[None])
        normed = net.fc_norm(tokens).repeat_interleave(self.targets, dim=0)  # (N B, prefix + K, F)
        predicted = self.predictor(normed, context.repeat_interleave(self.targets, dim=0), blocks.flatten(0, 1))
        with torch.no_grad():
            target = masked_vit.pick(self.whole(images), blocks.flatten(1)[None])[0].unflatten(1, blocks.shape[1:])
        (z,) = stack(1, masked_vit.mean_of_patches(net, tokens))
        predicted = wide(predicted).unflatten(0, blocks.shape[:2])
        return Tokens(z=z, h=z, target=None, index=index, tokens=predicted, token_target=target)

    def draw(self, n: int, generator: torch.Generator | None) -> tuple[Tensor, Tensor]:
        """Context (n, K) and target blocks (n, B, M), patch numbers, on the CPU."""
        return masks.draw_context(
            n,
            self.grid,
            generator,
            targets=self.targets,
            target_scale=self.target_scale,
            target_aspect=self.target_aspect,
            context_scale=self.context_scale,
            least=self.least_context,
        )

    @torch.no_grad()
    def whole(self, images: Tensor) -> Tensor:
        """(N, L, F) the teacher's features of every patch, fp32, each normalised to mean 0 and variance 1."""
        net = self.teacher[0].net
        with teacher.inference(net):
            patches = net.fc_norm(masked_vit.encode_masked(net, images)[:, net.num_prefix_tokens :])
        return F.layer_norm(wide(patches), patches.shape[-1:])

    def hidden(self, n: int, generator: torch.Generator | None) -> dict[str, Hidden]:
        """The patches outside the context, and all but those of the first target block."""
        context, blocks = self.draw(n, generator)
        hidden = torch.ones(n, self.grid[0] * self.grid[1], dtype=torch.bool)
        seen, asked = hidden.scatter(1, context, False), hidden.scatter(1, blocks[:, 0], False)
        return {"context": Hidden(seen), "target 1": Hidden(asked, predicted=True)}

    def align(self, e: Tokens) -> Tensor:
        """Mean squared distance of the predictions of all target blocks, images and ranks."""
        return mean_over_ranks((e.tokens - e.token_target).square().mean())

    def after_step(self, progress: float) -> None:
        """Update the teacher with a momentum that rises to 1 along a line."""
        momentum = schedules.along_line(self.momentum, 1.0, progress)
        teacher.follow(self.teacher, self.backbone, momentum=momentum)


def check_range(name: str, values: Sequence[float], most: float | None = None) -> tuple[float, float]:
    """Two numbers above 0 that do not fall, at most `most`. Raises UserError otherwise."""
    if len(values) != 2 or not 0 < values[0] <= values[1] or (most is not None and values[1] > most):
        limit = "" if most is None else f" <= {most}"
        raise UserError(f"ijepa: {name} must be two numbers, 0 < low <= high{limit}, got {list(values)}")
    return values[0], values[1]
