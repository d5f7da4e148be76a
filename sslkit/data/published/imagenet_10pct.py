"""10 % of ImageNet-1k's labels, as in SimCLR: 128 or 129 images of each class; see `imagenet_1pct`."""

import dataclasses
from functools import partial

from sslkit.data.published import imagenet, imagenet_1pct

ENTRY = dataclasses.replace(
    imagenet_1pct.ENTRY,
    title="ImageNet-1k, 10 % of the labels",
    read=partial(imagenet_1pct.list_split, 0.1, "10percent.txt"),
    counts={"train": 128116, "test": 50000},
    origin=f"{imagenet.ENTRY.origin}; 10percent.txt: {imagenet_1pct.ORIGIN}",
)
