"""extract(model, dataset, split) -> Features: one pass of the frozen backbone, cached on disk."""

import hashlib
import json
import tempfile
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import torch

from evaluation.datasets import LABELLED, Reading
from evaluation.datasets._readable import warn_of_unreadable
from evaluation.datasets.base import Split
from evaluation.features import contradicted
from evaluation.features.cache import (
    DIGESTS,
    FORMAT,
    GROUPS,
    IDS,
    KEPT,
    LABELS,
    LIKENESS,
    ROWS,
    features_store,
    readable,
    write_features,
)
from evaluation.features.table import Features
from sslkit.data import likeness, pixel_digest
from sslkit.data.image_options import ImageOptions
from sslkit.data.loader import read_spaced
from sslkit.errors import RunFailed, UserError
from sslkit.files.blocks import Blocks
from sslkit.models.loading import Loading
from sslkit.models.model import Model
from sslkit.models.passes import apply, read_batches, usual_batch
from sslkit.runtime.callers import public
from sslkit.runtime.context import Runtime
from sslkit.runtime.device import device_of
from sslkit.runtime.distributed import rank, world_size
from sslkit.runtime.heap import freed_memory_kept
from sslkit.runtime.kept_arrays import compute_in_blocks
from sslkit.runtime.waiting import Others, from_first, together

LOADED = ("image_size", "in_chans", "trust")  # shared options, by what they are for
CROPPED = ("resize", "interpolation")
_WORK = "the extraction of features"  # in messages


@public(*LOADED, *LABELLED, *CROPPED, "on_error", "precision", "batch_size", "device", "workers", "progress")
def extract(
    model: Any, dataset: Any, split: str = ImageOptions.split, *, loading: Loading, reading: Reading, runtime: Runtime
) -> Features:
    """Extract the features of the clean images of one split, in the data set's order.

        train = evaluation.extract("runs/zoo/NAME", "digits", "train")
        train.x, train.y  # (N, D) float32, (N,) int64

    model: see `sslkit.load`. dataset, split: see `evaluation.open_split`.
    The key of the cache is the sha256 of the network (see `digest.weights_digest`), transform, list of images, labels,
    ids, groups, split and precision, so that different features have different keys. Features are stored as float32.
    With several ranks each extracts its share and all get all rows; the cache must be on a shared disk.
    Raises UserError for a model or data set that cannot be opened, and for features that are not finite.
    """
    check(runtime)
    loaded = loading.load(model)
    return features_of(loaded, reading.open(dataset, split), reading, runtime)


def features_of(model: Model, split: Split, reading: Reading, runtime: Runtime, dtype: Any = np.float32) -> Features:
    """Return the features of an open split, kept in another type than float32 if that is said; see `extract`."""
    prepared, transform = _prepare(split, model, reading)
    job = _Job(model, prepared, transform, _settle_runtime(model, runtime), np.dtype(dtype))
    key = _key(job)
    with tempfile.TemporaryDirectory() as scratch:
        is_kept = runtime.cache is not None
        folder = Path(runtime.cache if is_kept else from_first(_WORK, lambda: scratch))
        arrays = _extract(job, folder, key)
        x = arrays[ROWS] if is_kept else np.array(arrays[ROWS])
        with together(_WORK):  # before the first rank removes its scratch folder
            pass
    return Features(
        x,
        arrays[LABELS],
        prepared.classes,
        key,
        arrays[IDS],
        metric=prepared.metric,
        model=model.name,
        data=prepared.name,
        split=prepared.split,
        groups=arrays.get(GROUPS),
        note=prepared.note,
        unreadable=_unreadable(arrays, prepared, reading.on_error),
        pixel_digests=arrays[DIGESTS],
        likeness=arrays[LIKENESS],
    )


def check(runtime: Runtime) -> None:
    """Check what no declaration says: that the device is here. Raises UserError."""
    device_of(runtime.device)


@dataclass(frozen=True)
class _Job:
    """Model, split and transform of an extraction, and the runtime with its device and batch size settled.

    dtype: of the features that are kept.
    """

    model: Model
    split: Split
    transform: dict[str, Any]
    runtime: Runtime
    dtype: np.dtype


def _prepare(split: Split, model: Model, reading: Reading) -> tuple[Split, dict]:
    """Return the split with its images at the model's size, and a description of the transform."""
    images = model.clean(split.images, resize=reading.resize, interpolation=reading.interpolation)
    transform = {
        "resize": images.options.resize,
        "crop": images.image_size,
        "fit": images.fit,
        "interpolation": images.options.interpolation,
        "mean": list(model.mean),
        "std": list(model.std),
    }
    return replace(split, images=images.with_digests()), transform


def _key(job: _Job) -> str:
    split = job.split
    about = [FORMAT, job.model.digest, job.transform, split.name, split.split, split.digest, list(split.classes)]
    arrays = (split.y, split.ids, split.groups)
    about += ["" if array is None else hashlib.sha256(np.ascontiguousarray(array)).hexdigest() for array in arrays]
    about.append(job.runtime.precision)
    about += [] if job.dtype == np.float32 else [job.dtype.name]
    return hashlib.sha256(json.dumps(about).encode()).hexdigest()


def _settle_runtime(model: Model, runtime: Runtime) -> Runtime:
    """Return the runtime with a device and a batch size."""
    if runtime.device != "auto":
        device = device_of(runtime.device)
    elif torch.cuda.is_available():
        device = torch.device("cuda", torch.cuda.current_device())
    else:
        device = model.device
    return replace(runtime, device=device, batch_size=runtime.batch_size or usual_batch(model.image_size, device))


def _extract(job: _Job, cache: Path, key: str) -> dict[str, Any]:
    """Read the features, or let each rank fill its blocks, of which the first publishes all."""
    doubts: list[str] = []

    def fill(blocks: Blocks, others: Others) -> None:
        blocks.check_room(job.dtype.itemsize * job.model.width)
        job.model.backbone.to(job.runtime.device)
        if rank() == 0:
            doubts.append(contradicted.contradiction(job.model, lambda most: read_spaced(job.split.images, most)))
            contradicted.warn(job.model, *doubts)
        try:
            _run(job, blocks, others)
        except RunFailed:  # another rank, or the disk
            raise
        except UserError:  # discard the blocks: the model or the images are invalid
            blocks.discard()
            raise

    def write(blocks: Blocks, folder: Path) -> None:
        _write(job, blocks, folder, "".join(doubts))

    store = features_store(cache / key)
    arrays = compute_in_blocks(store, len(job.split), job.runtime.batch_size, fill, write)
    if rank() == 0 and not doubts:  # it is kept with the features, so that cached ones say it, too
        contradicted.warn(job.model, arrays.get("doubt", ""))
    return arrays


def _write(job: _Job, blocks: Blocks, folder: Path, doubt: str) -> None:
    lost = job.split.ids[~readable(blocks)].tolist()
    if len(lost) == blocks.n:
        raise UserError(f"none of the {blocks.n} images of {job.split.name} can be read")
    beside = {LABELS: job.split.y, IDS: job.split.ids}
    beside |= {} if job.split.groups is None else {GROUPS: job.split.groups}
    about = {
        "model": job.model.name,
        "data": job.split.name,
        "split": job.split.split,
        "unreadable": lost,
        "doubt": doubt,
    }
    write_features(blocks, folder, job.model.width, beside, about | job.transform, job.dtype)


@torch.inference_mode()
def _run(job: _Job, blocks: Blocks, others: Others) -> None:
    """Extract the blocks of this rank."""
    mean, std = (torch.tensor(v, device=job.runtime.device).view(-1, 1, 1) for v in (job.model.mean, job.model.std))
    with freed_memory_kept():
        for rows, batch in _batches(job, blocks.left):
            is_valid = batch["index"].numpy() == rows  # an unreadable image is replaced by its neighbour
            pixels = batch["images"].to(job.runtime.device, non_blocking=True).float().div_(255)
            x = apply(job.model.backbone, job.model.name, pixels.sub_(mean).div_(std), job.runtime.precision)
            with np.errstate(over="ignore"):  # what is too large for half precision is infinite, which is said here
                x = x.astype(job.dtype, copy=False)
            if not np.isfinite(x[is_valid]).all():
                raise UserError(
                    f"{job.model.name} gives features that are not finite ({job.split.name}, row {rows[0]} ff.)"
                    f"{'' if job.dtype == np.float32 else f' as {job.dtype}'}"
                )
            identity = {DIGESTS: batch[pixel_digest.KEY].numpy(), LIKENESS: batch[likeness.KEY].numpy()}
            blocks.write(rows, **{ROWS: x, KEPT: is_valid, **identity})
            others.check()


def _batches(job: _Job, blocks: Sequence[list[int]]) -> Iterator[tuple[list[int], dict[str, Any]]]:
    """Yield the rows and the batch of each block, with a progress bar on a terminal."""
    label = f"features of {job.split.name} {job.split.split}, {job.model.name}"
    runtime = replace(job.runtime, progress=job.runtime.progress and rank() == 0)
    yield from read_batches(job.split.images, blocks, label, runtime, job.runtime.device, world_size())


def _unreadable(found: dict[str, Any], split: Split, on_error: str) -> tuple[str, ...]:
    """Return the ids of the left-out images and warn about them. Raises UserError under on_error="raise"."""
    lost = found["unreadable"]
    if lost and on_error == "raise":
        raise UserError(f"{lost[0]} of {split.name} cannot be read, nor can {len(lost) - 1} others: on_error=skip")
    warn_of_unreadable(lost, len(split), split.name)
    return tuple(lost)
