"""columns.group=near-copies: groups of near-copies over all images of a data set, which stay on one side of a split."""

from collections.abc import Callable
from dataclasses import replace

import numpy as np

from sslkit.data.columns import NEAR_COPIES, Columns, group_numbers
from sslkit.data.copies import join_groups, lead_near_copies
from sslkit.data.images import Images
from sslkit.data.likeness import COMPARED, is_blank
from sslkit.data.manifest.survey import LIKENESS, measure
from sslkit.data.published import find_published
from sslkit.data.sources.column_values import check_groups, refuse, refuse_found_groups
from sslkit.errors import UserError
from sslkit.runtime.context import Runtime


def group_images(images: Images, columns: Columns, open_split: Callable[[str], Images] | None = None) -> Images:
    """Return the images with groups of near-copies where `columns` ask for them; others as they are.

    open_split: opens another split of the data; None: there is no other. All images of all splits are opened once for
    their hashes, which are kept in the cache. Groups that the data have are joined with them, so that neither a group
    nor near-copies stand on two sides of a split that is made. The numbers depend on the hashes, not on a listing.
    A line tells of groups on both sides of a split that the data have.
    Raises UserError for videos, for a published set, and for more images than can be compared.
    """
    if columns.group != NEAR_COPIES or images.options.columns.group == NEAR_COPIES:
        return images
    if find_published(images):
        refuse(columns, images.name, "is published with its own splits and labels; ./NAME is a folder")
    if images.item.axes:
        refuse_found_groups(columns, f"{images.name} are videos")
    splits = {images.split: images}
    if open_split is not None:
        splits = {split: images if split == images.split else open_split(split) for split in images.splits}
    total = sum(map(len, splits.values()))
    if total > COMPARED:
        raise UserError(
            f"columns.group={NEAR_COPIES}: {images.name} has {total:,} images, and {COMPARED:,} are compared at most: "
            "name a column of what they show"
        )
    numbers = _number(splits, columns)
    grouped = images._copy()
    grouped.groups, grouped.group_values = numbers[images.split], None
    grouped.options = replace(images.options, columns=columns)
    return grouped


def _number(splits: dict[str, Images], columns: Columns) -> dict[str, np.ndarray]:
    """The numbers of the groups of each split: (N,) int64."""
    every = list(splits.values())
    cache = every[0].options.cache
    hashes = np.concatenate([measure(images, Runtime(cache=cache))[LIKENESS] for images in every])
    names = [f"{split}/{name}" for split, images in splits.items() for name in _names(images)]
    leader = lead_near_copies(hashes, cache)
    texts = np.where(is_blank(hashes), None, [some.tobytes().hex() for some in hashes[leader]])
    numbers = group_numbers(texts.tolist(), names)
    ends = np.cumsum(list(map(len, every)))[:-1]
    if any(images.groups is not None for images in every):
        parts = zip(every, np.split(numbers, ends), strict=True)
        numbers = join_groups(numbers, np.concatenate([near if i.groups is None else i.groups for i, near in parts]))
    told = np.array([f"that of {name}" for name in names], object)
    of_number = dict(zip(numbers.tolist(), told, strict=True))
    words = np.array([of_number[number] for number in numbers.tolist()], object)
    check_groups(columns, dict(zip(splits, np.split(words, ends), strict=True)), every[0].name)
    return dict(zip(splits, np.split(numbers, ends), strict=True))


def _names(images: Images) -> list[str]:
    name = getattr(images, "image_name", str)
    return [name(row) for row in range(len(images))]
