"""Public reports of wrong pixels in other programs, each tried here: the values and the channels arrive."""

import io
import warnings
from pathlib import Path

import numpy as np
import pytest
from PIL import Image
from sklearn.datasets import load_digits, load_sample_images

from sslkit.data.sources.named import open_images
from sslkit.errors import UserError

DIGITS = load_digits().images / 16  # (1797, 8, 8) in [0, 1]
ZERO = DIGITS[0] / DIGITS[0].max()
pytestmark = pytest.mark.filterwarnings("ignore:.* are scaled to 8 bits by range")


def read(folder: Path, **options: object) -> np.ndarray:
    images = open_images(folder, image_size=8, **options)
    batch = images.__getitems__(list(range(len(images))))
    assert batch["bad"] == []
    return batch["images"].numpy()


def near(found: np.ndarray, expected: np.ndarray) -> bool:
    return np.abs(found - expected).max() <= 0.5 + 1e-3


def write_tiff(path: Path, values: np.ndarray, **options: object) -> None:
    pytest.importorskip("tifffile").imwrite(path, values, **options)


def test_a_bright_16_bit_png_is_not_white(tmp_path) -> None:
    """pytorch/pytorch#20524: ImageFolder gave a mean of 0.99 for a mean of 40,000."""
    values = (30000 + DIGITS[0] * 20000).astype(np.uint16)
    Image.fromarray(values).save(tmp_path / "a.png")
    assert near(read(tmp_path)[0, 0], values / 257)


def test_colours_of_16_bits_keep_their_precision(tmp_path) -> None:
    """pytorch/vision#4657: Pillow gives the upper bytes, in silence; here a photograph in 10 of the 16 bits."""
    cv = load_sample_images().images[0][100:108, 100:108].astype(np.uint16) * 4
    write_tiff(tmp_path / "a.tif", cv, photometric="rgb")
    found = read(tmp_path)[0]
    assert near(found, cv.transpose(2, 0, 1) * (255 / 1023)) and len(np.unique(found)) == len(np.unique(cv))


def test_values_above_255_are_not_clipped(tmp_path) -> None:
    """python-pillow/Pillow#274, #1108: 12 bits in a TIFF of 16, all above 255 became 255."""
    values = (447 + DIGITS[1] * 3000).astype(np.uint16)
    Image.fromarray(values).save(tmp_path / "a.tif")
    assert near(read(tmp_path)[0, 0], values * (255 / 4095))


def test_big_endian_values_are_not_signed(tmp_path) -> None:
    """python-pillow/Pillow#452: 32768 was read as -32768."""
    values = (32000 + DIGITS[2] * 33000).astype(np.uint16)
    write_tiff(tmp_path / "a.tif", values, byteorder=">")
    assert near(read(tmp_path)[0, 0], values / 257)


def test_floats_up_to_255_are_not_white(tmp_path) -> None:
    """albumentations-team/albumentations#835: a float32 image of 0 to 255 came out white."""
    Image.fromarray((DIGITS[0] * 255).astype(np.float32)).save(tmp_path / "a.tif")
    assert near(read(tmp_path)[0, 0], DIGITS[0] * 255)


@pytest.mark.parametrize("bands", [3, 4, 2, 7])
@pytest.mark.parametrize("planar", [True, False])
def test_bands_are_channels_however_they_are_stored(tmp_path, bands: int, planar: bool) -> None:
    """cgohlke/tifffile#87, MouseLand/cellpose#148: (3, H, W) in one file and (H, W, 4) in another."""
    values = np.stack([DIGITS[band] * 4000 for band in range(bands)]).astype(np.uint16)
    stored = values if planar else np.ascontiguousarray(values.transpose(1, 2, 0))
    config = "separate" if planar else "contig"
    write_tiff(tmp_path / "a.tif", stored, photometric="minisblack", planarconfig=config)
    assert near(read(tmp_path)[0], values * (255 / 4095))


def test_a_stack_of_two_channels_is_not_a_stack_of_pages(tmp_path) -> None:
    """imageio/imageio#681: an ImageJ file of 15 times and 2 channels was read as 30 pages."""
    values = (np.stack([DIGITS[2 * t : 2 * t + 2] for t in range(15)]) * 4000).astype(np.uint16)
    write_tiff(tmp_path / "a.tif", values, imagej=True, metadata={"axes": "TCYX"})
    found = read(tmp_path, channels=2, pages="all")
    assert found.shape == (15, 2, 8, 8) and near(found, values * (255 / 4095))


def test_channels_are_found_by_the_files_description(tmp_path) -> None:
    """juglab/n2v#48: the axes were interpreted in another order; here the channel changes slowest."""
    values = (np.stack([DIGITS[4 * c : 4 * c + 4] for c in range(5)]) * 4000).astype(np.uint16)
    write_tiff(tmp_path / "a.ome.tif", values, ome=True, metadata={"axes": "CTYX"})
    found = read(tmp_path, channels=5, pages="all")
    assert near(found, values.transpose(1, 0, 2, 3) * (255 / 4095))


def test_pages_that_are_no_multiple_of_the_channels(tmp_path) -> None:
    write_tiff(tmp_path / "a.tif", np.zeros((7, 8, 8), np.uint16), photometric="minisblack")
    with pytest.raises(UserError, match=r"7 pages of one channel, which are not data.channels=5"):
        read(tmp_path, channels=5)


def test_four_bands_are_not_colours_with_opacity(tmp_path) -> None:
    """albumentations-team/AlbumentationsX#123: pretraining on 4 channels of uint16 was not possible."""
    values = (DIGITS[:4] * 4000).astype(np.uint16)
    write_tiff(tmp_path / "a.tif", values, photometric="minisblack", planarconfig="separate")
    images = open_images(tmp_path, image_size=8)
    assert images.channels == 4 and near(images[0]["images"].numpy(), values * (255 / 4095))
    with pytest.raises(UserError, match=r"data.channels=3, but .*a.tif has 4"):
        images.at(image_size=8, channels=3, fit="crop")


def test_a_dark_scene_stays_dark(tmp_path) -> None:
    """phelber/EuroSAT#1, MaxWolf-01/sentinel2-landcover-classification#27: each image was stretched by itself."""
    for name, least, most in (("crop", 905, 1664), ("forest", 776, 1009)):
        write_tiff(tmp_path / f"{name}.tif", (least + ZERO * (most - least)).astype(np.uint16))
    crop, forest = read(tmp_path)[:, 0]
    assert near(crop.max(), 1664 * 255 / 2047) and near(forest.max(), 1009 * 255 / 2047)


def test_channels_of_small_values_are_named(tmp_path) -> None:
    """torchgeo/torchgeo#549: radar in decibels and optical bands of 16,000 as one stack; images were almost black."""
    stack = np.stack([DIGITS[0] * 40 - 48, DIGITS[1] * 9859, DIGITS[2] * 16000]).astype(np.float32)
    write_tiff(tmp_path / "a.tif", stack, photometric="minisblack", planarconfig="separate")
    np.savez(tmp_path / "a.npz", x=np.stack([stack, stack, stack]))
    for source in (tmp_path, tmp_path / "a.npz"):
        with pytest.warns(UserWarning, match=r"pixels of channel 1 lie in fewer than 16 of the 256 levels"):
            open_images(source, image_size=8)


def test_pixels_without_a_value_do_not_set_the_range(tmp_path) -> None:
    """semiautomaticgit/SemiAutomaticClassificationPlugin#252: the least value was -3.4e38 or NaN."""
    for none in (-3.40282e38, np.nan):
        values = (ZERO * 3000).astype(np.float32)
        values[:3, :3] = none
        write_tiff(tmp_path / "a.tif", values, extratags=[(42113, "s", 0, str(none), True)])
        with pytest.warns(UserWarning, match=r"values 0 to 3000 "):
            found = read(tmp_path)[0, 0]
        assert (found[:3, :3] == 0).all() and near(found[3:], values[3:] * (255 / 3000))


def test_white_is_zero_of_signed_values(tmp_path) -> None:
    """InsightSoftwareConsortium/ITK#6636."""
    values = (DIGITS[0] * 3000 - 1000).astype(np.int16)
    write_tiff(tmp_path / "a.tif", values, photometric="miniswhite")
    assert near(read(tmp_path, range=[-1000, 2000])[0, 0], (2000.0 - values) * (255 / 3000))


def heic(orientation: int) -> bytes:
    pillow_heif = pytest.importorskip("pillow_heif")
    shown = np.zeros((64, 64, 3), np.uint8)
    shown[:32, :32] = 255
    exif = Image.Exif()
    exif[0x0112] = orientation
    content = io.BytesIO()
    pillow_heif.from_pillow(Image.fromarray(shown)).save(content, quality=-1, exif=exif.tobytes())
    return content.getvalue()


@pytest.mark.parametrize("orientation", [1, 3, 6, 8])
def test_heic_is_turned_once(tmp_path, orientation: int) -> None:
    """wiltodelta/remove-ai-watermarks#105, tropy/tropy#887: sideways, or turned by the file and by EXIF again."""
    (tmp_path / "a.heic").write_bytes(heic(orientation))
    corner = {1: (0, 0), 3: (1, 1), 6: (0, 1), 8: (1, 0)}[orientation]
    quarters = read(tmp_path)[0, 0].reshape(2, 4, 2, 4).mean((1, 3))
    assert np.unravel_index(quarters.argmax(), (2, 2)) == corner


def scan(folder: Path, name: str, values: np.ndarray, frames: int = 1, **fields: object) -> None:
    """One DICOM file of (frames * H, W) values."""
    pydicom = pytest.importorskip("pydicom")
    about, meta = pydicom.Dataset(), pydicom.dataset.FileMetaDataset()
    meta.TransferSyntaxUID = pydicom.uid.ExplicitVRLittleEndian
    meta.MediaStorageSOPClassUID = pydicom.uid.SecondaryCaptureImageStorage
    meta.MediaStorageSOPInstanceUID = pydicom.uid.generate_uid()
    about.file_meta, about.PhotometricInterpretation, about.SamplesPerPixel = meta, "MONOCHROME2", 1
    about.Rows, about.Columns = values.shape[0] // frames, values.shape[1]
    about.BitsAllocated = about.BitsStored = 16
    about.HighBit, about.PixelRepresentation = 15, int(values.dtype.kind == "i")
    about.PixelData = values.tobytes()
    for key, value in {"NumberOfFrames": frames, **fields}.items():
        setattr(about, key, value)
    about.save_as(folder / name, enforce_file_format=True)


def test_a_slope_below_one_does_not_blank_the_scan(tmp_path) -> None:
    """ImageMagick/ImageMagick#477: the slope was taken for a whole number, 0."""
    stored = (DIGITS[0] * 60000).astype(np.uint16)
    scan(tmp_path, "a.dcm", stored, RescaleSlope="0.001", RescaleIntercept="0")
    assert near(read(tmp_path, range=[0, 60])[0, 0], stored * (255 / 60000))


def test_a_scan_without_slope_and_intercept(tmp_path) -> None:
    """pydicom/pydicom#1125, Project-MONAI/monai-deploy-app-sdk#236: MRI has none."""
    stored = (DIGITS[0] * 4000).astype(np.uint16)
    scan(tmp_path, "a.dcm", stored)
    assert near(read(tmp_path)[0, 0], stored * (255 / 4095))


def test_scans_of_other_types_with_the_same_units_are_alike(tmp_path) -> None:
    """MeshInspector/MeshLib#3636, notmatthancock/pylidc#32: Hounsfield units, stored signed or with an intercept."""
    units = (DIGITS[0] * 3000 - 1000).astype(np.int16)
    scan(tmp_path, "a.dcm", units)
    scan(tmp_path, "b.dcm", (units + 1000).astype(np.uint16), RescaleSlope="1", RescaleIntercept="-1000")
    found = read(tmp_path, range=[-1000, 2000])[:, 0]
    assert np.array_equal(*found) and near(found[0], (units + 1000.0) * (255 / 3000))


@pytest.mark.parametrize("shared", [True, False])
def test_frames_with_slopes_of_their_own(tmp_path, shared: bool) -> None:
    """PTB-MR/mrpro#933, ivmartel/dwv#80: slope and intercept of the file, or of each frame."""
    pydicom = pytest.importorskip("pydicom")

    def group(slope: int) -> object:
        units, found = pydicom.Dataset(), pydicom.Dataset()
        units.RescaleSlope, units.RescaleIntercept, units.RescaleType = str(slope), "0", "US"
        found.PixelValueTransformationSequence = [units]
        return found

    stored = np.concatenate([DIGITS[0] * 400, DIGITS[1] * 400]).astype(np.uint16)
    slopes = (2, 2) if shared else (1, 4)
    groups = {"SharedFunctionalGroupsSequence": [group(2)]} if shared else {}
    groups |= {} if shared else {"PerFrameFunctionalGroupsSequence": [group(slope) for slope in slopes]}
    scan(tmp_path, "a.dcm", stored, frames=2, **groups)
    found = read(tmp_path, pages="all", range=[0, 1600])[:, 0]
    expected = stored.reshape(2, 8, 8) * np.array(slopes)[:, None, None] * (255 / 1600)
    assert near(found, expected)


def test_a_photograph_is_no_bomb_where_it_is_allowed(tmp_path, monkeypatch) -> None:
    """facebookresearch/detectron2#1221, scalableminds/webknossos-libs#892: warnings, and a setting for all programs."""
    monkeypatch.setattr(Image, "MAX_IMAGE_PIXELS", 40)
    Image.fromarray((DIGITS[0] * 255).astype(np.uint8)).save(tmp_path / "a.png")
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert near(read(tmp_path, max_pixels=64)[0, 0], (DIGITS[0] * 255).astype(np.uint8))
    assert Image.MAX_IMAGE_PIXELS == 40
