"""ImageNet-100: 100 classes of ImageNet-1k, by a list on the user's disk.

The file is imagenet100.txt beside train/ and val/, with one WordNet id per line. Lists differ between papers, so its
hash is in the note. (Most common: Tian et al. 2019, Contrastive Multiview Coding: HobbitLong/CMC, imagenet100.txt.)
"""

import dataclasses
from pathlib import Path

from sslkit.data.published import imagenet
from sslkit.data.published.base import Listing
from sslkit.data.subsets import list_digest

_LIST = "imagenet100.txt"


def list_split(root: Path, split: str) -> Listing:
    classes = sorted({line.split()[0] for line in (root / _LIST).read_text().splitlines() if line.strip()})
    return imagenet.list_classes(root, split, classes, f"class list {list_digest(classes)[:12]}")


ENTRY = dataclasses.replace(
    imagenet.ENTRY,
    title="ImageNet-100",
    read=list_split,
    classes=100,
    counts={"train": None, "test": 5000},
    files={"": (_LIST,), **imagenet.ENTRY.files},
    origin=f"{imagenet.ENTRY.origin}; {_LIST} is in https://github.com/HobbitLong/CMC",
)
