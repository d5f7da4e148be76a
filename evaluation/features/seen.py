"""Tell whether a network saw some images, or other files, in its pretraining, by what its card says of them.

Cards of the weights that it began from (init=) count too, as far as they lie where the run found them.
"""

import os
import warnings
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

from evaluation.datasets import Split, find, find_published
from sslkit import objectives
from sslkit.data.columns import NO_COLUMNS, Columns
from sslkit.data.image_options import CACHE
from sslkit.data.images import Images
from sslkit.data.sources import torchvision_sets
from sslkit.data.sources.file_sources import is_files, list_files
from sslkit.data.sources.folder import FolderImages
from sslkit.data.sources.named import open_images
from sslkit.data.sources.walk import IMAGES, Kind
from sslkit.data.video import clips
from sslkit.errors import UserError
from sslkit.options.members import parse
from sslkit.zoo import weights
from sslkit.zoo.entry import WEIGHTS, ZooEntry

Card = Mapping[str, Any]

_ALL, _SOME = "these", "some of these"
_REDIVIDED = ("fc100",)  # published sets whose splits are drawn from all parts of another one
_WITH_TRAIN = ("trainval", "all", "base", "novel_val", "novel_test")  # splits that share images with train


@dataclass(frozen=True)
class Judged:
    """One split of a source that networks are judged on; of a part of an opened `Split` the whole that it is of.

    cache, columns: as of `open_images`.
    """

    data: Any
    split: str
    cache: str | Path | None = CACHE
    columns: Columns = NO_COLUMNS

    def __post_init__(self) -> None:
        if isinstance(self.data, Split) and self.data.source is not None:
            object.__setattr__(self, "split", self.data.split)
            object.__setattr__(self, "data", self.data.source)

    @cached_property
    def set_name(self) -> str:
        """The name of a published set; "" for other sources."""
        entry = find_published(self.data)
        return entry.name if entry else ""

    @cached_property
    def images(self) -> Images | None:
        """All images of the split, also those without a label; for one that is drawn, all that it is drawn from.

        None of a published set, and of one that is no set of images, such as videos.
        """
        if isinstance(self.data, Split):
            return self.data.images
        if self.set_name or str(self.data).startswith(clips.PREFIX):
            return None
        for split in (self.split, "train"):
            try:
                return open_images(self.data, split=split, cache=self.cache, columns=self.columns)
            except UserError:  # no such split
                continue
        return None


def seen(card: Card, judged: Judged) -> str:
    """Return a note on images that were among the training images of a network; "" where that is not known.

    They are the same if the names and contents of all files, or all pixels, are; if a published set is known by its
    name; and if files lie in the folders that the network learned from. card: of the network's entry.
    """
    return _note(card, lambda its: _share_of_images(its, judged), "images")


def seen_files(card: Card, root: Path, paths: Sequence[str], kind: Kind, unit: str, content: Callable[[], str]) -> str:
    """Return a note as of `seen` on all files of a split, below `root`. unit: what they are. content: their digest."""

    def share(card: Card) -> str:
        record = card.get("data", {})
        if record.get("content") and len(paths) == record.get("images") and content() == record["content"]:
            return _ALL
        return _share_of_files(card, (str(root), NO_COLUMNS), root, paths, kind)

    return _note(card, share, unit)


def _note(card: Card, share: Callable[[Mapping[str, Any]], str], unit: str) -> str:
    """The note of the first card in the chain of a network that knows some. share: of a card."""
    for source, its_card in _chain(card):
        if number := share(its_card):
            who, its = (f"the weights that it began from, {source},", "their") if source else ("the network", "its")
            return f"{who} saw {number} {unit} in {its} pretraining, {_labels(its_card)} their labels"
    return ""


def _chain(card: Card) -> Iterator[tuple[str, Card]]:
    """The cards of a network and of the weights that it began from, with the place of these, "" for the first."""
    source, digests = "", set()
    while True:
        yield source, card
        begun = card.get("init", {})
        source, digest = str(begun.get("source", "")), begun.get("sha256")
        try:
            entry = ZooEntry.load(Path(source).expanduser()) if source else None
            if entry is None or digest in digests or weights.sha256(entry.folder / WEIGHTS) != digest:
                return
        except UserError:  # other weights than an entry's, or it has gone
            return
        digests.add(digest)
        card = entry.card


def columns_of(card: Card) -> Columns:
    """The columns by which the run read its images."""
    return Columns(**card.get("config", {}).get("columns", {}))


def _share_of_images(card: Card, judged: Judged) -> str:
    """How many of the judged images a network saw: "these", "some of these", "3 of these 7", or ""."""
    record = card.get("data", {})
    if judged.set_name:
        return _share_of_published(record, judged.set_name, judged.split)
    if not record.get("content") or (images := judged.images) is None:
        return ""
    if len(images) == record.get("images") and images.content_digest == record["content"]:
        return _ALL
    if not isinstance(images, FolderImages):
        return ""
    source = str(judged.data), judged.columns
    return _share_of_files(card, source, images.root, images.names().iter_bytes(), IMAGES)


def _share_of_published(known: Mapping[str, Any], name: str, split: str) -> str:
    entry = find(name)
    try:
        parsed = torchvision_sets.parse(str(known.get("source", "")))
    except UserError:
        return ""
    if parsed is None or parsed[0] != entry.torchvision:
        return ""
    if torchvision_sets.splits_of_torchvision(parsed[0]) == ("train",):
        return _ALL
    if name in _REDIVIDED:
        return _SOME
    split = entry.aliases.get(split, split)
    if entry.counts.get("train") != known.get("images"):
        return ""
    return _ALL if split == "train" else _SOME if split in _WITH_TRAIN else ""


def _share_of_files(
    card: Card, source: tuple[str, Columns], root: Path, paths: Iterator[bytes] | Sequence[str], kind: Kind
) -> str:
    """How many files below `root` are among those that a network learned from, if one lies in the folders of the other.

    source: that is judged, and its columns. "" for the network's own source, if it is divided in the same way: it did
    not learn from the other splits.
    """
    learned, base = clips.files_of(str(card.get("data", {}).get("source", ""))), os.path.realpath(root)
    columns = columns_of(card)
    folders, judged = (
        {os.path.realpath(Path(word.strip()).expanduser()) for word in text.split(",")}
        for text in (learned, clips.files_of(source[0]))
    )

    def may_hold(folder: str) -> bool:
        is_list = os.path.isfile(folder)  # of any files
        return is_list or (os.path.isdir(folder) and os.path.commonpath([base, folder]) in (base, folder))

    if not learned or (folders == judged and columns.split == source[1].split) or not any(map(may_hold, folders)):
        return ""
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            if not is_files(learned):
                return ""
            listing = list_files(learned, "train", kind, columns)
    except UserError:
        return ""
    start, files = os.path.realpath(listing.folder), {os.path.join(base, os.fsdecode(path)) for path in paths}
    number = len(files.intersection(os.path.join(start, path) for path in listing.paths))
    return _ALL if number == len(files) else f"{number:,} of these {len(files):,}" if number else ""


def _labels(card: Card) -> str:
    """ "with" for a method that learns from labels, "without" for others."""
    if "labels" in card:
        return "with" if card["labels"] else "without"
    try:
        return "with" if objectives.find(parse(card["method"])[0]).needs_labels else "without"
    except (UserError, KeyError):  # of another version, or of one's own code
        return "maybe with"
