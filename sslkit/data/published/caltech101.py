"""Caltech-101 (Fei-Fei et al. 2004): 101 classes of objects, without the folder BACKGROUND_Google.

It has no official split. Here 30 images of each class are for training, the rest for testing, drawn by the hashes of
their names: "train" and "test" are draw 1, "train2" and "test2" draw 2, up to draw 5. (Published results use other
draws, some with repeated images or the background as a class, so they are only roughly comparable.)
"""

from pathlib import Path

import numpy as np

from sslkit.data.held_out import draw_keys, first_of_each
from sslkit.data.published._listed import counts_by_number, in_classes, split_number, subfolders
from sslkit.data.published.base import Entry, Listing

PER_CLASS = 30  # training images of each class, as published results have
_NO_CLASS = "BACKGROUND_Google"


def list_split(root: Path, split: str) -> Listing:
    kind, draw = split_number(split)
    classes = [name for name in subfolders(root) if name != _NO_CLASS]
    paths, y = in_classes(root, classes)
    chosen = drawn(paths, y, draw)
    listing = Listing(y, classes, root, paths, note=f"draw {draw} of {PER_CLASS} images a class")
    return listing.take(chosen if kind == "train" else ~chosen)


def drawn(paths: list[str], y: np.ndarray, seed: int) -> np.ndarray:
    """Return the training mask (N,) bool: PER_CLASS images of each class, drawn by the hashes of their names."""
    return first_of_each(y, draw_keys(paths, seed, "caltech101"), lambda n: PER_CLASS)


ENTRY = Entry(
    title="Caltech-101",
    read=list_split,
    metric="mean_per_class",
    classes=101,
    counts=counts_by_number({"train": 3030, "test": 5647}, 5),
    licence="CC BY 4.0 (CaltechDATA)",
    folders=("caltech101/101_ObjectCategories", "caltech-101/101_ObjectCategories", "101_ObjectCategories"),
    files={"": ("accordion", "yin_yang")},
    origin=(
        "https://data.caltech.edu/records/mzrjq-6wc02 (caltech-101.zip, in it 101_ObjectCategories.tar.gz with a "
        "folder for each class; downloads have broken repeatedly, see pytorch/vision issues 9097, 9192, 5716, 8204)"
    ),
    torchvision="Caltech101",
    fetch=("",),
)
