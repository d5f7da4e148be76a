"""Rows in the order they are asked for, with and without workers."""

import random
from pathlib import Path
from typing import Any

import numpy as np
import psutil
import pytest
import torch
from photographs import write_jpegs
from torch.utils.data import Dataset

from sslkit.data import loader
from sslkit.data.loader import batches_in_order, batches_of_parts
from sslkit.data.sources.named import open_images
from sslkit.errors import UserError


class Numbers(Dataset):
    """100 rows that hold their own number; row 99 cannot be read."""

    decodes, workers = True, "auto"

    def __len__(self) -> int:
        return 100

    def __getitems__(self, rows: list[int]) -> dict:
        if 99 in rows:
            raise UserError("row 99 is damaged")
        return {"images": torch.tensor(rows), "worker": torch.utils.data.get_worker_info() is not None}


class Arrays(Numbers):
    """The same in memory."""

    decodes = False


@pytest.fixture
def few(monkeypatch) -> None:
    """Workers from ten rows on."""
    monkeypatch.setattr(loader, "FEWEST", 10)


def states() -> tuple[Any, ...]:
    """The next numbers of this process's random generators."""
    return torch.random.get_rng_state().tolist(), np.random.get_state()[1].tolist(), random.getstate()


def children() -> set[int]:
    return {process.pid for process in psutil.Process().children()}


@pytest.mark.parametrize("fewest", [10, 1000])
def test_every_row_comes_once_in_order_and_nothing_is_drawn(fewest: int, monkeypatch) -> None:
    monkeypatch.setattr(loader, "FEWEST", fewest)
    rows, state = list(range(50, 10, -1)), states()
    read = list(batches_in_order(Numbers(), torch.tensor(rows).numpy(), 7))
    assert [len(asked) for asked, _ in read] == [7, 7, 7, 7, 7, 5]
    assert all(batch["images"].tolist() == asked for asked, batch in read)
    assert torch.cat([batch["images"] for _, batch in read]).tolist() == rows
    assert {batch["worker"] for _, batch in read} == {fewest == 10}
    assert states() == state


def test_arrays_and_workers_0_stay_in_this_process(few) -> None:
    without = Numbers()
    without.workers = 0
    for images, workers in ((Arrays(), "auto"), (Arrays(), 2), (Numbers(), 0), (without, None)):
        read = list(batches_in_order(images, range(90), 20, workers=workers))
        assert not any(batch["worker"] for _, batch in read)
        assert torch.cat([batch["images"] for _, batch in read]).tolist() == list(range(90))


def test_an_error_of_a_worker_is_its_own_line(few) -> None:
    before = children()
    with pytest.raises(UserError, match=r"^row 99 is damaged$"):
        list(batches_in_order(Numbers(), range(100), 20))
    assert children() == before


def test_workers_are_as_many_as_asked_and_end_with_the_reading(few) -> None:
    before = children()
    read = batches_of_parts(Numbers(), [[0, 1], [5], *([row] for row in range(20, 40))], workers=2, device="cpu")
    assert next(read)[0] == [0, 1] and len(children() - before) == 2
    assert next(read)[1]["images"].tolist() == [5]
    read.close()  # as by a reader that stops early
    assert children() == before
    one_part = batches_of_parts(Numbers(), [list(range(20))], workers=2, device="cpu")
    next(one_part)
    assert len(children() - before) == 1  # no more than there are parts
    one_part.close()


def test_files_are_the_same_by_workers_and_unreadable_ones_are_replaced(few, tmp_path: Path) -> None:
    folder = write_jpegs(tmp_path / "images")
    (folder / "05.jpg").write_bytes(b"not an image")
    images = open_images(folder, image_size=32, fit="crop")
    alone, by_workers = (list(batches_in_order(images, range(12), 5, workers=number)) for number in (0, 2))
    for (asked, one), (also, other) in zip(alone, by_workers, strict=True):
        assert asked == also and torch.equal(one["images"], other["images"])
        assert torch.equal(one["index"], other["index"]) and one["bad"] == other["bad"]
    assert torch.cat([batch["index"] for _, batch in by_workers]).tolist() == [0, 1, 2, 3, 4, 6, 6, *range(7, 12)]
    with pytest.raises(UserError, match=r"^cannot read .*05.jpg: .*\(on_error=skip"):
        list(batches_in_order(open_images(folder, image_size=32, on_error="raise"), range(12), 5, workers=2))
