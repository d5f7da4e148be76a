"""PASCAL VOC detection (Everingham et al. 2010, 2015): 20 categories.

voc07: train is trainval 2007, 5,011 images; test is test 2007, 4,952.
voc0712: train is trainval 2007 and trainval 2012, 16,551 images, as in MoCo's and later papers' "07+12"; same test.
voc0712_paper: train is trainval 2007 and train 2012, 10,728 images, as in the DSA paper's text; same test.

The files count pixels from 1 and include both ends; boxes are converted to half open from 0: xmin and ymin minus 1.
"""

import re
import xml.etree.ElementTree as ElementTree
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from evaluation.tasks.detection.datasets.boxes import Boxes, Instances
from evaluation.tasks.detection.datasets.disk_images import DiskImages
from evaluation.tasks.detection.datasets.plausible import check_plausible
from evaluation.tasks.detection.datasets.published import Published
from sslkit.data.images import check_split
from sslkit.data.path_list import PathList
from sslkit.data.published.voc07 import CLASSES
from sslkit.errors import UserError
from sslkit.files.reading import is_there

_LISTS = {("2007", "trainval"): 5011, ("2007", "test"): 4952, ("2012", "trainval"): 11540, ("2012", "train"): 5717}
_TEST = (("2007", "test"),)
SETS = {
    "voc07": {"train": (("2007", "trainval"),), "test": _TEST},
    "voc0712": {"train": (("2007", "trainval"), ("2012", "trainval")), "test": _TEST},
    "voc0712_paper": {"train": (("2007", "trainval"), ("2012", "train")), "test": _TEST},
}
_TITLES = {"voc07": "VOC 2007 detection", "voc0712": "VOC 2007 + 2012 detection"}
_TITLES["voc0712_paper"] = "VOC 2007 + 2012 detection (trainval 2007, train 2012)"
_ORIGIN = (
    "https://thor.robots.ox.ac.uk/pascal/VOC/ (voc2007/VOCtrainval_06-Nov-2007.tar, voc2007/VOCtest_06-Nov-2007.tar, "
    "voc2012/VOCtrainval_11-May-2012.tar, unpacked one over the other)"
)
_PLACES = ("VOCdevkit", ".")
NAME = re.compile(r"[0-9]{6}|[0-9]{4}_[0-9]{6}")  # image names of 2007, of later years


@dataclass(frozen=True)
class _Image:
    """The annotations of one image: boxes xyxy half open from 0, labels from 1."""

    id: str
    size: tuple[int, int]
    boxes: list[tuple[float, float, float, float]]
    labels: list[int]
    difficult: list[bool]


def open_voc(name: str, split: str, root: Path, counts: str, empty: str) -> Boxes:
    """Open a split of voc07, voc0712 or voc0712_paper below `root`: root/VOCdevkit/VOC2007, ... or root/VOC2007.

    split: "train" (alias "trainval") or "test". Difficult objects stay in both.
    counts: reaction to a number of images other than the published one: "raise" or "warn". empty: see `open_boxes`.
    Raises UserError for an unknown split, for missing files (all are named) and for invalid annotation files.
    """
    split = {"trainval": "train"}.get(split, split)
    check_split(name, split, tuple(SETS[name]))
    lists = SETS[name][split]
    published = Published(name, _TITLES[name], _ORIGIN, _fetch(lists, root))
    wanted = [file for year, image_set in lists for file in _files(year, image_set)]
    folder = published.folder(root, _PLACES, wanted, split)
    files = {year: folder / _list_file(year, image_set) for year, image_set in lists}
    listed = [f"VOC{year}/{image}" for year, file in files.items() for image in _image_names(file)]
    note = published.check_count(len(listed), sum(_LISTS[key] for key in lists), split, counts, list(files.values()))
    images = list(_read_images(folder, listed, name))
    instances = Instances.from_counts(
        [len(image.labels) for image in images],
        [box for image in images for box in image.boxes],
        [label for image in images for label in image.labels],
        difficult=[flag for image in images for flag in image.difficult],
    )
    sizes = np.array([image.size for image in images], np.int64).reshape(-1, 2)
    pixels = DiskImages(folder, PathList([_place(image, "JPEGImages", "jpg") for image in listed]), sizes)
    pixels.check_presence(name)
    opened = Boxes(
        name=name,
        split=split,
        classes=tuple(CLASSES),
        ids=listed,
        image_ids=np.array([_number(image) for image in listed]),
        sizes=sizes,
        instances=instances,
        pixels=pixels,
        category_ids=tuple(range(1, len(CLASSES) + 1)),
        voc_form="11point",
        whole=not note,
        note=note,
        licence="images of Flickr, under its terms of use",
    )
    check_plausible(opened, refuse=False)
    return opened.to_learn_from(empty) if split == "train" else opened


def _files(year: str, image_set: str) -> tuple[str, ...]:
    below = f"VOC{year}"
    return f"{below}/JPEGImages", f"{below}/Annotations", _list_file(year, image_set)


def _list_file(year: str, image_set: str) -> str:
    return f"VOC{year}/ImageSets/Main/{image_set}.txt"


def _fetch(lists: tuple[tuple[str, str], ...], root: Path) -> str:
    calls = "; ".join(
        f"VOCDetection({str(root)!r}, year='{year}', image_set='{image_set}', download=True)"
        for year, image_set in lists
    )
    return f'python -c "from torchvision.datasets import VOCDetection; {calls}"'


def _image_names(file: Path) -> list[str]:
    """The image names in a list. Raises UserError for anything else in it."""
    names = file.read_text(encoding="utf-8", errors="replace").split()
    for name in names:
        if not NAME.fullmatch(name):
            raise UserError(f"{file} is not in VOC's list format: {name[:40]!r} is not an image name")
    return names


def _place(image: str, kind: str, ending: str) -> str:
    year, _, name = image.partition("/")
    return f"{year}/{kind}/{name}.{ending}"


def _number(image: str) -> int:
    """VOC2012/2008_000008 -> 2008000008, VOC2007/000008 -> 8."""
    return int(image.partition("/")[2].replace("_", ""))


def _read_images(folder: Path, listed: list[str], name: str) -> Iterator[_Image]:
    missing = [
        path for path in (_place(image, "Annotations", "xml") for image in listed) if not is_there(folder / path)
    ]
    if missing:
        raise UserError(
            f"{name}: {len(missing)} annotation files of images in ImageSets/Main are missing below {folder}, "
            f"the first is {missing[0]}"
        )
    for image in listed:
        path = folder / _place(image, "Annotations", "xml")
        try:
            yield _parse(image, ElementTree.parse(path).getroot())
        except (ElementTree.ParseError, LookupError, TypeError, ValueError) as error:
            raise UserError(f"{path} is not in VOC's annotation format: {type(error).__name__}: {error}") from error


def _parse(image: str, root: ElementTree.Element) -> _Image:
    size = (int(_text(root, "size/height")), int(_text(root, "size/width")))
    boxes, labels, difficult = [], [], []
    for thing in root.findall("object"):
        left, top, right, bottom = (float(_text(thing, f"bndbox/{side}")) for side in ("xmin", "ymin", "xmax", "ymax"))
        turn = [
            _text(attribute, "value")
            for attribute in thing.iter("attribute")
            if attribute.findtext("name") == "rotation"
        ]
        if thing.find("robndbox") is not None or any(float(value) % 360 for value in turn):
            raise ValueError("a rotated box, where boxes are upright: export the upright box around each object")
        boxes.append((left - 1, top - 1, right, bottom))
        labels.append(_label(_text(thing, "name")))
        difficult.append(thing.findtext("difficult", "0").strip() == "1")
    return _Image(image, size, boxes, labels, difficult)


def _label(name: str) -> int:
    if name not in CLASSES:
        raise ValueError(f"unknown category {name!r}; known: {', '.join(CLASSES)}")
    return CLASSES.index(name) + 1


def _text(element: ElementTree.Element, path: str) -> str:
    text = element.findtext(path)
    if text is None:
        raise ValueError(f"<{element.tag}> has no {path}")
    return text.strip()
