"""PlantVillage (Hughes & Salathe 2015; Mohanty et al. 2016): leaves of 14 crops, 38 classes of health and disease.

There is no official split, and copies differ by a few images: the number and a hash of the list are in the note.
"all" is every image. Several photos show one leaf: with leaf-map.json of the authors' repository these are `groups`,
and "train" and "test" split the leaves 80/20 in each class, by the hashes of their names; without the file "train" and
"test" would leak and raise an error. The background alone predicts the classes far better than chance (Noyan et al.
2022, arXiv 2206.04374: 8 pixels of it give 49.0 %): report a colour baseline beside a backbone's number.
"""

import json
from pathlib import Path

import numpy as np

from sslkit.data.held_out import held_out
from sslkit.data.published._listed import in_classes, subfolders
from sslkit.data.published.base import Entry, Listing
from sslkit.data.subsets import list_digest
from sslkit.errors import UserError

TEST_SHARE = 0.2  # the set has no published split: a fifth, as usual
_NO_LEAVES = "Background_without_leaves"
_MAP = "leaf-map.json"
_MAP_PLACES = (".", "leaf_grouping", "..", "../leaf_grouping", "../..", "../../leaf_grouping")


def list_split(root: Path, split: str) -> Listing:
    folders = subfolders(root)
    classes = [name for name in folders if name not in (_NO_LEAVES, "leaf_grouping")]
    paths, y = in_classes(root, classes)
    leaves = _leaves(root, paths)
    note = f"{len(paths)} images, list {list_digest(paths)[:12]}"
    note += f"; {_NO_LEAVES} left out" if _NO_LEAVES in folders else ""
    if leaves is None:
        if split != "all":
            raise UserError(
                f"plantvillage: the split {split!r} needs {_MAP} (https://github.com/spMohanty/PlantVillage-Dataset) "
                f"in {root.absolute()} or beside its raw/ folder: without it both splits get photos of the same leaf. "
                "The split 'all' does not need it"
            )
        return Listing(y, classes, root, paths, note=f"{note}; no {_MAP}, so photos of one leaf are not known")
    names, first, groups = np.unique(leaves, return_index=True, return_inverse=True)
    listing = Listing(y, classes, root, paths, groups=groups, note=f"{note}; {len(names)} leaves")
    if split == "all":
        return listing
    test = held_out(y[first], names, TEST_SHARE, seed=0)[groups]
    return listing.take(test if split == "test" else ~test)


def _leaves(root: Path, paths: list[str]) -> np.ndarray | None:
    """Return the leaf name (N,) of each image, or its path if the map lacks it; None without the map."""
    file = next((root / folder / _MAP for folder in _MAP_PLACES if (root / folder / _MAP).is_file()), None)
    if file is None:
        return None
    leaves = json.loads(file.read_text())
    return np.array([_leaf(path, leaves) for path in paths])


def _leaf(path: str, leaves_of: dict[str, list[str]]) -> str:
    """Look up the leaf of a photo. The map has original photo names as keys, and leaves "class:::number" as values."""
    folder, _, file = path.rpartition("/")
    photo = file.rpartition("___")[2].rpartition(".")[0].replace("_final_masked", "").partition("copy")[0]
    leaves = leaves_of.get(photo.strip().lower(), [])
    leaves = leaves if len(leaves) == 1 else [leaf for leaf in leaves if folder in leaf]
    return f"{folder} {leaves[0]}" if leaves else path


ENTRY = Entry(
    title="PlantVillage",
    read=list_split,
    metric="top1",
    classes=38,
    counts={"train": None, "test": None, "all": range(54303, 54307)},
    licence="none in the authors' repository (its loader assumes CC BY-SA 3.0)",
    folders=("PlantVillage-Dataset/raw/color", "plantvillage/raw/color", "raw/color", "plantvillage", "color"),
    files={"": ("Apple___healthy", "Tomato___healthy")},
    origin=(
        "https://github.com/spMohanty/PlantVillage-Dataset (raw/color with a folder for each of 38 classes, and "
        "leaf-map.json)"
    ),
    note="the background alone predicts the class: report a colour baseline beside it (arXiv 2206.04374)",
)
