"""FC100 (Oreshkin et al. 2018, TADAM, arXiv 1805.10123): CIFAR-100 for few-shot episodes, 600 images a class.

The images of CIFAR-100's training and test parts together. Its 20 superclasses are split 12/4/4 into "train", "val"
and "test", each with classes of its own, so that test classes are far from training classes. The superclasses follow
the authors' code (ElementAI/TADAM, as quoted in public scripts: val 8, 11, 13, 16 and test 0, 7, 12, 14).
"""

from pathlib import Path

import numpy as np

from sslkit.data.published import _plain_pickle, cifar100
from sslkit.data.published.base import Entry, Listing

_FOLDER = "cifar-100-python"
_BOTH = ("train", "test")
_SUPERCLASSES = {
    "val": {"large_carnivores", "large_omnivores_and_herbivores", "non-insect_invertebrates", "small_mammals"},
    "test": {"aquatic_mammals", "insects", "medium_mammals", "people"},
}


def list_split(root: Path, split: str) -> Listing:
    parts = [cifar100.ENTRY.read(root, name) for name in _BOTH]  # torchvision has then checked the files' md5
    coarse = np.concatenate([_unpickle(root, official)["coarse_labels"] for official in _BOTH])
    names = np.array(_unpickle(root, "meta")["coarse_label_names"])[coarse]
    pixels, y = (np.concatenate([getattr(listing, field) for listing in parts]) for field in ("pixels", "y"))
    held_back = _SUPERCLASSES["val"] | _SUPERCLASSES["test"]
    rows = ~np.isin(names, list(held_back)) if split == "train" else np.isin(names, list(_SUPERCLASSES[split]))
    return Listing(y, parts[0].classes, root, pixels=pixels).only(y[rows])


def _unpickle(root: Path, file: str) -> dict:
    return _plain_pickle.load_plain(root / _FOLDER / file)


ENTRY = Entry(
    title="FC100",
    read=list_split,
    metric="top1",
    classes=20,
    class_counts={"train": 60},
    counts={"train": 36000, "val": 12000, "test": 12000},
    licence=cifar100.ENTRY.licence,
    files=cifar100.ENTRY.files,
    origin=f"it is made of CIFAR-100, {cifar100.ENTRY.origin}",
    torchvision="CIFAR100",
    fetch=("",),
    note="32 x 32 pixels, enlarged to what the network takes; classes of each split are its own",
)
