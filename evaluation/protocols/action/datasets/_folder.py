"""A folder of films: a folder for each split, and in it one for each class."""

from pathlib import Path

from evaluation.protocols.action.datasets.base import SUFFIXES, Films, Listing, check_split, films_below, present
from sslkit.errors import UserError

FOLDER = "video"
PARTS = {"train": ("train",), "test": ("test", "val", "valid", "validation")}


def open_folder(root: Path, split: str) -> Films:
    """One split of FOLDER/train/CLASS/FILM and FOLDER/test/CLASS/FILM; the classes are those of train.

    Raises UserError for a folder that is not so, films outside of a class, and a class that only test has.
    """
    check_split(f"video:{root}", split)
    if not root.is_dir():
        raise UserError(f"there is no folder {root.absolute()}")
    classes = sorted({_class(_part(root, "train"), path) for path in films_below(_part(root, "train"))})
    folder = _part(root, split)
    paths = films_below(folder)
    names = [_class(folder, path) for path in paths]
    if not paths:
        raise UserError(f"there is no film in {folder.absolute()}: looked for {' '.join(SUFFIXES)}")
    if unknown := sorted(set(names) - set(classes)):
        raise UserError(f"{folder}: the classes {', '.join(unknown)} are not in train, so nothing learns them")
    if len(classes) < 2:
        raise UserError(f"{root}/train has {len(classes)} class folder, at least 2 are needed to tell apart")
    label = {name: number for number, name in enumerate(classes)}
    listing = Listing(folder, paths, paths, [label[name] for name in names], classes)
    return present(listing, name=root.resolve().name, split=split)


def _part(root: Path, split: str) -> Path:
    for name in PARTS[split]:
        if (root / name).is_dir():
            return root / name
    raise UserError(f"{root.absolute()} has no folder {' or '.join(PARTS[split])}: action needs train and test")


def _class(folder: Path, path: str) -> str:
    name, slash, _ = path.partition("/")
    if not slash:
        raise UserError(f"{folder / path} lies in no class folder: write {folder.name}/CLASS/{path}")
    return name
