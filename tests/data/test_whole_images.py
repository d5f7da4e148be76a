"""Pictures of their own sizes: upright, in colour, by the range of the set; unreadable ones are named."""

from pathlib import Path

import numpy as np
from PIL import Image

from sslkit.data.sources.named import open_images
from sslkit.data.whole_images import WholeImages

RNG = np.random.default_rng(0)


def test_files_have_their_own_sizes_upright_and_in_colour(tmp_path: Path) -> None:
    colour, gray = (RNG.integers(0, 256, shape).astype(np.uint8) for shape in ((5, 9, 3), (8, 3)))
    exif = Image.Exif()
    exif[0x0112] = 6  # stored on its side
    Image.fromarray(colour).transpose(Image.Transpose.ROTATE_90).save(tmp_path / "0.png", exif=exif)
    Image.fromarray(gray).save(tmp_path / "1.png")
    Image.fromarray(np.dstack([colour, np.full((5, 9), 255, np.uint8)])).save(tmp_path / "2.png")
    (tmp_path / "3.png").write_bytes(b"no picture")
    whole = WholeImages(open_images(tmp_path, channels=3, on_error="skip"))
    batch = whole.__getitems__([0, 1, 2, 3])
    assert batch["index"].tolist()[:3] == [0, 1, 2] and batch["bad"] == [str(tmp_path / "3.png")] and len(whole) == 4
    for image, expected in zip(batch["images"], (colour, np.dstack([gray] * 3), colour), strict=False):
        np.testing.assert_array_equal(image.permute(1, 2, 0), expected)


def test_deep_pixels_are_read_by_the_range_of_the_set(tmp_path: Path) -> None:
    values = RNG.integers(0, 1001, (6, 11)).astype(np.uint16)
    Image.fromarray(values).save(tmp_path / "0.png")
    [image] = WholeImages(open_images(tmp_path, range=(0, 1000))).__getitems__([0])["images"]
    assert image.shape == (3, 6, 11)
    assert np.abs(image[1].numpy() - values * 0.255).max() <= 1


def test_arrays_are_their_pixels() -> None:
    pixels = RNG.integers(0, 256, (4, 1, 7, 5)).astype(np.uint8)
    batch = WholeImages(open_images(pixels)).__getitems__([2, 0])
    assert batch["index"].tolist() == [2, 0] and batch["bad"] == []
    for image, row in zip(batch["images"], (2, 0), strict=True):
        np.testing.assert_array_equal(image, np.repeat(pixels[row], 3, 0))
