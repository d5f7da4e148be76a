"""Files of any kind become RGB of their own size."""

from pathlib import Path

import numpy as np
import pytest
import torch
from PIL import Image

from evaluation.tasks.detection.datasets.disk_images import DiskImages, common_scale
from sslkit.data.path_list import PathList
from sslkit.errors import UserError

RGB = np.random.default_rng(0).integers(0, 256, (7, 5, 3), dtype=np.uint8)
GRAY = RGB[:, :, 0]
HALF = np.repeat(np.uint8([[0, 0, 255, 255, 255]]), 7, axis=0)  # opaque at the right
FILES = {
    "rgb.png": (Image.fromarray(RGB), RGB),
    "gray.png": (Image.fromarray(GRAY), GRAY[:, :, None]),
    "sixteen.png": (Image.fromarray(GRAY.astype(np.uint16) * 257), GRAY[:, :, None]),
    "clear.png": (Image.fromarray(np.dstack([RGB, HALF])), np.where(HALF[:, :, None], RGB, 255)),
    "solid.png": (Image.fromarray(np.dstack([RGB, np.full((7, 5), 255, np.uint8)])), RGB),
    "palette.png": (Image.fromarray(GRAY // 64 * 64).convert("P"), (GRAY // 64 * 64)[:, :, None]),
    "cmyk.tif": (Image.fromarray(RGB).convert("CMYK"), RGB),
}


@pytest.fixture
def images(tmp_path: Path) -> DiskImages:
    for name, (image, _) in FILES.items():
        image.save(tmp_path / name)
    return DiskImages(tmp_path, PathList(list(FILES)), np.array([[7, 5]] * len(FILES)))


def test_every_mode_becomes_rgb(images: DiskImages) -> None:
    for row, (name, (_, wanted)) in enumerate(FILES.items()):
        pixels = images[row]
        assert pixels.shape == (3, 7, 5) and pixels.dtype == torch.uint8 and pixels.is_contiguous(), name
        assert np.array_equal(pixels.permute(1, 2, 0).numpy(), np.broadcast_to(wanted, (7, 5, 3))), name
        pixels.zero_()  # writable, without a warning


def test_all_missing_files_are_counted(images: DiskImages, tmp_path: Path) -> None:
    images.check_presence("own")
    for name in list(FILES)[:4]:
        (tmp_path / name).unlink()
    with pytest.raises(UserError, match=r"own: 4 of 7 images .* rgb.png, gray.png, sixteen.png and 1 more"):
        images.check_presence("own")


def test_a_part_has_its_own_paths_and_sizes(images: DiskImages) -> None:
    part = images.take(np.array([4, 0]))
    assert torch.equal(part[0], images[4]) and part.path(1).endswith("rgb.png")


def test_another_size_is_refused(images: DiskImages) -> None:
    wrong = DiskImages(images.root, images.paths, images.sizes[:, ::-1])
    for read in (lambda: wrong[0], lambda: wrong.check_headers("own")):
        with pytest.raises(UserError, match=r"rgb\.png is 5 x 7 pixels, its annotations say 7 x 5"):
            read()


def test_pages_that_are_not_read_are_said(tmp_path: Path) -> None:
    pages = [Image.fromarray(GRAY), Image.fromarray(255 - GRAY)]
    pages[0].save(tmp_path / "a.tif", save_all=True, append_images=pages[1:])
    with pytest.warns(UserWarning, match="own: some images have up to 2 pages; the first is read"):
        assert common_scale("own", tmp_path, PathList(["a.tif"])).range is None
