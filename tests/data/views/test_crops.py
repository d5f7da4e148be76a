"""Boxes as RandomResizedCrop's, and views of crops as views of whole images."""

from dataclasses import replace

import pytest
import torch
from torch import Tensor
from torchvision.transforms.v2 import RandomResizedCrop

from sslkit.data.views.augmentation import augment, view_generator
from sslkit.data.views.crops import Crops, draw_boxes, finish
from sslkit.data.views.recipe import BYOL, SIMCLR, View, ViewRecipe
from sslkit.errors import UserError

SCALE, RATIO, DRAWS = (0.08, 1.0), (3 / 4, 4 / 3), 3000


def area_and_ratio(boxes: Tensor, height: int, width: int) -> Tensor:
    """Quantiles of the boxes' share of the image and of the logarithm of width / height."""
    share, ratio = boxes[:, 2] * boxes[:, 3] / (height * width), (boxes[:, 3] / boxes[:, 2]).log()
    at = torch.tensor([0.05, 0.25, 0.5, 0.75, 0.95], dtype=torch.float64)
    return torch.stack([share.quantile(at), ratio.quantile(at), (boxes[:, 1] / width).quantile(at)])


@pytest.mark.parametrize(("height", "width"), [(375, 500), pytest.param(600, 200, marks=pytest.mark.nightly)])
def test_boxes_have_the_areas_and_ratios_of_random_resized_crop(height: int, width: int) -> None:
    ours = torch.cat([draw_boxes((View(),), 0, 0, row, height, width) for row in range(DRAWS)])
    torch.manual_seed(0)
    image = torch.empty(1, height, width)
    theirs = torch.tensor(
        [list(RandomResizedCrop(1, SCALE, RATIO).make_params([image]).values()) for _ in range(DRAWS)]
    ).double()
    difference = area_and_ratio(ours, height, width) - area_and_ratio(theirs, height, width)
    assert difference.abs().max() < 0.06
    other = torch.cat([draw_boxes((View(scale=(0.2, 1.0)),), 0, 0, row, height, width) for row in range(DRAWS)])
    assert (area_and_ratio(other, height, width) - area_and_ratio(theirs, height, width)).abs().max() > 0.06


def test_boxes_depend_on_seed_epoch_and_row_alone() -> None:
    first = draw_boxes(SIMCLR.views, 1, 2, 3, 375, 500)
    torch.manual_seed(9)
    assert torch.equal(first, draw_boxes(SIMCLR.views, 1, 2, 3, 375, 500))
    for other in ((2, 2, 3), (1, 3, 3), (1, 2, 4)):
        assert not torch.equal(first, draw_boxes(SIMCLR.views, *other, 375, 500))
    assert not torch.equal(first[0], first[1])


def test_local_crops_leave_the_boxes_of_the_others() -> None:
    local = View(scale=(0.05, 0.14), size=8)
    boxes = draw_boxes((*SIMCLR.views, local, local), 0, 0, 0, 375, 500)
    assert torch.equal(boxes[:2], draw_boxes(SIMCLR.views, 0, 0, 0, 375, 500))
    share = boxes[:, 2] * boxes[:, 3] / (375 * 500)
    assert (share[2:] < 0.15).all() and (share[2:] > 0.045).all()


@pytest.mark.parametrize("recipe", [SIMCLR, BYOL], ids=["simclr", "byol"])
def test_views_of_whole_crops_are_those_of_augment(recipe: ViewRecipe, pictures: Tensor) -> None:
    """With boxes of the whole image the two ways have nothing to do but flip, blur and recolour."""
    whole = ViewRecipe(tuple(replace(view, scale=(1.0, 1.0), ratio=(1.0, 1.0)) for view in recipe.views))
    images = pictures[:16]
    expected = augment(images, whole, 48, view_generator(0, 0, 0))
    boxes = torch.tensor([0.0, 0, 1, 1]).expand(2, 16, 4)
    ours = finish(Crops((images[:, None].expand(-1, 2, -1, -1, -1),), boxes), whole, view_generator(0, 0, 0))
    for one, other in zip(ours, expected, strict=True):
        assert torch.allclose(one, other, atol=1e-4)
    assert torch.equal(ours.boxes, expected.boxes)


def test_the_ranks_make_the_views_of_one_process(pictures: Tensor) -> None:
    crops = torch.stack([pictures[:8], pictures[8:16]], 1)
    boxes = torch.rand(2, 8, 4)
    alone = finish(Crops((crops,), boxes), BYOL, view_generator(0, 0, 0))
    for rank in (0, 1):
        part = Crops((crops[rank::2],), boxes[:, rank::2])
        own = finish(part, BYOL, view_generator(0, 0, 0), rank=rank, world_size=2)
        for view, whole in zip(own, alone, strict=True):
            assert torch.allclose(view, whole[rank::2], atol=1e-6)
        assert torch.equal(own.boxes, alone.boxes[:, rank::2])


def test_crops_for_another_recipe_are_refused(pictures: Tensor) -> None:
    crops = Crops((pictures[:4, None],), torch.rand(1, 4, 4))
    with pytest.raises(UserError, match="crops for 1 views, and the method makes 2"):
        finish(crops, SIMCLR, view_generator(0, 0, 0))


def test_a_moved_batch_keeps_its_boxes() -> None:
    crops = Crops((torch.zeros(2, 2, 3, 8, 8, dtype=torch.uint8), torch.zeros(2, 1, 3, 4, 4)), torch.rand(3, 2, 4))
    moved = crops.to("meta")
    assert moved.device.type == "meta" and moved.boxes is crops.boxes and moved.whole is None
    assert crops.sizes == [8, 8, 4] and crops.channels == 3 and len(crops) == 2
