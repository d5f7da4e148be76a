"""1 % of ImageNet-1k's labels, as in SimCLR (Chen et al. 2020): 12 or 13 images of each class; "test" is all of val/.

The list is SimCLR's own, 1percent.txt, if it is beside train/ (or in imagenet_subsets/ there). Otherwise
`evaluation.subsets.label_subset` draws another list by the same rule, with seed 0. The note names the list.
"""

import dataclasses
from functools import partial
from pathlib import Path

import numpy as np

from sslkit.data.published import imagenet
from sslkit.data.published.base import Listing
from sslkit.data.subsets import label_subset, list_digest
from sslkit.errors import UserError

_PLACES = ("", "imagenet_subsets")
ORIGIN = "https://github.com/google-research/simclr (imagenet_subsets/), not needed: a list is drawn without it"


def list_split(fraction: float, file: str, root: Path, split: str) -> Listing:
    if split != "train":
        return imagenet.list_split(root, split)
    names = next((root / folder / file for folder in _PLACES if (root / folder / file).is_file()), None)
    listing = imagenet.list_split(root, split)
    if names is None:
        rows = label_subset(listing.y, listing.paths, listing.classes, fraction)
        return _add_note(listing.take(rows), "drawn with seed 0, not SimCLR's list")
    wanted = set(names.read_text().split())
    rows = [row for row, path in enumerate(listing.paths) if path.rpartition("/")[2] in wanted]
    if len(rows) < len(wanted):
        raise UserError(
            f"{names.absolute()} lists {len(wanted)} images, {len(wanted) - len(rows)} of which are not in {root}"
        )
    return _add_note(listing.take(np.array(rows)), f"SimCLR's {file}")


def _add_note(listing: Listing, which: str) -> Listing:
    names = [path.rpartition("/")[2] for path in listing.paths]
    return dataclasses.replace(listing, note=f"labels {which}, list {list_digest(names)[:12]}")


ENTRY = dataclasses.replace(
    imagenet.ENTRY,
    title="ImageNet-1k, 1 % of the labels",
    read=partial(list_split, 0.01, "1percent.txt"),
    counts={"train": 12811, "test": 50000},
    origin=f"{imagenet.ENTRY.origin}; 1percent.txt: {ORIGIN}",
)
