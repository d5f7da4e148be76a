"""Images that are decoded once and kept: bit for bit the same in every reading, in memory and in a file."""

import os
from pathlib import Path

import numpy as np
import pytest
import torch
from photographs import write_jpegs

from sslkit.data import cached_images, loader
from sslkit.data.cached_images import CachedImages, Room
from sslkit.data.images import Images
from sslkit.data.sources.named import open_images

ROWS = np.array([3, 0, 7, 5, 11, 8, 1])
SIZE = len(ROWS) * 3 * 32 * 32  # bytes of what is kept


@pytest.fixture
def images(tmp_path: Path) -> Images:
    """Twelve photographs in two classes; row 5 cannot be read."""
    for number, path in enumerate(sorted(write_jpegs(tmp_path / "all").iterdir())):
        (tmp_path / "images" / "ab"[number // 6]).mkdir(parents=True, exist_ok=True)
        path.rename(tmp_path / "images" / "ab"[number // 6] / path.name)
    (tmp_path / "images" / "a" / "05.jpg").write_bytes(b"not an image")
    return open_images(tmp_path / "images", image_size=32, fit="crop")


def reading(clean: CachedImages, size: int) -> list[tuple[list[int], dict]]:
    return [(asked, dict(batch)) for asked, batch in clean.batches(size)]


def check_same(first: list, second: list) -> None:
    assert [asked for asked, _ in first] == [asked for asked, _ in second]
    for (_, one), (_, other) in zip(first, second, strict=True):
        assert one.keys() == other.keys() == {"images", "index", "label"}
        assert all(torch.equal(one[name], other[name]) and one[name].dtype == other[name].dtype for name in one)


@pytest.mark.parametrize("memory", [SIZE, SIZE - 1])
@pytest.mark.parametrize("workers", [0, 2])
def test_the_second_reading_is_the_first_without_decoding(
    memory: int, workers: int, images: Images, tmp_path: Path, monkeypatch
) -> None:
    monkeypatch.setattr(loader, "FEWEST", 2)
    images.workers = 0
    plain = reading(CachedImages(images, ROWS), 3)
    images.workers = workers
    clean = CachedImages(images, ROWS, room=Room(tmp_path / "cache", memory))
    check_same(plain, reading(clean, 3))
    assert (tmp_path / "cache").exists() == (memory < SIZE)  # a file only for what does not fit
    monkeypatch.setattr(type(images), "__getitems__", None)
    check_same(plain, reading(clean, 3))
    again = reading(clean, 4)  # another size, and what the caller writes stays the caller's
    again[0][1]["images"].zero_()
    check_same(plain, reading(clean, 3))
    assert [len(asked) for asked, _ in again] == [4, 3]
    assert plain[1][1]["index"].tolist() == [6, 11, 8] and plain[0][1]["label"].tolist() == [0, 0, 1]


def test_a_reading_that_stopped_early_is_begun_anew(images: Images, tmp_path: Path) -> None:
    clean = CachedImages(images, ROWS, room=Room(tmp_path))
    next(clean.batches(3))
    check_same(reading(CachedImages(images, ROWS), 3), reading(clean, 3))
    check_same(reading(CachedImages(images, ROWS), 3), reading(clean, 3))


def test_the_file_has_no_name_and_the_memory_is_shared(images: Images, tmp_path: Path) -> None:
    room = Room(tmp_path / "cache", SIZE)
    both = [CachedImages(images, ROWS, room=room) for _ in range(2)]
    first, second = (reading(one, 3) for one in both)
    check_same(first, second)
    assert isinstance(both[1]._pixels, np.memmap) and not isinstance(both[0]._pixels, np.memmap)
    assert not list((tmp_path / "cache").iterdir())  # nothing is left behind, even by a killed process


def no_space(descriptor: int, start: int, size: int) -> None:
    raise OSError(28, "No space left on device")


@pytest.mark.parametrize("reason", ["full", "nearly full", "in the way"])
def test_without_room_it_warns_once_and_decodes_again(
    reason: str, images: Images, tmp_path: Path, monkeypatch, capsys
) -> None:
    if reason == "full":
        monkeypatch.setattr(os, "posix_fallocate", no_space)
    elif reason == "nearly full":
        monkeypatch.setattr(cached_images, "_SHARE", 2**60)
    else:
        (tmp_path / "cache").write_text("a file")
    room = Room(tmp_path / "cache", 0)
    plain = reading(CachedImages(images, ROWS), 3)
    for clean in (CachedImages(images, ROWS, room=room), CachedImages(images, ROWS, room=room)):
        check_same(plain, reading(clean, 3))
        check_same(plain, reading(clean, 3))
    (said,) = capsys.readouterr().out.splitlines()
    assert said.startswith(f"no room in {tmp_path / 'cache'} to keep 0.0 GB of decoded images (")
    assert said.endswith("they are decoded again at every evaluation")


def test_a_disk_without_reservations_is_filled_with_zeros(images: Images, tmp_path: Path, monkeypatch) -> None:
    def unknown(*_: int) -> None:
        raise OSError(95, "Operation not supported")

    monkeypatch.setattr(os, "posix_fallocate", unknown)
    clean = CachedImages(images, ROWS, room=Room(tmp_path, 0))
    check_same(reading(clean, 3), reading(clean, 3))
    assert isinstance(clean._pixels, np.memmap)


def test_images_in_memory_are_not_kept_twice(tmp_path: Path) -> None:
    digits = open_images("digits")
    room = Room(tmp_path / "cache", 10**9)
    clean = CachedImages(digits, ROWS, room=room)
    check_same(reading(clean, 3), reading(clean, 3))
    assert room.memory == 10**9
