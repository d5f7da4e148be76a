"""One preprocessing: files, arrays and deep pixels become what timm's own transform makes of them."""

import io

import numpy as np
import photographs
import pytest
import timm
import torch
from PIL import Image

from sslkit.data.arrays import fit_square
from sslkit.data.decode.opening import open_image
from sslkit.data.decode.pixels import square
from sslkit.data.resizing import LONGEST, Resizing, middle

CONFIGS = [
    *((size, pct, "bicubic", "center") for size, pct in ((224, 0.875), (96, 0.875), (33, 0.9), (64, 1.0), (224, 0.95))),
    (240, 0.882, "bilinear", "center"),
    (96, 0.9, "bicubic", "squash"),
    (99, 1.0, "bilinear", "squash"),
]


def jpeg(picture: Image.Image) -> bytes:
    file = io.BytesIO()
    picture.save(file, "JPEG", quality=90)
    return file.getvalue()


def pictures() -> list[Image.Image]:
    china, flower = photographs.photographs()
    large = china.resize((1601, 1067), Image.Resampling.LANCZOS)
    return [china, flower.crop((100, 0, 411, 427)), flower.convert("L"), large, china.resize((20, 31))]


def by_timm(picture: Image.Image, resizing: Resizing) -> np.ndarray:
    """(C, S, S) uint8 of timm's transform for evaluation."""
    size, config = resizing.image_size, resizing.of_card()
    transform = timm.data.create_transform((3, size, size), is_training=False, normalize=False, **config)
    return transform(picture).numpy()


@pytest.mark.parametrize("config", CONFIGS, ids=str)
def test_a_file_becomes_the_pixels_of_timm(config) -> None:
    resizing = Resizing(*config)
    how = resizing.of_images()
    for content in map(jpeg, pictures()):
        with open_image(io.BytesIO(content)) as opened:
            channels, options = len(opened.getbands()), (how["fit"], how["interpolation"])
            pixels, _ = square(opened, how["image_size"], channels, *options, resize=how["resize"])
        expected = by_timm(Image.open(io.BytesIO(content)), resizing)
        assert np.array_equal(pixels, expected)


@pytest.mark.parametrize("config", CONFIGS, ids=str)
def test_an_array_becomes_them_up_to_two_levels(config) -> None:
    resizing = Resizing(*config)
    how = resizing.of_images()
    for picture in pictures():
        array = np.asarray(picture.convert("RGB")).transpose(2, 0, 1)[None]
        fitted = fit_square(
            torch.from_numpy(array.copy()), how["image_size"], how["fit"], how["interpolation"], how["resize"]
        )
        apart = np.abs(fitted[0].numpy().astype(int) - by_timm(picture.convert("RGB"), resizing))
        assert apart.max() <= 2 and apart.mean() < 0.05


def test_sizes_are_rounded_down_as_by_timm() -> None:
    assert [Resizing.usual(size).resize for size in (28, 64, 96, 224)] == [28, 64, 109, 256]
    config = timm.get_pretrained_cfg("vit_base_patch16_clip_224.openai").to_dict()
    assert Resizing.of_timm(config | {"crop_mode": "squash"}, 336).of_images()["fit"] == "squash"


def test_a_length_that_is_asked_for_is_obeyed() -> None:
    for size in (8, 48, 224, 518):
        for resize in range(size, 3 * size):
            asked = Resizing(size, 0.875).at(resize, "bilinear")
            assert (asked.resize, asked.interpolation, asked.image_size) == (resize, "bilinear", size)
    assert Resizing(224, 0.95, "bicubic", "squash").at(None, None) == Resizing(224, 0.95, "bicubic", "squash")


def test_a_picture_of_any_length_fits_in_memory() -> None:
    line = Image.new("L", (70_000, 2))
    line.paste(255, (34_000, 0, 36_000, 2))
    with open_image(io.BytesIO(png(line))) as opened:
        pixels, _ = square(opened, 64, 1, "crop", "bicubic", resize=None)
    assert pixels.min() == 255
    array = torch.from_numpy(np.asarray(line).copy())[None, None]
    assert fit_square(array, 64, "crop", interpolation="bilinear", resize=None).min() == 255
    assert middle(2, 70_000)[2] - middle(2, 70_000)[0] == 2 * LONGEST and middle(427, 640) is None


def png(picture: Image.Image) -> bytes:
    file = io.BytesIO()
    picture.save(file, "PNG")
    return file.getvalue()
