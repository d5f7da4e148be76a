"""Views on a GPU as seven kernels each: two for what is read, the crop, two of blur, the mean, the colours.

A pixel of a crop reads the few pixels of its image that have a weight, a pixel of a blur its neighbours, and
torch.compile makes one kernel of each of these sums. Up to rounding the numbers are those of `augmentation`, which
multiplies matrices: that is faster on a CPU, and on a GPU it takes some 75 kernels. Nothing is summed by a kernel whose
order of summation a compiler chooses, so that the same draws give the same bits.
"""

import math
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from functools import cache

import torch
from torch import Tensor

from sslkit.data.views.draw import Draw, to_device
from sslkit.data.views.recipe import View
from sslkit.errors import first_line
from sslkit.terminal import say

FEWEST = 2**20  # values of a view: fewer are made faster than kernels are compiled
MOST_READ, MOST_CHANNELS = 8, 4  # pixels per axis and channels that one value is summed from
GRAPHS = 64  # sizes of batches and views that are compiled in a process: a round number above those of a run
_TAPS = 6  # column of the blur's weights in `table`
_SPLITS = ("realize_reads_threshold", "realize_opcount_threshold", "realize_acc_reads_threshold")  # of long sums
_failed: list[str] = []


def suits(sources: Sequence[Tensor], sizes: Sequence[int]) -> bool:
    """Return whether views of these sizes of images (N, C, H, W) or clips (N, C, T, H, W) are made here."""
    if not sources[0].is_cuda or _failed or sources[0].shape[1] > MOST_CHANNELS:
        return False
    pairs = list(zip(sources, sizes, strict=True))
    most = max(math.prod(images.shape[:-2]) * size**2 for images, size in pairs)
    return most >= FEWEST and all(_reads(max(images.shape[-2:]), size) <= MOST_READ for images, size in pairs)


def render(
    sources: Sequence[Tensor], draws: Sequence[Draw], views: Sequence[View], sizes: Sequence[int]
) -> list[Tensor]:
    """Each view (N, C, ..., size, size) of its source (N, C, ..., H, W). Raises CannotCompile without a compiler."""
    reaches = [
        min(math.ceil(4 * view.sigma[1]), size) if view.blur > 0 else 0 for view, size in zip(views, sizes, strict=True)
    ]
    tables = to_device([table(draw, reach) for draw, reach in zip(draws, reaches, strict=True)], sources[0].device)
    each = zip(sources, tables, sizes, reaches, strict=True)
    with _compiling():
        return [make(images, numbers, size, reach) for images, numbers, size, reach in each]


class CannotCompile(Exception):
    """Nothing can be compiled here; the views are made by `augmentation`."""


@contextmanager
def _compiling() -> Iterator[None]:
    """Let many sizes be compiled. Raises CannotCompile once, with a warning, where that fails."""
    try:
        with torch._dynamo.config.patch(recompile_limit=GRAPHS):
            yield
    except torch.OutOfMemoryError:
        raise
    except Exception as error:  # of torch's compiler, of Triton's, or of the system's
        _failed.append(first_line(error))
        say.warn(f"views are made without compiled kernels, which is slower: {_failed[0]}", stacklevel=2)
        raise CannotCompile from error


@cache
def _compile(function: Callable[..., Tensor]) -> Callable[..., Tensor]:
    options = {**dict.fromkeys(_SPLITS, 10**6), "assert_indirect_indexing": False}  # all places are in range
    return torch.compile(function, fullgraph=True, dynamic=False, options=options)


def make(images: Tensor, numbers: Tensor, size: int, reach: int) -> Tensor:
    """One view (N, C, ..., size, size). numbers: of `table`, on the device. reach: of the blur; 0 for none."""
    n, channels, *frames, height, width = images.shape
    down, across = (
        _compile(axis_taps)(numbers, axis, size, _reads(end, size), end) for axis, end in enumerate((height, width))
    )
    pixels = _compile(crop)(images.flatten(1, -3), *down, *across)
    for dim in (3, 2) if reach else ():
        pixels = _compile(blur)(pixels, numbers, reach, dim)
    pixels = pixels.view(n, channels, -1)
    view = _compile(apply_color)(pixels, pixels.mean(-1), numbers, reach)
    return view.view(n, channels, *frames, size, size)


def table(draw: Draw, reach: int) -> Tensor:
    """(N, P) the numbers of a draw: box, flip, threshold, the weights of the blur from its middle, both matrices."""
    n = len(draw.box)
    exponent = -0.5 * (torch.arange(reach + 1) / draw.sigma.clamp(min=1e-3)[:, None]).square()
    taps = torch.nn.functional.threshold(exponent, -20.0, -math.inf).exp()  # as in resample.py
    taps = taps / (2 * taps.sum(1, keepdim=True) - taps[:, :1])
    parts = [
        draw.box,
        draw.flip[:, None],
        draw.threshold[:, None],
        taps,
        draw.deviation.flatten(1),
        draw.mean.flatten(1),
    ]
    padding = torch.zeros(n, -sum(block.shape[1] for block in parts) % 4)  # rows begin where a GPU likes to read
    return torch.cat([*parts, padding], 1)


def _reads(length: int, size: int) -> int:
    """The most pixels of an axis that have a weight in one output."""
    return math.ceil(2 * max(1, length / size))


def axis_taps(numbers: Tensor, axis: int, size: int, most: int, end: int) -> tuple[Tensor, Tensor]:
    """The pixels (N, most, size) that each output of an axis reads, int32, and their weights, of `axis_weights`.

    axis: 0 for rows, 1 for columns. end: the image's pixels along it. Places are counted in whole numbers of
    1 / (2 size) pixels from the start of the box, without rounding.
    """
    start, length, flip = (numbers[:, k, None, None].int() for k in (axis, 2 + axis, 4))
    at = torch.arange(size, device=numbers.device, dtype=torch.int32)
    at = torch.where(flip > 0, size - 1 - at, at) if axis else at
    centre = (2 * at + 1) * length  # (N, 1, size)
    support = 2 * length.clamp(min=size)
    first = torch.div(centre - support + size, 2 * size, rounding_mode="floor")
    pixel = first + torch.arange(most, device=numbers.device, dtype=torch.int32)[:, None]
    weight = torch.relu(support - ((2 * pixel + 1) * size - centre).abs())
    weight = torch.where((pixel >= 0) & (pixel < length), weight, 0).float()
    return (start + pixel).clamp(0, end - 1), weight / weight.sum(1, keepdim=True)


def crop(planes: Tensor, rows: Tensor, row_weights: Tensor, columns: Tensor, column_weights: Tensor) -> Tensor:
    """(N, P, H, W) of any type -> (N, P, size, size) float32. The others: of `axis_taps`."""
    n, count = planes.shape[:2]
    image = torch.arange(n, device=planes.device)[:, None, None, None]
    plane = torch.arange(count, device=planes.device)[:, None, None]
    total = 0
    for row, row_weight in zip(rows.long().unbind(1), row_weights.unbind(1), strict=True):
        line = 0
        for column, weight in zip(columns.long().unbind(1), column_weights.unbind(1), strict=True):
            pixels = planes[image, plane, row[:, None, :, None], column[:, None, None, :]].float()
            line = weight[:, None, None] * pixels + line
        total = row_weight[:, None, :, None] * line + total
    return total


def blur(pixels: Tensor, numbers: Tensor, reach: int, dim: int) -> Tensor:
    """Gaussian blur of one axis of (N, P, size, size), which is mirrored at its ends."""
    size = pixels.shape[dim]
    at = torch.arange(size, device=pixels.device)
    total = pixels * numbers[:, _TAPS, None, None, None]
    for k in range(1, reach + 1):
        before, after = at - k, at + k
        before = torch.where(before < 0, -1 - before, before).clamp(0, size - 1)
        after = torch.where(after >= size, 2 * size - 1 - after, after).clamp(0, size - 1)
        both = pixels.index_select(dim, before) + pixels.index_select(dim, after)
        total = total + both * numbers[:, _TAPS + k, None, None, None]
    return total


def apply_color(pixels: Tensor, mean: Tensor, numbers: Tensor, reach: int) -> Tensor:
    """`color.apply` to (N, C, M) of mean colour (N, C), then solarize."""
    n, channels, _ = pixels.shape
    start, count = _TAPS + reach + 1, channels**2
    deviation, mean_matrix = (numbers[:, k : k + count].view(n, channels, channels) for k in (start, start + count))
    out = 0
    for k in range(channels):
        offset = (mean_matrix[:, :, k] - deviation[:, :, k]) * mean[:, k, None]
        out = deviation[:, :, k, None] * pixels[:, k, None] + offset[..., None] + out
    out = out.clamp(0, 1)
    threshold = numbers[:, _TAPS - 1, None, None]
    return torch.where(out >= threshold, 1 - out, out)
