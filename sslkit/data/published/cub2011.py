"""Caltech-UCSD Birds 200-2011 (Wah et al. 2011): 11 788 images. The smaller edition of 2010 is `cub2010`.

"train" and "test" are the official parts, all 200 classes in both; "all" both together. For few-shot episodes the
classes are split 100/50/50 by the rule of Chen et al. 2019 (A Closer Look at Few-shot Classification, their file
lists): class numbers, counted from 0, that are even are "base", 1 modulo 4 "novel_val", 3 modulo 4 "novel_test".
Each split has images of both official parts and classes of its own. Other papers use other lists: name the list when
you compare.
"""

from pathlib import Path

import numpy as np

from sslkit.data.published.base import Entry, Listing

_REMAINDERS = {"base": (0, 2), "novel_val": (1,), "novel_test": (3,)}


def list_split(root: Path, split: str) -> Listing:
    path, label = _table(root / "images.txt"), _table(root / "image_class_labels.txt")
    classes = list(_table(root / "classes.txt").values())
    training = _table(root / "train_test_split.txt")
    y = np.array([int(label[key]) - 1 for key in path], dtype=np.int64)
    listing = Listing(y, classes, root, [f"images/{name}" for name in path.values()])
    if split in _REMAINDERS:
        return listing.only(np.flatnonzero(np.isin(np.arange(len(classes)) % 4, _REMAINDERS[split])))
    train = np.array([training[key] == "1" for key in path])
    return listing.take({"train": train, "test": ~train, "all": train | ~train}[split])


def _table(path: Path) -> dict[str, str]:
    """Read a file with lines "NUMBER VALUE"."""
    return dict(line.split(maxsplit=1) for line in path.read_text().splitlines() if line.strip())


ENTRY = Entry(
    title="CUB-200-2011",
    read=list_split,
    metric="top1",
    classes=200,
    class_counts={"base": 100, "novel_val": 50, "novel_test": 50},
    counts={"train": 5994, "test": 5794, "all": 11788, "base": 5885, "novel_val": 2950, "novel_test": 2953},
    licence="images of Flickr; for non-commercial research and education only",
    folders=("CUB_200_2011", "cub2011"),
    files={"": ("images", "images.txt", "classes.txt", "image_class_labels.txt", "train_test_split.txt")},
    origin="https://data.caltech.edu/records/65de6-vp158 (CUB_200_2011.tgz)",
)
