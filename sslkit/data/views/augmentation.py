"""The augmented views of a batch of images or clips: SimCLR's and BYOL's augmentations as batched tensor operations.

Crop, flip and blur are one separable resampling (resample.py), the colours one linear map per image (color.py), both
built from random numbers drawn on the CPU (draw.py); for a GPU the same sums can be compiled (fused.py). So blur comes
before the colours, where the papers blur after them; the two commute except for the clamp to [0, 1].

The frames of a clip share one draw: a crop, flip or colour that changed from frame to frame would add motion to the
video (Qian et al. 2021, CVRL, arXiv 2008.03800, section 3.2). Contrast therefore keeps the mean gray of the whole clip,
not of each frame, as in PySlowFast, which treats a clip's frames as one image.

Sources: Chen et al. 2020, arXiv 2002.05709, appendix A; Grill et al. 2020, arXiv 2006.07733, appendix B.
"""

import hashlib
import math
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import ExitStack, contextmanager

import torch
from PIL import Image
from torch import Tensor

from sslkit.data.views import color, fused, resample
from sslkit.data.views.draw import Draw, copies, draw_views
from sslkit.data.views.recipe import View, ViewRecipe
from sslkit.errors import UserError


class Views(list[Tensor]):
    """V tensors (N, C, S, S), and the position of each in its image.

    boxes: (V, N, 5) top, left, height, width as shares of the image, and 1 if the crop was mirrored; on the CPU.
    """

    def __init__(self, pixels: Iterable[Tensor], boxes: Tensor) -> None:
        super().__init__(pixels)
        self.boxes = boxes


def view_generator(seed: int, epoch: int, step: int) -> torch.Generator:
    """The CPU generator of one step: the same three numbers give the same views."""
    digest = hashlib.blake2b(f"{seed}/{epoch}/{step}".encode(), digest_size=8).digest()
    return torch.Generator().manual_seed(int.from_bytes(digest, "little") >> 1)


@torch.no_grad()
def augment(
    images: Tensor,
    recipe: ViewRecipe,
    size: int,
    generator: torch.Generator,
    *,
    aspect: Tensor | None = None,
    rank: int = 0,
    world_size: int = 1,
    compiled: bool = False,
) -> Views:
    """The views of a batch: V tensors (N, C, S, S), float32 in [0, 1], on the device of the images.

    images: (N, C, H, W) uint8, or float in [0, 1]; any number of channels. Or (N, R, C, T, H, W): R clips of each of N
        videos, whose views are (N, C, T, S, S); view v shows clip v % R (Feichtenhofer et al. 2021, arXiv 2104.14558),
        and the recipe's full-size views are repeated in turn until there are at least R of them. For R = 1 and
        identical frames they are the views of the image; otherwise those of each frame, except for contrast.
    size: S of the views without their own size.
    generator: on the CPU; the only source of randomness.
    aspect: (N,) width / height of the originals if the images were squashed, so that the crop's ratio refers to them.
    rank, world_size: of the world_size * N images of all processes (N is equal on all) these are the rows rank,
    rank + world_size, ...: together the processes make the views that one would make.
    compiled: let a GPU make large views by compiled kernels (fused.py), with half a minute of compiling.
    Raises UserError for another shape or type.
    """
    of_clips = images.dim() == 6
    if not (of_clips or images.dim() == 4) or not images.numel():
        raise UserError(
            "images must have the shape (N, C, H, W), clips must have the shape (N, R, C, T, H, W), N > 0, got "
            f"{tuple(images.shape)}"
        )
    _check(images, size, aspect, generator)
    sources = images.unbind(1) if of_clips else [images]
    views = views_of_row(recipe, len(sources))
    with full_precision(images):
        drawn = draw_views(views, sources[0], generator, aspect, rank, world_size)
        shown = [sources[number % len(sources)] for number in range(len(views))]
        made = render_views(shown, drawn, views, [view.size or size for view in views], _render, compiled=compiled)
    sides = torch.tensor([*images.shape[-2:]] * 2)
    return Views(made, torch.stack([torch.cat([draw.box / sides, draw.flip[:, None]], 1) for draw in drawn]))


def views_of_row(recipe: ViewRecipe, items: int) -> tuple[View, ...]:
    """The views that `augment` makes of so many items a row: full-size ones first, then the local crops."""
    whole = recipe.views
    repeats = -(-items // len(whole))
    return (whole * repeats)[: max(items, len(whole))] + recipe.each()[len(whole) :]


@contextmanager
def full_precision(images: Tensor) -> Iterator[None]:
    """Compute matrix products in float32 on the CPU and the images' device, even under the caller's autocast."""
    with ExitStack() as stack:
        for device in {"cpu", images.device.type}:
            if torch.amp.is_autocast_available(device):
                stack.enter_context(torch.autocast(device, enabled=False))
        yield


def _check(images: Tensor, size: int, aspect: Tensor | None, generator: torch.Generator) -> None:
    """Raises UserError for images or clips of another type, and for a wrong size, generator or aspect."""
    if images.dtype != torch.uint8 and not images.is_floating_point():
        raise UserError(f"images must be uint8, or float in [0, 1], got {images.dtype}")
    if size < 1:
        raise UserError(f"image_size must be at least 1, got {size}")
    if generator.device.type != "cpu":
        raise UserError(f"views are drawn on the CPU; give a CPU generator, not one on {generator.device}")
    if aspect is not None and aspect.shape != images.shape[:1]:
        raise UserError(
            f"aspect has the shape {tuple(aspect.shape)}: give ({len(images)},), width / height of each image"
        )


Render = Callable[[Tensor, Draw, Draw, int, View], Tensor]
CHUNK_BYTES = {"cpu": 2**22, "cuda": 2**30}  # a core's cache; enough memory to keep a GPU busy


def render_views(
    sources: Sequence[Tensor],
    drawn: Sequence[Draw],
    views: Sequence[View],
    sizes: Sequence[int],
    render: Render,
    *,
    compiled: bool,
) -> list[Tensor]:
    """The view of each source by its draw: by `render`, or if asked for by compiled kernels, where they suit."""
    if compiled and fused.suits(sources, sizes):
        try:
            return fused.render(sources, drawn, views, sizes)
        except fused.CannotCompile:
            pass  # said there
    moved = copies(drawn, sources[0].device)
    return [render(*each) for each in zip(sources, drawn, moved, sizes, views, strict=True)]


def _render(images: Tensor, draw: Draw, moved: Draw, size: int, view: View) -> Tensor:
    """One view (N, C, size, size), made in chunks; for clips (N, C, T, H, W) it is (N, C, T, size, size).

    draw, moved: the draw on the CPU, and its copy where the images are.
    """
    n, *planes, h, w = images.shape
    out = images.new_empty(n, *planes, size, size, dtype=torch.float32)
    each = 4 * (math.prod(planes) * (h * w + h * size + 2 * size * size) + size * (h + w))
    for rows in in_chunks(images, each):
        _render_chunk(images[rows], draw[rows], moved[rows], view.sigma[1], out[rows])
    return out


def in_chunks(images: Tensor, each: int) -> Iterator[slice]:
    """The images' rows in chunks that suit their device. each: bytes that one row needs."""
    step = max(1, CHUNK_BYTES.get(images.device.type, 2**30) // each)
    return (slice(start, start + step) for start in range(0, len(images), step))


def _render_chunk(images: Tensor, draw: Draw, moved: Draw, longest: float, out: Tensor) -> None:
    """Write the view of a few images to `out`. longest: an upper bound of sigma.

    Steps that can be skipped are read from `draw`, on the CPU, so that no device waits.
    """
    size = out.shape[-1]
    top, left = draw.box[:, :2].amin(0).int().tolist()
    bottom, right = (draw.box[:, :2] + draw.box[:, 2:]).amax(0).int().tolist()
    y, x, h, w = moved.box.unbind(1)
    rows = resample.axis_weights(y, h, size, range(top, bottom))
    columns = resample.axis_weights(x, w, size, range(left, right), moved.flip)
    if draw.sigma.any():
        blur = resample.blur_matrix(moved.sigma, size, longest)
        rows, columns = blur @ rows, blur @ columns
    pixels = resample.resample(images[..., top:bottom, left:right], rows, columns)
    recolor(pixels, draw, moved, out)


def recolor(pixels: Tensor, draw: Draw, moved: Draw, out: Tensor) -> None:
    """Write the pixels with the draw's colours to `out`, solarised where the draw says so."""
    color.apply(pixels, moved.deviation, moved.mean, out)
    if (draw.threshold <= 1).any():
        threshold = moved.threshold.view(-1, *[1] * (out.dim() - 1))
        out.copy_(torch.where(out >= threshold, 1 - out, out))


def contact_sheet(images: Tensor, views: Sequence[Tensor], rows: int = 8) -> Image.Image:
    """A picture of the views: one row for each of the first images, the image on the left and its views beside it.

    images: (N, C, H, W) uint8 or float in [0, 1]. views: from `augment`. Unless there are 1 or 3 channels, only the
    first is shown.
    """
    size = max(view.shape[-1] for view in views)
    whole = images[:rows].float() / (255 if images.dtype == torch.uint8 else 1)
    whole = torch.nn.functional.interpolate(whole, (size, size), mode="bilinear", antialias=True)
    shown = []
    for view in views:  # smaller ones are centred on white, not scaled
        before = (size - view.shape[-1]) // 2
        after = size - view.shape[-1] - before
        shown.append(torch.nn.functional.pad(view[:rows], (before, after, before, after), value=1.0))
    tiles = torch.stack([whole, *shown], 1).cpu()  # (rows, 1 + V, C, size, size)
    tiles = tiles if tiles.shape[2] == 3 else tiles[:, :, :1].expand(-1, -1, 3, -1, -1)
    tiles = torch.nn.functional.pad(tiles, (1, 1, 1, 1), value=1.0)
    grid = tiles.permute(0, 3, 1, 4, 2).flatten(2, 3).flatten(0, 1)
    return Image.fromarray((grid * 255).round().clamp(0, 255).byte().numpy())
