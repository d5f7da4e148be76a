"""Every image of a source through a network, in batches, each with its name."""

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch
from PIL import Image
from torch import Tensor, nn

from sslkit.data.image_options import FileOptions, ReadOptions
from sslkit.data.images import Images
from sslkit.data.loader import batches_of_parts, in_order
from sslkit.data.sources.file_sources import is_files
from sslkit.data.sources.named import open_images, splits
from sslkit.data.sources.objects import as_source
from sslkit.data.whole_images import WholeImages
from sslkit.errors import UserError
from sslkit.runtime.context import CACHE, Runtime
from sslkit.runtime.device import autocast
from sslkit.runtime.heap import freed_memory_kept
from sslkit.terminal import say
from sslkit.terminal.say import and_more, counted, printable

CACHED_PIXELS = 24 * 224**2  # pixels of a batch on a CPU: 24 images of 224, whose maps stay in the processor's cache
AS_READ, OF_FILES = ReadOptions(), FileOptions()  # as is usual
APPLIED = ("batch_size", "workers", "precision", "progress")  # options of a pass over images
MOST = 256  # images of a batch, a round number: a GPU is busy with so many, and small images are decoded by then


@dataclass(frozen=True, eq=False)
class Rows:
    """A batch of a source.

    images: that it is of. rows: (n,) int64 of these, which could be read. x: (n, K) float32; of whole pictures a list.
    bad: paths of the others.
    """

    images: Images
    rows: np.ndarray
    x: Any
    bad: list[str]

    @property
    def names(self) -> list[str]:
        """The path of each image, or its number where it is in no file."""
        return [name_of(self.images, row) for row in self.rows.tolist()]


@dataclass(frozen=True, eq=False)
class FeatureTable:
    """The features of N images, which `Model.features` returns: numpy.asarray(table) is `x`.

    ids: the path of each image, or its number where it is in no file. x: (N, D) float32.
    unreadable: paths of images that were left out.
    """

    ids: Sequence[str]
    x: np.ndarray
    unreadable: tuple[str, ...]

    @classmethod
    def join(cls, parts: Iterable[Rows]) -> "FeatureTable":
        """The table of all parts; their unreadable images are warned of. Raises UserError where no image is left."""
        parts = list(parts)
        bad = tell_of_unreadable([name for batch in parts for name in batch.bad])
        x = np.concatenate([batch.x for batch in parts])
        if not len(x):
            raise UserError(f"no image of {parts[0].images.name} can be read")
        return cls([name for batch in parts for name in batch.names], x, bad)

    def __len__(self) -> int:
        return len(self.ids)

    def __array__(self, dtype: Any = None, copy: bool | None = None) -> np.ndarray:
        return np.array(self.x, dtype, copy=bool(copy)) if copy else np.asarray(self.x, dtype)


def tell_of_unreadable(names: Sequence[str]) -> tuple[str, ...]:
    """Warn of images that are left out, if there are any, and return their paths."""
    if names:
        say.warning(f"{counted(len(names), 'image')} cannot be read and left out: {and_more(names)}")
    return tuple(names)


def name_of(images: Images, row: int) -> str:
    """The path of an image, or its number where it is in no file."""
    several = f"{images.split}/" if len(images.splits) > 1 else ""
    return images.path(row) if hasattr(images, "path") else f"{several}{row}"


def open_all(
    model: nn.Module,
    source: Any,
    split: str | None = None,
    reading: ReadOptions = AS_READ,
    files: FileOptions = OF_FILES,
    cache: str | Path | None = CACHE,
) -> list[Images]:
    """The images of a source as the squares of a `Model`: of one split, or of all.

    source: of `sslkit.open_images`, or the path of an image.
    Raises UserError for what cannot be opened, and for videos.
    """
    if isinstance(source, Images):
        return [model.clean(source)]
    source = as_source(_as_list(source))
    names = [split] if split else splits(source, cache, reading.columns)
    options = {**vars(reading), **vars(files), "on_error": "skip", "cache": cache}
    return [model.clean(open_images(source, split=name, **options)) for name in names]


def _as_list(source: Any) -> Any:
    """One image file as a list of one."""
    if isinstance(source, (str, Path)) and (path := Path(source).expanduser()).is_file() and not is_files(str(source)):
        return [path] if path.suffix.lower() in Image.registered_extensions() else source
    return source


def run_all(
    call: Callable[[Tensor], Tensor], model: nn.Module, opened: Sequence[Images], runtime: Runtime
) -> Iterator[Rows]:
    """Yield what `call` makes of the pixels (n, C, S, S) of every image, on the device of a `Model`."""
    device = model.device
    size = runtime.batch_size or usual_batch(model.image_size, device)
    with freed_memory_kept():
        for images in opened:
            label = f"{model.name} on {images.name} {images.split}"
            for rows, batch in read_batches(images, in_order(range(len(images)), size), label, runtime, device):
                x = apply(call, model.name, batch["images"].to(device, non_blocking=True), runtime.precision)
                read = batch["index"].numpy() == rows  # an unreadable image is replaced by its neighbour
                yield Rows(images, np.array(rows)[read], x[read], batch["bad"])


def run_whole(
    call: Callable[[Tensor], Any], model: nn.Module, opened: Sequence[Images], runtime: Runtime
) -> Iterator[Rows]:
    """Yield what `call` makes of each picture (3, H, W) uint8 of its own size, upright, one after the other."""
    for images in opened:
        label = f"{model.name} on {images.name} {images.split}"
        parts = in_order(range(len(images)), 1)
        for rows, batch in read_batches(WholeImages(images), parts, label, runtime, model.device):
            read = batch["index"].numpy() == rows
            pictures = [picture for picture, is_read in zip(batch["images"], read, strict=True) if is_read]
            answers = [answer(call, model.name, picture.to(model.device), runtime.precision) for picture in pictures]
            yield Rows(images, np.array(rows)[read], answers, batch["bad"])


def usual_batch(image_size: int, device: torch.device) -> int:
    """Images of a batch: on a CPU 16 to 32 of 224 pixels are fastest."""
    return MOST if device.type != "cpu" else min(max(CACHED_PIXELS // image_size**2, 8), MOST)


def read_batches(
    images: Images, parts: Sequence[list[int]], label: str, runtime: Runtime, device: torch.device, readers: int = 1
) -> Iterator[tuple[list[int], dict[str, Any]]]:
    """Yield the rows and the batch of each part, with a progress bar on a terminal.

    label: of the bar. readers: ranks that read at the same time.
    """
    from tqdm import tqdm

    hidden = None if runtime.progress else True  # None: only on a terminal
    reading = {"workers": runtime.workers, "readers": readers, "device": device.type}
    total = sum(map(len, parts))
    with tqdm(total=total, desc=printable(label, keep=""), unit=" images", leave=False, disable=hidden) as bar:
        for rows, batch in batches_of_parts(images, parts, **reading):
            yield rows, batch
            bar.update(len(rows))


def apply(call: Callable[[Tensor], Tensor], name: str, pixels: Tensor, precision: str) -> np.ndarray:
    """What a network makes of a batch, (n, K) float32; see `answer`."""
    return answer(lambda batch: call(batch).float().cpu().numpy(), name, pixels, precision)


@torch.inference_mode()
def answer(call: Callable[[Tensor], Any], name: str, pixels: Tensor, precision: str) -> Any:
    """What `call` makes of a batch, or of a picture (C, H, W). name: of the model.

    Raises UserError for images that it cannot take.
    """
    try:
        with autocast(precision, pixels.device):
            return call(pixels)
    except torch.OutOfMemoryError as error:
        if pixels.dim() == 3:
            raise UserError(f"an image of {pixels.shape[2]} x {pixels.shape[1]} does not fit in GPU memory") from error
        raise UserError(f"{len(pixels)} images do not fit in GPU memory: give a smaller batch_size") from error
    except UserError:
        raise
    except (RuntimeError, ValueError, TypeError, AssertionError, LookupError) as error:  # wrong images
        reason = " ".join(str(error).split()) or type(error).__name__
        raise UserError(f"{name} cannot take images of shape {tuple(pixels.shape)}: {reason}") from error
