"""The options for reading videos, of `sslkit.data.video.clips.open_videos`, checked."""

from dataclasses import dataclass

from sslkit.data.images import ImageOptions
from sslkit.data.video.clip_sampling import SAMPLINGS
from sslkit.errors import UserError
from sslkit.options.members import nearest

DEFAULT_SIZE = 112  # pixels: half of the published 224, a quarter of the time
DEFAULT_CLIPS = {"random": 2, "center": 1}


@dataclass(frozen=True, kw_only=True)
class VideoOptions(ImageOptions):
    """Options for reading videos; see `open_videos`. Raises UserError for values out of range."""

    frames: int = 16
    stride: int = 2
    clips: int | None = None
    sampling: str = "random"

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.sampling not in SAMPLINGS:
            raise UserError(f"data.sampling={self.sampling} is not an option: {nearest(str(self.sampling), SAMPLINGS)}")
        for name in ("frames", "stride", "clips"):
            self._check_whole(name)
        if self.channels not in (None, 3):
            raise UserError(f"data.channels={self.channels}: videos are read as RGB, 3 channels")
        if self.sampling == "center" and self.per_video != 1:
            raise UserError(f"data.clips={self.clips}: a video has one clip in its centre; take sampling=random")

    def _check_whole(self, name: str) -> None:
        value = getattr(self, name)
        if value is None and name == "clips":
            return
        if not isinstance(value, int) or isinstance(value, bool) or value < 1:
            raise UserError(f"data.{name}={value!r} must be a whole number from 1")

    @property
    def per_video(self) -> int:
        """Clips of a video."""
        return self.clips or DEFAULT_CLIPS[self.sampling]

    @property
    def side(self) -> int:
        return self.image_size or DEFAULT_SIZE
