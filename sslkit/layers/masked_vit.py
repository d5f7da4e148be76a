"""A timm VisionTransformer or Eva (EVA, DINOv3) whose patches are partly dropped or masked, and MAE's light decoder.

He et al. 2022, arXiv 2111.06377; Zhou et al. 2022, arXiv 2111.07832. Patches are
numbered row by row; N images, L patches of an image, K of them visible.
"""

from collections.abc import Sequence
from types import MappingProxyType

import torch
from torch import Tensor, nn
from torch.utils.checkpoint import checkpoint

from sslkit.errors import UserError

HEAD = 32  # decoder channels of an attention head, as published: 16 heads of 512 channels
OWN_POSITIONS = MappingProxyType({"position": "learned"})  # option of an objective that goes on from given weights
_TOKENS = {"cls_token", "reg_token", "dist_token", "pos_embed"}
_TRAINED = _TOKENS | {"patch_embed", "rope", "norm_pre", "blocks", "norm", "fc_norm"}


def check(net: nn.Module, name: str) -> None:
    """Raises UserError unless `net` is timm's VisionTransformer or Eva, with all layers trained by reconstruction."""
    from timm.layers import PatchEmbed
    from timm.models.eva import Eva
    from timm.models.vision_transformer import VisionTransformer

    instead = "take backbone=narrow_vit, vit_small_patch16_224 or another plain ViT of timm"
    if not isinstance(net, (VisionTransformer, Eva)) or not isinstance(net.patch_embed, PatchEmbed):
        raise UserError(f"backbone {name} ({type(net).__name__}) cannot run on a part of its patches: {instead}")
    if not has_positions(net):
        raise UserError(f"backbone {name} has no position embedding, which reconstruction needs: {instead}")
    if isinstance(net, Eva) and net.patch_drop is not None:
        raise UserError(
            f"backbone {name} drops patches itself, which the mask replaces: make it with patch_drop_rate=0"
        )
    layers = {parameter.partition(".")[0] for parameter, _ in net.named_parameters()}
    if layers - _TRAINED:
        idle = ", ".join(sorted(layers - _TRAINED))
        raise UserError(
            f"backbone {name} would keep untrained layers ({idle}): reconstruction trains no head and no attention "
            "pooling; make it with num_classes=0 and global_pool='avg' or 'token'"
        )


def check_images(name: str, backbone: nn.Module) -> None:
    """Raises UserError for a Backbone of clips or with a part of a patch at the edge, and as `check`.

    name: of the objective.
    """
    backbone.check_images(f"{name} takes images")
    check(backbone.net, backbone.recipe.name)
    size, patch = backbone.image_size, backbone.patch
    if size % patch:
        raise UserError(
            f"{name}: images of {size} pixels are no whole number of patches of {patch}: take an image_size of "
            f"{size // patch * patch} or {(size // patch + 1) * patch}"
        )


def has_positions(net: nn.Module) -> bool:
    """Return whether a ViT has a position embedding, or rotary positions in its attention."""
    return net.pos_embed is not None or getattr(net, "rope", None) is not None


def patchify(images: Tensor, patch: tuple[int, int]) -> Tensor:
    """(N, C, H, W) -> (N, L, p q C), the pixels of each patch of p x q; leftover rows and columns are cut off."""
    p, q = patch
    h, w = images.shape[-2] // p, images.shape[-1] // q
    tiles = images[..., : h * p, : w * q].unflatten(3, (w, q)).unflatten(2, (h, p))  # (N, C, h, p, w, q)
    return tiles.permute(0, 2, 4, 3, 5, 1).flatten(3).flatten(1, 2)


def standardize(patches: Tensor) -> Tensor:
    """Each patch (..., P) normalised to mean 0 and variance 1 (unbiased, as in the authors' code)."""
    variance, mean = torch.var_mean(patches, dim=-1, keepdim=True)
    return (patches - mean) / (variance + 1e-6).sqrt()


def sincos(grid: tuple[int, int], dim: int) -> Tensor:
    """(L, dim) fixed position embedding of a grid (rows, columns): first half of the channels column, second half row.

    Each half is sin and cos of the coordinate over 10000^(4 i / dim), Vaswani et al. 2017. dim: a multiple of 4.
    """
    omega = 10_000.0 ** (-torch.arange(dim // 4, dtype=torch.float64) / (dim // 4))
    row, column = torch.meshgrid(*(torch.arange(n, dtype=torch.float64) for n in grid), indexing="ij")
    angles = [coordinate.flatten()[:, None] * omega for coordinate in (column, row)]
    return torch.cat([f(angle) for angle in angles for f in (torch.sin, torch.cos)], dim=1).float()


@torch.no_grad()
def set_positions(net: nn.Module, position: str) -> None:
    """Keep a ViT's own positions for "learned"; for "sincos" write sine-cosine ones into it and freeze them.

    Those of class and register tokens are zero. A network with rotary positions alone has no embedding to write into,
    and is unchanged. Raises UserError for other words.
    """
    if position not in ("sincos", "learned"):
        raise UserError(f"position={position!r} is not known: sincos or learned")
    if position == "learned" or net.pos_embed is None:
        return
    if net.embed_dim % 4:
        raise UserError(f"sine-cosine positions need a width divisible by 4, not {net.embed_dim}: position=learned")
    positions = sincos(net.patch_embed.grid_size, net.embed_dim)
    net.pos_embed.zero_()[:, -len(positions) :] = positions
    net.pos_embed.requires_grad_(False)


def pick(x: Tensor, index: Tensor) -> Tensor:
    """The rows `index` (V, N, K) of x (N, L, F), as (V, N, K, F)."""
    return x.expand(len(index), *x.shape).gather(2, index[..., None].expand(*index.shape, x.shape[-1]))


def encode(net: nn.Module, images: Tensor, visible: Tensor) -> Tensor:
    """`net.forward_features` on only the visible patches: (V N, prefix tokens + K, F), view by view.

    images: (N, C, H, W). visible: (V, N, K). With the patches 0 ... L-1 visible it equals `net.forward_features`.
    Patch dropout is left out: the mask replaces it. Raises UserError for images of another size than the net's.
    """
    x, rope = _add_positions(net, net.patch_embed(images))
    rows, columns = net.patch_embed.grid_size
    if x.shape[1] != net.num_prefix_tokens + rows * columns:
        raise UserError(
            f"the views have {x.shape[1] - net.num_prefix_tokens} patches, and the backbone was made for "
            f"{rows} x {columns}: give it the image size of the run (img_size={tuple(images.shape[-2:])})"
        )
    prefix, patches = x.tensor_split([net.num_prefix_tokens], dim=1)
    x = torch.cat([prefix.expand(len(visible), *prefix.shape), pick(patches, visible)], dim=2)
    ropes = _ropes_of(net, rope, visible.flatten(0, 1))
    return net.norm(_through_blocks(net, net.norm_pre(x.flatten(0, 1)), ropes))


def encode_masked(net: nn.Module, images: Tensor, mask: Tensor | None = None, token: Tensor | None = None) -> Tensor:
    """`net.forward_features` with `token` (F,) in the place of the masked patches: (N, prefix tokens + L, F).

    images: (N, C, H, W), of any size that the net takes. mask: (N, L) bool; None is `net.forward_features` itself.
    Patch dropout is left out, as in `encode`.
    """
    x = net.patch_embed(images)  # (N, L, F), or (N, rows, columns, F) if the net takes any size
    if mask is not None:
        x = torch.where(mask.view(*x.shape[:-1], 1), token.to(x.dtype), x)
    x, rope = _add_positions(net, x)
    mixed = rope is not None and net.rope_mixed
    ropes = list(rope) if mixed else [rope] * len(net.blocks)
    return net.norm(_through_blocks(net, net.norm_pre(x), ropes))


def _add_positions(net: nn.Module, patches: Tensor) -> tuple[Tensor, Tensor | None]:
    """The tokens with positions, prefix first, and the rotary embedding of a network that has one."""
    placed = net._pos_embed(patches)
    return placed if isinstance(placed, tuple) else (placed, None)


def _ropes_of(net: nn.Module, rope: Tensor | None, visible: Tensor) -> Sequence[Tensor | None]:
    """Each block's rotary embedding of the patches `visible` (B, K).

    rope: (L, R), (depth, heads, L, R) if each block has its own, None for a network without.
    """
    if rope is None:
        return [None] * len(net.blocks)
    if net.rope_mixed:
        return rope[:, :, visible].transpose(1, 2)  # (depth, B, heads, K, R)
    return [rope[visible][:, None]] * len(net.blocks)  # (B, 1, K, R), for all heads


def _through_blocks(net: nn.Module, x: Tensor, ropes: Sequence[Tensor | None]) -> Tensor:
    """x: (B, tokens, F). ropes: of each block, for a network with rotary positions."""
    from timm.models import checkpoint_seq

    if not hasattr(net, "rope"):
        return checkpoint_seq(net.blocks, x) if net.grad_checkpointing else net.blocks(x)
    for block, rope in zip(net.blocks, ropes, strict=True):
        recomputed = net.grad_checkpointing
        x = checkpoint(block, x, rope=rope, use_reentrant=False) if recomputed else block(x, rope=rope)
    return x


def mean_of_patches(net: nn.Module, tokens: Tensor) -> Tensor:
    """(B, prefix + K, F) encoded tokens -> (B, F); equals `net.forward_head` if that takes the mean."""
    return net.fc_norm(tokens[:, net.num_prefix_tokens :].mean(1))


def patch_rows(net: nn.Module, tokens: Tensor, chosen: Tensor) -> Tensor:
    """The patches `chosen` (T,) of encoded tokens (B, prefix + L, F), normalised as for pooling: (T, F).

    chosen: numbers in the flattened (B, L). fc_norm is the last norm of a network that pools before it, and the
    identity in others.
    """
    return net.fc_norm(tokens[:, net.num_prefix_tokens :].flatten(0, 1)[chosen])


def decoder_width(width: int, most: int) -> int:
    """Two thirds of an encoder's width in whole attention heads, at most the published width of a decoder."""
    return min(most, max(1, round(width * 2 / 3 / HEAD)) * HEAD)


class Decoder(nn.Module):
    """A narrow transformer that predicts hidden patches from the encoded visible ones.

    width: of the encoder. grid: (rows, columns) of patches. values: number of predicted values of a patch.
    dim, depth: channels, a multiple of 32, and blocks. name: of the options that told them, {name}_dim and so on.
    Raises UserError for other values.
    """

    def __init__(
        self, width: int, grid: tuple[int, int], values: int, *, dim: int, depth: int, name: str = "decoder"
    ) -> None:
        from timm.models.vision_transformer import Block

        super().__init__()
        if dim < HEAD or dim % HEAD or depth < 1:
            raise UserError(
                f"{name}_dim={dim}, {name}_depth={depth}: give a multiple of {HEAD} (an attention head has {HEAD} "
                "channels) and at least 1 block"
            )
        self.embed = nn.Linear(width, dim)
        self.mask_token = nn.Parameter(torch.zeros(dim))
        self.register_buffer("positions", sincos(grid, dim), persistent=False)
        self.blocks = nn.Sequential(*(Block(dim, dim // HEAD, qkv_bias=True) for _ in range(depth)))
        self.norm = nn.LayerNorm(dim, eps=1e-6)
        self.values = nn.Linear(dim, values)
        self._initialize()

    def _initialize(self) -> None:
        """Xavier-uniform matrices and zero biases, as in the authors' code."""
        for module in self.modules():
            if isinstance(module, nn.Linear):
                nn.init.xavier_uniform_(module.weight)
                nn.init.zeros_(module.bias)
        nn.init.normal_(self.mask_token, std=0.02)

    def forward(self, encoded: Tensor, visible: Tensor, hidden: Tensor) -> Tensor:
        """encoded: (B, prefix + K, width) -> (B, M, values). visible: (B, K), hidden: (B, M) patch numbers.

        Class and register tokens are passed on, without a position; attention ignores the order of the others.
        """
        prefix, patches = self.embed(encoded).tensor_split([encoded.shape[1] - visible.shape[1]], dim=1)
        visible_tokens = patches + self.positions[visible]
        asked = self.mask_token + self.positions[hidden]
        x = self.blocks(torch.cat([prefix.to(visible_tokens.dtype), visible_tokens, asked], dim=1))
        return self.values(self.norm(x[:, -hidden.shape[1] :]))
