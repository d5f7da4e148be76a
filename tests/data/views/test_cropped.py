"""Crops of image files: the picture's own detail, and the same for every number of processes."""

import shutil
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch
from photographs import photographs
from PIL import Image
from torch import Tensor
from torchvision.transforms.v2.functional import resized_crop

from sslkit.data.decode.opening import open_image
from sslkit.data.decode.pixels import Region, regions
from sslkit.data.loader import EpochRows, make_loader
from sslkit.data.sources.named import open_images
from sslkit.data.views.augmentation import augment, view_generator
from sslkit.data.views.cropped import CroppedImages
from sslkit.data.views.crops import draw_boxes, finish
from sslkit.data.views.recipe import SIMCLR, View, ViewRecipe
from sslkit.errors import UserError
from sslkit.objectives.swav import SwAV
from sslkit.objectives.vicregl import cell_centres

PLAIN = View(flip=0.0, jitter=0.0, grayscale=0.0, blur=0.0)
PAIR = ViewRecipe((PLAIN, PLAIN))


def batches(folder: Path, workers: int, rank: int = 0, world_size: int = 1) -> list[dict]:
    rows = CroppedImages(open_images(folder), SIMCLR, 40, whole=True)
    loader = make_loader(rows, batch_size=4, seed=3, workers=workers, rank=rank, world_size=world_size)
    found = []
    for epoch in range(2):
        loader.sampler.set_epoch(epoch)
        found += loader
    return found


def test_workers_and_none_give_the_same_crops(jpegs: Path) -> None:
    for ours, theirs in zip(batches(jpegs, 2), batches(jpegs, 0), strict=True):
        for one, other in zip(parts(ours), parts(theirs), strict=True):
            assert torch.equal(one, other)


def parts(batch: dict) -> list[Tensor]:
    return [*batch["images"].pixels, batch["images"].boxes, batch["images"].whole, batch["index"], batch["aspect"]]


def test_the_ranks_share_the_crops_of_one_process(jpegs: Path) -> None:
    alone, ranks = batches(jpegs, 0), [batches(jpegs, 0, rank, 2) for rank in (0, 1)]
    for whole, *own in zip(alone, *ranks, strict=True):
        for rank, part in enumerate(own):
            assert torch.equal(part["images"].pixels[0], whole["images"].pixels[0][rank::2])
            assert torch.equal(part["images"].boxes, whole["images"].boxes[:, rank::2])


def test_an_epoch_has_its_own_crops(jpegs: Path) -> None:
    rows = CroppedImages(open_images(jpegs), SIMCLR, 40)
    first, again, later = (rows.__getitems__(EpochRows([5], 0, epoch))["images"] for epoch in (0, 0, 1))
    assert torch.equal(first.pixels[0], again.pixels[0]) and not torch.equal(first.boxes, later.boxes)


@pytest.mark.parametrize(
    ("interpolation", "channels", "levels"),
    [("bilinear", 3, 1), ("bicubic", 3, 2), ("bilinear", 1, 0), ("bicubic", 4, 0)],
)
def test_crops_are_pillows_of_the_decoded_file(jpegs: Path, interpolation: str, channels: int, levels: int) -> None:
    """RGB within a gray level or two, since torch rounds the weights of its uint8 kernel otherwise."""
    images = open_images(jpegs, interpolation=interpolation, channels=channels)
    made = CroppedImages(images, PAIR, 96).__getitems__([0, 7])["images"].pixels[0]
    for place, row in enumerate((0, 7)):
        whole = Image.open(images.path(row)).convert({1: "L", 3: "RGB", 4: "RGBA"}[channels])
        for number, box in enumerate(draw_boxes(PAIR.views, 0, 0, row, whole.height, whole.width).int().tolist()):
            expected = resized_crop(whole, *box, [96, 96], interpolation=Image.Resampling[interpolation.upper()])
            difference = made[place, number].permute(1, 2, 0).numpy().astype(int) - np.atleast_3d(expected)
            assert np.abs(difference).max() <= levels and (difference != 0).mean() < 0.1


def energy(views: Tensor) -> float:
    """Mean power above half of Nyquist's frequency. views: (N, 3, S, S) in [0, 1]."""
    size = views.shape[-1]
    window = torch.hann_window(size)[:, None] * torch.hann_window(size)
    power = torch.fft.fft2((views.mean(1) - views.mean((1, 2, 3), keepdim=True)[:, 0]) * window).abs().square()
    frequency = torch.fft.fftfreq(size)
    high = (frequency[:, None].square() + frequency.square()).sqrt() > 0.25
    return float(power[:, high].sum(1).mean())


def test_full_detail_has_the_energy_of_random_resized_crop_and_fast_has_not(tmp_path) -> None:
    for number, photo in enumerate(photographs()):
        photo.resize((500, 375), Image.Resampling.LANCZOS).save(tmp_path / f"{number}.jpg", quality=95)
    rows = [0, 1] * 8
    full = CroppedImages(open_images(tmp_path), PAIR, 224)
    made, expected = [], []
    for epoch in range(8):
        crops = full.__getitems__(EpochRows([0, 1], 0, epoch))["images"]
        made += finish(crops, PAIR, view_generator(0, epoch, 0))
        for row in (0, 1):
            whole = torch.from_numpy(np.asarray(Image.open(tmp_path / f"{row}.jpg")).copy()).permute(2, 0, 1) / 255
            for box in draw_boxes(PAIR.views, 0, epoch, row, 375, 500).int().tolist():
                expected.append(resized_crop(whole, *box, [224, 224], antialias=True))
    squares = open_images(tmp_path, image_size=256).__getitems__(rows)
    fast = augment(squares["images"], PAIR, 224, view_generator(0, 0, 0), aspect=squares["aspect"])
    reference = energy(torch.stack(expected))
    assert energy(torch.cat(made)) > 0.95 * reference
    assert energy(torch.cat(fast)) < 0.7 * reference


def test_a_large_jpeg_is_decoded_smaller_and_keeps_its_detail(tmp_path) -> None:
    photographs()[0].resize((1920, 1280), Image.Resampling.LANCZOS).save(tmp_path / "a.jpg", quality=95)
    wanted = [Region(37, 101, 641, 803, 96), Region(300, 50, 900, 1000, 96)]  # more than six times each view
    with open_image(tmp_path / "a.jpg") as image:
        made = regions(image, wanted, 3, interpolation="bilinear")
        assert image.size == (960, 640)
    whole = Image.open(tmp_path / "a.jpg").convert("RGB")
    for pixels, region in zip(made, wanted, strict=True):
        box = (region.top, region.left, region.height, region.width)
        expected = np.asarray(resized_crop(whole, *box, [96, 96])).transpose(2, 0, 1)
        assert np.abs(pixels.astype(int) - expected).mean() < 2
        ours, theirs = (torch.from_numpy(one.copy())[None] / 255 for one in (pixels, expected))
        assert 0.9 < energy(ours) / energy(theirs) < 1.3


def test_one_region_near_its_view_forbids_a_smaller_decoding(tmp_path) -> None:
    photographs()[0].save(tmp_path / "a.jpg")
    with open_image(tmp_path / "a.jpg") as image:
        regions(image, [Region(0, 0, 427, 640, 32), Region(0, 0, 50, 60, 32)], 3, interpolation="bilinear")
        assert image.size == (640, 427)


def position_picture(path: Path, **options: object) -> None:
    """A picture whose red tells the share of the way across and whose green that of the way down."""
    across, down = (np.arange(320) + 0.5) / 320, (np.arange(200) + 0.5) / 200
    pixels = np.zeros((200, 320, 3))
    pixels[..., 0], pixels[..., 1] = across, down[:, None]
    Image.fromarray(np.rint(255 * pixels).astype(np.uint8)).save(path, **options)


@pytest.mark.parametrize("local", [0, 3])
def test_boxes_and_flips_tell_where_the_content_is_from(tmp_path, local: int) -> None:
    position_picture(tmp_path / "a.png")
    turned = replace(PLAIN, flip=0.5)
    recipe = ViewRecipe((turned, turned), local=replace(turned, scale=(0.05, 0.14), size=32), n_local=local)
    batch = CroppedImages(open_images(tmp_path), recipe, 64).__getitems__([0] * 12)
    views = finish(batch["images"], recipe, view_generator(0, 0, 0))
    assert [view.shape[-1] for view in views] == [64, 64] + [32] * local
    flips = views.boxes[..., 4]
    assert 0 < flips.mean() < 1
    for view, boxes in zip(views, views.boxes, strict=True):
        cells = torch.nn.functional.avg_pool2d(view, view.shape[-1] // 4)
        places = cell_centres(boxes, 4, 4)  # (N, 16, 2) down, across
        assert torch.allclose(cells[:, 1].flatten(1), places[..., 0], atol=0.01)
        assert torch.allclose(cells[:, 0].flatten(1), places[..., 1], atol=0.01)


def test_a_rotated_file_is_cropped_upright(tmp_path) -> None:
    exif = Image.Exif()
    exif[0x0112] = 6  # to be turned by 90 degrees clockwise: rows become columns from the right
    position_picture(tmp_path / "a.png", exif=exif)
    batch = CroppedImages(open_images(tmp_path), PAIR, 32).__getitems__([0])
    assert batch["aspect"].item() == pytest.approx(200 / 320)
    (view, _), (boxes, _) = finish(batch["images"], PAIR, view_generator(0, 0, 0)), batch["images"].boxes
    top, left, height, width = boxes[0].tolist()
    assert view[0, 0].mean().item() == pytest.approx(top + height / 2, abs=0.01)
    assert view[0, 1].mean().item() == pytest.approx(1 - left - width / 2, abs=0.01)


def test_multi_crop_has_the_sizes_of_its_recipe(jpegs: Path) -> None:
    recipe = SwAV.views.at(56).replace(n_local=3)
    crops = CroppedImages(open_images(jpegs), recipe, 56).__getitems__([0, 1])["images"]
    assert [part.shape for part in crops.pixels] == [(2, 2, 3, 56, 56), (2, 3, 3, 24, 24)]
    assert [view.shape for view in finish(crops, recipe, view_generator(0, 0, 0))] == [(2, 3, 56, 56)] * 2 + [
        (2, 3, 24, 24)
    ] * 3


@pytest.mark.parametrize(("mode", "channels"), [("L", 1), ("L", 3), ("RGBA", 3), ("RGBA", 4), ("I;16", 1), ("P", 3)])
def test_every_kind_of_file_is_cropped_as_its_square_is_decoded(tmp_path, mode: str, channels: int) -> None:
    """A box of the whole square gives the pixels of `pixels.square`."""
    ramp = np.arange(64 * 64, dtype=np.uint16).reshape(64, 64)
    if mode == "I;16":
        picture = Image.fromarray(ramp * 16)
    else:
        color = np.stack([ramp // 16, ramp % 251, 255 - ramp // 16, ramp // 32 + 100], -1).astype(np.uint8)
        picture = Image.fromarray(color, "RGBA").convert(mode)
    picture.save(tmp_path / "a.png")
    images = open_images(tmp_path, image_size=24, channels=channels, opacity=True if mode == "RGBA" else None)
    whole = ViewRecipe((replace(PLAIN, scale=(1.0, 1.0), ratio=(1.0, 1.0)),))
    crops = CroppedImages(images, whole, 24, whole=True).__getitems__([0])["images"]
    square = images.__getitems__([0])["images"].int()
    for made in (crops.pixels[0][:, 0], crops.whole):
        assert (made.int() - square).abs().max() <= (1 if channels == 3 else 0)


def test_an_unreadable_file_is_replaced_and_named(jpegs: Path, tmp_path) -> None:
    shutil.copytree(jpegs, tmp_path / "some")
    broken = tmp_path / "some" / "04.jpg"
    broken.write_bytes(broken.read_bytes()[:600])
    rows = CroppedImages(open_images(tmp_path / "some"), SIMCLR, 32)
    batch = rows.__getitems__([4, 5])
    assert batch["index"].tolist() == [5, 5] and batch["bad"] == [str(broken)]
    assert not torch.equal(batch["images"].boxes[:, 0], batch["images"].boxes[:, 1])
    strict = CroppedImages(open_images(tmp_path / "some", on_error="raise"), SIMCLR, 32)
    with pytest.raises(UserError, match=r"cannot read .*04\.jpg"):
        strict.__getitems__([4])


def test_an_image_in_memory_is_cropped_too() -> None:
    """Images of torchvision's sets are opened already and have no smaller scale to decode."""
    image = photographs()[0]
    (made,) = regions(image, [Region(0, 0, 427, 640, 32)], 1, interpolation="bilinear")
    assert image.size == (640, 427)
    assert np.array_equal(made[0], np.asarray(image.convert("L").resize((32, 32), 2, reducing_gap=2.0)))
