"""Pixels of many batches: the same whether they are kept or read again."""

import multiprocessing
from pathlib import Path

import numpy as np
import pytest
import torch
from PIL import Image

from evaluation.tuning.pixels import Pixels, Pool
from sslkit import open_images
from sslkit.errors import UserError

CPU = torch.device("cpu")


def folder(root: Path) -> Path:
    """Ten files of different shapes, in two classes."""
    rng = np.random.default_rng(0)
    for number in range(10):
        path = root / "ab"[number % 2] / f"{number}.png"
        path.parent.mkdir(exist_ok=True, parents=True)
        Image.fromarray(rng.integers(256, size=(20 + number, 30, 3), dtype=np.uint8)).save(path)
    return root


def test_rows_are_numbered_one_part_after_the_other() -> None:
    train, test = open_images("digits"), open_images("digits", split="test")
    pool = Pool([train, test])
    assert len(pool) == len(train) + len(test)
    batch = pool.__getitems__([len(train) + 3, 5, len(train), len(train) - 1])
    wanted = [test.pixels[3], train.pixels[5], test.pixels[0], train.pixels[-1]]
    assert (batch["images"].numpy() == np.stack(wanted)).all() and (batch["aspect"] == 1).all()
    one = pool.__getitems__([len(train) + 3])
    assert one["images"].shape == (1, 1, 8, 8) and (one["images"][0].numpy() == test.pixels[3]).all()
    with pytest.raises(UserError, match="different"):
        Pool([train, open_images("digits", image_size=9)])


def test_files_that_are_kept_and_files_that_are_read_are_the_same(tmp_path: Path) -> None:
    images = open_images(folder(tmp_path), image_size=24)
    rows, places = np.array([9, 2, 4, 7]), torch.tensor([[3, 0], [1, 1], [2, 3]])
    kept, read = (Pixels(Pool([images]), rows, CPU, resident) for resident in (True, False))
    for (a, aspect_a), (b, aspect_b), at in zip(kept.batches(places), read.batches(places), places, strict=True):
        expected = images.__getitems__(rows[at].tolist())
        assert torch.equal(a, expected["images"]) and torch.equal(b, expected["images"])
        assert torch.equal(aspect_a, expected["aspect"]) and torch.equal(aspect_b, expected["aspect"])
    assert kept.images.shape == (4, 3, 24, 24)


def test_what_does_not_fit_is_read_again(monkeypatch: pytest.MonkeyPatch) -> None:
    pool = Pool([open_images("digits")])
    assert Pixels(pool, np.arange(100), CPU).resident
    monkeypatch.setattr("evaluation.tuning.pixels.CPU_BYTES", 99 * 64)
    assert not Pixels(pool, np.arange(100), CPU).resident and Pixels(pool, np.arange(99), CPU).resident


@pytest.mark.parametrize("on_error", ["raise", "skip"])
def test_a_damaged_file_is_named_and_never_replaced_by_its_neighbour(tmp_path: Path, on_error: str) -> None:
    images = open_images(folder(tmp_path), image_size=24, on_error=on_error)
    (tmp_path / "a" / "4.png").write_bytes(b"not an image")
    before = multiprocessing.active_children()
    with pytest.raises(UserError, match=r"4\.png") as caught:
        list(Pixels(Pool([images]), np.arange(10), CPU).batches(torch.arange(10)[None]))
    assert "Traceback" not in str(caught.value)
    assert not {*multiprocessing.active_children()} - {*before}, "workers ended, though the error is still held"


def test_what_is_kept_can_be_read_before_it_is_asked_for(tmp_path: Path) -> None:
    images = open_images(folder(tmp_path), image_size=24)
    kept, read = (Pixels(Pool([images]), np.arange(10), CPU, resident) for resident in (True, False))
    kept.keep(), read.keep()
    assert kept.images.shape == (10, 3, 24, 24) and read.images is None
    for path in tmp_path.glob("*/*.png"):
        path.unlink()
    (batch, _), *_ = kept.batches(torch.tensor([[3, 0]]))
    assert torch.equal(batch, kept.images[[3, 0]])
