"""Feature cache on disk: one folder per key, filled block by block, published when complete, resumed after a kill.

`ROOT/KEY.part/` is incomplete, see `sslkit.files.blocks`; `ROOT/KEY/` is complete.
"""

import hashlib
import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np

from sslkit.data.likeness import WORDS
from sslkit.files.blocks import Blocks, create_npy
from sslkit.files.store import Codec, Store

FORMAT = 3  # of a folder of features: raised when an older one would be misread, which is then made again
INDEX, ROWS, LABELS, IDS, GROUPS = "index.json", "features.npy", "labels.npy", "ids.npy", "groups.npy"
DIGESTS, LIKENESS, KEPT = "pixel_digests.npy", "likeness.npy", "kept"
WHAT = "the features"


def write_features(
    blocks: Blocks,
    folder: Path,
    width: int,
    beside: Mapping[str, np.ndarray],
    about: Mapping[str, Any],
    dtype: Any = np.float32,
) -> None:
    """Write the folder of the features in the blocks: without unreadable rows, and with labels and index."""
    mask = readable(blocks)
    read = {DIGESTS: np.empty(blocks.n, np.int64), LIKENESS: np.empty((blocks.n, WORDS), np.int64)}
    read = {name: blocks.join(name, array) for name, array in read.items()}
    folder.mkdir()
    for name, array in {**beside, **read}.items():
        array = array[mask]
        create_npy(folder / name, array.shape, array.dtype)[:] = array
    at = np.where(mask, np.cumsum(mask) - 1, -1)
    blocks.join(ROWS, create_npy(folder / ROWS, (int(mask.sum()), width), dtype), at)
    (folder / INDEX).write_text(json.dumps({**about, "format": FORMAT, "files": _checksums(folder)}))


def readable(blocks: Blocks) -> np.ndarray:
    """(n,) whether each row could be read."""
    return blocks.join(KEPT, np.empty(blocks.n, bool))


def features_store(folder: Path) -> Store[dict[str, Any]]:
    """The store of a published folder: its arrays by the names of their files, x memory-mapped, and its index."""
    return Store(folder, WHAT, Codec(_read_features))


def _read_features(folder: Path) -> dict[str, Any]:
    about = json.loads((folder / INDEX).read_text())
    if about["format"] != FORMAT or about["files"] != _checksums(folder):
        raise ValueError("its files are not those that were written")
    arrays = {name: np.load(folder / name, allow_pickle=False) for name in about["files"] if name != ROWS}
    return {**about, **arrays, ROWS: np.load(folder / ROWS, mmap_mode="r", allow_pickle=False)}


def _checksums(folder: Path) -> dict[str, str]:
    """Return size and sha256 of each file; for the features of 64 sampled positions, as they may be many gigabytes."""
    sums = {}
    for path in sorted(folder.glob("*.npy")):
        size = path.stat().st_size
        digest = hashlib.sha256(str(size).encode())
        with path.open("rb") as file:
            if path.name != ROWS or size < 1 << 20:
                digest.update(file.read())
            else:
                for offset in np.linspace(0, size - 4096, 64).astype(np.int64):
                    file.seek(int(offset))
                    digest.update(file.read(4096))
        sums[path.name] = digest.hexdigest()
    return sums
