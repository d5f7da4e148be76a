"""A folder of images, walked recursively; class folders give the labels."""

import os
import warnings
from collections import Counter
from collections.abc import Collection, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np

from sslkit.data.columns import NO_COLUMNS, Columns, is_pattern
from sslkit.data.decode.opening import Picture, open_picture
from sslkit.data.decoded_images import DecodedImages
from sslkit.data.expected_contents import Expected
from sslkit.data.file_contents import FileContents
from sslkit.data.images import Identity, ImageOptions, check_split
from sslkit.data.path_list import PathList
from sslkit.data.sources.file_lists import (
    METADATA,
    compare_with_metadata,
    facts_of_metadata,
    metadata_of,
    parts_of_list,
    splits_of_list,
)
from sslkit.data.sources.listing import Facts, Listing, Part, by_names, class_folders, listing, part_of
from sslkit.data.sources.split_words import SPLIT_OF_WORD, resolve_split, split_of, usual
from sslkit.data.sources.walk import IMAGES, VIDEOS, Found, Kind, is_usual, kind_of, walk
from sslkit.errors import UserError
from sslkit.files.reading import regular
from sslkit.terminal import say

__all__ = ["FolderImages", "Listing", "list_folder", "open_folder", "splits_of_folder"]


class FolderImages(DecodedImages):
    """The images below `root`, in the order of their relative paths. expected: what a manifest says of their files."""

    def __init__(
        self,
        root: Path,
        paths: PathList,
        identity: Identity,
        options: ImageOptions,
        expected: Expected | None = None,
    ) -> None:
        self.root = root
        self._files = FileContents(root, paths, options.cache, expected)
        self._files.check_known()
        super().__init__(identity, options)

    def __len__(self) -> int:
        return len(self._files.paths)

    def path(self, row: int) -> str:
        return os.path.join(self.root, self._files.paths[row])

    @property
    def prefix(self) -> str:
        """The text before an image's name, to tell it from those of other splits: `train/`, or ""."""
        below = os.path.relpath(self.root, self.source) if isinstance(self.source, Path) else "."
        return "" if below == "." else f"{below}/".replace(os.sep, "/")

    def image_name(self, row: int) -> str:
        return self._files.paths[row].replace(os.sep, "/")

    def content(self, row: int) -> bytes:
        """The encoded image. Raises OSError."""
        return Path(regular(self.path(row))).read_bytes()

    def content_size(self, row: int) -> int:
        """Bytes of `content`. Raises OSError."""
        return os.stat(self.path(row)).st_size

    def stamps_digest(self) -> str:
        return self._files.stamps_digest()

    def file_contents(self) -> tuple[np.ndarray, np.ndarray]:
        """Bytes (N,) int64 of the files, and of each the first 16 bytes (N, 16) uint8 of its sha256."""
        return self._files.stamps()["bytes"], np.frombuffer(self._files.contents(), np.uint8).reshape(-1, 16)

    def _take(self, rows: np.ndarray) -> None:
        self._files = self._files.take(rows)

    def names(self) -> PathList:
        return self._files.paths

    def _open(self, row: int) -> Picture:
        return open_picture(self.path(row), self.opening)

    def _update_listing(self, digest: Any) -> None:
        self._files.update_listing(digest)

    def _update_digest(self, digest: Any) -> None:
        self._files.update_content(digest)


def splits_of_folder(root: Path, columns: Columns = NO_COLUMNS) -> tuple[str, ...]:
    if columns.split is None and columns.where is None:
        return tuple(split_folders(root))
    if _is_by_table(columns):
        return splits_of_list(_table(root, columns), columns)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # it is said when the images are opened
        return tuple(by_names(parts_of_folder(root, IMAGES, columns, ()), columns, name_of(root, root)))


def open_folder(root: Path, options: ImageOptions) -> FolderImages:
    """All images below `root`: files with an extension of `formats.EXTENSIONS`, and of no or an unknown one those that
    begin as an image does. Hidden files and folders are left out, links are followed; a warning counts, by kind, the
    files that are left out.

    Splits: with a sub-folder `train` or `training` and one of `test`, `testing`, `val`, `valid`, `validation`, `dev`,
    in any case, these are the splits and anything beside them is left out, with a warning. A single held-out folder is
    the split "test" ("val" works as well); two are "val" and "test". A `train` with no other folder and no image beside
    it is the source.
    Labels: if the folder (of each split) has images in at least two sub-folders and none beside them, the sub-folders
    are the classes, ordered by name, over all splits together. Names that differ between splits in letter case, blanks
    or the code of an accent alone are one class, with a warning. Another names folders that look like splits. Without
    such folders the labels are those of a metadata.csv or metadata.jsonl in the folder (of each split), or beside the
    folders of the splits, as of a Hugging Face `imagefolder`, with the columns of a list of files.
    Raises UserError when there is no image, or none that can be read.
    """
    listing = list_folder(root, options.split, IMAGES, options.columns)
    identity = listing.identity(root.resolve().name, root)
    return FolderImages(listing.folder, PathList(listing.paths), identity, options)


def list_folder(root: Path, split: str, kind: Kind, columns: Columns = NO_COLUMNS) -> Listing:
    """The files of one split below `root`, by the rules of `open_folder`.

    columns: those of a metadata.csv or metadata.jsonl in it, or patterns of the files' names.
    Raises UserError when there are none, or no such split.
    """
    if columns.split is not None or columns.where is not None:
        return listing(parts_of_folder(root, kind, columns), split, name_of(root, root), columns)
    folders = split_folders(root)
    wanted = resolve_split(split, folders)
    check_split(str(root), wanted, tuple(folders))
    return listing(parts_of_folder(root, kind, columns, (wanted,)), wanted, name_of(root, root), columns)


def parts_of_folder(
    root: Path, kind: Kind, columns: Columns = NO_COLUMNS, wanted: Collection[str] | None = None
) -> dict[str, Part]:
    """The files of every split of a folder, "train" first; those by a pattern of names are not divided yet.

    wanted: the splits that must have files, and of which it is said what is left out; None: all.
    """
    if _is_by_table(columns):
        return parts_of_list(_table(root, columns), None, kind, columns)
    folders = split_folders(root)
    if len(folders) > 1:
        _warn_of_beside(root, list(folders.values()))
    parts: dict[str, Part] = {}
    for name, folder in folders.items():
        train_classes = set(filter(None, parts["train"].classes or ())) if parts else ()
        is_asked = wanted is None or name in wanted
        parts[name] = _part(root, name, folder, kind, columns, train_classes, is_asked=is_asked)
    return parts


def _is_by_table(columns: Columns) -> bool:
    """Return whether the table beside the images says which are read, and as what split."""
    return columns.where is not None or (columns.split is not None and not is_pattern(columns.split))


def _table(folder: Path, columns: Columns) -> Path:
    """The metadata beside the images. Raises UserError if there is none, whose columns are given."""
    if table := metadata_of(folder):
        return table
    option, word = columns.needs_table[0]
    raise UserError(
        f"{option}={word}: there is no {' or '.join(METADATA)} in {folder}: name the table, data=some.csv, or give a "
        "pattern of the files' names, whose value is in parentheses: '^([a-z]+)_'"
    )


def split_folders(root: Path) -> dict[str, Path]:
    """The folder of each split, "train" first."""
    folders = {split: folder_of(root, split) for split in ("train", "val", "test")}
    there = {split: folder for split, folder in folders.items() if folder}
    if divided := usual(there):
        return divided
    train = there.get("train")
    return {"train": train if train and _is_alone(train) else root}


def name_of(root: Path, folder: Path) -> str:
    """A folder's name for messages: `photos`, or `photos/train` for one below the root."""
    below = os.path.relpath(folder, root)
    name = root.resolve().name or str(root)
    return name if below == "." else f"{name}/{below}"


def _part(
    root: Path, split: str, folder: Path, kind: Kind, columns: Columns, known: Collection[str], *, is_asked: bool
) -> Part:
    """The files of a split. known: classes of train.

    is_asked: raise UserError if there are none, and warn of what is left out.
    """
    where = name_of(root, folder)
    files = walk(folder, kind)
    if is_asked and not files.paths:
        raise UserError(_nothing(folder, files, kind))
    paths = sorted(files.paths)
    table = metadata_of(folder) or (_table(root, columns) if columns.of_tables else metadata_of(root))
    by_folder = class_folders(paths, known)
    facts = None
    if table is not None:
        below = os.path.relpath(folder, table.parent)
        named = paths if below == "." else [os.path.join(below, path) for path in paths]
        if columns.of_tables or not by_folder:
            facts = facts_of_metadata(table, named, columns)
        elif is_asked:
            compare_with_metadata(table, named, by_folder, split)
    if facts and (facts.classes or facts.several):
        split_files = Part(folder, paths, facts)
    else:
        split_files = part_of(folder, paths, where if is_asked else "", known=known)
        split_files = replace(split_files, facts=replace(facts or Facts(), classes=split_files.classes))
    if is_asked:
        files.left_out -= Counter([kind_of(table.name)] if facts else ())
        files.warn_of_others(where, kind)
        _warn_of_splits_inside(folder, files.folders, are_classes=split_files.classes is not None and not facts)
    return split_files


def folder_of(root: Path, split: str) -> Path | None:
    """The first sub-folder called like a split, in small letters, with a large first one, or in large ones."""
    words = (word for word, of_word in SPLIT_OF_WORD.items() if of_word == split)
    ways = (root / way for word in words for way in (word, word.capitalize(), word.upper()))
    return next((way for way in ways if way.is_dir()), None)


def _is_alone(folder: Path) -> bool:
    """Return True if the folder above has no other folder and no image in it, but for hidden ones."""
    with os.scandir(folder.parent) as entries:
        others = (
            entry
            for entry in entries
            if entry.name != folder.name and entry.name[0] != "." and not is_usual(entry.name)
        )
        return not any(entry.is_dir() or IMAGES.has("", entry.path) for entry in others)


def _warn_of_beside(root: Path, folders: Sequence[Path]) -> None:
    """Warn of what lies beside the folders of the splits, which nobody reads."""
    used = {folder.name for folder in folders}
    with os.scandir(root) as entries:
        others = sorted(
            f"{entry.name}/" if entry.is_dir() else entry.name
            for entry in entries
            if entry.name not in {*used, *METADATA} and entry.name[0] != "." and not is_usual(entry.name)
        )
    if others:
        named = " and ".join(f"{folder.name}/" for folder in folders)
        shown = ", ".join(others[:_SHOWN]) + (f" and {len(others) - _SHOWN} more" if len(others) > _SHOWN else "")
        say.warn(f"{name_of(root, root)}: {named} are its splits; left out beside them: {shown}", stacklevel=4)


def _warn_of_splits_inside(folder: Path, folders: Sequence[str], *, are_classes: bool) -> None:
    """Warn of sub-folders called like splits whose images are read together with others.

    folders: all below `folder`. are_classes: those right below are, of which `listing` warns.
    """
    inside: dict[str, dict[str, str]] = {}
    for path in folders:
        above, name = os.path.split(path)
        if split := split_of(name):
            inside.setdefault(above, {})[split] = name
    alone = inside.pop("", {})
    if alone and not are_classes:
        remark = f"{next(iter(alone.values()))}/ is read as any folder, since other folders or images lie beside it"
        say.warn(f"{folder}: {remark}", stacklevel=5)
    divided = {above: usual(splits) for above, splits in inside.items() if usual(splits)}
    if divided:
        above, splits = min(divided.items())
        names = " and ".join(f"{name}/" for name in splits.values())
        whole = f"data={folder / above}" if len(divided) == 1 else f"the folders {splits['train']}/ above the others"
        more = f" and in {len(divided) - 1} other folders" if len(divided) > 1 else ""
        remark = f"{names} in {above}/{more} are read together, held-out images too"
        say.warn(f"{folder}: {remark}; to tell them apart, give {whole}", stacklevel=5)


def _nothing(folder: Path, found: Found, kind: Kind) -> str:
    """The message of a folder without any file of the kind."""
    looked_for = " ".join(f".{extension}" for extension in kind.extensions[:_NAMED])
    more = f" and {len(kind.extensions) - _NAMED} more extensions" if len(kind.extensions) > _NAMED else ""
    by_content = ", and for any file that begins as an image does" if kind.by_content else ""
    such = f" ({found.others}), such as {found.one_of_them}" if found.left_out else ""
    source = _other_source(folder, found) if kind is IMAGES else ""
    number = found.left_out.total()
    there = f"there are {number:,} other files{such}{source}"
    return f"no {kind.name} in {folder} or below: looked for {looked_for}{more}{by_content}; {there}"


def _other_source(folder: Path, found: Found) -> str:
    """The end of a message: the sources that read these files, if there are any."""
    kinds = (
        ("videos", "video:", VIDEOS.extensions),
        ("their frames", "frames:", VIDEOS.extensions),
        ("images in tar files", "shards:", ("tar",)),
        ("a Hugging Face data set", "hf:", ("arrow", "parquet")),
    )
    return "".join(
        f"; for {kind}: data={source}{folder}"
        for kind, source, extensions in kinds
        if any(f".{extension}" in found.left_out for extension in extensions)
    )


_SHOWN = 3  # names of files and folders in a warning
_NAMED = 10  # extensions in a message
