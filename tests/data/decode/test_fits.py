"""FITS files of 8 bits: all of their planes, in their units."""

import io

import numpy as np
import pytest

from sslkit.data.decode.opening import Opening, open_picture
from sslkit.data.decode.pixels import channels_of, is_deep, square, values_of
from sslkit.data.sources.named import open_images

STORED = np.random.default_rng(0).integers(0, 256, (3, 8, 8)).astype(np.uint8)  # planes, from the lowest row up


def fits(values: np.ndarray, **more: float) -> bytes:
    sides = {f"NAXIS{axis}": side for axis, side in enumerate(values.shape[::-1], 1)}
    cards = {"BITPIX": 8, "NAXIS": values.ndim, **sides, **more}
    lines = [f"SIMPLE  = {'T':>20}", *(f"{name:<8}= {value:>20}" for name, value in cards.items()), "END"]
    return "".join(line.ljust(80) for line in lines).ljust(2880).encode() + values.tobytes().ljust(2880, b"\0")


def read(content: bytes, channels: int) -> np.ndarray:
    with open_picture(io.BytesIO(content), Opening(channels)) as image:
        return square(image, 8, channels, "squash", interpolation="bilinear", resize=None)[0]


def test_a_cube_of_three_planes_is_rgb() -> None:
    content = fits(STORED)
    with open_picture(io.BytesIO(content), Opening()) as image:
        assert channels_of(image) == 3 and not is_deep(image)
    assert np.array_equal(read(content, 3), STORED[:, ::-1])


@pytest.mark.parametrize("planes", [1, 2, 5])
def test_cubes_of_any_planes(planes: int) -> None:
    values = np.resize(STORED, (planes, 8, 8))
    assert np.array_equal(read(fits(values), planes), values[:, ::-1])


def test_one_plane_without_units_is_read_as_it_is() -> None:
    for content in (fits(STORED[0]), fits(STORED[0], BSCALE=1.0, BZERO=0.0)):
        assert np.array_equal(read(content, 1)[0], STORED[0, ::-1])


def test_signed_bytes_are_read_by_a_range(tmp_path) -> None:
    content = fits(STORED[0], BZERO=-128)
    with open_picture(io.BytesIO(content), Opening()) as image:
        (values,) = values_of(image, channels=None)
    assert values.dtype.kind == "i" and np.array_equal(values, STORED[0, ::-1].astype(int) - 128)
    (tmp_path / "a.fits").write_bytes(content)
    images = open_images(tmp_path, image_size=8, range=[-128, 127], cache=None)
    assert np.array_equal(images[0]["images"][0].numpy(), STORED[0, ::-1])


def test_a_factor_counts(tmp_path) -> None:
    (tmp_path / "a.fits").write_bytes(fits(STORED, BSCALE=16))
    images = open_images(tmp_path, image_size=8, range=[0, 4080], cache=None)
    assert np.array_equal(images[0]["images"].numpy(), STORED[:, ::-1])


@pytest.mark.parametrize("deep", [False, True])
def test_an_image_behind_an_empty_first_part(deep: bool, tmp_path) -> None:
    """Telescopes write a first part without data, and tables before the image."""
    values = STORED[0].astype(">i2") * 16 if deep else STORED[0]
    empty = "".join(
        line.ljust(80) for line in (f"SIMPLE  = {'T':>20}", f"BITPIX  = {8:>20}", f"NAXIS   = {0:>20}", "END")
    )
    rows = fits(STORED[0]).replace(b"SIMPLE  =                    T", b"XTENSION= 'BINTABLE'          ")
    image = fits(STORED[0], **({"BITPIX": 16} if deep else {}))[:2880] + values.tobytes().ljust(2880, b"\0")
    image = image.replace(b"SIMPLE  =                    T", b"XTENSION= 'IMAGE   '          ")
    (tmp_path / "a.fits").write_bytes(empty.ljust(2880).encode() + rows + image)
    images = open_images(tmp_path, image_size=8, cache=None, **({"range": [0, 4080]} if deep else {}))
    assert np.array_equal(images[0]["images"][0].numpy(), STORED[0, ::-1])
