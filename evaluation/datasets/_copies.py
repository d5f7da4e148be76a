"""The same image in two splits, or twice in one, by the digests of its pixels (`sslkit.data.pixel_digest`).

Images of one group, such as the pages of a file, and copies of one image stay together.
"""

from collections.abc import Callable, Hashable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace

import numpy as np

from evaluation.datasets.base import Split
from sslkit.data import likeness, pixel_digest
from sslkit.data.columns import Columns
from sslkit.data.copies import are_too_many, join_groups, lead_near_copies, line_across
from sslkit.data.held_out import held_out
from sslkit.data.likeness import WORDS
from sslkit.data.loader import batches_in_order
from sslkit.errors import UserError
from sslkit.runtime.jobs import cores

SIDE = 32  # pixels: the smallest copy of an image that is looked at only for its digest and for damage
READ = 64  # images at a time: a few megabytes


def identify(split: Split) -> tuple[np.ndarray, Split]:
    """Decode all images once: (readable (N,) bool, the split with digests and hashes)."""
    images = split.images
    if images.decodes:
        images = images.at(image_size=SIDE, channels=images.channels, fit="squash")
    readable, digests = np.zeros(len(split), bool), np.zeros(len(split), np.int64)
    hashes = np.zeros((len(split), WORDS), np.int64)
    for rows, batch in batches_in_order(images.with_digests(), range(len(split)), READ, workers="auto"):
        readable[rows] = batch["index"].numpy() == rows  # an unreadable image is replaced by another
        digests[rows], hashes[rows] = batch[pixel_digest.KEY].numpy(), batch[likeness.KEY].numpy()
    return readable, replace(split, pixel_digests=digests, likeness=hashes)


def with_digests(split: Split) -> Split:
    """Return the split with the digests of its images, which are read for it unless they have them."""
    return split if split.pixel_digests is not None else identify(split)[1]


def overlap(a: Split, b: Split) -> list[tuple[str, str]]:
    """Return the images of `b` that are also in `a`: sorted pairs (id in a, id in b), one pair per image of `b`.

    Images are the same if their decoded pixels are equal at full size, upright, in whatever format they are stored.
    Every image of both is read; those that cannot be read are in neither.
    """
    first: dict[int, str] = {}
    for digest, name in sorted(_list_digests(a), key=lambda pair: pair[1]):
        first.setdefault(digest, name)
    return sorted((first[digest], name) for digest, name in _list_digests(b) if digest in first)


def _list_digests(split: Split) -> list[tuple[int, str]]:
    readable, split = identify(split)
    digests, names = split.pixel_digests[readable].tolist(), split.ids[readable]
    return [(digest, str(name)) for digest, name in zip(digests, names, strict=True)]


def near_across(train: Split, test: Split, what: str, columns: Columns, *, is_given: bool) -> str:
    """Return the line on images of test with a near-copy in train, see `sslkit.data.copies.line_across`; "" for none.

    The splits have digests. what: the images of test are.
    """
    sides = ((split.pixel_digests, split.likeness) for split in (train, test))
    return line_across(*sides, what, columns, test.source, is_given=is_given)


def same_of_shape(
    learned: Sequence[Hashable],
    tested: Sequence[Hashable],
    digests: Callable[[int], int | None],
    digests_of_test: Callable[[int], int | None],
) -> np.ndarray:
    """Return (M,) bool: test items that are also training items; only those of a shape that both have are decoded.

    learned, tested: the shape of each item. digests, digests_of_test: of the pixels of a row; None if unreadable.
    """
    shared = set(learned) & set(tested)
    rows, rows_of_test = ([row for row, shape in enumerate(shapes) if shape in shared] for shapes in (learned, tested))
    with ThreadPoolExecutor(cores()) as pool:  # decoders work outside the GIL
        learned_digests = set(pool.map(digests, rows)) - {None}
        tested_digests = dict(zip(rows_of_test, pool.map(digests_of_test, rows_of_test), strict=True))
    return np.array([tested_digests.get(row) in learned_digests for row in range(len(tested))], dtype=bool)


def together(images: np.ndarray, groups: np.ndarray | None) -> np.ndarray | None:
    """Return the finest groups (N,) that hold copies of one image, and the images of one group; None for no such.

    images: (N,) int64, equal for the same image. groups: (N,), or None. With groups and no copies these are returned.
    """
    if len(np.unique(images)) == len(images):
        return groups
    return images if groups is None else join_groups(images, groups)


def units(ids: np.ndarray, images: np.ndarray, groups: np.ndarray | None) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Return what a part is drawn from, see `together`: (names (G,), first row (G,), number (N,) of each row's unit).

    A unit has the name of its image, or of its group; of several the first in the alphabet.
    """
    names = np.asarray(ids if groups is None else groups).astype(str)
    whole = together(images, groups)
    if whole is not None and whole is not groups:
        order = np.argsort(names, kind="stable")
        first, member = np.unique(whole[order], return_index=True, return_inverse=True)[1:]
        names[order] = names[order][first][member]
    return np.unique(names, return_index=True, return_inverse=True)


def with_near_groups(split: Split) -> Split:
    """The split with groups that hold its own groups and its near-copies; without, where each image stands alone."""
    if are_too_many(len(split)):
        return split
    near = lead_near_copies(split.likeness)
    groups = near if split.groups is None else join_groups(split.groups, near)
    return replace(split, groups=groups if len(np.unique(groups)) < len(groups) else split.groups)


def divide(split: Split, seed: int, use: str) -> tuple[Split, Split]:
    """Return a split without the held-out images, and these: a fifth of each class, groups and copies kept together.

    use: what they are held out for. Raises UserError if no class has two images (or groups).
    """
    names, start, member = units(split.ids, with_digests(split).pixel_digests, split.groups)
    out = held_out(split.y[start], names.tolist(), seed=seed)[member]
    if not out.any():
        raise UserError(f"{split.name}: no class has 2 labelled images, so none can be held out {use}")
    return split.take(np.flatnonzero(~out)), split.take(np.flatnonzero(out))
