"""The cells of the picture of views of clips."""

from collections.abc import Sequence

import torch
from torch import Tensor

from sslkit.data.views.sheet import Sheet

FILMS, SHOWN_FRAMES = 3, 8  # videos, and frames of each


class ClipSheet(Sheet):
    """A row for each full-size view of each video: on the left the clip's first frame, then the view's frames."""

    @staticmethod
    def most(image_size: int) -> int:
        return FILMS

    @classmethod
    def of_views(cls, batch: Tensor, views: Sequence[Tensor], aspect: Tensor, names: Sequence[str]) -> "ClipSheet":
        """batch: (N, R, C, T, H, W). views: view v of clip v % R. At most eight frames are shown, evenly spaced."""
        full = [view for view in views if view.shape[-1] == views[0].shape[-1]]
        frames, side, shown = batch.shape[3], views[0].shape[-1], frames_to_show(batch)
        first = batch[:, [v % batch.shape[1] for v in range(len(full))], :, shown[0]]
        whole = torch.stack(full, 1)  # (N, V, C, T, S, S)
        notes = ["Left: the first frame of the clip as read. Beside it: frames of its view, drawn as in training."]
        if len(shown) < frames:
            notes.append(f"{len(shown)} of {frames} frames are shown, evenly spaced.")
        if hidden := len(views) - len(full):
            notes.append(f"{hidden} smaller views are not shown.")
        return cls(
            first.flatten(0, 1),
            [whole[:, :, :, t].flatten(0, 1) for t in shown],
            ["as read", *(f"frame {t + 1}\n{side} px" for t in shown)],
            [f"{name}\nview {v}" for name in names for v in range(1, len(full) + 1)],
            notes,
        )

    def cells(self, views: Sequence[tuple[int, int]]) -> list[tuple[int, int]]:
        return []  # a view is a row


def frames_to_show(clips: Tensor) -> list[int]:
    """The frames to show of clips (N, R, C, T, H, W)."""
    frames = clips.shape[3]
    return torch.linspace(0, frames - 1, min(frames, SHOWN_FRAMES)).round().long().tolist()
