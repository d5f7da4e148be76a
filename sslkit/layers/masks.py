"""Masks over the patches of a ViT, in batches: random, in blocks, context and target blocks, all but blocks.

Patches are numbered row by row; L patches of a grid (rows, columns). Every mask is drawn on the CPU for this rank's
images, whose numbers depend on their places in the global batch (draws.py), so that N processes draw what one would.
"""

import math
from functools import lru_cache

import numpy as np
import torch
from torch import Tensor

from sslkit.runtime import draws

Grid = tuple[int, int]
Sides = tuple[int, int]  # height and width of a block in patches
TRIES, ATTEMPTS = 10, 40  # rectangles tried for a block, as in BEiT, and for an image, whose blocks need few each
ASPECT = 0.3  # the least height / width of a rectangle, as in BEiT
CONTEXTS = 20  # places that are tried for the context of an image, as in the code of I-JEPA
SAMPLE = 256  # images whose smallest context is the size of all
_ONES = np.unpackbits(np.arange(256, dtype=np.uint8)[:, None], axis=1).sum(1, dtype=np.uint8)  # of each byte


def draw_orders(n: int, length: int, generator: torch.Generator | None) -> Tensor:
    """(n, length) int64 on the CPU: a random order of the patches for each of this rank's n images."""
    return _order(draws.words(draws.own_rows(n), length, generator))


def _order(keys: np.ndarray) -> Tensor:
    """(n, L) int64, the places of the keys (n, L) uint64 from the least to the greatest."""
    return torch.from_numpy((np.sort(_distinct(keys), axis=1) & _low_bits(keys)).astype(np.int64))


def _distinct(keys: np.ndarray) -> np.ndarray:
    """The keys (n, L) with their places in the last bits: none are equal, and the order is that of any sort."""
    return (keys & ~_low_bits(keys)) | np.arange(keys.shape[1], dtype=np.uint64)


def _low_bits(keys: np.ndarray) -> np.uint64:
    return np.uint64(2 ** (keys.shape[1] - 1).bit_length() - 1)


def split_orders(orders: Tensor, sets: int, visible: int) -> tuple[Tensor, Tensor]:
    """(N, L) -> (V, N, K) visible and (V, N, L - K) hidden patches: each set sees the next K patches of the order."""
    turned = torch.stack([orders.roll(-v * visible, dims=1) for v in range(sets)])
    return turned[..., :visible], turned[..., visible:]


def draw_blocks(n: int, grid: Grid, share: Tensor, generator: torch.Generator | None, *, smallest: int = 4) -> Tensor:
    """(n, L) bool: rectangles at random, until `share` of the patches is masked (Bao et al. 2022, BEiT, algorithm 1).

    share: (n,) of each of this rank's images; an image with share 0 stays whole. A rectangle's area is uniform from
    `smallest` patches to those still to be masked, its height / width log-uniform from ASPECT to 1 / ASPECT. One that
    would mask too many patches is left out, and after TRIES of these an image is ready: the share is an upper bound.
    """
    rows, columns = grid
    uniform = draws.uniform(draws.own_rows(n), (ATTEMPTS, 4), generator).double().numpy()
    across_grid, down_grid = _bands(grid)
    mask = np.zeros((n, across_grid.shape[-1]), np.uint8)  # sets of patches as bits
    missing, failed = share.double().numpy() * (rows * columns), np.zeros(n, int)
    for attempt in range(ATTEMPTS):
        (open_,) = np.nonzero((failed < TRIES) & (missing > 0))
        if not len(open_):
            break
        area, ratio, down, across = uniform[open_, attempt].T
        left_over = missing[open_]
        area = np.maximum(smallest + area * (left_over - smallest), 0)
        ratio = np.exp(math.log(ASPECT) * (1 - 2 * ratio))
        height, width = np.sqrt(area * ratio).round().astype(int), np.sqrt(area / ratio).round().astype(int)
        small = (height < rows) & (width < columns)
        height, width = np.minimum(height, rows), np.minimum(width, columns)
        top, left = (down * (rows - height + 1)).astype(int), (across * (columns - width + 1)).astype(int)
        block = across_grid[top, height] & down_grid[left, width] & ~mask[open_]
        count = _ONES[block].sum(1, dtype=int)
        fits = small & (count > 0) & (count <= left_over)
        chosen = open_[fits]
        mask[chosen] |= block[fits]
        missing[chosen] -= count[fits]
        failed[open_] = np.where(fits, 0, failed[open_] + 1)
    return torch.from_numpy(np.unpackbits(mask, axis=1, count=rows * columns).astype(bool))


@lru_cache(maxsize=16)
def _bands(grid: Grid) -> tuple[np.ndarray, np.ndarray]:
    """The patches of whole rows, and of whole columns, as bits: uint8 by first row and number of them."""
    rows, columns = grid
    bands = _intervals(rows).repeat(columns, axis=-1), np.tile(_intervals(columns), rows)
    return np.packbits(bands[0], axis=-1), np.packbits(bands[1], axis=-1)


@lru_cache(maxsize=16)
def _intervals(length: int) -> np.ndarray:
    """(length + 1, length + 1, length) bool: the places from each start, of each number of them."""
    patch, start, count = np.arange(length), np.arange(length + 1)[:, None, None], np.arange(length + 1)[:, None]
    return (patch >= start) & (patch < start + count)


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
    that leaves most. K is a function of these sizes: the smallest context of SAMPLE images. Larger contexts lose
    patches at random, a smaller one gains patches outside its square; where the targets leave less than K patches of
    the image, the last ones move to the place of the first.
    The authors' code differs: its K is the smallest context of a rank's batch, its blocks never reach the last row and
    column, larger contexts lose their last rows, and one random number decides both scale and aspect of a target.
    """
    scale, aspect, context = torch.rand(3, generator=generator).tolist()
    low, high = target_aspect
    target = _sides(target_scale, scale, low + (high - low) * aspect, grid)
    square = _sides(context_scale, context, 1.0, grid)
    size = _context_size(grid, targets, target, square, least)
    uniform = draws.uniform(draws.own_rows(n), (targets + CONTEXTS, 2), generator).numpy()
    blocks, free = _targets(uniform[:, :targets], target, grid, size)
    inside = _context(uniform[:, targets:], free, square, grid, least)
    keys = draws.words(draws.own_rows(n), grid[0] * grid[1], generator) >> np.uint64(2)
    keys = _distinct(keys | (free * np.uint64(2) + (free & inside)) << np.uint64(62))
    least_key = np.partition(keys, keys.shape[1] - size, axis=1)[:, -size, None]
    chosen = np.nonzero(keys >= least_key)[1].reshape(n, size)
    return torch.from_numpy(chosen), torch.from_numpy(blocks)


def _sides(scale: tuple[float, float], drawn: float, aspect: float, grid: Grid) -> Sides:
    """Height and width of a block with a share of the grid from `scale`, height / width as told, at least 1."""
    area = grid[0] * grid[1] * (scale[0] + (scale[1] - scale[0]) * drawn)
    sides = math.sqrt(area * aspect), math.sqrt(area / aspect)
    height, width = (min(max(round(side), 1), most) for side, most in zip(sides, grid, strict=True))
    return height, width


@lru_cache(maxsize=1024)
def _context_size(grid: Grid, targets: int, target: Sides, square: Sides, least: int) -> int:
    """The size of all contexts: that of the smallest of SAMPLE images, at least 1."""
    generator = torch.Generator().manual_seed(0)
    uniform = draws.uniform(range(SAMPLE), (targets + CONTEXTS, 2), generator).numpy()
    _, free = _targets(uniform[:, :targets], target, grid, 1)
    inside = _context(uniform[:, targets:], free, square, grid, least)
    return max(int((free & inside).sum(1).min()), 1)


def _targets(uniform: np.ndarray, sides: Sides, grid: Grid, least: int) -> tuple[np.ndarray, np.ndarray]:
    """Blocks (n, B, M), patch numbers, at the places (n, B, 2), and the patches outside them (n, L) bool.

    least: of these patches; of an image with less, the last blocks are moved to the place of the first.
    """
    top, left = _corners(uniform, sides, grid)
    block = np.arange(sides[0])[:, None] * grid[1] + np.arange(sides[1])
    blocks = (top * grid[1] + left)[..., None] + block.ravel()
    free = np.ones((len(blocks), grid[0] * grid[1]), bool)
    np.put_along_axis(free, blocks.reshape(len(blocks), -1), False, axis=1)
    for number in reversed(range(1, blocks.shape[1])):
        (few,) = np.nonzero(free.sum(1) < least)
        if not len(few):
            break
        blocks[few, number] = blocks[few, 0]
        free[few] = True
        free[few[:, None], blocks[few].reshape(len(few), -1)] = False
    return blocks, free


def _context(uniform: np.ndarray, free: np.ndarray, sides: Sides, grid: Grid, least: int) -> np.ndarray:
    """(n, L) bool, the square at the first of the places (n, CONTEXTS, 2) with `least` free patches, or most."""
    top, left = _corners(uniform, sides, grid)
    inside = _square(top[:, 0], left[:, 0], sides, grid)
    (few,) = np.nonzero((free & inside).sum(1) < least)
    if not len(few):
        return inside
    squares = _square(top[few].ravel(), left[few].ravel(), sides, grid).reshape(len(few), CONTEXTS, -1)
    count = (squares & free[few, None]).sum(-1)
    best = np.where(count >= least, free.shape[1] + 1, count).argmax(1)
    inside[few] = squares[np.arange(len(few)), best]
    return inside


def _corners(uniform: np.ndarray, sides: Sides, grid: Grid) -> tuple[np.ndarray, np.ndarray]:
    """Top and left of blocks of one size at the places (..., 2)."""
    top, left = ((uniform[..., i] * (grid[i] - sides[i] + 1)).astype(np.int64) for i in range(2))
    return top, left


def _square(top: np.ndarray, left: np.ndarray, sides: Sides, grid: Grid) -> np.ndarray:
    """(n, L) bool, the patches of the block of each image. top, left: (n,)."""
    down, across = (_intervals(m)[start, side] for m, start, side in zip(grid, (top, left), sides, strict=True))
    return (down[:, :, None] & across[:, None]).reshape(len(top), grid[0] * grid[1])


def draw_inverse_blocks(
    n: int, grid: Grid, visible: int, generator: torch.Generator | None, *, side: int = 3, extra: float = 0.07
) -> Tensor:
    """(n, L) int64, an order of the patches whose first `visible` are seen (data2vec 2, Baevski et al. 2023, 3.3).

    Visible are the patches of squares of side x side around random centres; their number is such that they would cover
    visible / L + extra of the grid without overlap. Missing patches are added, and surplus ones removed, at random.
    """
    rows, columns = grid
    length = rows * columns
    centres = max(int((visible + extra * length) / side**2), 1)
    places = (draws.uniform(draws.own_rows(n), (centres,), generator).double() * length).long().numpy()
    seeds = np.zeros((n, rows + side - 1, columns + side - 1), bool)  # side // 2 more in front, the rest behind
    before = side // 2
    seeds[np.arange(n)[:, None], places // columns + before, places % columns + before] = True
    wide = np.logical_or.reduce([seeds[:, :, k : k + columns] for k in range(side)])
    blocks = np.logical_or.reduce([wide[:, k : k + rows] for k in range(side)]).reshape(n, length)
    keys = draws.words(draws.own_rows(n), length, generator) >> np.uint64(1)
    return _order(keys | (~blocks).astype(np.uint64) << np.uint64(63))
