"""Batches of images: for training in an order that depends only on the seed and the epoch, or row by row.

Clean images are read row by row for evaluation, priors and statistics. Worker processes decode files for both.
"""

import multiprocessing
import os
import pickle
import sys
import tempfile
import traceback
from collections.abc import Iterable, Iterator, Mapping, Sequence
from itertools import accumulate
from multiprocessing import reduction
from typing import Any, TypeVar

import numpy as np
import torch
from torch import Tensor
from torch.utils.data import DataLoader, Dataset, Sampler

from sslkit.data.images import Images
from sslkit.data.views.cropped import CroppedImages
from sslkit.errors import UserError, first_line
from sslkit.files.blocks import Parts
from sslkit.runtime.context import Computing
from sslkit.runtime.jobs import cores

FEWEST = 256  # rows: fewer are decoded faster in order than workers start
_MOST_WORKERS = {"cpu": 8, "cuda": 32}  # beside a GPU the cores do nothing else; beyond this, a disk is the limit
_SOCKET_LETTERS = 107 if sys.platform == "linux" else 103  # of the path of a socket, by the system
Item = TypeVar("Item")


def collate(batch: dict[str, Any]) -> dict[str, Any]:
    """Return the batch unchanged: `Images.__getitems__` returns whole batches."""
    return batch


def order_of(n: int, seed: int, epoch: int) -> torch.Tensor:
    """(n,) int64: the rows 0..n-1 in an order that is a function of (seed, epoch)."""
    state = np.random.SeedSequence((seed, epoch)).generate_state(1, np.uint64)
    return torch.randperm(n, generator=torch.Generator().manual_seed(int(state[0])))


class EpochRows(list[int]):
    """The rows of a batch, with the seed and the epoch for its random draws; pickled with them."""

    def __init__(self, rows: Iterable[int], seed: int, epoch: int) -> None:
        super().__init__(rows)
        self.seed = seed
        self.epoch = epoch


class EpochBatches(Sampler[list[int]]):
    """This rank's part, rows rank::world_size, of each global batch of an epoch, in its `order_of`.

    batch_size: of all ranks together.
    drop_last: leave out the last batch if it is not full; otherwise cut it to a multiple of world_size, as ranks
        with unequal batches would wait for each other for ever.
    first: the batch with which the next epoch that is read begins, 0 for those after it.
    Raises UserError when the ranks cannot share a batch evenly, or the images do not fill one.
    """

    def __init__(
        self, n: int, batch_size: int, seed: int, rank: int = 0, world_size: int = 1, drop_last: bool = True
    ) -> None:
        if batch_size < 1 or batch_size % world_size:
            raise UserError(f"batch_size={batch_size} must be a multiple of the number of processes, {world_size}")
        if n < (batch_size if drop_last else world_size):
            raise UserError(f"batch_size={batch_size} is more than the {n} images: lower batch_size")
        self.n, self.seed, self.epoch, self.first = n, seed, 0, 0
        self.batch_size = batch_size
        self.rank = rank
        self.world_size = world_size
        used = n - n % (batch_size if drop_last else world_size)
        self._starts = range(0, used, batch_size)
        self._used = used

    def set_epoch(self, epoch: int) -> None:
        self.epoch = epoch

    def __len__(self) -> int:
        return len(self._starts)

    def __iter__(self) -> Iterator[EpochRows]:
        rows = order_of(self.n, self.seed, self.epoch)[: self._used]
        first, self.first = self.first, 0
        for start in self._starts[first:]:
            rank_rows = rows[start : start + self.batch_size][self.rank :: self.world_size]
            yield EpochRows(rank_rows.tolist(), self.seed, self.epoch)


class ResumableLoader:
    """A DataLoader that goes on inside an epoch, also where Lightning's Trainer has stopped there.

    sampler, batch_sampler: the loader's `EpochBatches`, whose `set_epoch` is called before each epoch;
        Lightning's Trainer does so, too.
    delivered: batches of the current epoch, with those before a stop inside it.
    """

    def __init__(self, loader: DataLoader) -> None:
        self.loader = loader
        self.dataset = loader.dataset
        self.sampler = self.batch_sampler = loader.batch_sampler
        self.delivered = 0

    def __len__(self) -> int:
        return len(self.loader)

    def state_dict(self) -> dict[str, int]:
        """The place in an epoch, which Lightning's Trainer keeps in its checkpoints."""
        return {"first": self.delivered % len(self)}

    def load_state_dict(self, state: Mapping[str, int]) -> None:
        """Begin the next epoch that is read where `state_dict` was called."""
        self.sampler.first = state["first"]

    def __iter__(self) -> Iterator[dict[str, Any]]:
        self.delivered = self.sampler.first
        for batch in plain_errors(self.loader):
            self.delivered += 1
            yield batch


def plain_errors(loader: Iterable[Item]) -> Iterator[Item]:
    """Yield the loader's items; a UserError of a worker process is raised without the worker's traceback.

    Raises UserError for a data set that cannot be sent to workers which are not forked, and for a temporary folder in
    which they can have no sockets.
    """
    if getattr(loader, "num_workers", 0):
        check_sockets()
    try:
        batches = iter(loader)
    except (AttributeError, TypeError, pickle.PicklingError) as error:  # which of them depends on object and Python
        if not _is_of_pickling(error):
            raise
        raise UserError(
            f"worker processes cannot be sent this data set ({first_line(error)}): define its functions and classes at "
            "the top of a module, or take workers=0"
        ) from error
    try:
        yield from batches
    except UserError as error:
        del batches  # this frame is held by the error that is raised
        raise without_traceback(error) from error


def check_sockets() -> None:
    """Raises UserError where worker processes cannot send their batches, for which the loader would wait for ever."""
    folder = tempfile.gettempdir()
    most = _SOCKET_LETTERS - len("/pymp-01234567/listener-01234567")
    if len(os.fsencode(folder)) > most:
        raise UserError(
            f"the temporary folder {folder} has too long a name for the sockets of loader processes, at most {most} "
            "letters: set TMPDIR to a shorter one, or take workers=0"
        )


def _is_of_pickling(error: BaseException) -> bool:
    """Return whether the error arose while an object was pickled, which its text does not say in every Python."""
    frames = [frame.f_code for frame, _ in traceback.walk_tb(error.__traceback__)]
    return any(code is reduction.dump.__code__ for code in frames)


def without_traceback(error: UserError) -> UserError:
    """The UserError of a worker process, without the worker's traceback in its text.

    The frames of `error` are released, because they hold the loader's iterator, which ends its workers when it is
    freed. Freed later, in a reference cycle, it would wait five seconds for each of them.
    """
    error.with_traceback(None)
    return UserError(str(error).strip().rpartition("UserError: ")[2])


def make_loader(
    dataset: Images | CroppedImages,
    *,
    batch_size: int,
    seed: int,
    workers: int | str = Computing.workers,
    rank: int = 0,
    world_size: int = 1,
    device: str = "cpu",
    first: int = 0,
) -> ResumableLoader:
    """Shuffled full batches for training.

    dataset: of `sslkit.open_images`. seed: of the order; call `loader.sampler.set_epoch(epoch)` before each epoch.
    batch_size: of all ranks together. rank, world_size: of this process, and the number of processes.
    workers: decoding processes of this rank; "auto" is 0 for arrays, otherwise this rank's share of the cores minus
        one, 1 to 8, and up to 32 for a GPU.
    device: type of the device that the batches go to; for "cuda" they lie in pinned memory.
    first: batch with which the first epoch begins, where a training goes on inside it.
    Raises UserError as `EpochBatches` does, and for a number of workers that is invalid.
    """
    count = workers_for(dataset, workers, world_size, device)
    batches = EpochBatches(len(dataset), batch_size, seed, rank, world_size)
    batches.first = first
    return ResumableLoader(load_batches(dataset, batches, count, device=device, seed=seed, persistent=count > 0))


def load_batches(
    dataset: Dataset,
    batches: Sampler | Sequence[Any],
    workers: int,
    *,
    device: str,
    seed: int,
    persistent: bool = False,
) -> DataLoader:
    """A loader of these batches of rows, decoded by so many worker processes.

    device: type of the device that the batches go to; for "cuda" they lie in pinned memory.
    seed: of the workers' generators. persistent: the workers stay for the next epoch.
    """
    return DataLoader(
        dataset,
        batch_sampler=batches,
        collate_fn=collate,
        num_workers=workers,
        pin_memory=device == "cuda",
        persistent_workers=persistent,
        generator=torch.Generator().manual_seed(seed),  # otherwise the loader would draw from the caller's
    )


def batches_in_order(
    images: Images, rows: Sequence[int], size: int, *, workers: int | str | None = None, readers: int = 1
) -> Iterator[tuple[list[int], dict[str, Any]]]:
    """(requested rows, their batch from `Images.__getitems__`), `size` rows at a time, in order.

    workers, readers: see `batches_of_parts`.
    """
    return batches_of_parts(images, in_order(rows, size), workers=workers, readers=readers, device="cpu")


def in_order(rows: Sequence[int], size: int) -> Parts:
    """The rows, `size` at a time."""
    return Parts(-(-len(rows) // size), lambda part: rows[part * size : (part + 1) * size])


def evenly(length: int, most: int) -> list[int]:
    """At most `most` rows of `length`, the first and the last among them, at equal distances."""
    return torch.linspace(0, length - 1, min(length, most)).long().tolist()


def read_spaced(images: Images, most: int) -> Tensor:
    """(n, C, H, W) uint8, or clips: at most `most` images, evenly spaced, read by this process."""
    return images.__getitems__(evenly(len(images), most))["images"]


def batches_of_parts(
    images: Images,
    parts: Sequence[list[int]],
    *,
    workers: int | str | None = None,
    readers: int = 1,
    device: str,
) -> Iterator[tuple[list[int], dict[str, Any]]]:
    """(rows of a part, their batch from `Images.__getitems__`) of each part, in order.

    Images in memory, and fewer than `FEWEST` rows, are read by this process. Nothing is drawn from the caller's random
    generators, and the worker processes end with the iterator.
    workers: decoding processes, "auto" as in `loader.make_loader`; None: the images' own number.
    readers: ranks that read at the same time. device: as in `make_loader`.
    Raises the UserError of a worker without the worker's traceback.
    """
    many = any(rows >= FEWEST for rows in accumulate(map(len, parts))) and images.decodes
    count = workers_for(images, images.workers if workers is None else workers, readers, device) if many else 0
    if not count:
        yield from ((rows, images.__getitems__(rows)) for rows in parts)
        return
    yield from zip(
        parts, plain_errors(load_batches(images, parts, min(count, len(parts)), device=device, seed=0)), strict=True
    )


def workers_for(dataset: Images | CroppedImages, workers: int | str, world_size: int, device: str) -> int:
    """Number of worker processes of this rank, see `make_loader`."""
    is_daemon = multiprocessing.current_process().daemon
    if workers == "auto":
        if not dataset.decodes or is_daemon:
            return 0
        most = _MOST_WORKERS["cuda" if device == "cuda" else "cpu"]
        return max(1, min(most, cores() // _ranks_here(world_size, device) - 1))
    if not isinstance(workers, int) or workers < 0:
        raise UserError(f"workers={workers} must be auto or a number from 0")
    if workers and is_daemon:
        raise UserError(f"workers={workers}: this process is a daemon, which can start no workers; take 0 or auto")
    return workers


def _ranks_here(world_size: int, device: str) -> int:
    """Number of ranks on this machine: from the launcher, otherwise one for each GPU, or all of them."""
    gpus = torch.cuda.device_count() if device == "cuda" else 0
    return int(os.environ.get("LOCAL_WORLD_SIZE", min(world_size, gpus or world_size)))
