"""CIFAR-10 (Krizhevsky 2009): 32 x 32 pixels, 10 classes."""

from functools import partial

from sslkit.data.published import _torchvision
from sslkit.data.published.base import Entry

_FOLDER = "cifar-10-batches-py"

ENTRY = Entry(
    title="CIFAR-10",
    read=partial(_torchvision.list_split, "CIFAR10"),
    metric="top1",
    classes=10,
    counts={"train": 50000, "test": 10000},
    licence="none stated; a part of the withdrawn 80 Million Tiny Images",
    files={
        "": tuple(
            f"{_FOLDER}/{file}" for file in (*[f"data_batch_{k}" for k in range(1, 6)], "test_batch", "batches.meta")
        )
    },
    origin="https://www.cs.toronto.edu/~kriz/cifar.html (cifar-10-python.tar.gz)",
    torchvision="CIFAR10",
    fetch=("",),
    note="32 x 32 pixels, enlarged to what the network takes; some test images nearly repeat training images (ciFAIR)",
)
