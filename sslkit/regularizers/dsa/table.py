"""A prior's features of every clean image of a data set, computed once and cached by content."""

import contextlib
import hashlib
import os
import tempfile
import warnings
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
import torch
from torch import Tensor

from sslkit.data.in_order import batches_in_order
from sslkit.errors import UserError
from sslkit.regularizers.dsa.priors.base import Prior
from sslkit.regularizers.dsa.priors.features import FilePrior
from sslkit.regularizers.dsa.priors.pca import PcaPrior

if TYPE_CHECKING:
    from sslkit.data.sources import Images

_BATCH = 128  # images; for videos a quarter as many frames
_BAR_FROM = 2000  # smallest number of images with a progress bar
_FRAMES_OF_CLIP = 4  # frames of a clip used to fit a prior
_ON_DEVICE = 2**30  # largest table, in bytes, that is kept on the model's device


class FeatureTable:
    """(N, A) features by image row, memory-mapped or in memory."""

    def __init__(self, array: np.ndarray) -> None:
        self.array = array
        self._resident: Tensor | None = None

    def __len__(self) -> int:
        return len(self.array)

    def rows(self, index: Tensor) -> Tensor:
        """(n,) rows -> (n, A) float32 on the index's device. On the CPU raises UserError for rows out of range."""
        if index.is_cuda and self.array.nbytes <= _ON_DEVICE:  # avoids synchronising with the GPU in every step
            if self._resident is None or self._resident.device != index.device:
                self._resident = self.all().to(index.device)
            return self._resident[index]
        places = index.cpu().numpy()
        low, high = places.min(initial=0), places.max(initial=0)
        if low < 0 or high >= len(self):
            raise UserError(f"rows {low} to {high} are out of range: the prior has features of {len(self)} images")
        return torch.from_numpy(np.asarray(self.array[places], dtype=np.float32)).to(index.device)

    def all(self) -> Tensor:
        """The whole table, (N, A) float32, on the CPU."""
        return torch.from_numpy(np.array(self.array, dtype=np.float32))


def tabulate(prior: Prior, dataset: "Images", *, cache: Path | None, device: torch.device) -> FeatureTable:
    """Read or compute the prior's features of every image of the data set.

    cache: folder for a .npy file named by the sha256 of the prior's identity and the data set's digest; read if it
        exists, otherwise written atomically. None, or a prior of unknown identity (a function), keeps them in memory.
    Raises UserError if the number of rows of a features file differs from the data set's, or the cache cannot be
    written.
    """
    if isinstance(prior, FilePrior):
        if len(prior.array) != len(dataset):
            raise UserError(f"prior {prior.name} has {len(prior.array)} rows, {dataset.name} has {len(dataset)} images")
        return FeatureTable(prior.array)
    if cache is None or prior.identity is None:
        return FeatureTable(np.concatenate(list(_batches(prior, dataset, device))))
    key = hashlib.sha256(f"{prior.identity}\n{dataset.digest}".encode()).hexdigest()
    path = Path(cache) / f"prior-{key[:32]}.npy"
    table = _read(path, len(dataset))
    if table is None:
        try:
            _write(path, _batches(prior, dataset, device), len(dataset))
        except OSError as error:
            raise UserError(f"cannot write the prior's features to {path}: {error}; choose another cache") from error
        table = _read(path, len(dataset))
    return FeatureTable(table)


def sample(prior: PcaPrior, dataset: "Images") -> Tensor:
    """Return the images to fit a prior: up to most_images images (n, C, H, W), evenly spaced.

    For videos as many frames, up to four of a clip, float in [0, 1] and at most of the prior's input size.
    """
    if not _of_clips(dataset):
        return dataset.__getitems__(_spaced(len(dataset), prior.most_images))["images"]
    shown = _spaced(dataset.frames, _FRAMES_OF_CLIP)
    rows = _spaced(len(dataset), prior.most_images // (len(shown) * dataset.clips))
    parts = []
    for _, batch in batches_in_order(dataset, rows, _rows_at_once(dataset)):
        clips = batch["images"][:, :, :, shown]  # (n, R, C, T, H, W)
        parts.append(prior.shrunk(clips.transpose(2, 3).flatten(0, 2)))
    return torch.cat(parts)


def _spaced(length: int, most: int) -> list[int]:
    return torch.linspace(0, length - 1, min(length, most)).long().tolist()


def _of_clips(dataset: "Images") -> bool:
    return hasattr(dataset, "frames")


def _rows_at_once(dataset: "Images") -> int:
    return max(1, 4 * _BATCH // (dataset.frames * dataset.clips)) if _of_clips(dataset) else _BATCH


def _batches(prior: Prior, dataset: "Images", device: torch.device) -> Iterator[np.ndarray]:
    from tqdm import tqdm

    step = _rows_at_once(dataset)
    read = batches_in_order(dataset, range(len(dataset)), step)
    shown = {"desc": f"prior {prior.name}", "unit": "batch", "total": -(-len(dataset) // step)}
    for rows, batch in tqdm(read, **shown, disable=True if len(dataset) <= _BAR_FROM else None):
        features = prior(batch["images"].to(device))
        if not features.isfinite().all():
            raise UserError(
                f"prior {prior.name} returned features that are not finite for rows {rows[0]} to {rows[-1]}"
            )
        yield features.cpu().numpy()


def _read(path: Path, rows: int) -> np.ndarray | None:
    if not path.exists():
        return None
    try:
        array = np.load(path, mmap_mode="r", allow_pickle=False)
        if array.ndim == 2 and len(array) == rows and array.dtype == np.float32:
            return array
    except (OSError, ValueError):
        pass
    warnings.warn(f"{path} is damaged; computing the prior's features again", stacklevel=3)
    return None


def _write(path: Path, batches: Iterator[np.ndarray], rows: int) -> None:
    """Write with plain writes rather than a memory map: a full disk then raises instead of killing the process."""
    path.parent.mkdir(parents=True, exist_ok=True)
    handle, temporary = tempfile.mkstemp(dir=path.parent, prefix=f".{path.stem}-", suffix=".part")
    try:
        with os.fdopen(handle, "wb") as file:
            for number, batch in enumerate(batches):
                if number == 0:
                    header = {"descr": "<f4", "fortran_order": False, "shape": (rows, batch.shape[1])}
                    np.lib.format.write_array_header_1_0(file, header)
                file.write(np.ascontiguousarray(batch, dtype="<f4").tobytes())
            file.flush()
            os.fsync(file.fileno())
        os.replace(temporary, path)
    except BaseException:
        with contextlib.suppress(OSError):
            os.unlink(temporary)
        raise
