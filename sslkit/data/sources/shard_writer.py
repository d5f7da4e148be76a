"""Write a folder of images as shards: tar files in the form of WebDataset."""

import io
import os
import tarfile
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from sslkit.data.sources.folder import Listing, list_folder, splits_of_folder
from sslkit.data.sources.shard_options import Options
from sslkit.data.sources.walk import IMAGES
from sslkit.errors import UserError
from sslkit.files.leases import NAME, own_folder
from sslkit.files.reading import regular
from sslkit.files.writing import write_whole
from sslkit.options.calls import by_keywords

_BAR_FROM = 1000  # images


@dataclass(frozen=True)
class Written:
    """The shards of one split. images: their number in all of them."""

    split: str
    shards: list[Path]
    images: int


@by_keywords
def write_shards(source: str | Path, out: str | Path, *, options: Options) -> list[Written]:
    """Copy every image file below `source`, as it is, into OUT/SPLIT-NNNNNN.tar, in the order of a folder's rows.

    Splits and classes as of `folder.open_folder`. The sample of an image is its path without extension, with _ for
    the dots in its last part; with class folders the number of its class stands in a .cls beside it. A shard is closed
    at `megabytes` MB, and appears under its name once it is whole. Files that are no images are left out; damaged
    images are copied.
    Raises UserError for a source without images, for files in OUT, and if it cannot be written.
    """
    source, out = Path(source).expanduser(), Path(out).expanduser()
    if not source.is_dir():
        raise UserError(f"there is no folder {source}")
    listings = {split: list_folder(source, split, IMAGES) for split in splits_of_folder(source)}
    with own_folder(out, "writes shards to"):
        if any(entry.name != NAME for entry in out.iterdir()):
            raise UserError(f"{out} has files in it: give an empty or a new folder")
        return [
            _write(split, listing, out, options.megabytes * 10**6, options.progress)
            for split, listing in listings.items()
        ]


def _write(split: str, listing: Listing, out: Path, most: int, progress: bool) -> Written:
    from tqdm import tqdm

    shards: list[Path] = []
    count = len(listing.paths)
    bar = tqdm(total=count, desc=split, unit="image", disable=True if not progress or count < _BAR_FROM else None)
    samples = _samples(listing)
    with bar:
        sample = next(samples, None)
        while sample is not None:
            shards.append(out / f"{split}-{len(shards):06}.tar")
            with write_whole(shards[-1]) as partial, tarfile.open(partial, "w", format=tarfile.GNU_FORMAT) as tar:
                while sample is not None and (tar.offset == 0 or tar.offset < most):
                    _add(tar, listing, *sample)
                    bar.update()
                    sample = next(samples, None)
    return Written(split, shards, count)


def _samples(listing: Listing) -> Iterator[tuple[int, str]]:
    """(row, name of its sample) of every image. Two files that differ in their extension alone are told apart."""
    seen: set[str] = set()
    for row, path in enumerate(listing.paths):
        folder, last = os.path.split(os.path.splitext(path)[0])
        name = "/".join(filter(None, (folder.replace(os.sep, "/"), last.replace(".", "_"))))
        name = f"{name}-{row}" if name in seen else name
        seen.add(name)
        yield row, name


def _add(tar: tarfile.TarFile, listing: Listing, row: int, name: str) -> None:
    path = listing.folder / listing.paths[row]
    try:
        content = regular(path).read_bytes()
    except OSError as error:
        raise UserError(f"cannot read {path}: {error.strerror}; remove it, or put it back") from error
    _put(tar, f"{name}{path.suffix.lower()}", content)
    if listing.labels is not None:
        _put(tar, f"{name}.cls", str(int(listing.labels[row])).encode())


def _put(tar: tarfile.TarFile, name: str, content: bytes) -> None:
    """Without owner and time: the same images make the same bytes."""
    about = tarfile.TarInfo(name)
    about.size = len(content)
    tar.addfile(about, io.BytesIO(content))
