"""Listings of the sets that torchvision parses."""

import os
from collections.abc import Mapping
from pathlib import Path

import numpy as np

from sslkit.data.arrays import ArrayImages
from sslkit.data.images import ImageOptions
from sslkit.data.published.base import Listing
from sslkit.data.sources.torchvision_sets import open_torchvision


def list_split(name: str, root: Path, split: str, parts: Mapping[str, tuple[str, ...]] = {}) -> Listing:
    """List a split of torchvision's class `name`. parts: of a split that joins several of torchvision's."""
    opened = [
        open_torchvision(name, root, ImageOptions(split=official, channels=3))
        for official in parts.get(split, (split,))
    ]
    y = np.concatenate([images.labels for images in opened])
    classes = opened[0].classes
    if all(isinstance(images, ArrayImages) for images in opened):
        return Listing(y, classes, root, pixels=np.concatenate([images.pixels for images in opened]))
    paths = [os.path.relpath(images.path(row), root) for images in opened for row in range(len(images))]
    return Listing(y, classes, root, [path.replace(os.sep, "/") for path in paths])
