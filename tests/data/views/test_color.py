"""Each colour operation alone and in every order against torchvision's, on real pictures."""

from itertools import permutations

import pytest
import torch
import torchvision.transforms.v2.functional as tv
from torch import Tensor

from sslkit.data.views import color


@pytest.fixture
def images(pictures: Tensor) -> Tensor:
    """(12, 3, 48, 48) float in [0, 1]."""
    return pictures[:12] / 255


def applied(images: Tensor, maps: Tensor) -> Tensor:
    return color.apply(images, *maps, out=torch.empty_like(images))


FACTORS = [0.0, 0.2, 0.9, 1.0, 1.3, 1.8]
ADJUST = {
    color.brightness: tv.adjust_brightness,
    color.contrast: tv.adjust_contrast,
    color.saturation: tv.adjust_saturation,
}


@pytest.mark.parametrize("factor", FACTORS)
@pytest.mark.parametrize("ours", ADJUST, ids=lambda f: f.__name__)
def test_one_operation_is_torchvisions(images: Tensor, ours, factor: float) -> None:
    """Exactly so, for one clamp at the end is one clamp; torchvision's weight of red, 0.2989, costs 1e-4."""
    view = applied(images, ours(torch.full((12,), factor), 3))
    torch.testing.assert_close(view, ADJUST[ours](images, factor), atol=3e-4, rtol=0)


@pytest.mark.parametrize("turn", [-0.1, -0.05, -0.02, 0.02, 0.05, 0.1])
def test_small_turns_of_hue_are_near_torchvisions(images: Tensor, turn: float) -> None:
    """On full colours a circle and a hexagon differ by about half of the way; the other sign by almost twice it."""
    view, back = (applied(images, color.hue(torch.full((12,), t))) for t in (turn, -turn))
    theirs = tv.adjust_hue(images, turn)
    moved = (theirs - images).abs().mean()
    assert (view - theirs).abs().mean() < 0.6 * moved
    assert (back - theirs).abs().mean() > 1.4 * moved


@pytest.mark.parametrize("turn", [-1 / 3, 1 / 3])
def test_a_third_of_a_turn_of_hue_is_torchvisions(images: Tensor, turn: float) -> None:
    view = applied(images, color.hue(torch.full((12,), turn)))
    torch.testing.assert_close(view, tv.adjust_hue(images, turn), atol=1e-4, rtol=0)


def test_hue_goes_round_and_keeps_the_mean_of_the_channels(images: Tensor) -> None:
    dull = 0.5 + 0.2 * (images - 0.5)  # no clamp
    once = applied(dull, color.hue(torch.full((12,), 0.25)))
    torch.testing.assert_close(once.mean(1), dull.mean(1), atol=1e-5, rtol=0)
    back = applied(once, color.hue(torch.full((12,), 0.75)))
    torch.testing.assert_close(back, dull, atol=1e-5, rtol=0)


def test_grayscale_is_torchvisions(images: Tensor) -> None:
    view = applied(images, color.saturation(torch.zeros(12), 3))
    torch.testing.assert_close(view, tv.rgb_to_grayscale(images, 3), atol=3e-4, rtol=0)


def test_a_chain_in_every_order_is_the_operations_one_by_one(images: Tensor) -> None:
    """Values that no step clamps, as the only clamp comes last."""
    factors = {color.brightness: 0.8, color.contrast: 1.4, color.saturation: 0.5}
    orders = list(permutations(range(3))) * 2
    dull = 0.5 + 0.3 * (images - 0.5)
    operations = torch.stack([f(torch.full((12,), v), 3) for f, v in factors.items()])
    view = applied(dull, color.compose(operations, torch.tensor(orders)))
    for image, order, ours in zip(dull, orders, view, strict=True):
        for k in order:
            operation, factor = list(factors.items())[k]
            image = ADJUST[operation](image, factor)
        torch.testing.assert_close(ours, image, atol=5e-4, rtol=0)
    assert (view[0] - view[5]).abs().max() > 0.01 or (view[1] - view[3]).abs().max() > 0.01


@pytest.mark.parametrize("channels", [1, 2, 5])
def test_contrast_for_any_number_of_channels(channels: int, generator: torch.Generator) -> None:
    images = torch.rand(3, channels, 8, 8, generator=generator)
    view = applied(images, color.contrast(torch.tensor([0.3, 1.0, 0.7]), channels))
    mean = images.mean((1, 2, 3), keepdim=True)
    factor = torch.tensor([0.3, 1.0, 0.7])[:, None, None, None]
    torch.testing.assert_close(view, factor * images + (1 - factor) * mean)
    if channels == 1:
        theirs = tv.adjust_contrast(images[0], 0.3)
        torch.testing.assert_close(view[0], theirs)


def test_values_stay_in_range(images: Tensor) -> None:
    view = applied(images, color.brightness(torch.full((12,), 1.8), 3))
    assert view.min() >= 0 and view.max() == 1
