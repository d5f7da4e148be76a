"""CIFAR-100 (Krizhevsky 2009): 32 x 32 pixels, 100 classes."""

from functools import partial

from sslkit.data.published import _torchvision
from sslkit.data.published.base import Entry

_FOLDER = "cifar-100-python"

ENTRY = Entry(
    title="CIFAR-100",
    read=partial(_torchvision.list_split, "CIFAR100"),
    metric="top1",
    classes=100,
    counts={"train": 50000, "test": 10000},
    licence="none stated; a part of the withdrawn 80 Million Tiny Images",
    files={"": tuple(f"{_FOLDER}/{file}" for file in ("train", "test", "meta"))},
    origin="https://www.cs.toronto.edu/~kriz/cifar.html (cifar-100-python.tar.gz)",
    torchvision="CIFAR100",
    fetch=("",),
    note="32 x 32 pixels, enlarged to what the network takes; some test images nearly repeat training images (ciFAIR)",
)
