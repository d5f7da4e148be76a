"""Food-101 (Bossard et al. 2014): training labels are noisy by design, test labels were checked."""

from functools import partial

from sslkit.data.published import _torchvision
from sslkit.data.published.base import Entry

ENTRY = Entry(
    title="Food-101",
    read=partial(_torchvision.list_split, "Food101"),
    metric="top1",
    classes=101,
    counts={"train": 75750, "test": 25250},
    licence="images of Foodspotting; use beyond scientific fair use is to be agreed with their owners",
    files={"": ("food-101/images",), "train": ("food-101/meta/train.json",), "test": ("food-101/meta/test.json",)},
    origin="https://data.vision.ee.ethz.ch/cvl/datasets_extra/food-101/ (food-101.tar.gz, 5 GB)",
    torchvision="Food101",
    fetch=("",),
)
