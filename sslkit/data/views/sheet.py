"""The cells of the picture of views: what was read, beside its views, with captions."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Self

import torch
from torch import Tensor

MOST_ROWS, MOST_HIGH = 8, 1100  # rows, and pixels of all of them
CELL = 112  # pixels: smaller views are drawn larger


@dataclass(frozen=True)
class Sheet:
    """Of images: a row for each, on the left the whole image, beside it its views.

    whole: (M, C, H, W). views: of each column (M, C, S, S). columns, rows: captions, of the whole images first. notes:
    sentences below.
    """

    whole: Tensor
    views: list[Tensor]
    columns: list[str]
    rows: list[str]
    notes: list[str]

    @staticmethod
    def most(image_size: int) -> int:
        """Return how many rows of a data set are shown."""
        return min(MOST_ROWS, max(3, MOST_HIGH // max(CELL, image_size)))

    @classmethod
    def of_views(cls, batch: Tensor, views: Sequence[Tensor], aspect: Tensor, names: Sequence[str]) -> Self:
        """Return the sheet of a batch of the data set. views: from `augment`. aspect: (N,). names: of the rows."""
        notes = ["Left: the whole image. Beside it: its views, drawn as in training."]
        if len({view.shape[-1] for view in views}) > 1:
            notes.append("Smaller views are drawn at their size relative to the others.")
        return cls(in_proportion(batch, aspect), [*views], ["as read", *_names(views)], [*names], notes)

    def cells(self, views: Sequence[tuple[int, int]]) -> list[tuple[int, int]]:
        """Return row and column of the cell of each view, given by the row of its image and its number."""
        return [(row, view + 1) for row, view in views]


def in_proportion(whole: Tensor, aspect: Tensor) -> Tensor:
    """Squares of images (N, C, S, S), uint8, with their width / height given back, on white."""
    if bool((aspect - 1).abs().max() < 0.01):
        return whole
    size, out = whole.shape[-1], torch.full_like(whole, 255)
    for image, square, ratio in zip(out, whole, aspect.tolist(), strict=True):
        height, width = max(1, round(size * min(1, 1 / ratio))), max(1, round(size * min(1, ratio)))
        top, left = (size - height) // 2, (size - width) // 2
        drawn = torch.nn.functional.interpolate(square[None].float(), (height, width), mode="bilinear", antialias=True)
        image[:, top : top + height, left : left + width] = drawn[0].round().clamp(0, 255).to(whole.dtype)
    return out


def _names(views: Sequence[Tensor]) -> list[str]:
    """`view 1`, `view 2`, ..., `crop 1`, ... for views smaller than the largest, each with its size."""
    largest, counts, names = max(view.shape[-1] for view in views), {"view": 0, "crop": 0}, []
    for view in views:
        kind = "view" if view.shape[-1] == largest else "crop"
        counts[kind] += 1
        names.append(f"{kind} {counts[kind]}\n{view.shape[-1]} px")
    return names
