"""PASCAL VOC 2007 classification (Everingham et al. 2010): 20 classes, several an image.

Labels: 1 present, -1 absent, 0 only objects marked difficult: the latter count neither in fitting nor in AP.
"""

from pathlib import Path

import numpy as np

from sslkit.data.published.base import Entry, Listing
from sslkit.errors import UserError
from sslkit.files.reading import regular

CLASSES = ["aeroplane", "bicycle", "bird", "boat", "bottle", "bus", "car", "cat", "chair", "cow"]
CLASSES += ["diningtable", "dog", "horse", "motorbike", "person", "pottedplant", "sheep", "sofa", "train", "tvmonitor"]
_COUNTS = {"train": 2501, "val": 2510, "trainval": 5011, "test": 4952}


def list_split(root: Path, split: str) -> Listing:
    lists = root / "ImageSets" / "Main"
    names = (lists / f"{split}.txt").read_text().split()
    y = np.stack([_column(lists / f"{name}_{split}.txt", names) for name in CLASSES], axis=1)
    return Listing(y, CLASSES, root, [f"JPEGImages/{name}.jpg" for name in names])


def _column(path: Path, names: list[str]) -> np.ndarray:
    """Read one class's labels (N,) int8 from lines with an image name and 1, 0 or -1."""
    words = regular(path).read_text().split()
    marks = dict(zip(words[::2], words[1::2], strict=True))
    lacking = [name for name in names if marks.get(name) not in ("1", "0", "-1")]
    if lacking:
        raise UserError(f"{path} must give 1, 0 or -1 for each image of its split; it does not for {lacking[0]}")
    return np.array([marks[name] for name in names], dtype=np.int8)


ENTRY = Entry(
    title="VOC 2007 classification",
    read=list_split,
    metric="map11",
    classes=20,
    counts=_COUNTS,
    train="trainval",
    licence="images of Flickr, under its terms of use",
    folders=("VOCdevkit/VOC2007", "VOC2007"),
    files={
        "": ("JPEGImages",),
        **{split: (f"ImageSets/Main/{split}.txt", f"ImageSets/Main/aeroplane_{split}.txt") for split in _COUNTS},
    },
    origin=(
        "https://thor.robots.ox.ac.uk/pascal/VOC/voc2007/ (VOCtrainval_06-Nov-2007.tar and VOCtest_06-Nov-2007.tar, "
        "unpacked one over the other)"
    ),
    torchvision="VOCDetection",
    fetch=("year='2007', image_set='trainval'", "year='2007', image_set='test'"),
)
