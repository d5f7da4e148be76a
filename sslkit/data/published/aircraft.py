"""FGVC Aircraft (Maji et al. 2013, arXiv 1306.5151): 100 model variants."""

from functools import partial

from sslkit.data.published import _torchvision
from sslkit.data.published.base import Entry

_BELOW = "fgvc-aircraft-2013b"
_COUNTS = {"train": 3334, "val": 3333, "trainval": 6667, "test": 3333}

ENTRY = Entry(
    title="FGVC Aircraft",
    read=partial(_torchvision.list_split, "FGVCAircraft"),
    metric="mean_per_class",
    classes=100,
    counts=_COUNTS,
    train="trainval",
    licence="for non-commercial research only (FGVC-Aircraft); the photographers keep their rights",
    files={
        "": (f"{_BELOW}/data/images", f"{_BELOW}/data/variants.txt"),
        **{split: (f"{_BELOW}/data/images_variant_{split}.txt",) for split in _COUNTS},
    },
    origin="https://www.robots.ox.ac.uk/~vgg/data/fgvc-aircraft/ (fgvc-aircraft-2013b.tar.gz)",
    torchvision="FGVCAircraft",
    fetch=("",),
    note="labels are variants; the lowest 20 pixels or so, which name the photographer, are kept",
)
