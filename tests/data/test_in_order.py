"""Rows in the order they are asked for, with and without workers."""

import pytest
import torch
from torch.utils.data import Dataset

from sslkit.data import in_order
from sslkit.errors import UserError


class Numbers(Dataset):
    """100 rows that hold their own number; row 99 cannot be read. decodes, frames: as videos have them."""

    decodes, frames = True, 4

    def __len__(self) -> int:
        return 100

    def __getitems__(self, rows: list[int]) -> dict:
        if 99 in rows:
            raise UserError("row 99 is damaged")
        return {"images": torch.tensor(rows), "worker": torch.utils.data.get_worker_info() is not None}


@pytest.mark.parametrize("workers", [False, True])
def test_every_row_comes_once_in_order_and_nothing_is_drawn(workers: bool, monkeypatch) -> None:
    monkeypatch.setattr(in_order, "_MANY", 10 if workers else 1000)
    rows, state = list(range(50, 10, -1)), torch.random.get_rng_state()
    read = list(in_order.batches_in_order(Numbers(), torch.tensor(rows).numpy(), 7))
    assert [len(asked) for asked, _ in read] == [7, 7, 7, 7, 7, 5]
    assert all(batch["images"].tolist() == asked for asked, batch in read)
    assert torch.cat([batch["images"] for _, batch in read]).tolist() == rows
    assert {batch["worker"] for _, batch in read} == {workers}
    assert torch.equal(torch.random.get_rng_state(), state)


def test_an_error_of_a_worker_is_its_own_line(monkeypatch) -> None:
    monkeypatch.setattr(in_order, "_MANY", 10)
    with pytest.raises(UserError, match=r"^row 99 is damaged$"):
        list(in_order.batches_in_order(Numbers(), range(100), 20))
