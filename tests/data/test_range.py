"""Images of more than 8 bits: one scale for the whole data set, in all its splits and all its processes."""

import warnings
from pathlib import Path

import numpy as np
import pytest
import torch
from PIL import Image
from sklearn.datasets import load_digits

from sslkit.data.decode.scale import Scale
from sslkit.data.loader import batches_in_order
from sslkit.data.sources.named import open_images
from sslkit.data.views.cropped import CroppedImages
from sslkit.data.views.recipe import SIMCLR
from sslkit.errors import UserError

DIGITS = load_digits().images / 16  # (1797, 8, 8) in [0, 1]
SCAN = "scan is scaled by the whole set, not by its file"


def save(values: np.ndarray, path: Path) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    Image.fromarray(values).save(path)


def scans(folder: Path, most: float, dtype: type = np.uint16, ending: str = "png", n: int = 12) -> np.ndarray:
    """Digits as files of values from 0 to `most`."""
    values = np.rint(DIGITS[:n] * most).astype(dtype) if dtype != np.float32 else (DIGITS[:n] * most).astype(dtype)
    for number, image in enumerate(values):
        save(image, folder / f"{number:02}.{ending}")
    return values


def read(images) -> np.ndarray:
    return images.__getitems__(list(range(len(images))))["images"].numpy()[:, 0]


@pytest.mark.parametrize(("most", "high"), [(700, 1023), (4000, 4095), (16000, 16383), (65535, 65535)])
@pytest.mark.parametrize("ending", ["png", "tif"])
def test_few_bits_in_wide_files_keep_their_levels(tmp_path, most: int, high: int, ending: str) -> None:
    values = scans(tmp_path, most, ending=ending)
    with pytest.warns(UserWarning, match=rf"16-bit images \(12 of 12 looked at\).*by range=\[0,{high}\]"):
        images = open_images(tmp_path, image_size=8)
    assert images.range == (0, high)
    found = read(images)
    assert np.abs(found - values * (255 / high)).max() <= 0.5
    assert len(np.unique(found)) == len(np.unique(values))  # the 17 levels of the digits; 700 had 4 before


def test_floats_in_files_share_their_scale(tmp_path) -> None:
    """A dark image stays dark beside a bright one: files of at most 1 were read as if 1 were white."""
    for number, most in enumerate((1.0, 100.0, 255.0)):
        save((DIGITS[3] / DIGITS[3].max() * most).astype(np.float32), tmp_path / f"{number}.tif")
    with pytest.warns(UserWarning, match=r"float images .*range=\[0,255\]"):
        found = read(open_images(tmp_path, image_size=8))
    assert found.reshape(3, -1).max(1).tolist() == [1, 100, 255]


def test_floats_of_any_range_are_read(tmp_path) -> None:
    values = scans(tmp_path, 2.5, np.float32, "tif")
    with pytest.warns(UserWarning, match=r"float images .*values 0 to 2.5 are scaled to 8 bits by range=\[0,2.5\]"):
        found = read(open_images(tmp_path, image_size=8))
    assert np.abs(found - values * 102).max() <= 0.5


def test_signed_values_are_read(tmp_path) -> None:
    values = (DIGITS[:4] * 4000 - 1000).astype(np.int32)
    for number, image in enumerate(values):
        save(image, tmp_path / f"{number}.tif")
    with pytest.warns(UserWarning, match=r"range=\[-1000,3000\]"):
        found = read(open_images(tmp_path, image_size=8))
    assert np.abs(found - (values + 1000) * (255 / 4000)).max() <= 0.5


def test_test_images_have_the_scale_of_training(tmp_path) -> None:
    scans(tmp_path / "train", 4000)
    test = scans(tmp_path / "test", 900)
    with pytest.warns(UserWarning, match=r"range=\[0,4095\]"):
        images = open_images(tmp_path, split="test", image_size=8)
    assert images.range == (0, 4095)
    assert np.abs(read(images) - test * (255 / 4095)).max() <= 0.5


def test_a_range_is_given(tmp_path) -> None:
    values = scans(tmp_path, 4000)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        images = open_images(tmp_path, image_size=8, range=[1000, 3000])
    assert images.range == (1000, 3000)
    assert np.abs(read(images) - ((values - 1000.0) * (255 / 2000)).clip(0, 255)).max() <= 0.5


def test_auto_reads_all_training_images(tmp_path) -> None:
    values = scans(tmp_path, 3000, n=300)
    save(np.full((8, 8), 5000, np.uint16), tmp_path / "zz.png")
    with pytest.warns(UserWarning, match=r"\(301 of 301 looked at\)"):
        images = open_images(tmp_path, image_size=8, range="auto")
    assert images.range == (values.min(), 5000)


def test_a_sample_is_the_same_each_time(tmp_path, monkeypatch) -> None:
    monkeypatch.setattr("sslkit.data.decode.survey.MEASURED", 3)
    scans(tmp_path, 3000, n=40)
    found = []
    for _ in range(2):
        with pytest.warns(UserWarning, match=r"\(3 of 40 looked at\)") as said:
            open_images(tmp_path, image_size=8)
        found.append(str(said[0].message))
    assert found[0] == found[1]


def test_few_levels_are_said(tmp_path) -> None:
    for number, image in enumerate(DIGITS[:4]):
        save((2000 + image * 200).astype(np.uint16), tmp_path / f"{number}.png")
    with pytest.warns(UserWarning, match=r"13 of the 256 levels that the views see: range=\[2000,2200\] spreads"):
        open_images(tmp_path, image_size=8)


def test_images_of_eight_bits_keep_their_values_beside_others(tmp_path) -> None:
    scans(tmp_path, 4000, n=3)
    save((DIGITS[7] * 255).astype(np.uint8), tmp_path / "plain.png")
    with pytest.warns(UserWarning, match="1 of 4 images looked at have 8 bits and stay as they are"):
        images = open_images(tmp_path, image_size=8)
    assert np.array_equal(read(images)[3], (DIGITS[7] * 255).astype(np.uint8))


def test_a_range_for_eight_bits_is_said_to_be_unused(tmp_path) -> None:
    save((DIGITS[7] * 255).astype(np.uint8), tmp_path / "plain.png")
    with pytest.warns(UserWarning, match=r"range=\[0,4095\] is for images of more than 8 bits"):
        images = open_images(tmp_path, image_size=8, range=(0, 4095))
    assert read(images).max() == 255


def test_jpegs_are_not_opened_for_it(tmp_path, monkeypatch) -> None:
    for number in range(40):
        save((DIGITS[number] * 255).astype(np.uint8), tmp_path / f"{number}.JPG")
    opened = []
    real = Image.open
    monkeypatch.setattr(Image, "open", lambda *args: opened.append(args) or real(*args))
    images = open_images(tmp_path, image_size=8, channels=1)
    assert images.range is None and len(opened) == 1


def test_rare_kinds_of_files_are_looked_at(tmp_path) -> None:
    """One TIFF of 16 bits among many images of 8 bits."""
    for number in range(300):
        save((DIGITS[number] * 255).astype(np.uint8), tmp_path / f"{number:03}.png")
    scans(tmp_path / "deep", 4000, ending="tiff", n=1)
    with pytest.warns(UserWarning, match=r"range=\[0,4095\]"):
        assert open_images(tmp_path, image_size=8).range == (0, 4095)


def test_an_image_that_was_not_looked_at_is_said(tmp_path, monkeypatch) -> None:
    monkeypatch.setattr("sslkit.data.decode.survey.LOOKED_AT", 2)
    for number in range(9):
        save((DIGITS[number] * 255).astype(np.uint8), tmp_path / f"{number}.png")
    save((DIGITS[4] * 65535).astype(np.uint16), tmp_path / "4.png")
    images = open_images(tmp_path, image_size=8)
    with pytest.warns(UserWarning, match=r"more than 8 bits, where no range= is known.*\[0,65535\]"):
        assert read(images)[4].max() == 255


def test_integers_among_floats_are_refused(tmp_path) -> None:
    scans(tmp_path, 4000, n=3)
    scans(tmp_path / "floats", 1, np.float32, "tif", n=3)
    with pytest.raises(UserError, match=r"share no scale: give range="):
        open_images(tmp_path, image_size=8)
    assert open_images(tmp_path, image_size=8, range=[0, 4095]).range == (0, 4095)


def test_crops_have_the_scale_of_the_set(tmp_path) -> None:
    for number in range(4):
        save(np.full((40, 40), 1000 * number, np.uint16), tmp_path / f"{number}.png")
    with pytest.warns(UserWarning, match=r"range=\[0,4095\]"):
        images = open_images(tmp_path, image_size=32)
    batch = CroppedImages(images, SIMCLR, 16, whole=True).__getitems__([0, 1, 2, 3])["images"]
    expected = [0, 62, 125, 187]
    assert batch.whole[:, 0, 5, 5].tolist() == expected
    assert all(part[:, 0, 0, 8, 8].tolist() == expected for part in batch.pixels)


@pytest.mark.parametrize("workers", [0, 2])
def test_workers_have_the_scale_of_the_set(tmp_path, workers: int) -> None:
    scans(tmp_path, 4000)
    with pytest.warns(UserWarning, match=r"range=\[0,4095\]"):
        images = open_images(tmp_path, image_size=8)
    found = [batch["images"] for _, batch in batches_in_order(images, range(12), 4, workers=workers)]
    assert np.array_equal(torch.cat(found)[:, 0].numpy(), read(images))


def test_the_range_is_part_of_the_identity(tmp_path) -> None:
    scans(tmp_path, 4000)
    with pytest.warns(UserWarning):
        usual = open_images(tmp_path, image_size=8)
    given = open_images(tmp_path, image_size=8, range=[0, 4095])
    other = open_images(tmp_path, image_size=8, range=[0, 8191])
    assert usual.digest == given.digest != other.digest
    assert usual.content_digest == other.content_digest
    as_other = usual.at(image_size=8, channels=1, fit="squash", scale=Scale((0.0, 8191.0)))
    assert as_other.digest == other.digest and usual.range == (0, 4095)
    stays = given.at(image_size=8, channels=1, fit="squash", scale=Scale((0.0, 8191.0)))
    assert stays.range == (0, 4095), "what was given stays"


def test_a_part_has_the_range_of_the_whole(tmp_path) -> None:
    scans(tmp_path, 4000)
    with pytest.warns(UserWarning):
        images = open_images(tmp_path, image_size=8)
    part = images.part(np.array([1, 0]), "test")
    assert part.range == (0, 4095)
    assert np.array_equal(read(part), read(images)[[1, 0]])


@pytest.mark.parametrize("dtype", [np.uint16, np.int64, np.float32])
def test_arrays_share_the_scale_of_training(tmp_path, dtype: type) -> None:
    values = (DIGITS[:40] * 4000).astype(dtype)
    np.savez(tmp_path / "a.npz", x_train=values[:30], x_test=values[30:] // 8)
    with pytest.warns(UserWarning, match=r"range=\[0,4(095|000)\]"):
        train, test = (open_images(tmp_path / "a.npz", split=split) for split in ("train", "test"))
    high = 4000 if dtype == np.float32 else 4095
    assert train.range == test.range == (0, high)
    assert np.abs(test.pixels[:, 0] - values[30:] // 8 * (255 / high)).max() <= 0.5


def test_dark_test_images_in_arrays_stay_dark(tmp_path) -> None:
    np.savez(tmp_path / "a.npz", x_train=DIGITS[:30] * 255, x_test=DIGITS[30:40])
    assert open_images(tmp_path / "a.npz", split="test").pixels.max() == 1


def test_array_values_outside_are_clipped_and_counted(tmp_path) -> None:
    train, test = DIGITS[:30].astype(np.float32), DIGITS[30:40].astype(np.float32)
    test[2, 4, :3] = 1.02
    test[5, 4, 0] = -0.1
    np.savez(tmp_path / "a.npz", x_train=train, x_test=test)
    with pytest.warns(UserWarning, match=r"x_test: 4 values in 2 of 10 images lie outside range=\[0,1\]"):
        images = open_images(tmp_path / "a.npz", split="test")
    assert images.pixels[2, 0, 4, :3].tolist() == [255] * 3 and images.pixels[5, 0, 4, 0] == 0


def test_arrays_are_read_by_another_range(tmp_path) -> None:
    values = (DIGITS[:30] * 4000).astype(np.uint16)
    np.savez(tmp_path / "a.npz", x=values)
    with pytest.warns(UserWarning):
        images = open_images(tmp_path / "a.npz")
    other = images.at(image_size=8, channels=1, fit="squash", scale=Scale((0.0, 8191.0)))
    given = open_images(tmp_path / "a.npz", range=[0, 8191])
    assert np.array_equal(other.pixels, given.pixels) and other.digest == given.digest != images.digest
    assert other.content_digest == images.content_digest


@pytest.mark.parametrize("dtype", [np.int64, np.int32, np.float64])
@pytest.mark.parametrize("most", [1, 15])
def test_arrays_of_few_values_are_warned_of(tmp_path, dtype: type, most: int) -> None:
    """They were nearly black, and nothing was said. Floats from 0 to 1 have a range of their own."""
    values = np.random.default_rng(0).integers(0, most + 1, (20, 8, 8)).astype(dtype)
    np.savez(tmp_path / "a.npz", x=values)
    for source in (values, tmp_path / "a.npz"):
        with warnings.catch_warnings(record=True) as said:
            warnings.simplefilter("always")
            images = open_images(source)
        if dtype == np.float64:
            assert images.pixels.max() == 255
        else:
            assert images.pixels.max() == most and len(said) == 1
            line = f"{most + 1} of the 256 levels that the views see: range=[0,{most}] spreads"
            assert line in str(said[0].message)
            assert open_images(source, range=[0, most]).pixels.max() == 255


def test_arrays_of_bytes_in_wide_numbers_say_nothing(tmp_path, recwarn) -> None:
    values = (DIGITS[:30] * 255).astype(np.int64)
    np.savez(tmp_path / "a.npz", x=values)
    for source in (values, tmp_path / "a.npz"):
        assert np.array_equal(open_images(source).pixels[:, 0], values)
    assert not recwarn.list
