"""Write image files as shards: tar files in the form of WebDataset."""

import io
import json
import math
import os
import tarfile
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np

from sslkit.data.columns import NUMBER, Columns
from sslkit.data.sources.column_values import refuse_found_groups, refuse_instances
from sslkit.data.sources.file_sources import is_files, list_files, splits_of_files
from sslkit.data.sources.listing import Listing
from sslkit.data.sources.shard_options import Options
from sslkit.data.sources.walk import IMAGES
from sslkit.errors import UserError
from sslkit.files.leases import NAME, own_folder
from sslkit.files.reading import regular
from sslkit.files.writing import write_whole
from sslkit.options.calls import by_keywords

_BAR_FROM = 1000  # images
_LABEL, _GROUP = "label", "group"  # keys of the .json beside an image


@dataclass(frozen=True)
class Written:
    """The shards of one split. images: their number in all of them. columns: the words to read them by."""

    split: str
    shards: list[Path]
    images: int
    columns: Mapping[str, Any] = field(default_factory=dict)


@by_keywords
def write_shards(source: str | Path, out: str | Path, *, options: Options) -> list[Written]:
    """Copy every image file of `source`, as it is, into OUT/SPLIT-NNNNNN.tar, in the order of its rows.

    source: a folder, several, a list or a table of files, or a pattern, as of `open_images`; so are splits and classes.
    The sample of an image is its path without extension, with _ for the dots in its last part. With class folders the
    number of its class stands in a .cls beside it; labels of columns and groups stand in a .json, by their names, and
    several labels under the name of each class where some are not known. A shard is closed at `megabytes` MB, and
    appears under its name once it is whole. Files that are no images are left out; damaged images are copied.
    Raises UserError for a source without images, for files in OUT, and if it cannot be written.
    """
    text, out = os.fspath(source), Path(out).expanduser()
    if not is_files(text):
        raise UserError(f"there is no folder {text}, and no list of image files of this name")
    columns = options.columns
    refuse_found_groups(columns, "shards are copies of the files")
    refuse_instances(columns)
    listings = {split: list_files(text, split, IMAGES, columns) for split in splits_of_files(text, columns)}
    beside = _Beside.of(listings.values())
    with own_folder(out, "writes shards to"):
        if any(entry.name != NAME for entry in out.iterdir()):
            raise UserError(f"{out} has files in it: give an empty or a new folder")
        return [
            _write(split, listing, beside, out, options.megabytes * 10**6, options.progress)
            for split, listing in listings.items()
        ]


@dataclass(frozen=True)
class _Beside:
    """What stands beside the images of all splits. are_folders: the numbers of class folders, or nothing.

    apart: classes that have a key each: some labels are not known, or no image has one. groups, numbers: whether
    they are known.
    """

    are_folders: bool
    apart: list[str]
    groups: bool
    numbers: bool

    @classmethod
    def of(cls, listings: Iterable[Listing]) -> "_Beside":
        listings = list(listings)
        several = [listing.multi_labels for listing in listings if listing.multi_labels is not None]
        matrix = np.concatenate(several) if several else np.ones((1, 1), np.int8)
        partly = (matrix == 0).any(1) & (matrix != 0).any(1)
        exact = not partly.any() and (matrix == 1).any(0).all()
        groups = any(listing.groups is not None for listing in listings)
        numbers = any(listing.numbers is not None for listing in listings)
        are_folders = not several and not groups and not numbers and all(map(_by_folder, listings))
        return cls(are_folders, [] if exact else list(listings[0].classes or ()), groups, numbers)

    def columns(self) -> dict[str, Any]:
        """The words by which the shards are read."""
        about = {"label": _LABEL, "label_kind": NUMBER} if self.numbers else {"label": self.apart or None}
        return Columns(**about, group=_GROUP if self.groups else None).words

    def member(self, listing: Listing, row: int) -> tuple[str, bytes] | None:
        """Ending and content of the file beside an image."""
        if self.are_folders:
            return None if listing.labels is None else (".cls", str(int(listing.labels[row])).encode())
        facts: dict[str, Any] = {}
        if listing.labels is not None:
            facts[_LABEL] = listing.classes[listing.labels[row]] if listing.labels[row] >= 0 else None
        if listing.numbers is not None:
            number = float(listing.numbers[row])
            facts[_LABEL] = None if math.isnan(number) else number
        if listing.multi_labels is not None:
            cells = dict(zip(listing.classes, listing.multi_labels[row].tolist(), strict=True))
            present = [name for name, value in cells.items() if value == 1] if any(cells.values()) else None
            facts |= {name: {1: 1, -1: 0}.get(cells[name]) for name in self.apart} if self.apart else {_LABEL: present}
        if listing.groups is not None:
            facts[_GROUP] = str(int(listing.groups[row]))
        return ".json", json.dumps(facts).encode()


def _by_folder(listing: Listing) -> bool:
    """Return whether the class of each image is its first folder."""
    if listing.labels is None:
        return True
    tops = ((path.partition(os.sep), label) for path, label in zip(listing.paths, listing.labels.tolist(), strict=True))
    return all(label < 0 or (slash and listing.classes[label] == top) for (top, slash, _), label in tops)


def _write(split: str, listing: Listing, beside: _Beside, out: Path, most: int, progress: bool) -> Written:
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
                    _add(tar, listing, beside, *sample)
                    bar.update()
                    sample = next(samples, None)
    return Written(split, shards, count, beside.columns())


def _samples(listing: Listing) -> Iterator[tuple[int, str]]:
    """(row, name of its sample) of every image. Two files that differ in their extension alone are told apart."""
    seen: set[str] = set()
    for row, path in enumerate(listing.paths):
        folder, last = os.path.split(os.path.splitext(path)[0])
        name = "/".join(filter(None, (folder.replace(os.sep, "/"), last.replace(".", "_"))))
        name = f"{name}-{row}" if name in seen else name
        seen.add(name)
        yield row, name


def _add(tar: tarfile.TarFile, listing: Listing, beside: _Beside, row: int, name: str) -> None:
    path = listing.folder / listing.paths[row]
    try:
        content = regular(path).read_bytes()
    except OSError as error:
        raise UserError(f"cannot read {path}: {error.strerror}; remove it, or put it back") from error
    _put(tar, f"{name}{path.suffix.lower()}", content)
    if member := beside.member(listing, row):
        ending, content = member
        _put(tar, f"{name}{ending}", content)


def _put(tar: tarfile.TarFile, name: str, content: bytes) -> None:
    """Without owner and time: the same images make the same bytes."""
    about = tarfile.TarInfo(name)
    about.size = len(content)
    tar.addfile(about, io.BytesIO(content))
