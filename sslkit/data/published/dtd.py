"""Describable Textures (Cimpoi et al. 2014): 47 classes, ten official partitions.

"train", "val", "trainval" and "test" belong to partition 1; "train7" and the like to another partition.
"""

from pathlib import Path

import numpy as np

from sslkit.data.published._listed import counts_by_number, split_number, subfolders
from sslkit.data.published.base import Entry, Listing

_KINDS = {"train": ("train",), "val": ("val",), "trainval": ("train", "val"), "test": ("test",)}
_COUNTS = counts_by_number({"train": 1880, "val": 1880, "trainval": 3760, "test": 1880}, 10)


def list_split(root: Path, split: str) -> Listing:
    kind, partition = split_number(split)
    lines = [
        line for official in _KINDS[kind] for line in (root / f"labels/{official}{partition}.txt").read_text().split()
    ]
    classes = subfolders(root / "images")
    y = np.array([classes.index(line.partition("/")[0]) for line in lines], dtype=np.int64)
    return Listing(y, classes, root, [f"images/{line}" for line in lines], note=f"partition {partition} of 10")


ENTRY = Entry(
    title="DTD",
    read=list_split,
    metric="top1",
    classes=47,
    counts=_COUNTS,
    train="trainval",
    licence="images from the web, for research only",
    folders=("dtd/dtd", "dtd"),
    files={
        "": ("images",),
        **{
            split: tuple(
                f"labels/{official}{split_number(split)[1]}.txt" for official in _KINDS[split_number(split)[0]]
            )
            for split in _COUNTS
        },
    },
    origin="https://www.robots.ox.ac.uk/~vgg/data/dtd/ (dtd-r1.0.1.tar.gz)",
    torchvision="DTD",
    fetch=("",),
)
