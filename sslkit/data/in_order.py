"""Read clean images row by row, for evaluation and priors; many videos are decoded by worker processes."""

from collections.abc import Iterator, Sequence
from typing import Any

import torch
from torch.utils.data import DataLoader

from sslkit.data.images import Images
from sslkit.data.loader import plain_errors, workers_for
from sslkit.data.sources import collate

_MANY = 256  # videos: fewer are decoded faster than workers start


def batches_in_order(images: Images, rows: Sequence[int], size: int) -> Iterator[tuple[list[int], dict[str, Any]]]:
    """(requested rows, their batch from `Images.__getitems__`), `size` rows at a time, in order."""
    parts = [[int(row) for row in rows[start : start + size]] for start in range(0, len(rows), size)]
    if not hasattr(images, "frames") or len(rows) < _MANY:
        yield from ((part, images.__getitems__(part)) for part in parts)
        return
    workers = workers_for(images, "auto", 1)
    # A separate generator: otherwise the loader would draw from the caller's.
    loader = DataLoader(
        images, batch_sampler=parts, collate_fn=collate, num_workers=workers, generator=torch.Generator()
    )
    yield from plain_errors(zip(parts, loader, strict=True))
