"""Pixels without a value do not take the range: by the tags of each format, or standing apart at an end."""

import io
import warnings
from pathlib import Path

import numpy as np
import pytest
import torch
from image_files import SIDE, dicom
from PIL import Image
from sklearn.datasets import load_digits
from torch.utils.data import Dataset

from sslkit.data.decode.fill import Ends, is_filled, replace_missing, spans_of
from sslkit.data.images import Images
from sslkit.data.sources.named import open_images
from sslkit.errors import UserError

DIGITS = load_digits().images[:12] / 16  # in [0, 1]
LOWEST = float(np.finfo(np.float32).min)
CORNER = (slice(None), slice(0, 3), slice(0, 3))


def pixels(images: Images) -> np.ndarray:
    batch = images.__getitems__(list(range(len(images))))
    assert batch["bad"] == []
    return batch["images"].numpy()


def scans(dtype: type, low: float, high: float, none: float) -> np.ndarray:
    """Digits (N, 8, 8) from `low` to `high`, without a value in one corner."""
    values = (low + DIGITS * (high - low)).astype(dtype)
    values[CORNER] = none
    return values


def check(images: Images, values: np.ndarray, low: float, high: float) -> None:
    """The range is that of the picture, in which corners are black."""
    assert images.range == (low, high)
    expected = ((values.astype(float) - low) * (255 / (high - low))).clip(0, 255)
    expected[CORNER] = 0
    assert np.abs(pixels(images)[:, 0] - expected).max() <= 0.51


def write_tiff(path: Path, values: np.ndarray, tag: str | None = None, **options: object) -> None:
    tags = [(42113, "s", 0, tag, True)] if tag else []
    pytest.importorskip("tifffile").imwrite(path, values, extratags=tags, **options)


@pytest.mark.parametrize("compression", [None, "zlib"])
@pytest.mark.parametrize("planar", ["contig", "separate"])
def test_gdals_nodata_in_colours_of_16_bits(tmp_path, planar: str, compression: str | None) -> None:
    """It counted for the range of several samples: 12 bits had 16 of 256 levels, and no advice."""
    for number, digit in enumerate(scans(np.uint16, 100, 4000, 65535)):
        shown = np.stack([digit, digit, digit], -1 if planar == "contig" else 0)
        options = {"photometric": "rgb", "planarconfig": planar, "compression": compression}
        write_tiff(tmp_path / f"{number:02}.tif", shown, "65535", **options)
    with pytest.warns(UserWarning, match=r"\[0,4095\]; pixels that their tags name have no value.*fill=none"):
        images = open_images(tmp_path, image_size=8, cache=None)
    check(images, scans(np.uint16, 100, 4000, 0), 0, 4095)
    with pytest.warns(UserWarning, match=r"values 100 to 65535 .* by range=\[0,65535\]"):
        assert open_images(tmp_path, image_size=8, cache=None, fill="none").range == (0, 65535)


def test_nodata_in_gray_can_be_counted(tmp_path) -> None:
    """The tag says 0, and black is meant."""
    for number, digit in enumerate(scans(np.int16, -50, 900, 0)):
        write_tiff(tmp_path / f"{number:02}.tif", digit.astype(np.int32), "0")
    with pytest.warns(UserWarning, match="tags name"):
        assert pixels(open_images(tmp_path, image_size=8, cache=None))[0, 0, 0, 0] == 0
    with pytest.warns(UserWarning) as said:
        images = open_images(tmp_path, image_size=8, cache=None, fill="none")
    assert images.range == (-50, 900) and pixels(images)[0, 0, 0, 0] == round(50 * 255 / 950)
    assert "no value" not in str(said[0].message)


@pytest.mark.parametrize(
    ("padding", "stored"), [({"PixelPaddingValue": -2000}, (-2000, -2000)), ({"PixelPaddingValue": -2000,
    "PixelPaddingRangeLimit": -1500}, (-2000, -1500))]
)  # fmt: skip
@pytest.mark.parametrize("slope", [None, 2])
@pytest.mark.parametrize("kind", ["MONOCHROME2", "MONOCHROME1"])
def test_padding_of_dicom(tmp_path, padding: dict, stored: tuple, slope: int | None, kind: str) -> None:
    """In stored values, and the corners are black where the greatest value is, too."""
    units = {} if slope is None else {"RescaleSlope": str(slope), "RescaleIntercept": "-24"}
    for number in range(4):
        digit = np.kron(DIGITS[number], np.ones((SIDE // 8, SIDE // 8)))
        values = (digit * 1000).astype(np.int16)[..., None]
        values[: SIDE // 2, : SIDE // 4] = stored[0]
        values[SIDE // 2 :, : SIDE // 4] = stored[1]
        (tmp_path / f"{number}.dcm").write_bytes(dicom(values, kind, **units, **padding))
    with pytest.warns(UserWarning, match="tags name have no value"):
        images = open_images(tmp_path, image_size=SIDE, cache=None)
    assert images.range == ((0, 1023) if slope is None else (-24, 1976))
    assert (pixels(images)[:, 0, :, : SIDE // 4] == 0).all()
    assert pixels(images)[:, 0, :, SIDE // 4 :].max() >= 249


def test_padding_of_dicom_that_is_written_without_its_sign(tmp_path) -> None:
    """63536 for -2000, where the pixels are signed."""
    values = np.full((SIDE, SIDE, 1), -2000, np.int16)
    values[: SIDE // 2] = np.arange(SIDE)[:, None] * 40
    content = dicom(values, PixelPaddingValue=-2000)
    pydicom = pytest.importorskip("pydicom")
    about = pydicom.dcmread(io.BytesIO(content))
    del about.PixelPaddingValue
    about.add_new("PixelPaddingValue", "US", 63536)
    about.save_as(tmp_path / "a.dcm", enforce_file_format=True)
    with pytest.warns(UserWarning, match="tags name have no value"):
        assert open_images(tmp_path, image_size=SIDE, cache=None).range[0] == 0


def fits(values: np.ndarray, bits: int, **more: float) -> bytes:
    cards = (f"SIMPLE  = {'T':>20}", f"BITPIX  = {bits:>20}", f"NAXIS   = {2:>20}")
    cards += (f"NAXIS1  = {values.shape[1]:>20}", f"NAXIS2  = {values.shape[0]:>20}")
    cards += (*(f"{name:<8}= {number:>20}" for name, number in more.items()), "END")
    head = "".join(card.ljust(80) for card in cards).ljust(2880)
    dtype = {16: ">i2", -32: ">f4"}[bits]
    return head.encode() + values[::-1].astype(dtype).tobytes().ljust(2880, b"\0")


@pytest.mark.parametrize(("scale", "zero"), [(1, 0), (1, 32768), (0.5, 10)])
def test_blank_of_fits_is_a_stored_value(tmp_path, scale: float, zero: float) -> None:
    stored = scans(np.int16, 0, 900, -32768)
    for number, digit in enumerate(stored):
        content = fits(digit, 16, BLANK=-32768, **({} if (scale, zero) == (1, 0) else {"BSCALE": scale, "BZERO": zero}))
        (tmp_path / f"{number:02}.fits").write_bytes(content)
    with pytest.warns(UserWarning, match=rf"values {zero:g} to {900 * scale + zero:g} .*tags name have no value"):
        images = open_images(tmp_path, image_size=8, cache=None)
    assert (pixels(images)[:, 0, :3, :3] == 0).all()


def test_nan_in_fits_has_no_value(tmp_path) -> None:
    """It is the standard's BLANK of floats; such images were unreadable."""
    for number, digit in enumerate(scans(np.float32, 0, 200, np.nan)):
        (tmp_path / f"{number:02}.fits").write_bytes(fits(digit, -32))
    with pytest.warns(UserWarning, match=r"range=\[0,255\].*tags name"):
        check(open_images(tmp_path, image_size=8, cache=None), scans(np.float32, 0, 200, 0), 0, 255)


UNTAGGED = [
    (np.int32, -1024, 3071, -2000, (-1024, 3071)),
    (np.float32, 0, 3000, LOWEST, (0, 3000)),
    (np.float32, 0, 3000, 3.4e38, (0, 3000)),
    (np.float32, 0, 1, -9999, (0, 1)),
    (np.uint16, 100, 4000, 65535, (0, 4095)),
    (np.int32, 0, 60, -32768, (0, 255)),
]


def save(folder: Path, values: np.ndarray) -> Path:
    folder.mkdir()
    for number, digit in enumerate(values):
        Image.fromarray(digit).save(folder / f"{number:02}.tif")
    return folder


class Own(Dataset):
    def __init__(self, values: np.ndarray) -> None:
        self.values = values

    def __len__(self) -> int:
        return len(self.values)

    def __getitem__(self, row: int) -> np.ndarray:
        return self.values[row]


SOURCES = {
    "files": lambda values, folder: save(folder / "files", values),
    "npz": lambda values, folder: np.savez(folder / "a.npz", x=values) or folder / "a.npz",
    "array": lambda values, folder: values,
    "tensor": lambda values, folder: torch.from_numpy(values),
    "dataset": lambda values, folder: Own(values),
}


@pytest.mark.parametrize("kind", SOURCES)
@pytest.mark.parametrize(("dtype", "low", "high", "none", "found"), UNTAGGED)
def test_a_value_that_stands_apart(
    tmp_path, kind: str, dtype: type, low: float, high: float, none: float, found: tuple
) -> None:
    values = scans(dtype, low, high, none)
    source = SOURCES[kind](values, tmp_path)
    with pytest.warns(
        UserWarning, match=r"pixels of -?\d\S* have no value: they become black and do not count"
    ) as said:
        images = open_images(source, image_size=8, cache=None)
    assert images.scale.fill == pytest.approx(float(dtype(none)))
    assert sum("have no value" in str(one.message) for one in said) == 1
    check(images, values, *found)
    with pytest.warns(UserWarning):
        other = open_images(source, image_size=8, cache=None, fill="none")
    assert other.range != images.range and other.digest != images.digest
    again = images.at(image_size=8, channels=1, fit="squash", scale=other.scale)
    assert again.range == other.range and np.array_equal(pixels(again), pixels(other))


def test_few_levels_beside_a_fill_are_still_said(tmp_path) -> None:
    """The percentiles counted the fill, and the advice vanished exactly then."""
    values = scans(np.uint16, 2000, 2200, 65535)
    with pytest.warns(UserWarning, match=r"13 of the 256 levels.*range=\[2000,2200\] spreads.*pixels of 65535 have no"):
        open_images(save(tmp_path / "a", values), image_size=8, cache=None)
    tagged = tmp_path / "tagged"
    tagged.mkdir()
    for number, digit in enumerate(values):
        stack = np.stack([digit, digit // 400, digit])
        stack[:, :3, :3] = 65535
        options = {"photometric": "minisblack", "planarconfig": "separate"}
        write_tiff(tagged / f"{number:02}.tif", stack, "65535", **options)
    with pytest.warns(UserWarning, match=r"pixels of channel 1, 2, 3 lie in fewer than 16|of the 256 levels"):
        open_images(tagged, image_size=8, cache=None)


KEPT = {
    "a black background of X-rays": np.where(DIGITS > 0, 1000 + DIGITS * 3000, 0).astype(np.uint16),
    "saturated bone": np.minimum(DIGITS * 90000, 65535).astype(np.uint16),
    "burnt-in letters": np.where(DIGITS > 0.9, 4095, DIGITS * 2800).astype(np.uint16),
    "air of a CT": np.maximum(DIGITS * 4000 - 1400, -1024).astype(np.int32),
    "two values": np.where(DIGITS > 0.5, 65535, 0).astype(np.uint16),
    "labels": (np.rint(DIGITS * 4) * 60).astype(np.uint16),
    "a hot pixel": np.where((np.arange(64) == 9).reshape(8, 8) & (np.arange(12) == 0)[:, None, None], 0, DIGITS),
}


@pytest.mark.parametrize("name", KEPT)
def test_what_is_a_value_keeps_its_own(tmp_path, name: str) -> None:
    values = KEPT[name]
    if name == "a hot pixel":
        values = np.kron(DIGITS * 900 + 100, np.ones((4, 4))).astype(np.uint16)
        values[0, 3, 3] = 60000
    with warnings.catch_warnings(record=True) as said:
        warnings.simplefilter("always")
        images = open_images(save(tmp_path / "a", values), image_size=values.shape[-1], cache=None)
    assert images.scale.fill == "tagged" and not any("no value" in str(one.message) for one in said)
    low, high = images.range
    assert np.abs(pixels(images)[:, 0] - (values - low) * (255 / (high - low))).max() <= 0.51


def test_a_number_is_given(tmp_path) -> None:
    """In the middle of the range, where nothing would find it; also with a range that is given."""
    values = scans(np.uint16, 0, 4000, 777)
    folder = save(tmp_path / "a", values)
    for source in (folder, values):
        with pytest.warns(UserWarning, match="pixels of 777 have no value"):
            images = open_images(source, image_size=8, cache=None, fill=777)
        check(images, values, 0, 4095)
        check(open_images(source, image_size=8, cache=None, fill=777, range=[0, 5000]), values, 0, 5000)


@pytest.mark.parametrize("wrong", ["all", True, float("nan"), [0]])
def test_what_is_no_fill_is_refused(wrong: object) -> None:
    with pytest.raises(UserError, match="fill must be a number, or auto, none or tagged, got"):
        open_images("digits", fill=wrong)


def test_spans() -> None:
    assert spans_of(None, ((1.0, 2.0),)) == spans_of("tagged", ((1.0, 2.0),)) == ((1.0, 2.0),)
    assert spans_of("none", ((1.0, 2.0),)) == () and spans_of(5, ((1.0, 2.0),)) == ((1.0, 2.0), (5.0, 5.0))
    values = np.array([LOWEST, 0, np.nan, 7], np.float32)
    assert is_filled(values, ((-3.40282e38, -3.40282e38),)).tolist() == [True, False, False, False]
    assert is_filled(values, ((np.nan, np.nan), (6, 8))).tolist() == [False, False, True, True]
    assert replace_missing(np.array([1, 9], np.uint8), ((9.0, 9.0),), 300).tolist() == [1, 255]


def test_ends_do_not_depend_on_the_order() -> None:
    draw = np.random.default_rng(0)
    images = [draw.integers(-900, 900, 400) for _ in range(6)]
    images[2][:40] = -5000
    images[4][:2] = -5000
    for order in (images, images[::-1]):
        ends = Ends()
        for image in order:
            ends.add([image])
        assert ends.fill() == -5000 and ends.low.share == 0.1


@pytest.mark.parametrize("kind", ["tensor", "array", "dataset"])
def test_bfloat16_is_read_right(kind: str) -> None:
    """torch.Tensor.numpy knows no bfloat16; two bytes of it are no 16-bit number."""
    values = torch.from_numpy(DIGITS).bfloat16()
    ml_dtypes = pytest.importorskip("ml_dtypes")
    source = {
        "tensor": values,
        "array": values.float().numpy().astype(ml_dtypes.bfloat16),
        "dataset": Own(values),
    }[kind]
    expected = np.rint(values.float().numpy() * 255)
    assert np.abs(pixels(open_images(source, image_size=8, range=[0, 1]))[:, 0] - expected).max() <= 1


def test_bfloat16_in_an_archive_is_refused(tmp_path) -> None:
    """NumPy stores two bytes without a type."""
    ml_dtypes = pytest.importorskip("ml_dtypes")
    np.savez(tmp_path / "a.npz", x=DIGITS.astype(ml_dtypes.bfloat16))
    with pytest.raises(UserError, match="pixels are integers or floats"):
        open_images(tmp_path / "a.npz")
