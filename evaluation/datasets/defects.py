"""Data of defects: normal images to learn from, and images that are judged, with masks of their defects where known.

- MVTec AD (Bergmann et al. 2019): OBJECT/train/good, OBJECT/test/KIND, OBJECT/ground_truth/KIND/NAME_mask.png
- VisA (Zou et al. 2022, arXiv 2207.14315): split_csv/1cls.csv with object, split, label, image, mask
- a folder good/ beside others: a fifth of good/ is held out, by name, and all others have a defect
"""

import csv
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np
from PIL import Image

from sslkit.data.held_out import held_out
from sslkit.data.sources.walk import IMAGES
from sslkit.errors import UserError
from sslkit.terminal.say import counted

GOOD, TABLE = "good", "split_csv/1cls.csv"
FORMS = "OBJECT/train/good and OBJECT/test/KIND (MVTec AD), split_csv/1cls.csv (VisA), or good/ beside bad/"
FEWEST = 2  # images of a kind, for an interval
Groups = Callable[[Sequence[Path]], np.ndarray | None]  # images -> (N,) those of one group are equal; None without


@dataclass(frozen=True)
class Defects:
    """One object. train: normal images. test: images, is_defect: (M,) bool. masks: of these, None for none.

    groups: (M,) int64, equal for test images that belong together, or None. has_masks: whether all images with a defect
    have a mask.
    """

    name: str
    train: Sequence[Path]
    test: Sequence[Path]
    is_defect: np.ndarray
    masks: Sequence[Path | None]
    groups: np.ndarray | None = None

    @property
    def has_masks(self) -> bool:
        return all(mask is not None for mask, bad in zip(self.masks, self.is_defect, strict=True) if bad)


def open_defects(source: str | Path, objects: Sequence[str], groups_of: Groups = lambda images: None) -> list[Defects]:
    """Return objects of a folder with checked images and masks: those that are named; where none is, all.

    groups_of: no group of it is parted where this holds images out. Raises UserError.
    """
    root = Path(source).expanduser()
    if not root.is_dir():
        raise UserError(f"anomaly: {root} is no folder; it reads {FORMS}")
    by_name = _find(root, groups_of)
    if unknown := [name for name in objects if name not in by_name]:
        raise UserError(f"anomaly: {root} has no object {unknown[0]!r}: it has {', '.join(by_name)}")
    chosen = [by_name[name] for name in (objects or by_name)]
    for data in chosen:
        _check(data)
    return [replace(data, groups=groups_of(data.test)) for data in chosen]


def read_mask(path: Path | None, size: tuple[int, int]) -> np.ndarray:
    """Return (h, w) bool of a mask, resized to (w, h) `size` by the nearest pixel; all False for none."""
    if path is None:
        return np.zeros(size[::-1], bool)
    with Image.open(path) as image:
        return np.asarray(image.convert("L").resize(size, Image.Resampling.NEAREST)) > 0


def _find(root: Path, groups_of: Groups) -> Mapping[str, Defects]:
    if (root / TABLE).is_file():
        return _of_table(root)
    if (root / "train" / GOOD).is_dir():
        return {root.name: _of_mvtec(root)}
    if (root / GOOD).is_dir():
        return {root.name: _of_folders(root, groups_of)}
    by_name = {
        folder.name: _of_mvtec(folder) for folder in sorted(root.iterdir()) if (folder / "train" / GOOD).is_dir()
    }
    if not by_name:
        raise UserError(f"anomaly: {root} has no normal image in a known place: it reads {FORMS}")
    return by_name


def _of_mvtec(root: Path) -> Defects:
    test = _images(root / "test")
    kinds = [path.relative_to(root / "test").parts[0] for path in test]
    masks = [_mask_of(root / "ground_truth", path, kind) for path, kind in zip(test, kinds, strict=True)]
    return Defects(root.name, _images(root / "train" / GOOD), test, np.array(kinds) != GOOD, masks)


def _mask_of(folder: Path, image: Path, kind: str) -> Path | None:
    if kind == GOOD or not folder.is_dir():
        return None
    names = (folder / kind / f"{image.stem}{ending}" for ending in ("_mask.png", ".png"))
    return next((path for path in names if path.is_file()), None)


def _of_folders(root: Path, groups_of: Groups) -> Defects:
    good, bad = _images(root / GOOD), [path for path in _images(root) if path.relative_to(root).parts[0] != GOOD]
    names = [str(path.relative_to(root)) for path in good]
    groups = groups_of(good) if good else None
    is_test = held_out(np.zeros(len(good), np.int64), names, groups=groups) if good else np.zeros(0, bool)
    test = [path for path, apart in zip(good, is_test, strict=True) if apart]
    train = [path for path, apart in zip(good, is_test, strict=True) if not apart]
    is_defect = np.repeat([False, True], [len(test), len(bad)])
    return Defects(root.name, train, [*test, *bad], is_defect, [None] * len(is_defect))


def _of_table(root: Path) -> dict[str, Defects]:
    with (root / TABLE).open(encoding="utf-8", newline="") as file:
        rows = list(csv.DictReader(file))
    needed = ("object", "split", "label", "image", "mask")
    if not rows or (missing := [name for name in needed if name not in rows[0]]):
        raise UserError(f"{root / TABLE} has no {'row' if not rows else f'column {missing[0]!r}'}: it has {needed}")
    by_name = {}
    for name in dict.fromkeys(row["object"] for row in rows):
        of_object = [row for row in rows if row["object"] == name]
        train = [root / row["image"] for row in of_object if row["split"] == "train" and row["label"] == "normal"]
        test = [row for row in of_object if row["split"] == "test"]
        masks = [root / row["mask"] if row["mask"] else None for row in test]
        is_defect = np.array([row["label"] != "normal" for row in test], bool)
        by_name[name] = Defects(name, train, [root / row["image"] for row in test], is_defect, masks)
    return by_name


def _images(folder: Path) -> list[Path]:
    return sorted(path for path in folder.rglob("*") if path.is_file() and IMAGES.has(path.parent, path.name))


def _check(data: Defects) -> None:
    """Raises UserError for too few images, missing files, and masks that are of another size than their image."""
    good, bad = int((~data.is_defect).sum()), int(data.is_defect.sum())
    judged = "among its test images"
    for count, what, where in (
        (len(data.train), "normal image", "to learn from"),
        (good, "normal image", judged),
        (bad, "defect", judged),
    ):
        if count < FEWEST:
            raise UserError(f"anomaly: {data.name} has {counted(count, what)} {where}: at least {FEWEST} are needed")
    masks = [mask for mask in data.masks if mask is not None]
    if gone := [path for path in (*data.train, *data.test, *masks) if not path.is_file()]:
        raise UserError(f"anomaly: {data.name}: {counted(len(gone), 'file')} missing, first {gone[0]}")
    for image, mask in zip(data.test, data.masks, strict=True):
        if mask is not None and (sizes := [_size(image), _size(mask)])[0] != sizes[1]:
            (w, h), (width, height) = sizes
            raise UserError(f"anomaly: {mask} is {width} x {height} pixels, and its image {w} x {h}: {image}")


def _size(path: Path) -> tuple[int, int]:
    try:
        with Image.open(path) as image:
            return image.size
    except OSError as error:
        raise UserError(f"anomaly: {path} cannot be read: {error}") from error
