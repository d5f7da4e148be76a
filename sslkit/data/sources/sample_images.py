"""The image of each sample in shards, where a sample has several."""

from collections import Counter

import numpy as np

from sslkit.data.decode.formats import EXTENSIONS
from sslkit.data.sources.tar_index import TarIndex
from sslkit.data.sources.tar_names import is_no_photograph

_BITS = 40  # of the number of a sample in its shard
_ORDER = {extension: rank for rank, extension in enumerate(EXTENSIONS)}


def is_image_of_sample(index: TarIndex) -> np.ndarray:
    """(N,) bool: the rows that are the image of their sample.

    Masks, depths and small copies are not, unless the set has nothing else. Of several others it is the one with the
    extension right behind the name (`a.jpg`, not `a.left.jpg`), then the kind that most samples have, then jpg before
    png. A word that only one sample has in its images is a part of the name (`St.Peter.jpg`, `St.Paul.jpg`).
    """
    chosen = _photographs(index)
    rows = np.flatnonzero(chosen)
    numbers = index.shard[rows].astype(np.int64) << _BITS | index.sample[rows]
    _, sample, counts = np.unique(numbers, return_inverse=True, return_counts=True)
    role = index.role[rows]
    rank, is_name = _ranks(index.roles, np.bincount(role, minlength=len(index.roles)))
    competing = np.flatnonzero((counts[sample] > 1) & ~is_name[role])
    order = competing[np.lexsort((rank[role[competing]], sample[competing]))]
    follows = np.zeros(len(order), bool)
    follows[1:] = sample[order[1:]] == sample[order[:-1]]
    chosen[rows[order[follows]]] = False
    return chosen


def kinds_of(index: TarIndex, rows: np.ndarray) -> Counter[str]:
    """The number of images among some rows by kind: `.jpg`, `.seg.png`."""
    numbers = np.bincount(index.role[rows]).tolist()
    names = (f".{role}" if role else "without extension" for role in index.roles)
    return Counter({name: number for name, number in zip(names, numbers, strict=False) if number})


def _photographs(index: TarIndex) -> np.ndarray:
    others = np.array([is_no_photograph(role) for role in index.roles], bool)
    chosen = ~others[index.role]
    return chosen if chosen.any() else np.ones(len(index), bool)


def _ranks(roles: list[str], counts: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """(R,) int the rank of each role, the smallest first; (R,) bool, whether it is a part of the name."""
    named = ["." in role for role in roles]

    def key(place: int) -> tuple:
        extension = roles[place].rpartition(".")[2]
        return named[place], -counts[place], _ORDER.get(extension, len(_ORDER)), roles[place]

    rank = np.empty(len(roles), int)
    rank[sorted(range(len(roles)), key=key)] = np.arange(len(roles))
    return rank, np.array(named, bool) & (counts == 1)
