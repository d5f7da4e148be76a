"""The files below a folder: every picture is found, and what is left out is counted."""

import os
import re
import warnings
from pathlib import Path

import numpy as np
import pytest
from named_pipes import pipe
from PIL import Image

from sslkit.data.decode.formats import EXTENSIONS, looks_like_an_image
from sslkit.data.sources import walk
from sslkit.data.sources.folder import FolderImages, list_folder
from sslkit.data.sources.named import open_images
from sslkit.data.sources.walk import IMAGES, extension_of, kind_of

LEFT_OUT = {  # extensions of Pillow's that are no pictures here, or mostly something else
    *("eps", "ps", "wmf", "emf", "mpg", "mpeg", "bufr", "grib", "h5", "hdf", "iim"),
    *("pcd", "gbr", "fit", "rgb", "rgba", "bw", "vst", "vda", "icb", "im", "pdf", "palm"),
}


def write(path: Path, value: int = 0) -> Path:
    """A gray image of one value."""
    path.parent.mkdir(parents=True, exist_ok=True)
    Image.new("L", (4, 4), value).save(path)
    return path


def names_of(images: FolderImages) -> list[str]:
    return [images.image_name(row) for row in range(len(images))]


def test_the_extensions_are_those_of_pillow() -> None:
    Image.init()
    known = {name.removeprefix(".") for name, kind in Image.registered_extensions().items() if kind in Image.OPEN}
    assert known - set(EXTENSIONS) == known & LEFT_OUT and not LEFT_OUT & set(EXTENSIONS)
    assert EXTENSIONS[:3] == ("jpg", "jpeg", "png"), "the usual ones first"


@pytest.mark.parametrize("kind", ["JPEG", "PNG", "GIF", "WEBP", "TIFF", "BMP", "AVIF", "JPEG2000", "PPM", "ICO", "PSD"])
def test_pictures_are_known_by_their_first_bytes(kind: str, tmp_path: Path) -> None:
    if kind == "PSD":
        start = b"8BPS" + bytes([0, 1, 0, 0, 0, 0, 0, 0, 0, 3, 0, 0])
    else:
        Image.new("RGB", (16, 16)).save(tmp_path / "picture", format=kind)
        start = (tmp_path / "picture").read_bytes()
    assert looks_like_an_image(start[:16]) and looks_like_an_image(start[:200])


@pytest.mark.parametrize(
    "start",
    [
        *(b"", b"P", b"\xff", b"BM", b"II", b"\0" * 16, b"Python is a language", b"BMW and other cars", b"P45 forms\n"),
        *(
            b"%PDF-1.7\n%\xe2\xe3",
            b"%!PS-Adobe-3.0",
            b"\x7fELF\x02\x01\x01",
            b"PK\x03\x04\x14\0",
            b"\0\0\x01\xb3mpeg film",
        ),
        *(
            b"<svg xmlns='http'",
            b"\x89HDF\r\n\x1a\n\0\0",
            b"GRIB\0\0\0\x01",
            b"\x1f\x8b\x08\0\0\0\0\0",
            b"\x28\0\0\0\x01\0\0\0",
        ),
    ],
)
def test_other_files_are_not(start: bytes) -> None:
    assert not looks_like_an_image(start)


@pytest.mark.parametrize(
    ("name", "extension", "kind"),
    [
        ("a.JPG", "jpg", ".jpg"),
        ("a/b.tar.gz", "gz", ".gz"),
        ("a", "", "without extension"),
        ("a.", "", "without extension"),
        (".hidden", "", "without extension"),
        ("x. a name", " a name", "without extension"),
        ("hash.0123456789abcdef", "0123456789abcdef", "without extension"),
    ],
)
def test_what_an_extension_is(name: str, extension: str, kind: str) -> None:
    assert extension_of(name) == extension and kind_of(name) == kind


@pytest.mark.parametrize("extension", ["jfif", "jpe", "avif", "jp2", "tga", "dib", "PNM", "ico", "qoi"])
def test_every_extension_of_a_picture_is_read(extension: str, tmp_path) -> None:
    picture = Image.fromarray(np.full((16, 16, 3), 120, np.uint8))
    picture.save(tmp_path / f"a.{extension}", format="PPM" if extension == "PNM" else None)
    images = open_images(tmp_path, image_size=16)
    assert len(images) == 1 and abs(int(images[0]["images"].float().mean()) - 120) < 4


@pytest.mark.parametrize(
    ("name", "kind"), [("photo", "JPEG"), ("a1b2c3", "PNG"), ("x.original", "WEBP"), ("y.bak", "TIFF")]
)
def test_a_picture_is_known_by_its_content_where_its_name_tells_nothing(name: str, kind: str, tmp_path) -> None:
    write(tmp_path / "0.png", 7)
    Image.new("L", (4, 4), 9).save(tmp_path / name, format=kind)
    assert names_of(open_images(tmp_path)) == sorted(["0.png", name])


def test_forty_files_of_six_formats_are_all_read(tmp_path) -> None:
    """The report behind D5: 16 of 40 files were left out without a word."""
    for number, name in enumerate(
        [f"{i}{end}" for i in range(7) for end in (".jpg", ".jfif", ".avif", ".jp2", ".jpe", "")]
    ):
        kind = {".avif": "AVIF", ".jp2": "JPEG2000"}.get(os.path.splitext(name)[1], "JPEG")
        Image.new("RGB", (16, 16), (number, 0, 0)).save(tmp_path / name, format=kind)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert len(open_images(tmp_path)) == 42


def test_what_is_left_out_is_counted_by_kind(tmp_path) -> None:
    write(tmp_path / "a" / "1.png")
    write(tmp_path / "b" / "2.png")
    for name in (
        "notes.txt",
        "a/1.txt",
        "b/2.xml",
        "b/README",
        "b/.hidden.png",
        "b/model.tar.gz",
        "b/a name. with dots",
    ):
        (tmp_path / name).write_bytes(b"no image")
    for usual in (".DS_Store", "a/Thumbs.db", "a/desktop.ini", "b/._2.png"):
        (tmp_path / usual).write_bytes(b"of the desktop")
    said = "2 images; left out 7 other files: 2 .txt, 2 without extension, 1 .gz, 1 .xml, 1 hidden"
    with pytest.warns(UserWarning, match=rf"{tmp_path.name}: {re.escape(said)}"):
        assert len(open_images(tmp_path)) == 2


def test_copies_and_thumbnails_that_programs_leave_behind_are_no_images(tmp_path) -> None:
    for name in ("cat/1.png", "dog/1.png"):
        write(tmp_path / name)
    for usual in (
        "__MACOSX/cat/1.png",
        ".ipynb_checkpoints/1-checkpoint.png",
        "cat/@eaDir/1.png/SYNOPHOTO_THUMB_M.jpg",
    ):
        write(tmp_path / usual)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        images = open_images(tmp_path)
    assert images.classes == ["cat", "dog"] and len(images) == 2


def test_only_files_of_unknown_extension_are_opened(tmp_path, monkeypatch) -> None:
    for name in ("1.png", "2.JPG", "3.txt", "4.xml", "5.mp4"):
        write(tmp_path / name) if name[2:] in ("png", "JPG") else (tmp_path / name).write_bytes(b"x")
    looked_at = []
    monkeypatch.setattr(walk, "looks_like_an_image", lambda start: looked_at.append(start) or False)
    (tmp_path / "6.unknown").write_bytes(b"seen")
    assert len(open_images(tmp_path)) == 2 and looked_at == [b"seen"]


def test_a_pipe_of_unknown_extension_is_not_opened(tmp_path) -> None:
    write(tmp_path / "1.png")
    with pipe(tmp_path / "queue"):
        assert len(open_images(tmp_path)) == 1


def test_listing_many_usual_files_opens_none(tmp_path, monkeypatch) -> None:
    for number in range(300):
        (tmp_path / f"{number}.jpg").touch()
    monkeypatch.setattr("builtins.open", lambda *_, **__: pytest.fail("a file was opened"))
    assert len(list_folder(tmp_path, "train", IMAGES).paths) == 300
