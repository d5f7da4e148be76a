"""The places of a network's last map, and the classes of a picture's pixels by scores of places.

A picture is squeezed to the network's square, and its scores are enlarged bilinearly, as in Oquab et al. 2024 (arXiv
2304.07193, section 7.4). `Look` has the boosted form there, "+ms".
"""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass

import torch
from torch import Tensor
from torch.nn import functional as F

from sslkit.backbones.base import Backbone
from sslkit.errors import UserError
from sslkit.models.model import Model

GRAY = (0.299, 0.587, 0.114)  # ITU-R 601, as Pillow's
ENLARGED = 2**25  # scores that are enlarged at a time, 128 MiB: of a large picture not those of all classes
BATCH = 16  # windows whose maps are computed at a time
Scores = Callable[[Tensor], Tensor]  # (P, F) features of places -> (P, K)


def place_features(backbone: Backbone, pixels: Tensor, blocks: int) -> Tensor:
    """(B, C, S, S) normalised -> (B, F, h, w), for a ViT after the norm that its pooled features get.

    blocks: last blocks of a ViT whose features are joined, the last one's behind: F is so many times its width.
    """
    if blocks > 1:
        how = {"norm": True, "output_fmt": "NCHW", "intermediates_only": True}
        maps = backbone.net.forward_intermediates(pixels, indices=blocks, **how)
    else:
        maps = [backbone.feature_map(pixels)[0]]
    if backbone.is_vit:
        maps = [backbone.net.fc_norm(each.movedim(1, -1)).movedim(-1, 1) for each in maps]
    return torch.cat(maps, 1).float()


@torch.inference_mode()
def grid_of(model: Model) -> tuple[int, int]:
    """Rows and columns of the network's last map. Raises UserError for one without."""
    return tuple(
        place_features(model.backbone, torch.zeros(1, *model.backbone.input_shape()).to(model.device), 1).shape[2:]
    )


def prepare(image: Tensor, model: Model, size: tuple[int, int] | None = None) -> Tensor:
    """(3, H, W) uint8 -> (C, *size), squeezed and normalised. size: None is the network's square."""
    pixels = image.float() / 255
    if model.in_chans == 1:
        pixels = (pixels * pixels.new_tensor(GRAY).view(3, 1, 1)).sum(0, keepdim=True)
    size = size or (model.image_size, model.image_size)
    pixels = F.interpolate(pixels[None], size, mode=model.resizing.interpolation, antialias=True)[0].clamp(0, 1)
    mean, std = (pixels.new_tensor(statistic).view(-1, 1, 1) for statistic in (model.mean, model.std))
    return (pixels - mean) / std


def enlarge(scores: Tensor, size: tuple[int, int]) -> Tensor:
    """(H, W) uint8: the class of the highest score after bilinear enlargement. scores: (K, h, w)."""
    at_once = max(ENLARGED // (size[0] * size[1]), 1)
    best = label = None
    for first in range(0, len(scores), at_once):
        some = F.interpolate(scores[None, first : first + at_once], size, mode="bilinear", align_corners=False)[0]
        value, number = some.max(0)
        number = (number + first).to(torch.uint8)
        higher = value > best if first else None
        best = value if higher is None else torch.where(higher, value, best)
        label = number if higher is None else torch.where(higher, number, label)
    return label


@dataclass(frozen=True)
class Look:
    """What of a picture and of a network is classified.

    blocks: see `place_features`. scales: (): the picture once. Else of each scale, as it is and mirrored, the picture
    is read in windows of the network's size that overlap by half. Scores are averaged where windows overlap, enlarged
    to the picture, and their probabilities averaged over all: multi-scale test-time augmentation of DINOv2's "+ms",
    whose public configuration has four blocks and the scales 1, 1.32, 1.73, 2.28 and 3. Here windows begin at whole
    places, so that a place has one mean, and 4 bytes x classes x scale^2 x places are all that is kept of a scale.
    """

    blocks: int = 1
    scales: tuple[float, ...] = ()

    def check(self, model: Model, protocol: str) -> None:
        """Raises UserError for a network that has not so many blocks."""
        count = len(model.net.blocks) if model.backbone.is_vit else 0
        if self.blocks > max(count, 1):
            has = f"has {count}" if count else "is no ViT, and has none"
            raise UserError(
                f"{protocol}: blocks={self.blocks} joins the patches of that many blocks, and {model.name} {has}"
            )

    def classify(self, model: Model, picture: Tensor, scores: Scores, *, votes: bool = False) -> tuple[Tensor, float]:
        """Classes (H, W) uint8 of a picture (3, H, W) uint8, and the mean probability of the likeliest class.

        votes: scores are probabilities already.
        """
        size = (picture.shape[1], picture.shape[2])
        if not self.scales:
            places = place_features(model.backbone, prepare(picture, model)[None].to(model.device), self.blocks)[0]
            whole = scores(places.flatten(1).T).T.unflatten(1, places.shape[1:]).float()
            return enlarge(whole, size), float((whole if votes else whole.softmax(0)).amax(0).mean())
        maps = [*self._maps(model, picture, scores)]
        axes = [
            [_bilinear(length, places, some) for length, places in zip(size, some.shape[1:], strict=True)]
            for some in maps
        ]
        band, classes, sure = max(ENLARGED // (len(maps[0]) * size[1]), 1), [], 0.0
        for first in range(0, size[0], band):
            mean = 0.0
            for some, (rows, columns) in zip(maps, axes, strict=True):
                large = torch.einsum("hg,kgw->khw", rows[first : first + band], some) @ columns.T
                mean = mean + (large if votes else large.softmax(0)) / len(maps)
            likeliest, number = mean.max(0)
            classes.append(number.to(torch.uint8))
            sure += float(likeliest.double().sum())
        return torch.cat(classes), sure / (size[0] * size[1])

    def _maps(self, model: Model, picture: Tensor, scores: Scores) -> Iterator[Tensor]:
        """Yield scores (K, g, g') of the picture at each scale, as it is and mirrored."""
        grid = grid_of(model)
        for scale in self.scales:
            whole = Whole.of(scale, grid, model.image_size)
            pixels = prepare(picture, model, whole.size)
            yield self._score(model, pixels, whole, scores)
            yield self._score(model, pixels.flip(2), whole, scores).flip(2)

    def _score(self, model: Model, pixels: Tensor, whole: "Whole", scores: Scores) -> Tensor:
        """Scores (K, g, g') of a whole picture (C, *size), the mean of those of its windows."""
        total, (rows, columns) = None, whole.grid
        windows = whole.windows()
        for first in range(0, len(windows), BATCH):
            some = windows[first : first + BATCH]
            x = torch.stack([whole.cut(pixels, window) for window in some]).to(model.device)
            places = place_features(model.backbone, x, self.blocks)
            if not places.isfinite().all():
                raise UserError(f"{model.name} returns features that are not finite: the model may have diverged")
            values = scores(places.movedim(1, -1).flatten(0, 2)).float().unflatten(0, (len(some), rows, columns))
            if total is None:
                total = values.new_zeros(values.shape[-1], *whole.places)
                count = values.new_zeros(whole.places)
            for (top, left), value in zip(some, values, strict=True):
                total[:, top : top + rows, left : left + columns] += value.movedim(-1, 0)
                count[top : top + rows, left : left + columns] += 1
        return total / count


@dataclass(frozen=True)
class Whole:
    """A picture at a scale. grid: places of a window, each side of which has `side` pixels. places: of the picture."""

    grid: tuple[int, int]
    places: tuple[int, int]
    side: int

    @classmethod
    def of(cls, scale: float, grid: tuple[int, int], side: int) -> "Whole":
        """At a multiple of a window's places, rounded to whole ones."""
        return cls(grid, tuple(max(round(scale * places), places) for places in grid), side)

    @property
    def size(self) -> tuple[int, int]:
        """Rows and columns of its pixels."""
        return tuple(self.pixel(whole, axis) for axis, whole in enumerate(self.places))

    def pixel(self, place: int, axis: int) -> int:
        """The first pixel of a place."""
        return round(place * self.side / self.grid[axis])

    def windows(self) -> list[tuple[int, int]]:
        """The first place, by row and column, of windows that overlap by half and cover all."""
        return [(top, left) for top in self._starts(0) for left in self._starts(1)]

    def cut(self, pixels: Tensor, window: tuple[int, int]) -> Tensor:
        """The pixels (C, side, side) of a window."""
        top, left = (min(self.pixel(start, axis), self.size[axis] - self.side) for axis, start in enumerate(window))
        return pixels[:, top : top + self.side, left : left + self.side]

    def _starts(self, axis: int) -> Sequence[int]:
        last, step = self.places[axis] - self.grid[axis], max(self.grid[axis] // 2, 1)
        return sorted({min(first, last) for first in range(0, last + step, step)})


def _bilinear(length: int, places: int, like: Tensor) -> Tensor:
    """Weights (length, places) of the bilinear enlargement of an axis."""
    unit = torch.eye(places, device=like.device)[None]
    return F.interpolate(unit, length, mode="linear", align_corners=False)[0].T
