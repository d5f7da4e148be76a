"""Images with more pixels than Pillow opens."""

import warnings
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from sslkit.data.in_order import batches_in_order
from sslkit.data.sources.named import open_images
from sslkit.data.views.cropped import CroppedImages
from sslkit.data.views.recipe import SIMCLR
from sslkit.errors import UserError

MOST = 2 * 500  # pixels that Pillow opens in these tests: twice its limit


@pytest.fixture
def folder(tmp_path, monkeypatch) -> Path:
    """Images of 20 x 20 pixels, and a large one of 40 x 40."""
    monkeypatch.setattr(Image, "MAX_IMAGE_PIXELS", 500)
    for number, (side, ending) in enumerate(((20, "png"), (40, "png"), (20, "png"), (40, "jpg"))):
        Image.new("L", (side, side), 10 * number + 10).save(tmp_path / f"{number}.{ending}", quality=100)
    return tmp_path


def test_a_large_image_is_left_out_with_the_reason_and_the_way_to_read_it(folder: Path) -> None:
    with pytest.warns(UserWarning, match=rf"left out .*1\.png: it has more than {MOST:,} pixels.*data.max_pixels="):
        images = open_images(folder, image_size=20)
    assert images.__getitems__([1])["bad"] == [str(folder / "1.png")]


def test_a_large_image_that_was_not_looked_at_is_said_when_it_is_met(folder: Path) -> None:
    (folder / "1.png").unlink()
    images = open_images(folder, image_size=20)  # JPEGs are not looked at
    with pytest.warns(UserWarning, match=r"left out .*3\.jpg: it has more than") as said:
        assert images.__getitems__([2])["bad"] == [str(folder / "3.jpg")]
        images.__getitems__([2])
    assert len(said) == 1


@pytest.mark.parametrize("workers", [0, 2])
def test_large_images_are_read_where_they_are_allowed(folder: Path, workers: int) -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("error")  # Pillow's own too
        images = open_images(folder, image_size=20, max_pixels=1600)
        found = [batch for _, batch in batches_in_order(images, range(4), 2, workers=workers)]
    assert [batch["bad"] for batch in found] == [[], []]
    assert np.concatenate([batch["images"][:, 0, 9, 9].numpy() for batch in found]).tolist() == [10, 20, 30, 40]


@pytest.mark.parametrize("channels", [1, 3, 4])
def test_large_crops_are_cut_where_they_are_allowed(folder: Path, channels: int) -> None:
    images = open_images(folder, image_size=20, max_pixels=1600, channels=channels)
    batch = CroppedImages(images, SIMCLR, 16, whole=True).__getitems__([0, 1, 2, 3])
    assert batch["bad"] == [] and batch["images"].whole[:, 0, 9, 9].tolist() == [10, 20, 30, 40]


def test_what_one_set_allows_another_does_not(folder: Path) -> None:
    open_images(folder, image_size=20, max_pixels=1600).__getitems__([1])
    assert Image.MAX_IMAGE_PIXELS == 500
    with pytest.warns(UserWarning, match="left out"):
        assert open_images(folder, image_size=20).__getitems__([1])["bad"]


def test_a_lower_limit_is_kept(folder: Path) -> None:
    with (
        pytest.warns(UserWarning, match=r"it has 400 pixels, more than 100: data.max_pixels=400 allows it"),
        pytest.raises(UserError, match=r"none of its 4 images can be read"),
    ):
        open_images(folder, image_size=20, max_pixels=100)


def test_large_files_in_shards_and_of_other_formats(folder: Path, tmp_path) -> None:
    for ending in ("tif", "bmp", "jp2", "gif"):
        Image.new("L", (40, 40), 77).save(tmp_path / f"9.{ending}")
    images = open_images(folder, image_size=20, max_pixels=1600)
    batch = images.__getitems__(list(range(4, len(images))))
    assert len(images) == 8 and batch["bad"] == [] and set(batch["images"][:, 0, 9, 9].tolist()) == {77}


def test_a_format_with_a_limit_of_its_own(folder: Path, monkeypatch) -> None:
    """As WebP's reader has it in some releases of Pillow."""

    def refuse(*_: object) -> None:
        raise Image.DecompressionBombError

    Image.new("L", (40, 40), 77).save(folder / "9.webp")
    monkeypatch.setitem(Image.OPEN, "WEBP", (refuse, Image.OPEN["WEBP"][1]))
    with pytest.warns(UserWarning, match=r"9\.webp: .*Pillow reads no more of this format"):
        open_images(folder, image_size=20, max_pixels=1600)


def test_no_limit_below_one() -> None:
    with pytest.raises(UserError, match=r"data.max_pixels=0 must be at least 1"):
        open_images("digits", max_pixels=0)


def test_many_channels_count_as_more_pixels(tmp_path, monkeypatch) -> None:
    tifffile = pytest.importorskip("tifffile")
    monkeypatch.setattr(Image, "MAX_IMAGE_PIXELS", 500)
    tifffile.imwrite(tmp_path / "0.tif", np.zeros((13, 20, 20), np.uint16), planarconfig="separate")
    reason = r"it has 2,600 pixels, more than 1,000: data.max_pixels=2600 allows it"  # of 4 bytes
    with pytest.raises(UserError, match=rf"none of its 1 images can be read.*{reason}"), pytest.warns(UserWarning):
        open_images(tmp_path, image_size=20)
    assert open_images(tmp_path, image_size=20, max_pixels=2600).channels == 13
