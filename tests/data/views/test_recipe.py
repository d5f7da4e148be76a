"""Recipes: full-size views, local crops, and what a user may change of them."""

import pytest
import torch
import torchvision.transforms.functional as TF

import sslkit
from sslkit.data.views.augmentation import augment, contact_sheet
from sslkit.data.views.recipe import MOCO, SIMCLR, View, ViewRecipe
from sslkit.errors import UserError

PLAIN = View(jitter=0.0, grayscale=0.0, blur=0.0)
CROPS = ViewRecipe((View(scale=(0.4, 1.0)),) * 2, local=View(scale=(0.05, 0.4), size=96), n_local=3)


@pytest.fixture(scope="module")
def pictures() -> torch.Tensor:
    return sslkit.open_images("clipart").__getitems__(list(range(12)))["images"]


def test_local_crops_come_last_and_in_their_own_size(pictures, generator) -> None:
    views = augment(pictures, CROPS.at(48), 48, generator)
    assert [tuple(v.shape) for v in views] == [(12, 3, 48, 48)] * 2 + [(12, 3, 21, 21)] * 3


@pytest.mark.parametrize(("size", "patch", "local"), [(224, 16, 96), (28, 4, 12), (32, 4, 12), (64, 8, 24), (8, 8, 8)])
def test_sizes_go_with_the_image_and_are_whole_patches(size: int, patch: int, local: int) -> None:
    assert CROPS.at(size, patch=patch).local.size == local


def test_full_size_views_are_drawn_alike_with_and_without_local_crops(pictures) -> None:
    with_crops = augment(pictures, CROPS.at(32), 32, torch.Generator().manual_seed(1))
    without = augment(pictures, CROPS.at(32).replace(n_local=0), 32, torch.Generator().manual_seed(1))
    assert len(without) == 2 and all(torch.equal(a, b) for a, b in zip(with_crops[:2], without, strict=True))


def test_local_crops_cover_less_of_the_image(pictures, generator) -> None:
    boxes = augment(pictures.repeat(20, 1, 1, 1), CROPS.at(32), 32, generator).boxes
    area = boxes[..., 2] * boxes[..., 3]
    assert area[:2].min() > 0.3 and area[2:].max() < 0.45 and area[2:].min() < 0.1


def test_boxes_say_where_each_view_lies(pictures, generator) -> None:
    views = augment(pictures, ViewRecipe((PLAIN, PLAIN)), 40, generator)
    height, width = pictures.shape[-2:]
    for view, boxes in zip(views, views.boxes, strict=True):
        for pixels, image, box in zip(view, pictures, boxes.tolist(), strict=True):
            top, left, tall, wide = (round(v * side) for v, side in zip(box, (height, width) * 2, strict=False))
            crop = TF.resized_crop(image, top, left, tall, wide, [40, 40], antialias=True).float() / 255
            crop = crop.flip(-1) if box[4] else crop
            assert (pixels - crop).abs().mean() < 0.02


def test_replace_knows_full_and_local_views() -> None:
    changed = CROPS.replace(scale=(0.5, 1.0), local_scale=(0.1, 0.2), local_size=64, n_local=5, flip=0.0)
    assert [v.scale for v in changed.each()] == [(0.5, 1.0)] * 2 + [(0.1, 0.2)] * 5
    assert changed.local.size == 64 and {v.flip for v in changed.each()} == {0.0}
    assert CROPS.n_local == 3  # the published recipe stays


@pytest.mark.parametrize(
    ("recipe", "options", "said"),
    [
        (SIMCLR, {"n_local": 2}, "no option 'n_local'"),
        (CROPS, {"n_local": -1}, "n_local=-1"),
        (CROPS, {"local_size": 0}, "size=0"),
        (MOCO, {"sclae": (0.2, 1.0)}, "did you mean 'scale'"),
    ],
)
def test_what_cannot_be_is_named(recipe, options, said) -> None:
    with pytest.raises(UserError, match=said):
        recipe.replace(**options)


def test_the_contact_sheet_shows_crops_in_their_size(pictures, generator) -> None:
    views = augment(pictures, CROPS.at(32), 32, generator)
    sheet = contact_sheet(pictures, views, rows=4)
    assert sheet.size == (6 * 34, 4 * 34)
    assert sheet.getpixel((4 * 34 + 2, 2)) == (255, 255, 255)  # white around a local crop
