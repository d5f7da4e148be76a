"""The same image: equal decoded pixels at full size, upright, in whatever file; and what follows from it."""

import io
import shutil
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from evaluation.datasets import open_split, overlap
from evaluation.datasets._copies import together, units
from sslkit import open_images
from sslkit.data.sources.shard_writer import write_shards
from sslkit.numerics.neighbours import Own

TURNED = {3: Image.Transpose.ROTATE_180, 6: Image.Transpose.ROTATE_90, 8: Image.Transpose.ROTATE_270}


@pytest.fixture
def folder(tmp_path, picture) -> Path:
    for split in ("train", "test"):
        for name in ("cat", "dog"):
            for number in range(3):
                picture(tmp_path / split / name / f"{number}.jpg")
    return tmp_path


def opened(folder: Path) -> list:
    return [open_split(folder, split, image_size=16, on_error="skip") for split in ("train", "test")]


def test_files_that_are_in_both(folder) -> None:
    train, test = opened(folder)
    assert overlap(train, test) == []
    shutil.copy(folder / "train" / "cat" / "1.jpg", folder / "test" / "dog" / "2.jpg")
    shutil.copy(folder / "train" / "cat" / "1.jpg", folder / "train" / "dog" / "0.jpg")
    (folder / "test" / "dog" / "1.jpg").write_bytes(b"no image")
    assert overlap(*opened(folder)) == [("cat/1.jpg", "dog/2.jpg")]
    assert len(overlap(train, train)) == 6


@pytest.mark.parametrize("ending", ["png", "bmp", "tif", "webp", "ppm"])
@pytest.mark.parametrize("orientation", [1, *TURNED])
def test_an_image_in_another_lossless_file_is_the_same(folder, ending: str, orientation: int) -> None:
    """Larger than twice the size that is asked for: a JPEG decoded at a half would be another image."""
    image = Image.fromarray(np.random.default_rng(0).integers(0, 256, (90, 120, 3), dtype=np.uint8))
    image = image.resize((240, 180))
    image.save(folder / "train" / "cat" / "photo.jpg", quality=92)
    decoded = Image.open(folder / "train" / "cat" / "photo.jpg")
    exif = Image.Exif()
    if ending in ("png", "webp", "tif"):
        decoded = decoded if orientation == 1 else decoded.transpose(TURNED[orientation])
        exif[0x0112] = orientation
        exif[0x010E] = "other words about the picture"
    decoded.save(
        folder / "test" / "dog" / f"other.{ending}", exif=exif, **({"lossless": True} if ending == "webp" else {})
    )
    assert overlap(*opened(folder)) == [("cat/photo.jpg", f"dog/other.{ending}")]


def test_gray_deep_and_transparent_pictures(tmp_path) -> None:
    rng = np.random.default_rng(0)
    gray, deep = rng.integers(0, 256, (20, 30), dtype=np.uint8), rng.integers(0, 4000, (20, 30)).astype(np.uint16)
    see_through = rng.integers(0, 256, (20, 30, 4), dtype=np.uint8)
    see_through[..., 3] = 255
    for split, names in (("train", ("a.png", "b.png", "c.png")), ("test", ("x.bmp", "y.tif", "z.png"))):
        (tmp_path / split / "one").mkdir(parents=True)
        (tmp_path / split / "two").mkdir(parents=True)
        first = Image.fromarray(gray if split == "train" else np.repeat(gray[..., None], 3, 2))
        last = Image.fromarray(see_through if split == "train" else see_through[..., :3])
        for name, image in zip(names, (first, Image.fromarray(deep), last), strict=True):
            image.save(tmp_path / split / "one" / name)
        Image.fromarray(rng.integers(0, 256, (20, 30, 3), dtype=np.uint8)).save(tmp_path / split / "two" / "d.png")
    found = overlap(*(open_split(tmp_path, split, image_size=16, channels=3) for split in ("train", "test")))
    assert found == [("one/a.png", "one/x.bmp"), ("one/b.png", "one/y.tif"), ("one/c.png", "one/z.png")]


def test_files_shards_and_arrays_compare(folder, tmp_path) -> None:
    write_shards(folder / "test", tmp_path / "shards")
    shards = open_split(f"shards:{tmp_path / 'shards'}", "all", image_size=16)
    test = open_split(folder, "test", image_size=16)
    assert len(overlap(shards, test)) == 6
    pixels = np.stack([np.asarray(Image.open(test.images.path(row))) for row in range(6)])
    np.savez(tmp_path / "a.npz", x_train=pixels[[0, 4]], y_train=[0, 1], x_test=pixels[:2], y_test=[0, 1])
    arrays = open_split(tmp_path / "a.npz", "train")
    assert sorted(name for _, name in overlap(arrays, test)) == [test.ids[0], test.ids[4]]


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


def test_metadata_alone_make_no_other_image(folder) -> None:
    path = folder / "train" / "cat" / "0.jpg"
    content = path.read_bytes()
    comment = b"\xff\xfe\x00\x07hello"  # a segment of JPEG behind its start
    (folder / "test" / "dog" / "0.jpg").write_bytes(content[:2] + comment + content[2:])
    assert Image.open(io.BytesIO((folder / "test" / "dog" / "0.jpg").read_bytes())).info["comment"] == b"hello"
    assert overlap(*opened(folder)) == [("cat/0.jpg", "dog/0.jpg")]


def test_copies_and_groups_stay_together() -> None:
    images, groups = np.array([1, 2, 3, 1, 4]), np.array([0, 0, 5, 5, 7])
    assert together(np.arange(5), None) is None and together(np.arange(5), groups) is groups
    assert together(images, None).tolist()[0] == together(images, None).tolist()[3]
    joined = together(images, groups)
    assert len(set(joined[:4])) == 1 and joined[4] != joined[0]
    names, first, member = units(np.array(["d", "c", "b", "a", "e"]), images, None)
    assert names.tolist() == ["a", "b", "c", "e"] and member.tolist() == [0, 2, 1, 0, 3]
    assert names[member[first]].tolist() == names.tolist()
    assert units(np.array(["d", "c"]), np.array([1, 2]), None)[0].tolist() == ["c", "d"]


def test_an_image_owns_its_copies_and_every_group_that_has_one() -> None:
    """A blank page in two files: it belongs to both, and their other pages do not belong to each other."""
    learned, groups = np.array([9, 1, 9, 2, 3]), np.array([0, 0, 4, 4, 8])
    own = Own.from_rows(learned, np.array([9, 1, 2, 5]), groups)
    held = own.holds(np.arange(4)[:, None], np.arange(5))
    want = [[1, 1, 1, 1, 0], [1, 1, 0, 0, 0], [0, 0, 1, 1, 0], [0, 0, 0, 0, 0]]
    assert held.tolist() == np.array(want, bool).tolist()
    assert own.in_train.tolist() == [True, True, True, False] and own.most == 4
    turned = own.at(np.array([4, 3, 2, 1, 0]), np.array([1]))
    assert turned.holds(np.array([[0]]), np.arange(5)).tolist() == [[False, False, False, True, True]]
    assert not Own.from_rows(learned, np.array([5]), None).holds(np.array([0]), np.arange(5)).any()
