"""Read videos as clips: training clips in a resumable order, and the test views of each video."""

from collections.abc import Iterator
from dataclasses import dataclass
from itertools import islice
from typing import Any

import numpy as np
import torch
from torch import Tensor
from torch.utils.data import Dataset, Sampler

from evaluation.results.statistics import generator
from evaluation.tasks.action.crops import Sizes, crop_places, short_side
from evaluation.tasks.action.films import SurveyedVideos
from sslkit.data.loader import EpochBatches
from sslkit.data.video.clip_sampling import clip_frames, random_starts, uniform_starts
from sslkit.data.video.reader import UnreadableVideo
from sslkit.errors import UserError, format_value
from sslkit.runtime.distributed import rank, world_size


@dataclass(frozen=True)
class ClipShape:
    """length: frames of a clip. stride: in frames of the video. sizes: of its crops, in pixels."""

    length: int
    stride: int
    sizes: Sizes

    def __str__(self) -> str:
        return f"{self.length} x {self.stride} at {self.sizes.crop} px"


@dataclass(frozen=True)
class EvalViews:
    """Test views of a video: `clips` in time (rule: see `sslkit.data.video.clip_sampling`) times `crops` (1 or 3)."""

    clips: int = 10
    crops: int = 3
    rule: str = "slowfast"

    def __post_init__(self) -> None:
        if not isinstance(self.clips, int) or isinstance(self.clips, bool) or self.clips < 1:
            raise UserError(f"clips must be a whole number, at least 1, got {format_value(self.clips)}")
        if self.crops not in (1, 3):
            raise UserError(
                f"crops must be 1 (the middle) or 3 (both ends and the middle), got {format_value(self.crops)}"
            )
        uniform_starts(1, 1, 1, 1, self.rule)

    def __str__(self) -> str:
        return f"{self.clips} clips ({self.rule}) x {self.crops} crop{'s' if self.crops > 1 else ''}"


class TrainingClips(Dataset):
    """One random clip of each video, with a random crop.

    A key is (epoch, row); the clip is a function of (seed, epoch, row) only. A video that cannot be decoded completely
    is replaced by the next row and listed in `bad`.
    """

    decodes = True

    def __init__(self, videos: SurveyedVideos, shape: ClipShape, seed: int) -> None:
        self.videos, self.shape, self.seed = videos, shape, seed

    def __len__(self) -> int:
        return len(self.videos.films)

    def __getitems__(self, keys: list[tuple[int, int]]) -> dict[str, Any]:
        """clips: (n, C, T, S, S) uint8. label: (n,) int64. rows: (n,) of the videos used. bad: undecodable paths."""
        bad: dict[str, None] = {}
        samples = [self._next(epoch, row, bad) for epoch, row in keys]
        rows = torch.tensor([row for row, _ in samples])
        label = torch.from_numpy(self.videos.films.y)[rows]
        return {"clips": torch.stack([clip for _, clip in samples]), "label": label, "rows": rows, "bad": list(bad)}

    def _next(self, epoch: int, row: int, bad: dict[str, None]) -> tuple[int, Tensor]:
        for step in range(len(self)):
            candidate = (row + step) % len(self)
            try:
                return candidate, self._clip(epoch, candidate)
            except UnreadableVideo:
                bad[self.videos.films.paths[candidate]] = None
        raise UserError(f"{self.videos.films.name}: none of the {len(self)} training videos can be read")

    def _clip(self, epoch: int, row: int) -> Tensor:
        """(C, T, S, S): the shorter side resized to a random size, then a square cropped at a random position."""
        rng, shape, sizes = generator(self.seed, f"crop {epoch} {row}"), self.shape, self.shape.sizes
        facts = self.videos.facts(row)
        (start,) = random_starts(facts.frames, 1, shape.length, shape.stride, (self.seed, epoch, row))
        (numbers,) = clip_frames(np.array([start]), facts.frames, shape.length, shape.stride)
        height, width = short_side(facts.aspect, int(rng.integers(sizes.short[0], sizes.short[1] + 1)))
        top, left = (int(rng.integers(side - sizes.crop + 1)) for side in (height, width))
        frames, where = self.videos.decode(row, numbers, (height, width))
        return _clip_of(frames[:, top : top + sizes.crop, left : left + sizes.crop], where)


class FilmViews(Dataset):
    """All test views of each video: clips in time, crops in space."""

    decodes = True

    def __init__(self, videos: SurveyedVideos, shape: ClipShape, views: EvalViews) -> None:
        self.videos, self.shape, self.views = videos, shape, views

    def __len__(self) -> int:
        return len(self.videos.films)

    def __getitem__(self, row: int) -> dict[str, Any]:
        """views: (V, C, T, S, S) uint8, the crops of the first clip first; None if the video cannot be decoded.

        Equal crops, those of square frames, are returned once: the mean over them is the same.
        row: of the video. reason: why views is None, or "".
        """
        if not 0 <= row < len(self):
            raise IndexError(f"row {row} of {len(self)} videos")
        facts, shape, size = self.videos.facts(row), self.shape, self.shape.sizes.test
        starts = uniform_starts(facts.frames, self.views.clips, shape.length, shape.stride, self.views.rule)
        numbers = clip_frames(starts, facts.frames, shape.length, shape.stride)
        height, width = short_side(facts.aspect, size)
        try:
            frames, where = self.videos.decode(row, numbers, (height, width))
        except UnreadableVideo as error:
            return {"row": row, "views": None, "reason": str(error)}
        places = dict.fromkeys(crop_places(height, width, size, self.views.crops))
        crops = [frames[:, top : top + size, left : left + size] for top, left in places]
        views = [_clip_of(crop, clip) for clip in where for crop in crops]
        return {"row": row, "views": torch.stack(views), "reason": ""}


class Schedule(Sampler[list[tuple[int, int]]]):
    """Yield the keys of this rank's part of every training step: an epoch's order is a function of (seed, epoch).

    batch_size: of all ranks together; at most the number of videos is used. first: the first step. An incomplete last
    batch of an epoch is dropped. Raises UserError if the ranks cannot share a batch evenly.
    """

    def __init__(self, films: int, batch_size: int, epochs: int, seed: int, first: int = 0) -> None:
        size = min(batch_size, films)
        if size % world_size():
            raise UserError(f"a batch of {size} clips cannot be shared by {world_size()} processes: change batch_size")
        self.batches = EpochBatches(films, size, seed, rank(), world_size())
        self.per_epoch, self.first = len(self.batches), first
        self.steps = epochs * self.per_epoch

    def __len__(self) -> int:
        return self.steps - self.first

    def __iter__(self) -> Iterator[list[tuple[int, int]]]:
        for epoch in range(self.first // self.per_epoch, self.steps // self.per_epoch):
            self.batches.set_epoch(epoch)
            skipped = max(self.first - epoch * self.per_epoch, 0)
            for rows in islice(self.batches, skipped, None):
                yield [(epoch, row) for row in rows]


def _clip_of(frames: np.ndarray, where: np.ndarray) -> Tensor:
    """Select the frames `where` (T,) of (n, H, W, C) as a clip (C, T, H, W)."""
    return torch.from_numpy(np.ascontiguousarray(frames[where].transpose(3, 0, 1, 2)))
