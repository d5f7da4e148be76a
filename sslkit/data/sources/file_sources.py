"""Files named in another way than by one folder: several folders, lists of files, patterns of paths, and mixtures.

- `A,B`: folders, lists and patterns together, as one set
- `FILE.txt`, `FILE.csv`, also with `:FOLDER` behind, which their paths are relative to: see `file_lists`
- `photos/**/*.jpg`: the files that a pattern matches
"""

import glob
import os
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path

from sslkit.data.columns import NO_COLUMNS, Columns
from sslkit.data.expected_contents import Expected
from sslkit.data.images import ImageOptions
from sslkit.data.manifest.head import Head
from sslkit.data.manifest.head_options import Settled, settle
from sslkit.data.path_list import PathList
from sslkit.data.sources.class_names import match_classes
from sslkit.data.sources.file_lists import head_of_list
from sslkit.data.sources.folder import FolderImages, list_folder
from sslkit.data.sources.listing import Listing, Part, join_parts, listing, part_of
from sslkit.data.sources.named_files import FileList, Folder, Named, check_no_table, find_folder_or_file, find_pattern
from sslkit.data.sources.split_words import split_of, usual
from sslkit.data.sources.walk import IMAGES, Kind, chosen
from sslkit.errors import UserError
from sslkit.terminal import say
from sslkit.terminal.say import counted

_SHOWN = 3  # names in that of a set
_SPLITS = ("train", "val", "test")


def is_files(text: str) -> bool:
    """Return whether a source is a folder or named in a way of this module. Raises UserError if a part is missing."""
    return bool(_items(text))


def is_several(text: str) -> bool:
    """Return whether a source is several folders, lists and patterns. Raises UserError if one of them is missing."""
    return len(_items(text)) > 1


def splits_of_files(text: str, columns: Columns) -> tuple[str, ...]:
    items = _items(text)
    splits = _by_word(items, columns) or {split for item in items for split in item.splits(columns)}
    return tuple(split for split in _SPLITS if split in splits)


def name_of_files(text: str) -> str:
    """A name for tables: those of the folders, lists and patterns, `a+b`."""
    names = list(dict.fromkeys(item.name for item in _items(text)))
    return "+".join(names[:_SHOWN]) + (f"+{len(names) - _SHOWN}" if len(names) > _SHOWN else "")


def open_files(text: str, options: ImageOptions) -> FolderImages:
    """Images of one split of what `text` names; an image's name is its path below the folder that all share."""
    listing = list_files(text, options.split, IMAGES, options.columns)
    lists = [item for item in _items(text) if isinstance(item, FileList)]
    heads = list(filter(None, (head_of_list(item.path, options.columns) for item in lists)))
    settled = _settle(text, options, heads)
    identity = replace(listing.identity(name_of_files(text), text), scale=settled.scale, mirror=settled.mirror)
    expected = None
    if listing.digests is not None:
        file = str(heads[0].file) if len(heads) == 1 else text
        expected = Expected.of_cells(listing.digests, file, heads[0].again())
    return FolderImages(listing.folder, PathList(listing.paths), identity, settled.options, expected)


def _settle(text: str, options: ImageOptions, heads: Sequence[Head]) -> Settled:
    """The options with what the head of a manifest decides, which counts for its own images alone."""
    if len(heads) == 1 == len(_items(text)):
        return settle(options, heads[0].file, heads[0].decisions)
    for head in heads:
        remark = "beside other images its head does not count: how all are read is decided anew"
        say.warn(f"{head.file}: {remark}", stacklevel=1)
    return Settled(options)


def open_file_list(paths: Sequence[str], options: ImageOptions) -> FolderImages:
    """Images of files (absolute paths), as those of a pattern; they cannot be opened again by a name."""
    folder = os.path.commonpath([os.path.dirname(path) for path in paths])
    chosen_files = chosen(Path(folder), [os.path.relpath(path, folder) for path in paths], IMAGES)
    if not chosen_files.paths:
        raise UserError(f"data is a list of {counted(len(paths), 'file')} and none is an image: {chosen_files.others}")
    chosen_files.warn_of_others("data", IMAGES)
    train = part_of(Path(folder), chosen_files.paths, "data")
    check_no_table(options.columns, "a list of files")
    split_files = listing({"train": train}, options.split, "data", options.columns)
    identity = split_files.identity(os.path.basename(folder) or "files", None)
    return FolderImages(split_files.folder, PathList(split_files.paths), identity, options)


def list_files(text: str, split: str, kind: Kind, columns: Columns = NO_COLUMNS) -> Listing:
    """The files of a kind in one split of what `text` names, which may be a single folder, too.

    Splits: those of each folder, list and pattern; or, if these are called train and test (or val) themselves, they are
    the splits. Classes are compared by name over all of them; files of a folder without classes have no label, with a
    warning, if another has some.
    Raises UserError for what is missing, and for a file that is named twice.
    """
    items, name = _items(text), name_of_files(text)
    if isinstance(items[0], Folder) and len(items) == 1:
        return list_folder(items[0].path, split, kind, columns)
    parts = items[0].parts(kind, columns) if len(items) == 1 else _together(items, name, kind, columns)
    return listing(parts, split, name, columns)


def _items(text: str) -> list[Named]:
    """The parts that a source names; [] for another kind of source."""
    if source := find_folder_or_file(text):
        return [source]
    words = [word.strip() for word in text.split(",") if word.strip()]
    sources = [find_folder_or_file(word) or find_pattern(word) for word in words]
    if len(words) > 1 and all(sources):
        return sources
    if len(words) > 1 and any(sources) and not glob.has_magic(text):
        missing = words[sources.index(None)]
        raise UserError(f"data={text} names {missing!r}, and there is no such folder or list of files")
    whole = find_pattern(text)
    return [whole] if whole else []


def _by_word(items: Sequence[Named], columns: Columns) -> dict[str, list[Named]]:
    """The folders and lists of each split, if all are called like splits; {} otherwise, and if columns give splits."""
    if columns.split is not None:
        return {}
    of_split: dict[str, list[Named]] = {}
    for item in items:
        of_split.setdefault(split_of(item.word) or "", []).append(item)
    return {} if "" in of_split else usual(of_split)


def _together(items: Sequence[Named], name: str, kind: Kind, columns: Columns) -> dict[str, Part]:
    """The splits of all items. name: of these, for messages."""
    if of_split := _by_word(items, columns):
        by_split = {
            split: [files for source in some for files in source.parts(kind, columns).values()]
            for split, some in of_split.items()
        }
    else:
        each = [item.parts(kind, columns) for item in items]
        by_split = {split: [parts[split] for parts in each if split in parts] for split in _SPLITS}
    parts = [files for some in by_split.values() for files in some]
    _warn_of_unlabelled(parts, kind)
    of_name = match_classes({str(k): filter(None, files.classes or ()) for k, files in enumerate(parts)}, name)
    joined = {split: _merge_parts(some, join_parts(parts).folder, of_name) for split, some in by_split.items() if some}
    _check_once(path for files in joined.values() for path in files.paths)
    return joined


def _merge_parts(parts: Sequence[Part], folder: Path, of_name: Mapping[str, str]) -> Part:
    """One part of several. folder: that all are below. of_name: the class of each name in all of them."""
    whole = join_parts([Part(folder, []), *parts])
    classes = list(map(of_name.get, whole.classes)) if of_name and whole.classes else None
    return replace(whole, facts=replace(whole.facts, classes=classes))


def _warn_of_unlabelled(parts: Sequence[Part], kind: Kind) -> None:
    without = [files for files in parts if files.classes is None and not files.facts.several]
    if 0 < len(without) < len(parts):
        number = counted(sum(len(files.paths) for files in without), kind.name.removesuffix("s"))
        folders = ", ".join(dict.fromkeys(str(files.folder) for files in without))
        say.warn(f"{folders}: no classes there, and so no labels ({number})", stacklevel=5)


def _check_once(paths: Iterable[str]) -> None:
    seen: set[str] = set()
    for path in paths:
        if path in seen:
            raise UserError(f"data= names {path} twice: give each folder once, and none that lies in another")
        seen.add(path)
