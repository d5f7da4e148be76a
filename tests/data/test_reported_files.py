"""Public reports about image files in other libraries, each written down as the file that it is about."""

import io
import os
from pathlib import Path

import numpy as np
import pytest
from PIL import Image, PngImagePlugin

from sslkit.data.decode.pixels import Region, regions
from sslkit.data.images import Images
from sslkit.data.sources.named import open_images
from sslkit.errors import UserError

RED, GRAY = Image.new("RGB", (16, 16), (200, 10, 20)), Image.new("RGB", (16, 16), (90, 90, 90))
LFS = b"version https://git-lfs.github.com/spec/v1\noid sha256:4d7a214614ab2935c943f9e0ff69d22e\nsize 12345\n"


def encoded(image: Image.Image, kind: str, **options: object) -> bytes:
    content = io.BytesIO()
    image.save(content, kind, **options)
    return content.getvalue()


def colours(images: Images) -> list[list[int]]:
    """The mean colour of each image."""
    pixels = images.__getitems__(list(range(len(images))))["images"]
    return pixels.float().mean((2, 3)).round().int().tolist()


@pytest.mark.parametrize(
    ("ending", "kind"),
    [("jpg", "PNG"), ("jpg", "WEBP"), ("png", "JPEG"), ("png", "GIF"), ("tif", "PNG"), ("bmp", "AVIF"), ("gif", "BMP")],
)
def test_an_ending_that_is_not_the_formats(ending: str, kind: str, tmp_path: Path) -> None:
    """Files of the web: decoders that are chosen by the ending fail, or the file is left out."""
    (tmp_path / f"1.{ending}").write_bytes(encoded(RED, kind))
    assert np.allclose(colours(open_images(tmp_path)), [[200, 10, 20]], atol=2)


@pytest.mark.parametrize("what", ["text", "profile"])
@pytest.mark.parametrize("most", [None, 10**9])
def test_a_png_with_a_long_text_or_colour_profile(what: str, most: int | None, tmp_path: Path) -> None:
    """Pictures of drawing and generating programs: `Decompressed data too large`, and they were lost."""
    about = PngImagePlugin.PngInfo()
    about.add_text("workflow", "a" * 2_000_000, zip=True)
    more = {"pnginfo": about} if what == "text" else {"icc_profile": bytes(2_000_000)}
    (tmp_path / "1.png").write_bytes(encoded(RED, "PNG", **more))
    (tmp_path / "2.png").write_bytes(encoded(GRAY, "PNG"))
    assert colours(open_images(tmp_path, max_pixels=most)) == [[200, 10, 20], [90, 90, 90]]


@pytest.mark.parametrize("kind", ["PNG", "TGA", "TIFF", "WEBP"])
def test_a_picture_under_an_empty_opacity_is_shown(kind: str, tmp_path: Path) -> None:
    """Programs that write four channels and fill three: all images were blank."""
    pixels = np.zeros((16, 16, 4), np.uint8)
    pixels[:8, :, 0] = 200
    lossless = {"lossless": True, "exact": True} if kind == "WEBP" else {}
    (tmp_path / f"1.{kind.lower()}").write_bytes(encoded(Image.fromarray(pixels), kind, **lossless))
    (tmp_path / "2.png").write_bytes(encoded(Image.new("RGBA", (16, 16), (200, 0, 0, 0)), "PNG"))
    assert colours(open_images(tmp_path)) == [[100, 0, 0], [255, 255, 255]], "one colour that is transparent is blank"
    assert colours(open_images(tmp_path, channels=4, image_size=16))[0] == [100, 0, 0, 0], "kept where it is asked for"
    with Image.open(next(tmp_path.glob("1.*"))) as image:
        (crop,) = regions(image, [Region(0, 0, 4, 4, 4)], 3, interpolation="bilinear")
    assert (crop[0] == 200).all() and not crop[1:].any()


def test_arrays_under_an_empty_opacity_are_shown(tmp_path: Path) -> None:
    x = np.zeros((2, 4, 4, 4), np.uint8)
    x[0, :2, :, 0] = 200
    np.savez(tmp_path / "a.npz", x=x)
    assert colours(open_images(tmp_path / "a.npz", opacity=True)) == [[100, 0, 0], [255, 255, 255]]


@pytest.mark.parametrize(
    ("content", "said"),
    [
        (LFS, "a pointer of Git LFS in place of the file: fetch that with git lfs pull"),
        (b"\n<!DOCTYPE html><html><title>404", "a page of HTML, as a failed download leaves it: download it again"),
        (b"", "it is empty: copy it again"),
    ],
)
def test_what_stands_in_the_place_of_an_image_is_named(content: bytes, said: str, tmp_path: Path) -> None:
    """Clones without Git LFS and failed downloads: `cannot identify image file`, whatever it was."""
    (tmp_path / "1.jpg").write_bytes(content)
    with pytest.raises(UserError, match=rf"none of its 1 images can be read; the last was .*1\.jpg: .*{said}"):
        open_images(tmp_path)[0]
    (tmp_path / "1.jpg").rename(tmp_path / "1.npz")
    with pytest.raises(UserError, match=said):
        open_images(tmp_path / "1.npz")


@pytest.mark.parametrize(
    ("kind", "exif", "turned"),
    [
        *((kind, exif, exif == 6) for kind in ("JPEG", "PNG", "WEBP", "TIFF") for exif in (0, 9, 6)),
        ("JPEG", "twice", False),
    ],
)
def test_odd_orientations(kind: str, exif: int | str, turned: bool, tmp_path: Path) -> None:
    """Numbers out of range, and headers that stand twice: images were turned wrongly, or reading ended."""
    image = Image.new("L", (32, 16))
    image.paste(255, (0, 0, 16, 16))
    about = Image.Exif()
    about[0x0112] = 6 if exif == "twice" else exif
    given = b"Exif\0\0Exif\0\0" + about.tobytes() if exif == "twice" else about
    (tmp_path / f"1.{kind.lower()}").write_bytes(encoded(image, kind, exif=given))
    pixels = open_images(tmp_path, image_size=16)[0]["images"][0].float()
    halves = [pixels[:8].mean(), pixels[:, :8].mean()]
    assert halves[not turned] == pytest.approx(255, abs=9) and halves[turned] == pytest.approx(127, abs=9)


@pytest.mark.parametrize(
    ("name", "content", "value"),
    [
        ("1.ppm", b"P3\n# by hand\n2 2\n15\n" + b"15 15 15 " * 4, 255),
        ("1.pgm", b"P2\n2 2\n3\n1 1 1 1\n", 85),
        ("1.tif", encoded(Image.new("1", (16, 16), 1), "TIFF", compression="group4"), 255),
        ("2.tif", encoded(Image.new("1", (16, 16), 1), "TIFF", tiffinfo={262: 0}), 0),
        ("3.tif", encoded(Image.new("CMYK", (16, 16), (0, 0, 0, 155)), "TIFF"), 100),
        ("4.tif", encoded(Image.new("YCbCr", (16, 16), (100, 128, 128)), "TIFF", compression="jpeg"), 100),
    ],
)
def test_scales_and_inks_of_scanners(name: str, content: bytes, value: int, tmp_path: Path) -> None:
    """Greatest values below 255, fax pages whose white is 0, inks: images were nearly black, or inverted."""
    (tmp_path / name).write_bytes(content)
    assert np.allclose(colours(open_images(tmp_path, channels=1)), value, atol=2)


@pytest.mark.parametrize("mode", ["L", "P", "RGBA", "CMYK", "I;16", "RGB"])
@pytest.mark.parametrize("most", [None, 10**9])
def test_tiffs_that_are_turned_by_a_quarter(mode: str, most: int | None, tmp_path: Path) -> None:
    """Scans that lie on their side: with a name Pillow maps the file, and cuts its rows at the wrong length."""
    values = np.zeros((16, 32), np.uint8)
    values[:, :16] = 255
    image = Image.fromarray(values.astype(np.uint16) * 257 if mode == "I;16" else values)
    about = Image.Exif()
    about[0x0112] = 6
    (image if mode == "I;16" else image.convert(mode)).save(tmp_path / "1.tif", exif=about)
    pixels = open_images(tmp_path, image_size=16, channels=1, max_pixels=most)[0]["images"][0].float()
    assert pixels[:7].min() > 240 and pixels[9:].max() < 15


def test_signs_in_names(tmp_path: Path) -> None:
    """Names that libraries took for URLs, patterns or images: files with %, # and line ends, folders called x.jpg."""
    for name in ("a%20b/1%2f.png", "c#?/2.png", "d[1]/*.png", "line\nend/3.png", "cat /4.png", "x.jpg/5.png"):
        (tmp_path / name).parent.mkdir()
        (tmp_path / name).write_bytes(encoded(RED, "PNG"))
    images = open_images(tmp_path)
    assert [images.image_name(row) for row in range(6)] == sorted(
        os.path.relpath(path, tmp_path) for path in tmp_path.rglob("*.png")
    )
    assert images.classes == sorted(path.name for path in tmp_path.iterdir()) and colours(images) == [[200, 10, 20]] * 6


@pytest.mark.parametrize("ending", ["jpg", "mpo"])
def test_the_first_of_two_pictures_of_a_camera_is_read(ending: str, tmp_path: Path) -> None:
    """ultralytics/yolov5's issue 2446: drones and telephones write a second JPEG behind the first."""
    (tmp_path / f"1.{ending}").write_bytes(encoded(RED, "MPO", save_all=True, append_images=[GRAY]))
    images = open_images(tmp_path)
    assert len(images) == 1 and np.allclose(colours(images), [[200, 10, 20]], atol=2)


@pytest.mark.parametrize("fit", ["squash", "crop"])
@pytest.mark.parametrize("size", [(1, 3000), (3000, 1), (1, 1)])
def test_pictures_of_one_row_or_column(size: tuple[int, int], fit: str, tmp_path: Path) -> None:
    """cleanlab/cleanvision's pull 250: the shorter side was rounded to none."""
    Image.new("RGB", size, (200, 10, 20)).save(tmp_path / "1.png")
    images = open_images(tmp_path, image_size=8, fit=fit)
    assert images[0]["images"].shape == (3, 8, 8) and colours(images) == [[200, 10, 20]]


def test_a_folder_that_is_linked_into_itself_is_listed_once(tmp_path: Path) -> None:
    """fastai's pull 2270, and everywhere where links are followed: the listing had no end."""
    for name in ("ant", "bee"):
        (tmp_path / name).mkdir()
        RED.save(tmp_path / name / "1.png")
    (tmp_path / "ant" / "all").symlink_to(tmp_path, target_is_directory=True)
    images = open_images(tmp_path)
    assert len(images) == 2 and images.classes == ["ant", "bee"]


def test_a_link_whose_file_has_gone_is_said(tmp_path: Path) -> None:
    """Links of annex and hub caches: FileNotFoundError in a worker, hours later."""
    RED.save(tmp_path / "1.png")
    (tmp_path / "2.png").symlink_to(tmp_path / "nowhere.png")
    images = open_images(tmp_path)
    batch = images.__getitems__(list(range(len(images))))
    assert set(batch["index"].tolist()) == {0} and len(batch["bad"]) == len(images) - 1


def test_a_folder_called_like_a_picture(tmp_path: Path) -> None:
    """Web archives keep a folder for each picture: IsADirectoryError."""
    (tmp_path / "1.jpg").mkdir()
    RED.save(tmp_path / "1.jpg" / "large.png")
    GRAY.save(tmp_path / "2.png")
    assert sorted(colours(open_images(tmp_path))) == [[90, 90, 90], [200, 10, 20]]


def test_a_jpeg_without_its_last_bytes_is_said_and_not_shown_in_part(tmp_path: Path) -> None:
    """Downloads that were cut: other readers show what there is, and gray below it."""
    (tmp_path / "1.jpg").write_bytes(encoded(RED, "JPEG", quality=95)[:-40])
    RED.save(tmp_path / "2.png")
    batch = open_images(tmp_path).__getitems__([0, 1])
    assert batch["index"].tolist() == [1, 1] and len(batch["bad"]) == 1 and batch["bad"][0].endswith("1.jpg")
