"""Few-shot episodes as a table: drawn once from a seed, saved, the same for every model."""

import hashlib
import json
import zipfile
import zlib
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np

from evaluation.features.table import Features, as_features, one_label
from sslkit.errors import UserError
from sslkit.files.writing import write_whole
from sslkit.options.calls import by_keywords
from sslkit.options.settings import MOST, setting
from sslkit.runtime.context import Computing


@dataclass(frozen=True, eq=False)
class EpisodeTable:
    """E episodes of a pool of images.

    positions: (E, way, shot + query) int64, positions in the pool sorted by class name and id; the first k_shot of
    each way are its support, the others its queries. seed: of the draw. pool: sha256 of the pool's class names and
    ids. left_out: classes with too few images.
    """

    positions: np.ndarray
    k_shot: int
    seed: int
    pool: str
    left_out: Sequence[str] = ()

    def __post_init__(self) -> None:
        for name in ("k_shot", "seed"):  # JSON does not support numpy's integers
            object.__setattr__(self, name, int(getattr(self, name)))

    @property
    def n_way(self) -> int:
        """Classes of an episode."""
        return self.positions.shape[1]

    @property
    def n_query(self) -> int:
        """Queries of a class in an episode."""
        return self.positions.shape[2] - self.k_shot

    def __len__(self) -> int:
        return len(self.positions)

    @cached_property
    def digest(self) -> str:
        """sha256 of the episodes and of the pool: results with the same digest may be paired."""
        shown = json.dumps([self.positions.shape, self.k_shot, self.seed, self.pool, list(self.left_out)])
        return hashlib.sha256(shown.encode() + self.positions.astype("<i8").tobytes()).hexdigest()

    def rows(self, features: Features) -> np.ndarray:
        """Return rows (E, way, shot + query) int64 of `features`, which may have the pool in any order.

        Raises UserError for another pool.
        """
        order = pool_order(features)
        if pool_digest(features, order) != self.pool:
            raise UserError(
                f"the episode table was drawn from another pool than these {len(features)} images: their ids or labels "
                "differ (plain arrays are named by their values; for two models on one pool give Features with ids)"
            )
        return order[self.positions]

    def save(self, path: str | Path) -> None:
        """Write a .npz file atomically."""
        meta = {**{key: vars(self)[key] for key in ("k_shot", "seed", "pool")}, "left_out": list(self.left_out)}
        with write_whole(Path(path)) as partial, partial.open("wb") as file:
            np.savez_compressed(file, positions=self.positions, meta=json.dumps(meta), digest=self.digest)

    @classmethod
    def load(cls, path: str | Path) -> "EpisodeTable":
        """Read a saved table. Raises UserError if it is missing or damaged."""
        if not Path(path).is_file():
            raise UserError(f"there is no episode table {path}; EpisodeTable.save writes one")
        try:
            with np.load(path, allow_pickle=False) as file:
                table = cls(file["positions"], **json.loads(str(file["meta"])))
                sound = table.digest == str(file["digest"])
        except (zipfile.BadZipFile, OSError, EOFError, ValueError, KeyError, TypeError, zlib.error) as error:
            raise UserError(f"{path} is damaged or not an episode table ({error}); draw and save it again") from error
        if not sound:
            raise UserError(f"{path} is damaged: its digest is not that of its episodes; draw and save it again")
        return table


@dataclass(frozen=True, kw_only=True)
class Drawing:
    """The episodes."""

    n_way: int = setting(5, "classes of an episode", least=2, most=MOST)
    k_shot: int = setting(1, "labelled images of each class, the support", least=1, most=MOST)
    n_query: int = setting(15, "test images of each class", least=1, most=MOST)
    episodes: int = setting(2000, "how many are drawn", least=2, most=1_000_000)
    on_small: str = setting(
        "error", "classes of fewer than k_shot + n_query images: error, or drop them", choices=("error", "drop")
    )


@by_keywords
def draw_episodes(features: Any, *, seed: int = Computing.seed, options: Drawing) -> EpisodeTable:
    """Draw episodes with numpy's PCG64, the same for the same images in any order.

        table = evaluation.draw_episodes(pool, n_way=5, k_shot=1)
        [evaluation.few_shot(features, table=table) for features in pools]  # of several models, the same images

    seed: of the draw.
    features: Features or a pair (x, y); only their ids and labels are used. No copy of a query, and no image of its
    group where there are groups, is in its support.
    Raises UserError for a class that is too small (with the numbers), and for more ways than classes.
    """
    n_way, k_shot, n_query = options.n_way, options.k_shot, options.n_query
    features = one_label(as_features(features), "few_shot")
    order = pool_order(features)
    groups = None if features.together is None else features.together[order]
    members, left_out = _usable(features, order, groups, (k_shot, n_query), options.on_small)
    if n_way > len(members):
        dropped = f" of enough images ({len(left_out)} are too small)" if left_out else ""
        raise UserError(f"n_way={n_way}, but the pool has only {len(members)} classes{dropped}")
    bits = np.random.PCG64(int.from_bytes(hashlib.sha256(f"few-shot episodes {seed}".encode()).digest(), "big"))
    drawn = [_draw(bits, members, groups, n_way, k_shot, n_query) for _ in range(options.episodes)]
    return EpisodeTable(np.array(drawn), k_shot, seed, pool_digest(features, order), left_out)


def pool_order(features: Features) -> np.ndarray:
    """Return the rows (N,) sorted by class name, then id."""
    rank = np.argsort(np.argsort(np.asarray(features.classes, dtype=str), kind="stable"))
    return np.lexsort((features.ids, rank[features.y]))


def pool_digest(features: Features, order: np.ndarray) -> str:
    """Return the sha256 of class names and ids in the order of `pool_order`."""
    lines = (f"{features.classes[features.y[row]]}\t{features.ids[row]}" for row in order)
    return hashlib.sha256("\n".join(lines).encode()).hexdigest()


def _usable(
    features: Features, order: np.ndarray, groups: np.ndarray | None, shot_query: tuple[int, int], on_small: str
) -> tuple[list[np.ndarray], list[str]]:
    """Return the positions of each class that is large enough, and the names of the others."""
    y = features.y[order]
    members = np.split(np.arange(len(y)), np.flatnonzero(np.diff(y)) + 1)
    needs = [_need(positions, groups, *shot_query) for positions in members]
    small = [i for i, positions in enumerate(members) if len(positions) < needs[i]]
    names = [str(features.classes[y[members[i][0]]]) for i in small]
    if small and on_small == "error":
        others = f"; {len(small)} classes have too few" if len(small) > 1 else ""
        together = "" if groups is None else ", copies, and images of one group, staying together"
        raise UserError(
            f"class {names[0]!r} has {len(members[small[0]])} images and an episode needs {needs[small[0]]} "
            f"({shot_query[0]} support + {shot_query[1]} query{together}){others}; lower n_query or k_shot, "
            'or on_small="drop" leaves such classes out'
        )
    return [positions for i, positions in enumerate(members) if i not in set(small)], names


def _need(positions: np.ndarray, groups: np.ndarray | None, k_shot: int, n_query: int) -> int:
    """Return the images a class needs in the worst case: the support may get the largest groups."""
    sizes = np.ones(k_shot, int) if groups is None else np.unique(groups[positions], return_counts=True)[1]
    return n_query + int(np.sort(sizes)[-k_shot:].sum())


def _draw(
    bits: np.random.PCG64, members: list[np.ndarray], groups: np.ndarray | None, n_way: int, k_shot: int, n_query: int
) -> np.ndarray:
    """Draw one episode (way, shot + query). Uses raw bits: numpy's generators differ between versions, these do not."""
    ways = np.argsort(bits.random_raw(len(members)), kind="stable")[:n_way]
    episode = np.empty((n_way, k_shot + n_query), np.int64)
    for images, way in zip(episode, ways, strict=True):
        shuffled = members[way][np.argsort(bits.random_raw(len(members[way])), kind="stable")]
        support, others = shuffled[:k_shot], shuffled[k_shot:]
        if groups is not None:
            others = others[~np.isin(groups[others], groups[support])]
        images[:k_shot], images[k_shot:] = support, others[:n_query]
    return episode
