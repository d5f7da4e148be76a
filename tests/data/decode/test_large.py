"""Images with more pixels than Pillow opens."""

import resource
import struct
import tracemalloc
import warnings
import zipfile
import zlib
from pathlib import Path

import numpy as np
import pytest
from image_files import SIDE, dicom, fits, flat
from PIL import Image

from sslkit.data.decode import pixels as pixels_module
from sslkit.data.loader import batches_in_order
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


def test_the_limit_is_part_of_the_identity(folder: Path) -> None:
    with pytest.warns(UserWarning, match="left out"):
        usual = open_images(folder, image_size=20)
    most = [open_images(folder, image_size=20, max_pixels=number) for number in (1600, 1600, 1700)]
    assert most[0].digest == most[1].digest and most[0].listing == most[1].listing
    assert len({one.digest for one in (usual, *most)}) == len({one.listing for one in (usual, *most)}) == 3
    assert len({one.content_digest for one in (usual, *most)}) == 1


def test_large_files_in_shards_and_of_other_formats(folder: Path, tmp_path) -> None:
    for ending in ("tif", "bmp", "jp2", "gif"):
        Image.new("L", (40, 40), 77).save(tmp_path / f"9.{ending}")
    for kind in ("tiff_lzw", "tiff_adobe_deflate"):  # which Pillow checks again when it decodes
        Image.new("L", (40, 40), 77).save(tmp_path / f"{kind}.tif", compression=kind)
    images = open_images(folder, image_size=20, max_pixels=1600)
    batch = images.__getitems__(list(range(4, len(images))))
    assert len(images) == 10 and batch["bad"] == [] and set(batch["images"][:, 0, 9, 9].tolist()) == {77}


def test_a_format_with_a_limit_of_its_own(folder: Path, monkeypatch) -> None:
    """As WebP's reader has it in some releases of Pillow."""

    def refuse(*_: object) -> None:
        raise Image.DecompressionBombError

    Image.new("L", (40, 40), 77).save(folder / "9.webp")
    monkeypatch.setitem(Image.OPEN, "WEBP", (refuse, Image.OPEN["WEBP"][1]))
    with pytest.warns(UserWarning, match=r"9\.webp: .*Pillow reads no more of this format"):
        open_images(folder, image_size=20, max_pixels=1600)


def test_no_limit_below_one() -> None:
    with pytest.raises(UserError, match=r"max_pixels must be a whole number, at least 1 .*got 0"):
        open_images("digits", max_pixels=0)


def test_many_channels_count_as_more_pixels(tmp_path, monkeypatch) -> None:
    tifffile = pytest.importorskip("tifffile")
    monkeypatch.setattr(Image, "MAX_IMAGE_PIXELS", 500)
    tifffile.imwrite(tmp_path / "0.tif", np.zeros((13, 20, 20), np.uint16), planarconfig="separate")
    reason = r"it has 2,600 pixels, more than 1,000: data.max_pixels=2600 allows it"  # of 4 bytes
    with pytest.raises(UserError, match=rf"none of its 1 images can be read.*{reason}"), pytest.warns(UserWarning):
        open_images(tmp_path, image_size=20)
    assert open_images(tmp_path, image_size=20, max_pixels=2600).channels == 13


def test_heic_has_the_limit_of_others(folder: Path) -> None:
    pillow_heif = pytest.importorskip("pillow_heif")
    pillow_heif.from_pillow(Image.new("RGB", (40, 40), (90, 90, 90))).save(folder / "9.heic", quality=100)
    with pytest.warns(UserWarning, match=r"left out .*: it has (more than|1,600)"):
        assert open_images(folder, image_size=20).__getitems__([4])["bad"] == [str(folder / "9.heic")]
    assert not open_images(folder, image_size=20, max_pixels=1600).__getitems__([4])["bad"]


def test_colours_of_16_bits_are_read_where_they_are_allowed(folder: Path) -> None:
    tifffile = pytest.importorskip("tifffile")
    tifffile.imwrite(folder / "9.tif", np.full((40, 40, 3), 2**15, np.uint16), photometric="rgb")
    with pytest.warns(UserWarning, match="16-bit images"):
        images = open_images(folder, image_size=20, max_pixels=2400)  # a value of two bytes counts more
    assert not images.__getitems__([4])["bad"]


def with_sides(path: Path, page: int, side: int) -> Path:
    """A TIFF one of whose pages says that it has other sides than its pixels."""
    tifffile = pytest.importorskip("tifffile")
    with tifffile.TiffFile(path, mode="r+") as file:
        for name in ("ImageWidth", "ImageLength"):
            file.pages[page].tags[name].overwrite(side)
    return path


@pytest.mark.parametrize("photometric", ["minisblack", "miniswhite"])  # by Pillow, and by tifffile
def test_a_later_page_has_the_limit_too(photometric: str, tmp_path: Path) -> None:
    tifffile = pytest.importorskip("tifffile")
    pages = np.full((3, 8, 8), 2**14, np.uint16)
    tifffile.imwrite(tmp_path / "0.tif", pages, photometric=photometric, description="", metadata=None)
    with_sides(tmp_path / "0.tif", 1, 100_000)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        images = open_images(tmp_path, image_size=8, pages="all", range=(0.0, 65535.0))
    with pytest.warns(UserWarning, match=r"left out .*0\.tif#2: it has .*more than 178,956,970"):
        images._has_told, images._unreadable = False, {}
        assert images.__getitems__([1])["bad"] == [f"{tmp_path}/0.tif#2"]
    assert not images.__getitems__([0, 2])["bad"]


def test_pages_of_one_picture_have_one_size(tmp_path: Path) -> None:
    tifffile = pytest.importorskip("tifffile")
    tifffile.imwrite(tmp_path / "0.tif", np.zeros((5, 8, 8), np.uint16), photometric="minisblack", metadata=None)
    with_sides(tmp_path / "0.tif", 3, 100_000)
    with pytest.raises(UserError, match=r"0\.tif: a TIFF whose pages of one picture have several sizes"):
        open_images(tmp_path, image_size=8, channels=5)


def test_tiles_larger_than_their_image_are_not_read(tmp_path: Path) -> None:
    tifffile = pytest.importorskip("tifffile")
    tifffile.imwrite(tmp_path / "0.tif", np.zeros((16, 16), np.uint16), photometric="miniswhite", tile=(16, 16))
    with tifffile.TiffFile(tmp_path / "0.tif", mode="r+") as file:
        for name in ("TileWidth", "TileLength"):
            file.pages[0].tags[name].overwrite(65520)
    with pytest.raises(UserError, match=r"0\.tif: a TIFF with tiles of shape \(65520, 65520\), larger than the image"):
        open_images(tmp_path, image_size=8)


def test_a_jpeg_2000_of_another_size_than_it_says(tmp_path: Path) -> None:
    imagecodecs = pytest.importorskip("imagecodecs")
    content = bytearray(imagecodecs.jpeg2k_encode(np.zeros((8, 8, 3), np.uint16), codecformat="jp2", level=0))
    place = content.find(b"\xff\x4f\xff\x51")
    content[place + 8 : place + 16] = (100_000).to_bytes(4, "big") * 2
    (tmp_path / "0.jp2").write_bytes(content)
    with pytest.raises(UserError, match=r"0\.jp2: its header says \(8, 8\) pixels, and its code \(100000, 100000\)"):
        open_images(tmp_path, image_size=8)


def test_what_is_allowed_and_does_not_fit_into_the_memory_is_left_out(folder: Path, monkeypatch) -> None:
    upright = pixels_module._upright

    def starved(image: Image.Image, *how: object) -> Image.Image:
        if image.width == 40:
            raise MemoryError
        return upright(image, *how)

    monkeypatch.setattr(pixels_module, "_upright", starved)
    images = open_images(folder, image_size=20, max_pixels=1600)
    with pytest.warns(UserWarning, match=r"left out .*1\.png: its 40 x 40 pixels do not fit into the memory"):
        assert images.__getitems__([1])["bad"] == [str(folder / "1.png")]
    monkeypatch.setattr(Image, "MAX_IMAGE_PIXELS", 10**6)
    images._unreadable = {}
    with pytest.raises(MemoryError):  # of a small image: the machine's fault
        images.__getitems__([1])


def png_header(side: int) -> bytes:
    head = b"IHDR" + struct.pack(">IIBBBBB", side, side, 16, 0, 0, 0, 0)
    start = b"\x89PNG\r\n\x1a\n" + struct.pack(">I", 13) + head + struct.pack(">I", zlib.crc32(head))
    return start + struct.pack(">I", 8) + b"IDAT" + bytes(64)


def test_a_deflated_file_is_refused_before_it_is_inflated(tmp_path: Path) -> None:
    """Its pixels are zeros, which take a thousandth of their bytes in the file."""
    side = 4096
    content = dicom(np.zeros((side, side, 1), np.uint16), deflated=True, Rows=side, Columns=side)
    (tmp_path / "0.dcm").write_bytes(content)
    assert len(content) < 2**16
    packed = tmp_path / "0.zip"
    for source in (tmp_path, f"shards:{packed}"):
        with zipfile.ZipFile(packed, "w") as out:
            out.write(tmp_path / "0.dcm", "0.dcm")
        said = r"0\.dcm: it is deflated, and has more than 5,048,576 bytes, those of 1,000,000 pixels: data.max_pixels="
        tracemalloc.start()
        with pytest.raises(UserError, match=said), pytest.warns(UserWarning, match=said):
            open_images(source, image_size=8, max_pixels=10**6, cache=None)
        assert tracemalloc.get_traced_memory()[1] < 2**24
        tracemalloc.stop()
    with pytest.warns(UserWarning, match="16-bit images"):
        assert not open_images(tmp_path, image_size=8, max_pixels=side**2).__getitems__([0])["bad"]


SMALL_FILES = {  # of 100,000 x 100,000 pixels, or as many as the format has
    "png": lambda: png_header(100_000),
    "ppm": lambda: b"P6 100000 100000 255\n" + bytes(64),
    "pfm": lambda: b"Pf 100000 100000 -1.0\n" + bytes(64),
    "fits": lambda: fits(-32, 1, ">f4").replace(f"= {SIDE:>20}".encode(), f"= {100_000:>20}".encode()),
    "qoi": lambda: b"qoif" + struct.pack(">IIBB", 100_000, 100_000, 3, 0) + bytes(64),
    "bmp": lambda: b"BM" + struct.pack("<4I2i2H6I", 118, 0, 54, 40, 100_000, 100_000, 1, 24, *[0] * 6) + bytes(64),
    "tga": lambda: struct.pack("<BBBHHBHHHHBB", 0, 0, 3, 0, 0, 0, 0, 0, 60_000, 60_000, 8, 0) + bytes(64),
    "dcm": lambda: dicom(flat("u2", 2048), Rows=60_000, Columns=60_000),
}


@pytest.mark.parametrize("ending", SMALL_FILES)
def test_a_small_file_that_says_it_is_huge_takes_no_memory(ending: str, tmp_path: Path) -> None:
    (tmp_path / f"0.{ending}").write_bytes(SMALL_FILES[ending]())
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        with pytest.raises(UserError, match=rf"0\.{ending}: it has .*pixels"):
            open_images(tmp_path, image_size=8)
    assert resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before < 2**18, "KiB"
