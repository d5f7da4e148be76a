"""Splits of the sources of `sslkit.open_images`: the package's own sets, folders, .npz files, torchvision's sets."""

import os
from collections.abc import Mapping
from pathlib import Path

import numpy as np

from evaluation.datasets._listed import ListedImages
from evaluation.datasets._rows import row_ids
from evaluation.datasets.base import Split
from sslkit.data.arrays import ArrayImages
from sslkit.data.images import ImageOptions, Images
from sslkit.data.sources import open_images
from sslkit.data.torchvision_sets import PREFIX, TorchvisionImages
from sslkit.errors import UserError


def of_source(source: str | Path | Images, options: ImageOptions, torchvision_metrics: Mapping[str, str]) -> Split:
    """Open one split of a source, with the source's own labels; -1 for images without.

    torchvision_metrics: metrics of the torchvision classes that do not use top-1.
    """
    if isinstance(source, ListedImages):
        raise UserError(
            f"these are the images of {source.name}: give the Split itself, which has its labels and metric"
        )
    images = _opened(source, options)
    labels = np.full(len(images), -1) if images.labels is None else images.labels
    classes = images.classes or [str(label) for label in range(int(labels.max()) + 1)]
    from_torchvision = str(images.source).startswith(PREFIX)
    metric = torchvision_metrics.get(images.name, "top1") if from_torchvision else "top1"
    return Split(images, labels, classes, _ids(images), metric, images.name, images.split)


def check_labelled(split: Split) -> None:
    """Raises UserError if no image of the split has a label."""
    if not (split.y >= 0).any():
        raise UserError(
            f"{split.name} has no labels in its split {split.split!r}, which evaluation needs: a folder gets them "
            "from at least two class folders with images, a .npz file from y_test (y_train, y), and several labels an "
            "image come with the published set voc07"
        )


def _opened(source: str | Path | Images, options: ImageOptions) -> Images:
    if not isinstance(source, Images) or source.source is not None:
        return open_images(source, **vars(options))
    if source.split != options.split:
        raise UserError(
            f"{source.name} was built in Python as its split {source.split!r}, so it has no split {options.split!r}"
        )
    size, channels = options.image_size or source.image_size, options.channels or source.channels
    return source.at(image_size=size, channels=channels, fit=options.fit, interpolation=options.interpolation)


def _ids(images: Images) -> np.ndarray:
    """Return (N,) paths below the folder of the split, or hashes of the pixels, numbered where images are equal."""
    if isinstance(images, ArrayImages):
        return row_ids(images.pixels)
    paths = [images.path(row) for row in range(len(images))]
    root = images.dataset.root if isinstance(images, TorchvisionImages) else images.root
    if os.path.isfile(paths[0]):
        return np.array([os.path.relpath(path, root).replace(os.sep, "/") for path in paths])
    return row_ids(np.asarray(images.dataset[row][0]) for row in range(len(images)))  # made one by one, not files
