"""FGVC Aircraft (Maji et al. 2013, arXiv 1306.5151): 100 model variants."""

from functools import partial

from evaluation.datasets import _torchvision
from evaluation.datasets.base import Entry

_PARTS = {"train": ("train",), "val": ("val",), "trainval": ("trainval",), "test": ("test",)}
_LISTS = {split: (f"data/images_variant_{split}.txt",) for split in _PARTS}
_BELOW = "fgvc-aircraft-2013b"

ENTRY = Entry(
    title="FGVC Aircraft",
    read=partial(_torchvision.read, "FGVCAircraft", _PARTS),
    metric="mean_per_class",
    classes=100,
    counts={"train": 3334, "val": 3333, "trainval": 6667, "test": 3333},
    train="trainval",
    licence="for non-commercial research only (FGVC-Aircraft); the photographers keep their rights",
    files={
        "": (f"{_BELOW}/data/images", f"{_BELOW}/data/variants.txt"),
        **{split: tuple(f"{_BELOW}/{file}" for file in files) for split, files in _LISTS.items()},
    },
    origin="https://www.robots.ox.ac.uk/~vgg/data/fgvc-aircraft/ (fgvc-aircraft-2013b.tar.gz)",
    torchvision="FGVCAircraft",
    fetch=("",),
    note="labels are variants; the lowest 20 pixels or so, which name the photographer, are kept",
)
