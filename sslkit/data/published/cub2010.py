"""Caltech-UCSD Birds 200, the first edition (Welinder et al. 2010): 6033 images. The larger one of 2011 is `cub2011`.

Classes have few images: few-shot episodes need shot + query of each. "all" is both parts together.
"""

from pathlib import Path

import numpy as np

from sslkit.data.published.base import Entry, Listing

_PARTS = {"train": ("train",), "test": ("test",), "all": ("train", "test")}


def list_split(root: Path, split: str) -> Listing:
    lists = {official: (root / "lists" / f"{official}.txt").read_text().split() for official in ("train", "test")}
    classes = sorted({path.partition("/")[0] for paths in lists.values() for path in paths})
    number = {name: label for label, name in enumerate(classes)}
    paths = sorted(path for official in _PARTS[split] for path in lists[official])
    y = np.array([number[path.partition("/")[0]] for path in paths], dtype=np.int64)
    return Listing(y, classes, root, [f"images/{path}" for path in paths])


ENTRY = Entry(
    title="CUB-200-2010",
    read=list_split,
    metric="top1",
    classes=200,
    counts={"train": 3000, "test": 3033, "all": 6033},
    licence="images of Flickr; for non-commercial research and education only",
    folders=("CUB_200_2010", "cub2010"),
    files={"": ("images", "lists/train.txt", "lists/test.txt")},
    origin=(
        "https://www.vision.caltech.edu/datasets/ (Caltech-UCSD Birds 200, 2010: images.tgz and lists.tgz, both "
        "unpacked into CUB_200_2010/; it is not CUB_200_2011.tgz, which is the set cub2011)"
    ),
)
