"""Masks over the patches of a ViT, in batches: random, in blocks, context and target blocks, all but blocks.

Patches are numbered row by row; L patches of a grid (rows, columns). Every mask is drawn on the CPU for the images of
all ranks, of which this rank has the rows rank, rank + world_size, ..., so that N processes draw what one would draw.
"""

import math

import torch
import torch.nn.functional as F
from torch import Tensor

from sslkit.runtime import distributed

Grid = tuple[int, int]
TRIES, ATTEMPTS = 10, 40  # rectangles tried for a block, as in BEiT, and for an image, whose blocks need few each
ASPECT = 0.3  # the least height / width of a rectangle, as in BEiT
CONTEXTS = 20  # places that are tried for the context of an image, as in the code of I-JEPA


def own_draws(drawn: Tensor) -> Tensor:
    """This rank's rows of numbers drawn for the images of all ranks, which are in the order of the batch."""
    return drawn[distributed.rank() :: distributed.world_size()]


def draw_orders(n: int, length: int, generator: torch.Generator | None) -> Tensor:
    """(n, length) int64 on the CPU: a random order of the patches for each of this rank's n images."""
    noise = torch.rand(n * distributed.world_size(), length, generator=generator)
    return own_draws(noise).argsort(dim=1)


def split_orders(orders: Tensor, sets: int, visible: int) -> tuple[Tensor, Tensor]:
    """(N, L) -> (V, N, K) visible and (V, N, L - K) hidden patches: each set sees the next K patches of the order."""
    turned = torch.stack([orders.roll(-v * visible, dims=1) for v in range(sets)])
    return turned[..., :visible], turned[..., visible:]


def rectangles(top: Tensor, left: Tensor, height: Tensor, width: Tensor, grid: Grid) -> Tensor:
    """(..., L) bool, the patches inside each rectangle; all arguments are integers of one shape (...)."""
    row, column = (torch.arange(n) for n in grid)
    down = (row >= top[..., None]) & (row < (top + height)[..., None])
    across = (column >= left[..., None]) & (column < (left + width)[..., None])
    return (down[..., :, None] & across[..., None, :]).flatten(-2)


def draw_blocks(n: int, grid: Grid, share: Tensor, generator: torch.Generator | None, *, smallest: int = 4) -> Tensor:
    """(n, L) bool: rectangles at random, until `share` of the patches is masked (Bao et al. 2022, BEiT, algorithm 1).

    share: (n * world_size,) of each image of all ranks; an image with share 0 stays whole. A rectangle's area is
    uniform from `smallest` patches to those still to be masked, its height / width log-uniform from ASPECT to
    1 / ASPECT. One that would mask too many patches is left out, and after TRIES of these an image is ready: the
    share is an upper bound.
    """
    rows, columns = grid
    uniform = own_draws(torch.rand(n * distributed.world_size(), ATTEMPTS, 4, generator=generator))
    wanted = own_draws(share) * rows * columns
    mask = torch.zeros(n, rows * columns, dtype=torch.bool)
    failed = torch.zeros(n)
    for area, ratio, down, across in uniform.permute(1, 2, 0):
        missing = wanted - mask.sum(1)
        area = smallest + area * (missing - smallest)
        ratio = torch.exp(math.log(ASPECT) * (1 - 2 * ratio))
        height, width = ((area.clamp(min=0) * r).sqrt().round().long() for r in (ratio, 1 / ratio))
        top, left = ((u * (m - k + 1)).long() for u, m, k in ((down, rows, height), (across, columns, width)))
        block = rectangles(top, left, height, width, grid) & ~mask
        count = block.sum(1)
        fits = (failed < TRIES) & (missing > 0) & (height < rows) & (width < columns) & (count > 0) & (count <= missing)
        mask |= block & fits[:, None]
        failed = torch.where(fits, 0, failed + 1)
    return mask


def draw_context(
    n: int,
    grid: Grid,
    generator: torch.Generator | None,
    *,
    targets: int = 4,
    target_scale: tuple[float, float] = (0.15, 0.2),
    target_aspect: tuple[float, float] = (0.75, 1.5),
    context_scale: tuple[float, float] = (0.85, 1.0),
    least: int = 10,
) -> tuple[Tensor, Tensor]:
    """Context (n, K) and target blocks (n, targets, M) of I-JEPA, patch numbers (Assran et al. 2023, section 3).

    The sizes of the blocks are drawn once for the batch, their places for each image and block. The context is a square
    without the patches of the targets; of CONTEXTS places the first that leaves `least` patches is taken, else the one
    that leaves most. K is the smallest context of the batch of all ranks; larger ones lose patches at random. An image
    whose targets cover every context keeps patches of its last targets.
    The authors' code differs: its blocks never reach the last row and column, larger contexts lose their last rows,
    and one random number decides both scale and aspect of a target.
    """
    total = n * distributed.world_size()
    sizes = torch.rand(3, generator=generator)
    places = torch.rand(total, targets, 2, generator=generator)
    contexts = torch.rand(total, CONTEXTS, 2, generator=generator)
    priority = torch.rand(total, grid[0] * grid[1], generator=generator)
    low, high = target_aspect
    target = _placed(places, _sides(target_scale, sizes[0], low + (high - low) * sizes[1], grid), grid)
    square = _placed(contexts, _sides(context_scale, sizes[2], torch.ones(()), grid), grid)
    context = _uncovered(square, target, least)
    kept = int(context.sum(1).min())
    chosen = (context + priority).topk(kept, dim=1).indices.sort(dim=1).values
    patches = target.nonzero()[:, 2].view(total, targets, -1)
    return own_draws(chosen), own_draws(patches)


def _sides(scale: tuple[float, float], drawn: Tensor, aspect: Tensor, grid: Grid) -> tuple[int, int]:
    """Height and width of a block with a share of the grid from `scale`, height / width as told, at least 1."""
    area = grid[0] * grid[1] * (scale[0] + (scale[1] - scale[0]) * drawn)
    sides = (area * aspect).sqrt(), (area / aspect).sqrt()
    height, width = (min(max(round(side.item()), 1), most) for side, most in zip(sides, grid, strict=True))
    return height, width


def _placed(uniform: Tensor, sides: tuple[int, int], grid: Grid) -> Tensor:
    """(n, B, L) bool: blocks of one size at the places (n, B, 2)."""
    top, left = ((uniform[..., i] * (grid[i] - sides[i] + 1)).long() for i in range(2))
    return rectangles(top, left, *(torch.full_like(top, side) for side in sides), grid)


def _uncovered(squares: Tensor, target: Tensor, least: int) -> Tensor:
    """(n, L) the patches of one of the squares (n, T, L) outside the targets (n, B, L), at least one."""
    context = torch.zeros_like(squares[:, 0])
    for used in range(target.shape[1], -1, -1):
        free = squares & ~target[:, :used].any(1, keepdim=True)
        count = free.sum(-1)
        best = torch.where(count >= least, squares.shape[-1] + 1, count).argmax(1)
        chosen = free[torch.arange(len(free)), best]
        context = torch.where(context.any(1, keepdim=True), context, chosen)
    return context


def draw_inverse_blocks(
    n: int, grid: Grid, visible: int, generator: torch.Generator | None, *, side: int = 3, extra: float = 0.07
) -> Tensor:
    """(n, L) int64, an order of the patches whose first `visible` are seen (data2vec 2, Baevski et al. 2023, 3.3).

    Visible are the patches of squares of side x side around random centres; their number is such that they would cover
    visible / L + extra of the grid without overlap. Missing patches are added, and surplus ones removed, at random.
    """
    rows, columns = grid
    length = rows * columns
    total = n * distributed.world_size()
    centres = max(int((visible + extra * length) / side**2), 1)
    places = own_draws(torch.randint(0, length, (total, centres), generator=generator))
    noise = own_draws(torch.rand(total, length, generator=generator))
    seeds = torch.zeros(n, length).scatter_(1, places, 1.0).view(n, 1, rows, columns)
    blocks = F.max_pool2d(seeds, side, stride=1, padding=side // 2)[..., :rows, :columns].flatten(1)
    return (blocks + noise).argsort(dim=1, descending=True)
