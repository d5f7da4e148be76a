"""A .zip of images is read as the folder that was packed: its splits, its classes, its pixels, and what is left out."""

import io
import pickle
import shutil
import subprocess
import tracemalloc
import zipfile
from pathlib import Path

import pytest
import torch
from PIL import Image
from tars import DIGITS, labels, opened, picture, rows_read

from sslkit.data.decode import budget
from sslkit.data.sources import zip_archives
from sslkit.data.sources.named import open_images, splits
from sslkit.errors import UserError

METHODS = (zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED)
CUT = {"train/cat/a.png": 0, "train/dog/b.png": 1, "val/cat/c.png": 2, "val/dog/d.png": 3}


def packed(path: Path, members: dict[str, bytes], method: int = zipfile.ZIP_DEFLATED) -> Path:
    with zipfile.ZipFile(path, "w", method) as out:
        for name, content in members.items():
            out.writestr(name, content)
    return path


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    for row in range(12):
        path = tmp_path / "photos" / ("train", "train", "val")[row % 3] / f"digit {row % 2}" / f"{row:02}.png"
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(picture(row))
    return tmp_path / "photos"


@pytest.mark.parametrize("writer", ["stored", "deflated", "shutil", "streamed", "zip"])
def test_a_packed_folder_is_that_folder(writer: str, folder: Path) -> None:
    path = folder.with_suffix(".zip")
    files = {file.relative_to(folder.parent).as_posix(): file.read_bytes() for file in sorted(folder.rglob("*.png"))}
    if writer in ("stored", "deflated"):
        packed(path, dict(reversed(files.items())), METHODS[writer == "deflated"])
    elif writer == "shutil":  # with members for the folders
        shutil.make_archive(str(folder), "zip", folder.parent, folder.name)
    elif writer == "zip":
        program = shutil.which("zip") or pytest.skip("there is no zip")
        subprocess.run([program, "-qr", path.name, folder.name], check=True, cwd=folder.parent)
    else:  # sizes behind the members, and not in their headers
        with path.open("wb") as file, zipfile.ZipFile(Stream(file), "w", zipfile.ZIP_DEFLATED) as out:
            for name, content in files.items():
                out.writestr(name, content)
    assert splits(f"shards:{path}", cache=None) == splits(folder) == ("train", "test")
    for split in ("train", "test"):
        want = open_images(folder, split=split, image_size=8)
        found, said = opened(path, split=split)
        assert said == ["photos: train/ and val/ in its members' names are its splits"]
        every = list(range(len(want)))
        for images in (found, pickle.loads(pickle.dumps(found))):
            assert torch.equal(images.__getitems__(every)["images"], want.__getitems__(every)["images"])
        assert (found.classes, found.labels.tolist()) == (want.classes, want.labels.tolist())
        assert [found.content_size(row) for row in every] == [want.content_size(row) for row in every]


class Stream:
    """A file that can only be written."""

    def __init__(self, file) -> None:
        self.write, self.flush = file.write, file.flush


def test_labels_in_files_of_their_own_and_what_is_left_out(tmp_path: Path, monkeypatch) -> None:
    monkeypatch.setattr(zip_archives, "MOST", 10_000)
    members = {"b.cls": b"7", "a.png": picture(4), "a.cls": b"3", "b.png": picture(5), "__MACOSX/._a.png": b"x"}
    members |= {"notes.md": b"-", "large.png": bytes(10_001)}
    path = packed(tmp_path / "x.zip", members)
    with zipfile.ZipFile(path, "a", zipfile.ZIP_LZMA) as out:
        out.writestr("c.png", picture(6))
        link = zipfile.ZipInfo("d.png")
        link.external_attr = 0o120777 << 16
        out.writestr(link, "a.png")
    images, said = opened(path)
    assert rows_read(images) == [4, 5] and labels(images) == ["3", "7"]
    assert said == [
        "x: 2 images; left out 4 other members: 1 .md, 1 links, 1 of more than 10,000 bytes, 1 packed by another "
        "method than deflate"
    ]


def test_a_table_inside_is_not_read_and_said(tmp_path: Path) -> None:
    table = b"file_name,label\na.png,cat\nb.png,dog\n"
    path = packed(tmp_path / "all.zip", {"a.png": picture(0), "b.png": picture(1), "metadata.csv": table})
    with pytest.warns(UserWarning, match=r"metadata\.csv in it is not read: unpack it, and data=FOLDER"):
        assert open_images(f"shards:{path}", image_size=8, cache=None).labels is None


def test_a_locked_one_is_said(tmp_path: Path) -> None:
    content = bytearray(packed(tmp_path / "x.zip", {"a.png": picture(0)}).read_bytes())
    content[content.index(b"PK\1\2") + 8] |= 1
    (tmp_path / "x.zip").write_bytes(content)
    with pytest.raises(UserError, match=r"there is no image in 1 shard, such as .*x.zip; left out .*: 1 encrypted"):
        opened(tmp_path / "x.zip")


@pytest.mark.parametrize("place", ["content", "header"])
def test_a_damaged_image_is_named_and_another_is_used(place: str, tmp_path: Path) -> None:
    path = packed(tmp_path / "x.zip", {f"{row}.png": picture(row) for row in range(3)})
    images, _ = opened(path)
    content = bytearray(path.read_bytes())
    start = content.index(b"PK\3\4", 4)
    content[start : start + (4 if place == "header" else 0)] = b"none"[: 4 if place == "header" else 0]
    if place == "content":
        content[start + 35 : start + 60] = b"\xff" * 25
    path.write_bytes(content)
    batch = images.__getitems__([0, 1, 2])
    (bad,) = batch["bad"]
    assert bad.endswith("x.zip/1.png")
    assert (batch["images"][[0, 2]].numpy() == DIGITS.pixels[[0, 2]]).all()


@pytest.mark.parametrize(
    ("left", "said"),
    [(0, "it is empty: copy it again"), (10, "File is not a zip file"), (200, "File is not a zip file")],
)
def test_a_cut_file_is_damaged(left: int, said: str, tmp_path: Path) -> None:
    path = packed(tmp_path / "x.zip", {f"{row}.png": picture(row) for row in range(3)})
    path.write_bytes(path.read_bytes()[:left])
    with (
        pytest.warns(UserWarning, match=rf"x.zip is damaged \({said}\): its first 0 images are used"),
        pytest.raises(UserError, match="there is no image in 1 shard"),
    ):
        open_images(f"shards:{path}", cache=None)


def test_a_member_unpacks_to_what_the_list_says_and_no_more(tmp_path: Path) -> None:
    """A header may promise little and hold much."""
    path = packed(tmp_path / "x.zip", {"a.png": bytes(2**24)})
    whole = path.read_bytes()

    def some(offset: int, size: int) -> bytes:
        return whole[offset : offset + size]

    assert zip_archives.unpack(some, 0, 100) == bytes(100) and zip_archives.unpack(some, 0, 2**24) == bytes(2**24)
    assert len(zip_archives.unpack(some, 0, 2**25)) == 2**24


def test_a_zip_of_another_file_system(tmp_path: Path) -> None:
    import fsspec

    with fsspec.open("memory://bucket/photos.zip", "wb") as file:
        file.write(packed(tmp_path / "x.zip", {name: picture(row) for name, row in CUT.items()}).read_bytes())
    images, said = opened("memory://bucket/photos.zip", split="test")
    assert rows_read(images) == [2, 3] and images.name == "photos" and len(said) == 1


def test_a_picture_in_front_of_the_archive_moves_its_members(tmp_path: Path) -> None:
    path = packed(tmp_path / "x.zip", {"a.png": picture(0), "b.png": picture(1)})
    path.write_bytes(b"#!/bin/unzip\n" * 5 + path.read_bytes())
    assert rows_read(opened(path)[0]) == [0, 1]


def test_the_test_images_of_a_zip_with_numbers_are_named(tmp_path: Path) -> None:
    path = packed(tmp_path / "x.zip", {name: picture(row) for name, row in CUT.items()} | {"extra.png": picture(9)})
    images, (said,) = opened(path)
    assert rows_read(images) == [0, 1]
    assert said.endswith(
        "train/ and val/ in its members' names are its splits; left out 1 image beside them, such as extra.png"
    )


@pytest.mark.parametrize(
    ("start", "said"), [(b"", "does not begin as an image"), (picture(0)[:64], "times its packed")]
)
def test_a_member_of_zeros_takes_no_memory(start: bytes, said: str, tmp_path: Path) -> None:
    """Of a gigabyte a .zip needs a megabyte; one with the start of an image is unpacked a little farther."""
    size = 2 * budget.UNPACKED
    path = packed(tmp_path / "x.zip", {"a.png": picture(1), "b.png": start + bytes(size - len(start))})
    assert path.stat().st_size < 2**18
    images, _ = opened(path)
    tracemalloc.start()
    assert images.__getitems__([1])["bad"] == [f"{path}/b.png"]
    assert tracemalloc.get_traced_memory()[1] < 1.2 * budget.UNPACKED
    tracemalloc.stop()
    with pytest.raises(OSError, match=f"needed more than 67,108,864 bytes.*{said}"):
        images.content(1)


def test_a_blank_page_may_be_packed_like_zeros(tmp_path: Path) -> None:
    image = io.BytesIO()
    Image.new("L", (7000, 7000)).save(image, "BMP")
    images, _ = opened(packed(tmp_path / "x.zip", {"a.bmp": image.getvalue()}))
    assert images.__getitems__([0])["bad"] == [] and not images.__getitems__([0])["images"].any()
