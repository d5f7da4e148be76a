"""The options of a run's data: a source of images or of videos, and what is read of it."""

from dataclasses import dataclass
from pathlib import Path

from sslkit.data.image_options import VALUES, FileOptions, ReadOptions
from sslkit.data.images import ImageOptions, join_paths
from sslkit.data.video.options import VideoOptions
from sslkit.errors import UserError
from sslkit.options.settings import setting

_OF_CLIPS = ("frames", "stride", "clips")


@dataclass(frozen=True)
class DataConfig(FileOptions):
    source: str | list[str] = setting(
        "fashion_mnist",
        "embedded name, folder, several (A,B), list of files (.txt, .csv), pattern (**/*.jpg), .npz file, digits, "
        "shards:PATTERN, hf:PATH, video:FOLDER, frames:FOLDER, published set (recipes/list.py) or "
        "torchvision:NAME:ROOT",
    )
    frames: int | None = setting(None, "videos only: frames of a clip; null: 16", least=1, most=4096)
    stride: int | None = setting(
        None, "videos only: distance in frames between two frames of a clip; null: 2", least=1, most=4096
    )
    clips: int | None = setting(None, "videos only: clips of each video in a step; null: 2", least=1, most=4096)

    def __post_init__(self) -> None:
        object.__setattr__(self, "source", join_paths(self.source))

    @property
    def folder(self) -> str:
        """The folder, without the `video:` prefix."""
        return str(self.source).removeprefix("video:")

    def check(self, values: ReadOptions) -> None:
        """Raises UserError for options of images where the source is videos, and the reverse. values: of the run."""
        is_video = self.folder != str(self.source)
        if is_video and self.channels not in (None, 3):
            raise UserError(f"data.channels={self.channels}: videos are read as RGB, 3 channels")
        for settings, name in (
            *((values, name) for name in VALUES),
            *((self, name) for name in ("pages", "every", "max_pixels")),
        ):
            if is_video and (value := getattr(settings, name)) != getattr(type(settings), name):
                path = name if settings is values else f"data.{name}"
                raise UserError(f"{path}={value} is for images, and data={self.source!r} are videos: leave it out")
        if self._of_clips() and not is_video:
            raise UserError(
                f"data.{next(iter(self._of_clips()))} is for videos, and data={self.source!r} are images: write "
                "data=video:FOLDER"
            )

    def reading(self, run: ReadOptions, cache: str | Path | None) -> ImageOptions:
        """Return the options to open the source by; those that are not given have the defaults of its kind."""
        of_files = {name: getattr(self, name) for name in FileOptions.__dataclass_fields__}
        of_run = {name: getattr(run, name) for name in ReadOptions.__dataclass_fields__}
        kind = ImageOptions if self.folder == str(self.source) else VideoOptions
        return kind(**of_files, **of_run, **self._of_clips(), cache=cache)

    def _of_clips(self) -> dict[str, int]:
        """The options of clips that are given."""
        return {name: value for name in _OF_CLIPS if (value := getattr(self, name)) is not None}
