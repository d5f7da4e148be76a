"""Oxford-IIIT Pets (Parkhi et al. 2012): 37 breeds. Some of the .jpg files are PNG, GIF or CMYK: all become RGB.

"train" is the authors' trainval, which has no further split; "trainval" is another name of it.
"""

from functools import partial

from sslkit.data.published import _torchvision
from sslkit.data.published.base import Entry

_FOLDER = "oxford-iiit-pet"

ENTRY = Entry(
    title="Oxford-IIIT Pets",
    read=partial(_torchvision.list_split, "OxfordIIITPet"),
    metric="mean_per_class",
    classes=37,
    counts={"train": 3680, "test": 3669},
    aliases={"trainval": "train"},
    licence="CC BY-SA 4.0",
    files={
        "": (f"{_FOLDER}/images",),
        "train": (f"{_FOLDER}/annotations/trainval.txt",),
        "test": (f"{_FOLDER}/annotations/test.txt",),
    },
    origin="https://www.robots.ox.ac.uk/~vgg/data/pets/ (images.tar.gz, annotations.tar.gz)",
    torchvision="OxfordIIITPet",
    fetch=("",),
)
