"""SUN397 (Xiao et al. 2010): scenes, ten official partitions of 50 + 50 images a class.

"train" and "test" are partition 1 (Training_01.txt, Testing_01.txt); "train7" and "test7" another one.
"""

from pathlib import Path

import numpy as np

from sslkit.data.published._listed import counts_by_number, split_number
from sslkit.data.published.base import Entry, Listing
from sslkit.files.reading import regular

_LISTS = {"train": "Training", "test": "Testing"}
_PLACES = ("", "Partitions", "../Partitions")  # of the unpacked Partitions.zip: the folder, in it, or beside it


def list_split(root: Path, split: str) -> Listing:
    kind, partition = split_number(split)
    file = f"{_LISTS[kind]}_{partition:02d}.txt"
    listed = next((root / folder / file for folder in _PLACES if (root / folder / file).is_file()), root / file)
    paths = [line.strip("/") for line in regular(listed).read_text().split()]
    folders = [line.strip("/") for line in (root / "ClassName.txt").read_text().split()]
    number = {folder: label for label, folder in enumerate(folders)}
    y = np.array([number[path.rpartition("/")[0]] for path in paths], dtype=np.int64)
    classes = [folder.partition("/")[2] for folder in folders]  # without the initial, as in a/abbey
    return Listing(y, classes, root, paths, note=f"partition {partition} of 10")


ENTRY = Entry(
    title="SUN397",
    read=list_split,
    metric="top1",
    classes=397,
    counts=counts_by_number({"train": 19850, "test": 19850}, 10),
    licence="images from the web, for research only",
    folders=("SUN397",),
    files={"": ("ClassName.txt", "a", "z")},
    origin=(
        "https://vision.princeton.edu/projects/2010/SUN/ (SUN397.tar.gz, 37 GB, and Partitions.zip with "
        "Training_01.txt and Testing_01.txt, which belong beside ClassName.txt); the host is dead, see "
        "pytorch/vision issue 9348, pull request 9528 and discussion 7637 for mirrors"
    ),
    torchvision="SUN397",
)
