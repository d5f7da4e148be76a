"""Every kind of image file gives the pixels that it means."""

from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from sslkit.data.decode import pixels as pixels_module
from sslkit.data.decode.opening import open_image
from sslkit.data.decode.pixels import channels_of, square
from sslkit.data.decode.unreadable import UnreadableImage

RAMP = np.arange(256, dtype=np.uint8).reshape(16, 16)


def read(path: Path, channels: int, size: int = 16, fit: str = "squash") -> np.ndarray:
    with open_image(path) as image:
        pixels, _ = square(image, size, channels, fit, interpolation="bilinear", resize=None)
    assert pixels.shape == (channels, size, size) and pixels.dtype == np.uint8
    return pixels


def native(path: Path) -> int:
    with open_image(path) as image:
        return channels_of(image)


def color(*values: int) -> np.ndarray:
    return np.broadcast_to(np.array(values, dtype=np.uint8), (16, 16, len(values))).copy()


def same_everywhere(pixels: np.ndarray) -> list[int]:
    assert (pixels == pixels[:, :1, :1]).all()
    return pixels[:, 0, 0].tolist()


def test_gray(tmp_path) -> None:
    Image.fromarray(RAMP).save(tmp_path / "a.png")
    assert native(tmp_path / "a.png") == 1
    assert np.array_equal(read(tmp_path / "a.png", 1)[0], RAMP)
    assert np.array_equal(read(tmp_path / "a.png", 3), np.stack([RAMP] * 3))
    assert read(tmp_path / "a.png", 4)[3].min() == 255


def test_color(tmp_path) -> None:
    pixels = np.random.default_rng(0).integers(0, 256, (16, 16, 3), dtype=np.uint8)
    for name in ("a.png", "a.bmp", "a.ppm", "a.tif"):
        Image.fromarray(pixels).save(tmp_path / name)
        assert native(tmp_path / name) == 3
        assert np.array_equal(read(tmp_path / name, 3), pixels.transpose(2, 0, 1))
    Image.fromarray(color(255, 0, 0)).save(tmp_path / "red.png")
    assert same_everywhere(read(tmp_path / "red.png", 1)) == [76]


def test_bilevel(tmp_path) -> None:
    Image.fromarray(RAMP > 99).save(tmp_path / "a.png")
    assert native(tmp_path / "a.png") == 1
    assert np.array_equal(read(tmp_path / "a.png", 1)[0], (RAMP > 99) * 255)


def test_transparency_is_laid_over_white_unless_kept(tmp_path) -> None:
    Image.fromarray(color(200, 100, 0, 51)).save(tmp_path / "a.png")
    assert native(tmp_path / "a.png") == 3
    assert same_everywhere(read(tmp_path / "a.png", 3)) == [244, 224, 204]  # a fifth of the colour
    assert same_everywhere(read(tmp_path / "a.png", 4)) == [200, 100, 0, 51]


def test_gray_with_transparency(tmp_path) -> None:
    Image.fromarray(color(100, 51), mode=None).save(tmp_path / "a.png")
    assert Image.open(tmp_path / "a.png").mode == "LA" and native(tmp_path / "a.png") == 1
    assert same_everywhere(read(tmp_path / "a.png", 1)) == [224]
    assert same_everywhere(read(tmp_path / "a.png", 4)) == [100, 100, 100, 51]
    Image.fromarray(np.full((16, 16), 7, np.uint8)).save(tmp_path / "key.png", transparency=7)
    assert native(tmp_path / "key.png") == 1 and same_everywhere(read(tmp_path / "key.png", 1)) == [255]


def test_palette(tmp_path) -> None:
    image = Image.fromarray(np.where(RAMP < 128, 0, 1).astype(np.uint8), mode=None).convert("P")
    image.putpalette([10, 20, 30, 200, 100, 50])
    image.save(tmp_path / "a.png")
    image.save(tmp_path / "a.gif")
    for name in ("a.png", "a.gif"):
        assert Image.open(tmp_path / name).mode == "P" and native(tmp_path / name) == 3
        pixels = read(tmp_path / name, 3)
        assert pixels[:, 0, 0].tolist() == [10, 20, 30] and pixels[:, -1, -1].tolist() == [200, 100, 50]
    image.save(tmp_path / "holes.png", transparency=1)
    pixels = read(tmp_path / "holes.png", 3)
    assert pixels[:, 0, 0].tolist() == [10, 20, 30] and pixels[:, -1, -1].tolist() == [255, 255, 255]
    assert read(tmp_path / "holes.png", 4)[3, [0, -1], [0, -1]].tolist() == [255, 0]


@pytest.mark.parametrize("name", ["a.png", "a.tif"])
def test_sixteen_bits(tmp_path, name: str) -> None:
    wide = RAMP.astype(np.uint16) * 257
    wide[0, 1] += 128  # half a step up stays below the next
    Image.fromarray(wide).save(tmp_path / name)
    assert native(tmp_path / name) == 1
    assert np.array_equal(read(tmp_path / name, 1)[0], RAMP)
    assert np.array_equal(read(tmp_path / name, 3)[2], RAMP)
    noise = np.random.default_rng(0).integers(0, 65536, (16, 16), dtype=np.uint16)
    Image.fromarray(noise).save(tmp_path / name)
    assert np.array_equal(read(tmp_path / name, 1)[0], np.rint(noise / 257))


def test_thirty_two_bit_integers_hold_sixteen(tmp_path) -> None:
    Image.fromarray(RAMP.astype(np.int32) * 257).save(tmp_path / "a.tif")
    assert Image.open(tmp_path / "a.tif").mode == "I"
    assert np.array_equal(read(tmp_path / "a.tif", 1)[0], RAMP)
    Image.fromarray(RAMP.astype(np.int32) * 70000).save(tmp_path / "b.tif")
    with pytest.raises(UnreadableImage, match="integer pixels from 0 to 17850000"):
        read(tmp_path / "b.tif", 1)


def test_floats(tmp_path) -> None:
    for name, scale in (("one.tif", 1 / 255), ("many.tif", 1)):
        Image.fromarray(RAMP.astype(np.float32) * np.float32(scale)).save(tmp_path / name)
        assert native(tmp_path / name) == 1
        assert np.array_equal(read(tmp_path / name, 1)[0], RAMP)
    for value, message in ((np.nan, "NaN"), (-3, "float pixels from -3")):
        Image.fromarray(np.full((4, 4), value, np.float32)).save(tmp_path / "bad.tif")
        with pytest.raises(UnreadableImage, match=message):
            read(tmp_path / "bad.tif", 1)


def test_cmyk_jpeg(tmp_path) -> None:
    Image.new("CMYK", (16, 16), (0, 128, 255, 0)).save(tmp_path / "a.jpg", quality=100)
    assert Image.open(tmp_path / "a.jpg").mode == "CMYK" and native(tmp_path / "a.jpg") == 3
    found = same_everywhere(read(tmp_path / "a.jpg", 3))
    assert np.abs(np.array(found) - [255, 127, 0]).max() <= 2


@pytest.mark.parametrize("orientation", range(1, 9))
def test_exif_turns_the_image_upright(tmp_path, orientation: int) -> None:
    shown = np.zeros((16, 32, 3), np.uint8)
    shown[:8, :16] = 255  # the upper left quarter
    turned = {2: "FLIP_LEFT_RIGHT", 3: "ROTATE_180", 4: "FLIP_TOP_BOTTOM", 5: "TRANSPOSE"}
    turned |= {6: "ROTATE_90", 7: "TRANSVERSE", 8: "ROTATE_270"}  # how a camera stored what was shown
    image = Image.fromarray(shown)
    if orientation > 1:
        image = image.transpose(Image.Transpose[turned[orientation]])
    exif = Image.Exif()
    exif[0x0112] = orientation
    image.save(tmp_path / "a.jpg", exif=exif, quality=100)
    with open_image(tmp_path / "a.jpg") as opened:
        pixels, aspect = square(opened, 16, 1, "squash", interpolation="bilinear", resize=None)
    assert aspect == 2
    quarters = pixels[0].reshape(2, 8, 2, 8)[:, 2:6, :, 2:6].mean((1, 3))
    assert quarters[0, 0] > 250 and quarters.ravel()[1:].max() < 5


def test_fit_and_aspect(tmp_path) -> None:
    image = np.zeros((20, 60), np.uint8)
    image[:, 20:40] = 255
    Image.fromarray(image).save(tmp_path / "a.png")
    with open_image(tmp_path / "a.png") as opened:
        pixels, aspect = square(opened, 30, 1, "squash", interpolation="bilinear", resize=None)
    assert aspect == 3 and pixels[0, 15, [3, 15, 26]].tolist() == [0, 255, 0]
    with open_image(tmp_path / "a.png") as opened:
        pixels, aspect = square(opened, 20, 1, "crop", interpolation="bilinear", resize=None)
    assert aspect == 1 and same_everywhere(pixels) == [255]


def test_shrinking_is_antialiased(tmp_path) -> None:
    Image.fromarray((np.indices((256, 256)).sum(0) % 2 * 255).astype(np.uint8)).save(tmp_path / "a.png")
    assert np.abs(read(tmp_path / "a.png", 1).astype(int) - 128).max() < 12


def test_a_large_jpeg_is_not_decoded_whole_and_looks_the_same(tmp_path, monkeypatch) -> None:
    y, x = np.mgrid[:1024, :1536]
    scene = np.stack([x * 255 // 1535, y * 255 // 1023, 128 + 100 * np.sin(x / 90) * np.cos(y / 70)], -1)
    Image.fromarray(scene.astype(np.uint8)).save(tmp_path / "a.jpg", quality=95)
    whole = Image.open(tmp_path / "a.jpg").resize((100, 100), Image.Resampling.BILINEAR)
    seen = []
    narrow = pixels_module._eight_bits
    monkeypatch.setattr(pixels_module, "_eight_bits", lambda image, _: seen.append(image.size) or narrow(image, None))
    with open_image(tmp_path / "a.jpg") as opened:
        pixels, aspect = square(opened, 100, 3, "squash", interpolation="bilinear", resize=None)
    assert aspect == 1.5 and seen == [(384, 256)]
    assert np.abs(pixels.transpose(1, 2, 0).astype(int) - np.asarray(whole)).max() <= 4


def broken_files(folder: Path) -> dict[str, Path]:
    good = folder / "good.jpg"
    noise = np.random.default_rng(0).integers(0, 256, (64, 64, 3), dtype=np.uint8)
    Image.fromarray(noise).save(good)
    png = folder / "good.png"
    Image.fromarray(noise).save(png)
    contents = {
        "truncated.jpg": good.read_bytes()[: good.stat().st_size // 2],
        "empty.png": b"",
        "text.jpg": b"no image at all",
        "header.png": b"\x89PNG\r\n\x1a\n",
        "truncated.png": png.read_bytes()[: png.stat().st_size // 2],
    }
    for path in (good, png):
        path.unlink()
    for name, content in contents.items():
        (folder / name).write_bytes(content)
    return {name: folder / name for name in contents}


@pytest.mark.parametrize("name", ["truncated.jpg", "empty.png", "text.jpg", "header.png", "truncated.png"])
def test_damaged_files_are_unreadable(tmp_path, name: str) -> None:
    with pytest.raises(UnreadableImage, match=r"\w"):
        read(broken_files(tmp_path)[name], 3)


def test_a_decompression_bomb_is_unreadable(tmp_path, monkeypatch) -> None:
    Image.fromarray(RAMP).save(tmp_path / "a.png")
    monkeypatch.setattr(Image, "MAX_IMAGE_PIXELS", 100)
    with pytest.raises(UnreadableImage, match=r"more than 200 pixels.*data.max_pixels=NUMBER allows more"):
        read(tmp_path / "a.png", 1)


def test_a_missing_file_is_unreadable_and_a_starved_machine_is_not_the_images_fault(tmp_path, monkeypatch) -> None:
    with pytest.raises(UnreadableImage, match="FileNotFoundError"):
        read(tmp_path / "gone.png", 1)

    def too_many(path: Path) -> None:
        raise OSError(24, "Too many open files")

    monkeypatch.setattr(Image, "open", too_many)
    (tmp_path / "there.png").write_bytes(b"\x89PNG\r\n\x1a\nIDAT")
    with pytest.raises(OSError, match="Too many open files"):
        read(tmp_path / "there.png", 1)


def test_a_damaged_exif_block_costs_nothing(tmp_path) -> None:
    Image.fromarray(color(9, 9, 9)).save(tmp_path / "a.jpg", exif=b"Exif\x00\x00garbage!", quality=100)
    assert same_everywhere(read(tmp_path / "a.jpg", 3)) == [9, 9, 9]
