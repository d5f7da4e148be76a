"""Stanford Cars (Krause et al. 2013): 196 makes, models and years."""

from functools import partial

from sslkit.data.published import _torchvision
from sslkit.data.published.base import Entry

ENTRY = Entry(
    title="Stanford Cars",
    read=partial(_torchvision.list_split, "StanfordCars"),
    metric="top1",
    classes=196,
    counts={"train": 8144, "test": 8041},
    licence="images from the web, for non-commercial research only",
    files={
        "": ("stanford_cars/devkit/cars_meta.mat",),
        "train": ("stanford_cars/cars_train", "stanford_cars/devkit/cars_train_annos.mat"),
        "test": ("stanford_cars/cars_test", "stanford_cars/cars_test_annos_withlabels.mat"),
    },
    origin=(
        "the authors' host is gone since 2023; copies of cars_train.tgz, cars_test.tgz, car_devkit.tgz and "
        "cars_test_annos_withlabels.mat (the test labels, a file of its own) are named in pytorch/vision issues 7545 "
        "(comment 1631441616), 7681 and 7699"
    ),
    torchvision="StanfordCars",
)
