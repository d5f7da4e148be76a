"""ImageNet-1k (Russakovsky et al. 2015): folders train/ and val/ with a folder for each WordNet id.

Papers test on the official validation set, so "test" is val/; "val" is another name of the same images.
"""

import re
from pathlib import Path

from sslkit.data.published._listed import in_classes, subfolders
from sslkit.data.published.base import Entry, Listing
from sslkit.errors import UserError

FOLDERS = {"train": "train", "test": "val"}


def list_split(root: Path, split: str) -> Listing:
    return list_classes(root, split, wnids(root, split))


def wnids(root: Path, split: str) -> list[str]:
    """Return the sorted WordNet ids of the class folders, from the training folder if it exists."""
    folder = root / FOLDERS["train"]
    folder = folder if folder.is_dir() else root / FOLDERS[split]
    ids = [name for name in subfolders(folder) if re.fullmatch(r"n\d{8}", name)]
    if not ids:
        raise UserError(
            f"{folder.absolute()} has no folders of WordNet ids (n01440764, ...); torchvision.datasets.ImageNet sorts "
            "the images of ILSVRC2012_img_val.tar into them with the file ILSVRC2012_devkit_t12.tar.gz"
        )
    return ids


def list_classes(root: Path, split: str, classes: list[str], note: str = "") -> Listing:
    """List the images of some classes. Raises FileNotFoundError for a class without a folder."""
    paths, y = in_classes(root, classes, FOLDERS[split])
    return Listing(y, classes, root, paths, note=note)


ENTRY = Entry(
    title="ImageNet-1k",
    read=list_split,
    metric="top1",
    classes=1000,
    counts={"train": 1281167, "test": 50000},
    aliases={"val": "test"},
    licence="for non-commercial research and education only, by agreement with its makers",
    folders=("imagenet", "ImageNet", "ILSVRC2012", "ILSVRC/Data/CLS-LOC"),
    files={"train": ("train",), "test": ("val",)},
    origin=(
        "https://image-net.org/download.php (ILSVRC2012_img_train.tar, ILSVRC2012_img_val.tar and "
        "ILSVRC2012_devkit_t12.tar.gz; torchvision.datasets.ImageNet unpacks them into train/ and val/)"
    ),
    torchvision="ImageNet",
)
