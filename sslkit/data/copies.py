"""Near-copies across a split: counted, told in one line, and what mends it. They change no number."""

from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from functools import lru_cache
from pathlib import Path
from typing import Any

import numpy as np

from sslkit.data.columns import NEAR_COPIES, Columns
from sslkit.data.likeness import COMPARED, HashIndex, group_near_copies, is_blank, near_bits
from sslkit.errors import UserError
from sslkit.files.store import Store, key_of, npz_codec
from sslkit.terminal import say
from sslkit.terminal.say import words

MANY = 20_000  # pictures from which comparing them takes a second of two cores, and is kept; 200,000 take 50
_FORM = 1  # of what is kept: raised when other pictures would be near
_ROWS = npz_codec(lambda rows: {"rows": rows}, lambda arrays: arrays["rows"], compressed=False)


@dataclass(frozen=True)
class _Known:
    """An array whose content decides whether it is the same: an argument of what is remembered."""

    key: str
    array: np.ndarray = field(compare=False, repr=False)

    @classmethod
    def of(cls, array: np.ndarray) -> "_Known":
        return cls(key_of(array), array)


def nearest_across(hashes: np.ndarray, is_learned: np.ndarray, cache: str | Path | None = None) -> np.ndarray:
    """Return the row (N,) int64 of the nearest near-copy of each picture on the other side of a split; -1 for none.

    hashes: (N, 4). is_learned: (N,) bool. Near are those within `likeness.near_bits`. cache: folder that keeps the rows
    of many pictures.
    """
    pictures = _Known.of(hashes), _Known.of(is_learned)
    return _remember(cache, pictures, lambda: _pair(*pictures))


@lru_cache(maxsize=4)  # every protocol and every model asks the same
def _pair(hashes: "_Known", is_learned: "_Known") -> np.ndarray:
    pictures, side = hashes.array, is_learned.array
    is_told, nearest, bits = ~is_blank(pictures), np.full(len(side), -1), near_bits(pictures)
    for is_asked in (side, ~side):
        asked, others = (np.flatnonzero(rows & is_told) for rows in (is_asked, ~is_asked))
        if len(asked) and len(others):
            index = HashIndex(pictures, bits)
            index.add(others)
            position = index.nearest(asked)
            nearest[asked] = np.where(position >= 0, others[position], -1)
    return nearest


def are_too_many(images: int) -> bool:
    """Return whether near-copies among so many images are not looked for, as the time grows with the square; say so."""
    if images > COMPARED:
        say.warn(
            f"near-copies are not looked for among {images:,} images: {COMPARED:,} are compared at most", stacklevel=4
        )
    return images > COMPARED


def near_in_train(learned: Sequence[np.ndarray | None], tested: np.ndarray | None) -> np.ndarray | None:
    """Return (M,) bool: test images with a near-copy among the learned ones; None where that is not known.

    learned, tested: hashes (N, 4), (M, 4); None where there are none. Of more than a quarter of a million images it is
    not looked for, which a line says.
    """
    parts = [*learned, tested]
    if any(hashes is None for hashes in parts) or are_too_many(sum(map(len, parts))):
        return None
    start = sum(map(len, learned))
    return nearest_across(np.concatenate(parts), np.arange(start + len(tested)) < start)[start:] >= 0


def near_within(hashes: np.ndarray | None, units: np.ndarray | None) -> np.ndarray | None:
    """Return (N,) bool: images with a near-copy in another unit; None where that is not known, as of `near_in_train`.

    hashes: (N, 4). units: (N,) equal for images that stay together; None: each stands alone.
    """
    if hashes is None or are_too_many(len(hashes)):
        return None
    numbers = lead_near_copies(hashes)
    units = np.arange(len(numbers)) if units is None else units
    pairs = np.unique(np.stack([numbers, units]), axis=1)[0]
    return np.bincount(pairs, minlength=len(numbers))[numbers] > 1


def lead_near_copies(hashes: np.ndarray, cache: str | Path | None = None) -> np.ndarray:
    """Return the row (N,) int64 of the picture that each is a near-copy of, see `likeness.group_near_copies`.

    cache: folder that keeps the rows of many pictures.
    """
    pictures = _Known.of(hashes)
    return _remember(cache, (pictures,), lambda: _lead(pictures))


def _remember(cache: str | Path | None, pictures: Sequence[_Known], compute: Callable[[], np.ndarray]) -> np.ndarray:
    """What compute() returns, or returned before in another process; a folder that cannot be written forgets it."""
    is_kept = cache is not None and len(pictures[0].array) >= MANY
    store = Store.open(cache if is_kept else None, "near-{}.npz", repr((_FORM, *pictures)), "near-copies", _ROWS)
    if (rows := store.read()) is None:
        rows = compute()
        with suppress(UserError):
            store.write(rows)
    return rows


@lru_cache(maxsize=4)  # every protocol, every model and every split asks the same
def _lead(hashes: "_Known") -> np.ndarray:
    return group_near_copies(hashes.array)


def join_groups(first: np.ndarray, second: np.ndarray) -> np.ndarray:
    """Return the finest groups that hold those of both: (N,), each the least number that `first` has in it.

    first, second: (N,) int64, equal for images of one group.
    """
    from scipy.sparse import coo_array
    from scipy.sparse.csgraph import connected_components

    members = [np.unique(numbers, return_inverse=True)[1] for numbers in (first, second)]
    places = (members[0], members[1] + len(first))
    graph = coo_array((np.ones(len(first), bool), places), shape=(2 * len(first),) * 2)
    joined = connected_components(graph, directed=False)[1][members[0]]
    least = np.full(2 * len(first), np.iinfo(np.int64).max)
    np.minimum.at(least, joined, first)
    return least[joined]


def line_of_near(near: int, exact: int, tested: int, what: str) -> str:
    """Return a line on held-out images with a near-copy in train, of which some are exact ones. what: they are."""
    also = f" ({exact:,} exact)" if exact else ""
    return f"{near:,} of {tested:,} {what} {'has' if near == 1 else 'have'} a near-copy in train{also}"


def line_within(near: int, images: int, what: str) -> str:
    """Return a line on images that are near-copies of others which they are compared with. what: they are."""
    are = "is a near-copy of another one" if near == 1 else "are near-copies of others"
    return f"{near:,} of {images:,} {what} {are}, by which they are recognised"


def mend_of_near(columns: Columns, source: Any, *, is_given: bool) -> str | None:
    """Return what keeps near-copies on one side, to stand behind a line; None where they are.

    columns, source: of the data. is_given: whether the split is the data's own.
    """
    if not is_given:
        return None if columns.group == NEAR_COPIES else f"; columns.group={NEAR_COPIES} keeps them on one side"
    if not isinstance(source, (str, Path)):
        return ""
    return f"; python recipes/look.py {words({'data': source, 'leave_out': ['near_copies']})} shows them, to leave out"


def line_across(
    learned: tuple[np.ndarray, np.ndarray],
    tested: tuple[np.ndarray, np.ndarray],
    what: str,
    columns: Columns,
    source: Any,
    *,
    is_given: bool,
) -> str:
    """Return the line on held-out images with a near-copy in train, and what mends it; "" for nothing to say.

    learned, tested: digests (N,) and hashes (N, 4) of the images. Others: see `line_of_near`, `mend_of_near`.
    """
    (digests, hashes), (tested_digests, tested_hashes) = learned, tested
    near, exact = near_in_train([hashes], tested_hashes), np.isin(tested_digests, digests)
    mend = mend_of_near(columns, source, is_given=is_given)
    if mend is None or near is None or not (near & ~exact).any():
        return ""
    return line_of_near(int((near | exact).sum()), int(exact.sum()), len(exact), what) + mend
