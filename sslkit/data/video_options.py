"""How videos are read: every option of `sslkit.data.video.open_videos`, checked."""

from dataclasses import dataclass
from pathlib import Path

from sslkit.data.clip_sampling import RULES, SAMPLINGS
from sslkit.data.images import ImageOptions
from sslkit.errors import UserError
from sslkit.members import nearest

DEFAULT_SIZE = 112
DEFAULT_CLIPS = {"random": 2, "center": 1, "uniform": 10}


@dataclass(frozen=True)
class VideoOptions(ImageOptions):
    """How videos are read; see `open_videos`. Raises UserError for values out of range."""

    frames: int = 16
    stride: int = 2
    clips: int | None = None
    sampling: str = "random"
    rule: str = "slowfast"
    crops: int = 1
    short_side: int | None = None
    decoder: str = "auto"
    cache: str | Path | None = "runs/cache"

    def __post_init__(self) -> None:
        super().__post_init__()
        self._check_values()
        self._check_together()

    def _check_values(self) -> None:
        for name, known in (("sampling", SAMPLINGS), ("rule", RULES), ("crops", (1, 3))):
            value = getattr(self, name)
            if value not in known:
                raise UserError(f"data.{name}={value} is not an option: {nearest(str(value), list(map(str, known)))}")
        for name in ("frames", "stride", "clips"):
            value = getattr(self, name)
            if value is not None and value < 1:
                raise UserError(f"data.{name}={value} must be at least 1")
        if self.channels not in (None, 3):
            raise UserError(f"data.channels={self.channels}: videos are read as RGB, 3 channels")

    def _check_together(self) -> None:
        if self.sampling == "center" and self.per_video != 1:
            raise UserError(f"data.clips={self.clips}: a video has one clip in its centre; take sampling=uniform")
        if self.fit == "squash" and (self.crops != 1 or self.short_side is not None):
            raise UserError("data.crops and data.short_side need data.fit=crop: fit=squash keeps the whole frame")
        if self.short_side is not None and self.short_side < self.side:
            raise UserError(f"data.short_side={self.short_side} is less than data.image_size={self.side}")

    @property
    def per_video(self) -> int:
        """Clips of a video, before crops."""
        return self.clips or DEFAULT_CLIPS[self.sampling]

    @property
    def side(self) -> int:
        return self.image_size or DEFAULT_SIZE
