"""TIFFs that lie on their side or their head are read upright, and colours without the opacity that they hold."""

import io
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from sslkit.data.decode.opening import Opening, open_picture
from sslkit.data.decode.pixels import Region, regions, square, upright_size
from sslkit.data.sources.named import open_images

UPRIGHT: dict[int, Callable[[np.ndarray], np.ndarray]] = {
    1: lambda stored: stored,
    2: np.fliplr,
    3: lambda stored: np.rot90(stored, 2),
    4: np.flipud,
    5: lambda stored: stored.swapaxes(0, 1),
    6: lambda stored: np.rot90(stored, -1),
    7: lambda stored: np.rot90(stored, 2).swapaxes(0, 1),
    8: np.rot90,
}
KINDS = {"RGB": (np.uint8, (24, 40, 3)), "gray 16": (np.uint16, (24, 40)), "RGB 16": (np.uint16, (24, 40, 3))}
RANGE = (0.0, 65535.0)


def stored(kind: str) -> np.ndarray:
    dtype, shape = KINDS[kind]
    steps = np.random.default_rng(0).integers(0, 256, shape)
    return (steps * (257 if dtype == np.uint16 else 1)).astype(dtype)


def tiff(values: np.ndarray, compression: str, *, tag: int | None = None, xmp: int | None = None) -> bytes:
    """tag, xmp: the orientation there; None: the file has none there."""
    content = io.BytesIO()
    about = b'<x tiff:Orientation="%d"/>' % xmp if xmp else b""
    if values.dtype == np.uint16 and values.ndim == 3:  # which Pillow does not write
        tifffile = pytest.importorskip("tifffile")
        tags = [*[(274, "H", 1, tag, True)] * bool(tag), *[(700, "B", len(about), about, True)] * bool(xmp)]
        packed = None if compression == "raw" else compression.removeprefix("tiff_")
        if packed:
            pytest.importorskip("imagecodecs")
        tifffile.imwrite(content, values, photometric="rgb", compression=packed, extratags=tags)
    else:
        tags = {**({274: tag} if tag else {}), **({700: about} if xmp else {})}
        Image.fromarray(values).save(content, "TIFF", compression=compression, tiffinfo=tags)
    return content.getvalue()


def read(content: bytes, channels: int) -> list[np.ndarray]:
    """Return the pixels that all ways of reading a file give, each decoded anew."""

    def opened(decode: Callable) -> np.ndarray:
        with open_picture(io.BytesIO(content), Opening(channels)) as image:
            return decode(image)

    height, width = opened(upright_size)
    boxes = [Region(0, 0, height, width, 8), Region(3, 5, 16, 10, 7), Region(height - 20, width - 20, 20, 20, 20)]
    found = opened(lambda image: regions(image, boxes, channels, scale=RANGE, interpolation="bilinear"))
    for fit in ("squash", "crop"):
        pixels, aspect = opened(
            lambda image, fit=fit: square(image, 16, channels, fit, scale=RANGE, interpolation="bilinear", resize=None)
        )
        found += [pixels, np.array(aspect)]
    return [np.array((height, width)), *found]


@pytest.mark.parametrize("compression", ["raw", "tiff_lzw"])
@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("orientation", UPRIGHT)
def test_a_turned_tiff_is_read_as_one_that_was_stored_upright(kind: str, orientation: int, compression: str) -> None:
    values = stored(kind)
    upright = np.ascontiguousarray(UPRIGHT[orientation](values))
    channels = 3 if values.ndim == 3 else 1
    turned = read(tiff(values, compression, tag=orientation), channels)
    for got, want in zip(turned, read(tiff(upright, compression), channels), strict=True):
        assert np.array_equal(got, want)
    steps = (upright // (257 if values.dtype == np.uint16 else 1)).reshape(*upright.shape[:2], channels)
    assert turned[0].tolist() == list(upright.shape[:2])
    assert np.array_equal(turned[3].transpose(1, 2, 0), steps[-20:, -20:])


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("orientation", [3, 6])
def test_an_orientation_in_xmp_alone_counts(kind: str, orientation: int) -> None:
    values = stored(kind)
    channels = 3 if values.ndim == 3 else 1
    upright = np.ascontiguousarray(UPRIGHT[orientation](values))
    found, wanted = read(tiff(values, "raw", xmp=orientation), channels), read(tiff(upright, "raw"), channels)
    for got, want in zip(found, wanted, strict=True):
        assert np.array_equal(got, want)


@pytest.mark.parametrize("orientation", [1, 6])
def test_jpegs_in_a_tiff_are_turned(orientation: int) -> None:
    values = np.zeros((32, 64, 3), np.uint8)
    values[:16, :32] = 255
    shown = read(tiff(values, "jpeg", tag=orientation), 3)
    assert shown[0].tolist() == list(UPRIGHT[orientation](values).shape[:2])
    quarters = shown[4][0].reshape(2, 8, 2, 8)[:, 2:6, :, 2:6].mean((1, 3))
    corner = (0, 0) if orientation == 1 else (0, 1)
    assert quarters[corner] > 250 and quarters.sum() < 260


@pytest.mark.parametrize("kind", ["RGB", "RGB 16", "signed"])
def test_each_page_has_its_own_size_and_orientation(kind: str, tmp_path: Path) -> None:
    tifffile = pytest.importorskip("tifffile")
    values = stored("gray 16").astype(np.int8) // 2 if kind == "signed" else stored(kind)
    options = {} if kind == "signed" else {"photometric": "rgb"}
    with tifffile.TiffWriter(tmp_path / "a.tif") as file:
        for page, orientation in ((values, 1), (values, 6), (values[:, :30], 8)):
            file.write(page, extratags=[(274, "H", 1, orientation, True)], **options)
    given = {"channels": 1 if kind == "signed" else 3, "range": None if kind == "RGB" else [0, 65535], "cache": None}
    images = open_images(tmp_path, image_size=8, pages="all", **given)
    assert images.__getitems__([0, 1, 2])["aspect"].tolist() == pytest.approx([40 / 24, 24 / 40, 24 / 30])
    sizes = []
    for row in range(3):
        with images._open(row) as image:
            sizes.append(upright_size(image))
    assert sizes == [(24, 40), (40, 24), (30, 24)]


@pytest.mark.parametrize("packed", [None, "zlib"])
@pytest.mark.parametrize("planar", ["contig", "separate"])
@pytest.mark.parametrize("dtype", [np.uint8, np.uint16, np.uint32, np.float32])
@pytest.mark.parametrize("colours", [1, 3])
def test_associated_alpha_is_divided_by(colours: int, dtype: type, planar: str, packed: str | None) -> None:
    """A multiplied colour of 16 bits was read by its upper byte; others stayed as dark as their opacity made them."""
    tifffile = pytest.importorskip("tifffile")
    most = 1.0 if dtype == np.float32 else float(np.iinfo(dtype).max)
    straight = np.full((16, 16, colours), 0.1) * np.arange(1, colours + 1)
    alpha = np.where(np.arange(16) < 8, 0.5, 0.0)[None, :, None].repeat(16, 0)
    values = (np.concatenate([straight * alpha, alpha], -1) * most).astype(dtype)
    if planar == "separate":
        values = np.moveaxis(values, -1, 0)
    content = io.BytesIO()
    kind = "rgb" if colours == 3 else "minisblack"
    tifffile.imwrite(
        content, values, photometric=kind, planarconfig=planar, extrasamples=["assocalpha"], compression=packed
    )
    content.seek(0)
    scale = None if dtype == np.uint8 else (0.0, most / 2)
    with open_picture(content, Opening(4)) as image:
        found = square(image, 16, 4, "squash", scale=scale, interpolation="bilinear", resize=None)[0][
            :, 0, [0, 15]
        ].T.astype(int)
    shown = straight[0, 0] * (1 if scale is None else 2) * 255 * np.ones(3)
    assert np.abs(found[0] - [*shown, 127.5]).max() <= 2 and found[1, 3] == 0


def test_the_range_of_colours_with_associated_alpha_is_found_without_it(tmp_path: Path) -> None:
    tifffile = pytest.importorskip("tifffile")
    values = np.full((16, 16, 4), 1500, np.uint16)
    values[..., 3] = 2**15  # half: of colours of 3,000
    tifffile.imwrite(tmp_path / "a.tif", values, photometric="rgb", extrasamples=["assocalpha"])
    with pytest.warns(UserWarning, match=r"16-bit images .*values 3000 to 3000 are scaled .* range=\[0,4095\]"):
        images = open_images(tmp_path, image_size=8, channels=4, cache=None, opacity=True)
        assert images[0]["images"][:, 0, 0].tolist() == [187, 187, 187, 128]
