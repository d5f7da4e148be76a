"""Public reports of lost channels and of values that stand for none, each tried here."""

import warnings
from pathlib import Path

import numpy as np
import pytest
from image_files import SIDE, dicom
from PIL import Image
from sklearn.datasets import load_digits

from sslkit.data.images import Images
from sslkit.data.sources.named import open_images

DIGITS = load_digits().images[:6] / 16  # in [0, 1]
CORNER = (slice(0, 3), slice(0, 3))
pytestmark = pytest.mark.filterwarnings("ignore::UserWarning")


def pixels(images: Images) -> np.ndarray:
    batch = images.__getitems__(list(range(len(images))))
    assert batch["bad"] == []
    return batch["images"].numpy()


def write(folder: Path, values: np.ndarray, tag: str | None = None, **options: object) -> None:
    tags = [(42113, "s", 0, tag, True)] if tag else []
    for number, image in enumerate(values):
        path = folder / f"{number}.tif"
        pytest.importorskip("tifffile").imwrite(path, image, extratags=tags, **options)


def with_corner(values: np.ndarray, none: float) -> np.ndarray:
    values = values.copy()
    values[:, *CORNER] = none
    return values


def test_aerial_images_are_not_washed_out(tmp_path) -> None:
    """microsoft/PlanetaryComputer#82, openlayers/openlayers#17516: near infrared of NAIP was taken for opacity."""
    scenes = np.stack([DIGITS, DIGITS[::-1], DIGITS / 2, 0.3 + DIGITS / 2], -1) * 180
    write(tmp_path, scenes.astype(np.uint8), photometric="rgb", extrasamples=["unassalpha"])
    found = pixels(open_images(tmp_path, image_size=8, cache=None))
    assert np.array_equal(found, scenes[..., :3].astype(np.uint8).transpose(0, 3, 1, 2))


def test_an_array_of_four_bands_is_no_rgba() -> None:
    """GeoTIFF/georaster-layer-for-leaflet#32: four bands were RGBA, whatever they were."""
    scenes = (np.stack([DIGITS, DIGITS[::-1], DIGITS / 2, DIGITS / 3], 1) * 200).astype(np.uint8)
    assert np.array_equal(pixels(open_images(scenes, channels=3)), scenes[:, :3])
    assert np.array_equal(pixels(open_images(scenes)), scenes)


@pytest.mark.parametrize("mode", ["RGBA", "LA", "P", "RGB", "L"])
def test_what_is_transparent_is_white(tmp_path, mode: str) -> None:
    """NVIDIA/DIGITS#85, meerk40t/meerk40t#962, python-pillow/Pillow#421: black in gray, palettes and keyed colours."""
    shown = np.where(np.arange(8) < 4, 9, 200).astype(np.uint8)[None].repeat(8, 0)
    image, options = Image.fromarray(shown), {}
    if mode in ("RGBA", "LA"):
        image = image.convert(mode)
        image.putalpha(Image.fromarray(np.where(shown == 9, 0, 255).astype(np.uint8)))
    else:
        image = image.convert(mode)
        options = {"transparency": {"P": 9, "L": 9, "RGB": (9, 9, 9)}[mode]}
    image.save(tmp_path / "a.png", **options)
    assert (pixels(open_images(tmp_path, image_size=8, cache=None))[0, :, 4, [0, 7]] == [[255], [200]]).all()


def test_a_palette_whose_colours_are_all_transparent_is_shown(tmp_path) -> None:
    """image-rs/image-png#346: 174 zeros in tRNS, and a blank picture."""
    image = Image.fromarray((DIGITS[0] * 200).astype(np.uint8)).convert("P")
    image.save(tmp_path / "a.png", transparency=bytes(256))
    found = pixels(open_images(tmp_path, image_size=8, channels=1, cache=None))[0, 0]
    assert np.array_equal(found, (DIGITS[0] * 200).astype(np.uint8))


def test_a_gray_palette_with_opacity(tmp_path) -> None:
    """imageio/imageio#475: a palette that looks gray, with several opacities."""
    image = Image.fromarray(np.where(np.arange(8) < 4, 0, 100).astype(np.uint8)[None].repeat(8, 0)).convert("P")
    image.save(tmp_path / "a.png", transparency=bytes([128, *[255] * 255]))
    found = pixels(open_images(tmp_path, image_size=8, cache=None))[0, :, 0, [0, 7]]
    assert found.tolist() == [[127] * 3, [100] * 3]


def test_least_and_greatest_value_without_padding(tmp_path) -> None:
    """fo-dicom/fo-dicom#406, rordenlab/dcm2niix#262: 0 to 2000, and -1000 as padding was the least."""
    values = np.kron(DIGITS[0], np.ones((SIDE // 8, SIDE // 8))) * 2000
    values[: SIDE // 4, : SIDE // 4] = -1000
    (tmp_path / "a.dcm").write_bytes(dicom(values.astype(np.int16)[..., None], PixelPaddingValue=-1000))
    images = open_images(tmp_path, image_size=SIDE, cache=None)
    assert images.range == (0, 2047) and (pixels(images)[0, 0, : SIDE // 4, : SIDE // 4] == 0).all()


def test_scans_whose_padding_is_not_named(tmp_path) -> None:
    """TesterTi/LIDCToolbox#9: Toshiba's scans have corners of -2000 or less, and no tag."""
    for number, digit in enumerate(DIGITS):
        values = np.kron(digit, np.ones((SIDE // 8, SIDE // 8))) * 2400 - 1000
        values[: SIDE // 4, : SIDE // 4] = -8192
        (tmp_path / f"{number}.dcm").write_bytes(dicom(values.astype(np.int16)[..., None]))
    images = open_images(tmp_path, image_size=SIDE, cache=None)
    assert images.range == (-1000, 1400) and images.scale.fill == -8192


@pytest.mark.parametrize("tag", ["3.402823466e+38", "-3.4028234663852886e+38", "1.7976931348623157e+308"])
def test_statistics_of_floats_with_large_nodata(tmp_path, tag: str) -> None:
    """LayerManager/layman#667: NaN and infinity in the statistics; the last is beyond the type."""
    none = float(tag) if abs(float(tag)) < 1e39 else 0.5
    write(tmp_path, with_corner(DIGITS * 200, none).astype(np.float32), tag)
    with warnings.catch_warnings():
        warnings.simplefilter("error", RuntimeWarning)
        images = open_images(tmp_path, image_size=8, cache=None)
        assert images.range == (0, 255) and np.abs(pixels(images)[:, 0, 4:] - DIGITS[:, 4:] * 200).max() <= 0.51


@pytest.mark.parametrize(("dtype", "none"), [(np.int32, -2147483648), (np.int32, -32768), (np.int32, -99999)])
def test_untagged_nodata_does_not_compress_all_else(tmp_path, dtype: type, none: int) -> None:
    """ctherien/pysptools#6 (0.9999999 to 1), NOAA-OCM/QNSPECT#96, thinkingmachines/geowrangler#176."""
    write(tmp_path, with_corner(DIGITS * 3000, none).astype(dtype))
    images = open_images(tmp_path, image_size=8, cache=None)
    assert images.range == (0, 4095) and images.scale.fill == none and (pixels(images)[:, 0, :3, :3] == 0).all()


def test_nodata_that_the_type_cannot_hold(tmp_path) -> None:
    """opengeos/segment-geospatial#202: NaN for bytes; -9999 for unsigned numbers."""
    plain = (DIGITS * 200).astype(np.uint8)
    write(tmp_path, plain, "nan")
    assert np.array_equal(pixels(open_images(tmp_path, image_size=8, cache=None))[:, 0], plain)
    write(tmp_path, (DIGITS * 4095).astype(np.uint16), "-9999")
    assert open_images(tmp_path, image_size=8, cache=None).range == (0, 4095)


def test_nan_and_infinity_reach_no_loss(tmp_path) -> None:
    """NRCan/geo-deep-learning#68: the loss was NaN; such a file is left out and named."""
    values = (DIGITS * 200).astype(np.float32)
    values[1, 2, 2], values[3, 2, 2] = np.nan, np.inf
    write(tmp_path, values)
    batch = open_images(tmp_path, image_size=8, cache=None).__getitems__([0, 1, 2, 3])
    assert [Path(path).name for path in batch["bad"]] == ["1.tif", "3.tif"]


def test_masks_of_0_and_65535_keep_their_white(tmp_path) -> None:
    """matterport/Mask_RCNN#1099: two values, of which the greater is none."""
    write(tmp_path, np.where(DIGITS > 0.5, 65535, 0).astype(np.uint16))
    assert np.array_equal(pixels(open_images(tmp_path, image_size=8, cache=None))[:, 0], np.where(DIGITS > 0.5, 255, 0))
