"""A prior's features of the clean images of a data set, computed once and cached by content."""

import hashlib
from collections.abc import Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
import torch
from torch import Tensor

from sslkit.data import same_data
from sslkit.data.items import Item
from sslkit.data.loader import batches_in_order, batches_of_parts, evenly, in_order
from sslkit.errors import UserError
from sslkit.files.store import key_of
from sslkit.priors.base import Prior, check_varied
from sslkit.priors.features import FilePrior
from sslkit.priors.pca import PcaPrior
from sslkit.runtime.distributed import rank, world_size
from sslkit.runtime.kept_arrays import load_or_compute
from sslkit.runtime.waiting import from_first, together

if TYPE_CHECKING:
    from sslkit.data.sources.named import Images

_BATCH = 128  # images
_BAR_FROM = 2000  # smallest number of images with a progress bar
_OF_CLIP = 4  # frames of a clip used to fit a prior: neighbouring ones are alike
_MOST_TO_FIT = 10_000  # images whose features the whitening is fitted to: far above the number of components
_ON_DEVICE = 2**30  # bytes of the largest table that is kept on a GPU, unless 1 / 16 of its memory is more


@dataclass(eq=False)
class FeatureTable:
    """(N, A) features by image row, memory-mapped or in memory."""

    array: np.ndarray
    _resident: Tensor | None = None

    def __len__(self) -> int:
        return len(self.array)

    def rows(self, index: Tensor) -> Tensor:
        """(n,) rows -> (n, A) float32 on the index's device. On the CPU raises UserError for rows out of range."""
        if index.is_cuda and self.put(index.device):  # avoids synchronising with the GPU in every step
            return self._resident[index]
        places = index.cpu().numpy()
        low, high = places.min(initial=0), places.max(initial=0)
        count = len(self.array)
        if low < 0 or high >= count:
            raise UserError(f"rows {low} to {high} are out of range: the prior has features of {count} images")
        return torch.from_numpy(np.asarray(self.array[places], dtype=np.float32)).to(index.device)

    def put(self, device: torch.device) -> bool:
        """Copy the table to a GPU, once, unless it is too large; return whether it is there."""
        if device.type == "cuda" and (self._resident is None or self._resident.device != device):
            most = max(_ON_DEVICE, torch.cuda.mem_get_info(device)[1] // 16)
            self._resident = self.all().to(device) if 4 * self.array.size <= most else None
        return self._resident is not None

    def all(self) -> Tensor:
        """The whole table, (N, A) float32, on the CPU."""
        return torch.from_numpy(np.array(self.array, dtype=np.float32))


def tabulate(prior: Prior, dataset: "Images", *, cache: Path | None, device: torch.device) -> FeatureTable:
    """Read or compute the prior's features of every image, and put them on the device. All ranks must call this.

    cache: folder for a .npy file named by the sha256 of the prior's identity and the data set's digest; read if it
        exists, otherwise written atomically, of several ranks each computes its part of the rows. None, or a prior of
        unknown identity (a function), keeps them in memory, and every rank computes them.
    Raises UserError for a features file that does not fit the data set, see `Prior.check`, for features that are not
    finite or equal for all images, or if the cache cannot be written.
    """
    table = FeatureTable(_tabulate(prior, dataset, cache, device))
    check_varied(prior.name, table.array)
    table.put(device)
    return table


def _tabulate(prior: Prior, dataset: "Images", cache: Path | None, device: torch.device) -> np.ndarray:
    if isinstance(prior, FilePrior):
        prior.check(dataset)
        return prior.array
    what, unit = f"the features of prior {prior.name}", dataset.item.rows_at_once(_BATCH)
    if cache is None or prior.identity is None:
        with together(what):
            return np.concatenate(list(_batches(prior, dataset, device, in_order(range(len(dataset)), unit))))
    digest = from_first("the content of the images", lambda: dataset.digest)  # for which files may have to be read
    path = Path(cache) / f"prior-{key_of(prior.identity, digest)}.npy"

    def compute(parts: Sequence[Sequence[int]]) -> Iterator[np.ndarray]:
        same_data.confirm(dataset)
        yield from _batches(prior, dataset, device, parts)

    return load_or_compute(path, len(dataset), compute, what=what, unit=unit)


def fit(prior: PcaPrior, dataset: "Images", *, cache: Path | None) -> None:
    """Fit the prior to a sample of the data set, or read what an earlier fit found. All ranks must call this."""
    what = f"the fit of prior {prior.name}"
    if cache is None:
        with together(what):
            prior.fit(sample(prior, dataset))
        return

    def fit_prior(_: Sequence[Sequence[int]]) -> Iterator[np.ndarray]:
        prior.fit(sample(prior, dataset))
        yield prior.components_of_fit()

    rows = evenly(len(dataset), prior.most_images)
    fitted_to = from_first("the content of the fitted images", lambda: _digest(dataset, rows))
    path = Path(cache) / f"fit-{key_of(prior.identity, fitted_to)}.npy"
    prior.restore(load_or_compute(path, None, fit_prior, what=what), dataset.channels)


def _digest(dataset: "Images", rows: Sequence[int]) -> str:
    """sha256 (hex) of the names of all images and the content of some: reading all could take longer than a fit."""
    if not hasattr(dataset, "content"):
        return dataset.digest
    digest = hashlib.sha256(dataset.listing.encode())
    for row in rows:
        with suppress(OSError):  # it is left out of the sample, too
            digest.update(hashlib.sha256(dataset.content(row)).digest())
    return digest.hexdigest()


def features_of(prior: Prior, images: Tensor, owner: str, what: str = "a view") -> Tensor:
    """(N, A) of images or an augmented view. Raises UserError, in the owner's name, if they are not finite."""
    features = prior(images)
    if features.device.type == "cpu" and not features.isfinite().all():  # on a GPU the loss shows it
        raise UserError(f"{owner}: prior {prior.name} returned features of {what} that are not finite")
    return features


def some_features(prior: Prior, dataset: "Images", table: FeatureTable | None, device: torch.device) -> Tensor:
    """(n, A) float32 on the CPU, the prior's features of at most 10,000 clean images, evenly spaced.

    table: of all images, if there is one. Raises UserError for features that are not finite.
    """
    rows = evenly(len(dataset), _MOST_TO_FIT)
    if table is not None:
        return table.rows(torch.tensor(rows))
    parts = in_order(rows, dataset.item.rows_at_once(_BATCH))
    return torch.from_numpy(np.concatenate(list(_batches(prior, dataset, device, parts))))


def sample(prior: PcaPrior, dataset: "Images") -> Tensor:
    """Return the images to fit a prior: up to most_images images or frames (n, C, H, W), evenly spaced.

    Float in [0, 1] and at most of the prior's input size; of videos up to four frames of a clip.
    """
    item = dataset.item
    rows = evenly(len(dataset), prior.most_images // item.pictures(_OF_CLIP))
    batches = batches_in_order(dataset, rows, item.rows_at_once(_BATCH))
    return torch.cat([prior.shrunk(_pictures(batch["images"], item)) for _, batch in batches])


def _pictures(batch: Tensor, item: Item) -> Tensor:
    """Images (n, C, H, W) as they are; of clips (n, R, C, T, H, W) a few frames, (m, C, H, W)."""
    if not item.axes:
        return batch
    return batch[:, :, :, evenly(*item.axes, _OF_CLIP)].transpose(2, 3).flatten(0, 2)


def _batches(
    prior: Prior, dataset: "Images", device: torch.device, parts: Sequence[Sequence[int]]
) -> Iterator[np.ndarray]:
    """The features of each part, in order."""
    from tqdm import tqdm

    read = batches_of_parts(dataset, parts, readers=world_size(), device="cpu")
    hidden = len(parts) * dataset.item.rows_at_once(_BATCH) <= _BAR_FROM or rank() > 0
    shown = {"desc": f"prior {prior.name}", "unit": "batch", "total": len(parts)}
    for rows, batch in tqdm(read, **shown, disable=True if hidden else None):
        features = prior(batch["images"].to(device))
        if not features.isfinite().all():
            raise UserError(
                f"prior {prior.name} returned features that are not finite for rows {rows[0]} to {rows[-1]}"
            )
        yield features.cpu().numpy()
