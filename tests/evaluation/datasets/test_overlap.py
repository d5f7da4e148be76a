"""overlap: equal images of two splits, by content."""

import shutil
from pathlib import Path

import numpy as np
import pytest

from evaluation.datasets import open_split, overlap
from sslkit import open_images
from sslkit.errors import UserError


@pytest.fixture
def folder(tmp_path, picture) -> Path:
    for split in ("train", "test"):
        for name in ("cat", "dog"):
            for number in range(3):
                picture(tmp_path / split / name / f"{number}.jpg")
    return tmp_path


def test_files_that_are_in_both(folder) -> None:
    train, test = (open_split(folder, split, image_size=16) for split in ("train", "test"))
    assert overlap(train, test) == []
    shutil.copy(folder / "train" / "cat" / "1.jpg", folder / "test" / "dog" / "2.jpg")
    shutil.copy(folder / "train" / "cat" / "1.jpg", folder / "train" / "dog" / "0.jpg")
    damaged = bytearray((folder / "train" / "dog" / "1.jpg").read_bytes())
    damaged[-20] ^= 1  # as long as the other, another content
    (folder / "test" / "dog" / "1.jpg").write_bytes(damaged)
    assert overlap(train, test) == [("cat/1.jpg", "dog/2.jpg")] and len(overlap(train, train)) == 6
    (folder / "test" / "dog" / "2.jpg").unlink()
    with pytest.raises(UserError, match=r"cannot compare .*2.jpg with other images: No such file or directory"):
        overlap(train, test)


def test_only_files_of_a_size_that_both_have_are_read(folder, monkeypatch) -> None:
    train, test = (open_split(folder, split, image_size=16) for split in ("train", "test"))
    for number, path in enumerate(sorted(folder.rglob("*.jpg"))):
        path.write_bytes(bytes(range(number + 1)))
    shutil.copy(folder / "train" / "cat" / "0.jpg", folder / "test" / "cat" / "0.jpg")
    read, plain = [], Path.read_bytes
    monkeypatch.setattr(Path, "read_bytes", lambda path: read.append(str(path)) or plain(path))
    assert overlap(train, test) == [("cat/0.jpg", "cat/0.jpg")]
    assert sorted(read) == sorted(str(folder / split / "cat" / "0.jpg") for split in ("train", "test"))


def test_arrays_that_are_in_both(tmp_path) -> None:
    digits = open_images("digits")
    np.savez(
        tmp_path / "a.npz",
        x_train=digits.pixels[:50, 0],
        y_train=digits.labels[:50],
        x_test=digits.pixels[[60, 7, 61, 7], 0],
        y_test=digits.labels[[60, 7, 61, 7]],
    )
    train, test = (open_split(tmp_path / "a.npz", split) for split in ("train", "test"))
    assert overlap(train, test) == sorted([(train.ids[7], test.ids[1]), (train.ids[7], test.ids[3])])
    assert overlap(open_split("digits", "train"), open_split("digits", "test")) == []


def test_files_and_arrays_are_not_compared(folder) -> None:
    with pytest.raises(UserError, match="files and arrays cannot be compared"):
        overlap(open_split(folder, image_size=16), open_split("digits"))
