"""Read clean images row by row, for evaluation, priors and statistics; files are decoded by worker processes."""

from collections.abc import Iterator, Sequence
from typing import Any

import torch
from torch.utils.data import DataLoader

from sslkit.data.images import Images
from sslkit.data.loader import plain_errors, workers_for
from sslkit.data.sources.named import collate

FEWEST = 256  # rows: fewer are decoded faster than workers start


def batches_in_order(
    images: Images, rows: Sequence[int], size: int, *, workers: int | str | None = None, readers: int = 1
) -> Iterator[tuple[list[int], dict[str, Any]]]:
    """(requested rows, their batch from `Images.__getitems__`), `size` rows at a time, in order.

    workers, readers: see `batches_of_parts`.
    """
    parts = [[int(row) for row in rows[start : start + size]] for start in range(0, len(rows), size)]
    return batches_of_parts(images, parts, workers=workers, readers=readers)


def batches_of_parts(
    images: Images, parts: Sequence[list[int]], *, workers: int | str | None = None, readers: int = 1
) -> Iterator[tuple[list[int], dict[str, Any]]]:
    """(rows of a part, their batch from `Images.__getitems__`) of each part, in order.

    Images in memory, and fewer than `FEWEST` rows, are read by this process. Nothing is drawn from the caller's random
    generators, and the worker processes end with the iterator.
    workers: decoding processes, "auto" as in `loader.make_loader`; None: the images' own number.
    readers: ranks that read at the same time.
    Raises the UserError of a worker without the worker's traceback.
    """
    many = sum(map(len, parts)) >= FEWEST and images.decodes
    count = workers_for(images, images.workers if workers is None else workers, readers) if many else 0
    if not count:
        yield from ((part, images.__getitems__(part)) for part in parts)
        return
    loader = DataLoader(
        images,
        batch_sampler=parts,
        collate_fn=collate,
        num_workers=min(count, len(parts)),
        pin_memory=torch.cuda.is_available(),
        generator=torch.Generator(),  # otherwise the loader would draw from the caller's
    )
    yield from plain_errors(zip(parts, loader, strict=True))
