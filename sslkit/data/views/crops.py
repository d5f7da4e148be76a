"""Views made of crops that were taken from the image files, with all of the picture's detail.

The boxes come from (seed, epoch, row) alone, so that the process which decodes an image can draw them (cropped.py);
everything else (flip, blur, colours, solarize) is drawn and made for the whole batch on its device, as in views.py.
"""

import hashlib
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from itertools import groupby

import torch
from torch import Tensor

from sslkit.data.views import resample
from sslkit.data.views.augmentation import Views, full_precision, in_chunks, recolor, render_views
from sslkit.data.views.draw import Draw, draw_views
from sslkit.data.views.recipe import View, ViewRecipe
from sslkit.errors import UserError


@dataclass(frozen=True)
class Crops:
    """The random crops of N images, for the V views of a recipe in their order, neither mirrored nor recoloured.

    pixels: for each run of views of one size, (N, views of that size, C, size, size) uint8.
    boxes: (V, N, 4) float32 top, left, height, width of each crop as shares of its image; on the CPU.
    whole: (N, C, S, S) uint8 the whole images as squares, for regularisers that read them, or None.
    """

    pixels: tuple[Tensor, ...]
    boxes: Tensor
    whole: Tensor | None = None

    def __len__(self) -> int:
        return len(self.pixels[0])

    @property
    def device(self) -> torch.device:
        return self.pixels[0].device

    @property
    def channels(self) -> int:
        return self.pixels[0].shape[2]

    @property
    def sizes(self) -> list[int]:
        """The side of each view in pixels."""
        return [pixels.shape[-1] for pixels in self.pixels for _ in range(pixels.shape[1])]

    def to(self, device: torch.device | str) -> "Crops":
        """Copy the pixels, to a GPU without waiting; the boxes stay on the CPU."""
        without_waiting = torch.device(device).type == "cuda"
        return self._copy_with(lambda pixels: pixels.to(device, non_blocking=without_waiting))

    def pin_memory(self) -> "Crops":
        """Called by torch's DataLoader."""
        return self._copy_with(Tensor.pin_memory)

    def _copy_with(self, copy: Callable[[Tensor], Tensor]) -> "Crops":
        whole = None if self.whole is None else copy(self.whole)
        return replace(self, pixels=tuple(map(copy, self.pixels)), whole=whole)


def draw_boxes(views: Sequence[View], seed: int, epoch: int, row: int, height: int, width: int) -> Tensor:
    """The boxes (V, 4) of one image's views: top, left, height, width in whole pixels, as torchvision draws them.

    They depend on nothing but the arguments; the boxes of the first views not on the number of later ones.
    """
    digest = hashlib.blake2b(f"boxes/{seed}/{epoch}/{row}".encode(), digest_size=8).digest()
    generator = torch.Generator().manual_seed(int.from_bytes(digest, "little") >> 1)
    uniform = torch.rand(len(views), resample.BOX_UNIFORMS, generator=generator)
    boxes, start = [], 0
    for (scale, ratio), alike in groupby(views, lambda view: (view.scale, view.ratio)):
        count = len(list(alike))
        aspect = torch.full((count,), width / height, dtype=torch.float64)
        draws = uniform[start : start + count]
        boxes.append(resample.draw_boxes(draws, scale, ratio, height, width, aspect))
        start += count
    return torch.cat(boxes)


@torch.no_grad()
def finish(
    crops: Crops,
    recipe: ViewRecipe,
    generator: torch.Generator,
    *,
    rank: int = 0,
    world_size: int = 1,
    compiled: bool = False,
) -> Views:
    """The views of a batch of crops: V tensors (N, C, S, S), float32 in [0, 1], on the device of the crops.

    Other arguments as in `augmentation.augment`, whose flips and colours these views have. Raises UserError for
    crops that were made for another number of views.
    """
    views = recipe.each()
    if len(views) != len(crops.sizes):
        raise UserError(f"the batch holds crops for {len(crops.sizes)} views, and the method makes {len(views)}")
    planes = [pixels[:, number] for pixels in crops.pixels for number in range(pixels.shape[1])]
    with full_precision(planes[0]):
        drawn = draw_views(views, planes[0], generator, None, rank, world_size)
        drawn = [replace(draw, box=_whole(draw, size)) for draw, size in zip(drawn, crops.sizes, strict=True)]
        made = render_views(planes, drawn, views, crops.sizes, _finish_view, compiled=compiled)
    flips = torch.stack([draw.flip for draw in drawn])
    return Views(made, torch.cat([crops.boxes, flips[..., None]], -1))


def _whole(draw: Draw, size: int) -> Tensor:
    """(N, 4) boxes of all of a crop."""
    return torch.tensor([0.0, 0, size, size]).expand_as(draw.box)


def _finish_view(pixels: Tensor, draw: Draw, moved: Draw, _: int, view: View) -> Tensor:
    """One view (N, C, S, S) of crops (N, C, S, S), made in chunks. Arguments as in `augmentation.render_views`."""
    out = torch.empty(pixels.shape, device=pixels.device)
    for rows in in_chunks(pixels, 8 * pixels[0].numel()):
        _finish_chunk(pixels[rows], draw[rows], moved[rows], view.sigma[1], out[rows])
    return out


def _finish_chunk(pixels: Tensor, draw: Draw, moved: Draw, longest: float, out: Tensor) -> None:
    """Write the view of a few crops to `out`. longest: an upper bound of sigma."""
    mirrored = _where(draw.flip > 0, pixels)
    pixels = pixels.index_copy(0, mirrored, pixels.index_select(0, mirrored).flip(-1)).float()
    blurred = _where(draw.sigma > 0, pixels)
    if len(blurred):
        soft = resample.blur(pixels.index_select(0, blurred), moved.sigma.index_select(0, blurred), longest)
        pixels.index_copy_(0, blurred, soft)
    recolor(pixels, draw, moved, out)


def _where(chosen: Tensor, pixels: Tensor) -> Tensor:
    """The chosen rows, found on the CPU and copied without waiting to where the pixels are."""
    rows = chosen.nonzero()[:, 0]
    return rows.pin_memory().to(pixels.device, non_blocking=True) if pixels.is_cuda else rows.to(pixels.device)
