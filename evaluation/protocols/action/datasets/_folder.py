"""A folder of videos: a folder for each split, and in it one for each class."""

from pathlib import Path

from evaluation.protocols.action.datasets.base import SUFFIXES, Films, Listing, check_split, films_below, present
from sslkit.data.sources.class_names import matched
from sslkit.data.sources.folder import folder_of
from sslkit.errors import UserError

FOLDER = "video"


def open_folder(root: Path, split: str) -> Films:
    """List one split of FOLDER/train/CLASS/FILE and FOLDER/test/CLASS/FILE; the classes are those of train.

    Splits are called, and classes compared, as in `sslkit.data.sources.folder.open_folder`.
    Raises UserError for another folder structure, videos outside a class folder, and test classes not in train.
    """
    check_split(f"video:{root}", split)
    if not root.is_dir():
        raise UserError(f"there is no folder {root.absolute()}")
    classes = sorted({_class(_part(root, "train"), path) for path in films_below(_part(root, "train"))})
    folder = _part(root, split)
    paths = films_below(folder)
    found = [_class(folder, path) for path in paths]
    of_name = matched({"train": classes, "test": found}, root.resolve().name)
    names = [of_name[name] for name in found]
    if not paths:
        raise UserError(f"there is no video in {folder.absolute()}: looked for {' '.join(SUFFIXES)}")
    if unknown := sorted(set(names) - set(classes)):
        raise UserError(f"{folder}: the classes {', '.join(unknown)} are not in train")
    if len(classes) < 2:
        raise UserError(f"{root}/train has {len(classes)} class folder; classification needs at least 2")
    label = {name: number for number, name in enumerate(classes)}
    listing = Listing(folder, paths, paths, [label[name] for name in names], classes)
    return present(listing, name=root.resolve().name, split=split)


def _part(root: Path, split: str) -> Path:
    found = folder_of(root, split) or (folder_of(root, "val") if split == "test" else None)
    if found is None:
        raise UserError(f"{root.absolute()} has no folder {split}{' or val' if split == 'test' else ''}")
    return found


def _class(folder: Path, path: str) -> str:
    name, slash, _ = path.partition("/")
    if not slash:
        raise UserError(f"{folder / path} is not in a class folder: move it to {folder.name}/CLASS/{path}")
    return name
