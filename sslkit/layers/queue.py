"""A first-in first-out memory of embeddings: the negatives of MoCo and ReSSL, the older batches of SwAV."""

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from sslkit.errors import UserError, format_value
from sslkit.runtime import distributed


class Queue(nn.Module):
    """rows: (size, dim), random unit vectors until overwritten, oldest first.

    filled: number of rows written. Position and count are Python numbers, so that nothing waits for a device.
    Raises UserError for a size that is not an integer of at least 1.
    """

    def __init__(self, size: int, dim: int) -> None:
        super().__init__()
        if not isinstance(size, int) or size < 1:
            raise UserError(f"queue_size must be a whole number, at least 1, got {format_value(size)}")
        self.register_buffer("rows", F.normalize(torch.randn(size, dim), dim=1))
        self.position = 0
        self.filled = 0

    def __len__(self) -> int:
        return len(self.rows)

    @torch.no_grad()
    def push(self, x: Tensor) -> None:
        """x: (N, dim) gathered from all ranks; N need not divide the size, and if N exceeds it the last rows are kept.

        `rows` becomes a new tensor: the step's backward comes later and still needs the old one.
        """
        size = len(self)
        x = distributed.in_batch_order(x)[-size:].to(self.rows.dtype)
        first = x[: size - self.position]
        rows = self.rows.clone()
        rows[self.position : self.position + len(first)] = first
        rows[: len(x) - len(first)] = x[len(first) :]
        self.rows = rows
        self.position = (self.position + len(x)) % size
        self.filled = min(self.filled + len(x), size)

    def get_extra_state(self) -> Tensor:
        return torch.tensor([self.position, self.filled])

    def set_extra_state(self, state: Tensor) -> None:
        self.position, self.filled = state.tolist()
