"""Oxford 102 Flowers (Nilsback & Zisserman 2008). The test split is the larger one (6149; some copies swap them)."""

from functools import partial

from sslkit.data.published import _torchvision
from sslkit.data.published.base import Entry

ENTRY = Entry(
    title="Flowers102",
    read=partial(_torchvision.list_split, "Flowers102", parts={"trainval": ("train", "val")}),
    metric="mean_per_class",
    classes=102,
    counts={"train": 1020, "val": 1020, "trainval": 2040, "test": 6149},
    train="trainval",
    licence="none stated; images from the web, for research",
    files={"": ("flowers-102/jpg", "flowers-102/imagelabels.mat", "flowers-102/setid.mat")},
    origin="https://www.robots.ox.ac.uk/~vgg/data/flowers/102/ (102flowers.tgz, imagelabels.mat, setid.mat)",
    torchvision="Flowers102",
    fetch=("",),
)
