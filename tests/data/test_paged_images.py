"""Files of several pages: the first, which is said, or each as an image of its own."""

import warnings
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from sslkit.data.loader import batches_in_order
from sslkit.data.sources.named import open_images
from sslkit.errors import UserError

ENDINGS = ("tif", "gif", "webp", "png")


def save(path: Path, grays: list[int], **options: object) -> None:
    """One page of each gray."""
    path.parent.mkdir(parents=True, exist_ok=True)
    pages = [Image.new("RGB", (16, 16), (gray,) * 3) for gray in grays]
    quality = {"lossless": True} if path.suffix == ".webp" else {}
    pages[0].save(path, save_all=True, append_images=pages[1:], **quality, **options)


def grays(images) -> list[int]:
    return images.__getitems__(list(range(len(images))))["images"][:, 0, 8, 8].tolist()


@pytest.mark.parametrize("ending", ENDINGS)
def test_the_first_page_is_read_and_it_is_said(tmp_path, ending: str) -> None:
    save(tmp_path / f"0.{ending}", [10, 100, 200])
    save(tmp_path / f"1.{ending}", [50])
    with pytest.warns(UserWarning, match=r"1 of 2 files looked at have several pages \(up to 3\), of which the first"):
        images = open_images(tmp_path, image_size=16)
    assert grays(images) == [10, 50]


@pytest.mark.parametrize("ending", ENDINGS)
def test_every_page_is_an_image(tmp_path, ending: str) -> None:
    save(tmp_path / "a" / f"0.{ending}", [10, 100, 200])
    save(tmp_path / "b" / f"1.{ending}", [50])
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        images = open_images(tmp_path, image_size=16, pages="all")
    assert grays(images) == [10, 100, 200, 50]
    names = [images.image_name(row) for row in range(4)]
    assert names == [f"a/0.{ending}#1", f"a/0.{ending}#2", f"a/0.{ending}#3", f"b/1.{ending}"]
    assert images.path(1) == f"{tmp_path}/a/0.{ending}#2"
    assert images.labels.tolist() == [0, 0, 0, 1] and images.classes == ["a", "b"]


def test_the_identity_of_pages(tmp_path) -> None:
    save(tmp_path / "0.tif", [10, 100, 200])
    images = open_images(tmp_path, image_size=16, pages="all")
    again = open_images(tmp_path, image_size=16, pages="all")
    with pytest.warns(UserWarning):
        first = open_images(tmp_path, image_size=16)
    assert images.digest == again.digest != first.digest and images.listing != first.listing
    part = images.part(np.array([2, 0]), "test")
    assert grays(part) == [200, 10] and part.digest != images.digest


def test_pages_keep_their_order_in_workers_and_other_sizes(tmp_path) -> None:
    save(tmp_path / "0.tif", [10, 100, 200, 30])
    images = open_images(tmp_path, image_size=16, pages="all").at(image_size=8, channels=1, fit="crop")
    found = [batch["images"][:, 0, 4, 4].tolist() for _, batch in batches_in_order(images, range(4), 2, workers=2)]
    assert found == [[10, 100], [200, 30]]


def test_pages_of_more_than_eight_bits_share_one_range(tmp_path) -> None:
    pages = [Image.fromarray(np.full((16, 16), value, np.uint16)) for value in (0, 1000, 4000)]
    pages[0].save(tmp_path / "0.tif", save_all=True, append_images=pages[1:])
    with pytest.warns(UserWarning, match=r"\(3 of 3 looked at\).*range=\[0,4095\]"):
        images = open_images(tmp_path, image_size=16, pages="all")
    assert grays(images) == [0, 62, 249]


def test_smaller_copies_and_masks_are_no_pages(tmp_path) -> None:
    """As Cloud Optimized GeoTIFFs and scanners write them."""
    tifffile = pytest.importorskip("tifffile")
    with tifffile.TiffWriter(tmp_path / "0.tif") as writer:
        writer.write(np.full((16, 16), 10, np.uint8))
        writer.write(np.full((8, 8), 99, np.uint8), subfiletype=1)
        writer.write(np.full((16, 16), 20, np.uint8))
    images = open_images(tmp_path, image_size=16, pages="all")
    assert grays(images) == [10, 20] and images.image_name(1) == "0.tif#3"


def test_second_pictures_of_cameras_are_not_spoken_of(tmp_path) -> None:
    first, second = (Image.new("RGB", (16, 16), (gray,) * 3) for gray in (10, 200))
    first.save(tmp_path / "0.mpo", save_all=True, append_images=[second])
    (tmp_path / "0.mpo").rename(tmp_path / "0.jpg")
    first.save(tmp_path / "1.png")
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert open_images(tmp_path, image_size=16).channels == 3


def test_a_damaged_file_is_one_unreadable_page(tmp_path) -> None:
    save(tmp_path / "0.tif", [10, 100])
    (tmp_path / "1.tif").write_bytes(b"II*\0broken")
    images = open_images(tmp_path, image_size=16, pages="all")
    batch = images.__getitems__([0, 1, 2])
    assert batch["bad"] == [str(tmp_path / "1.tif")] and batch["index"].tolist() == [0, 1, 0]


def test_an_unknown_choice_of_pages(tmp_path) -> None:
    save(tmp_path / "0.tif", [10, 100])
    with pytest.raises(UserError, match=r"pages must be first or all"):
        open_images(tmp_path, pages="every")
