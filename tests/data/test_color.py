"""Each colour operation alone and in every order against torchvision's, on real pictures."""

from itertools import permutations
from pathlib import Path

import numpy as np
import pytest
import torch
import torchvision.transforms.v2.functional as tv
from torch import Tensor

import sslkit.data.embedded
from sslkit.data import color


@pytest.fixture(scope="module")
def pictures() -> Tensor:
    """The 12 most colourful of the embedded clip art: (12, 3, 48, 48) float in [0, 1]."""
    file = Path(sslkit.data.embedded.__file__).with_name("clipart.npz")
    with np.load(file) as arrays:
        x = arrays["x"]
    most = np.argsort(-x.astype(np.int16).std(-1).mean((1, 2)))[:12]
    return torch.from_numpy(x[most]).permute(0, 3, 1, 2).contiguous() / 255


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
def test_one_operation_is_torchvisions(pictures: Tensor, ours, factor: float) -> None:
    """Exactly so, for one clamp at the end is one clamp; torchvision's weight of red, 0.2989, costs 1e-4."""
    view = applied(pictures, ours(torch.full((12,), factor), 3))
    torch.testing.assert_close(view, ADJUST[ours](pictures, factor), atol=3e-4, rtol=0)


@pytest.mark.parametrize("turn", [-0.1, -0.05, -0.02, 0.02, 0.05, 0.1])
def test_small_turns_of_hue_are_near_torchvisions(pictures: Tensor, turn: float) -> None:
    """On full colours a circle and a hexagon differ by about half of the way; the other sign by almost twice it."""
    view, back = (applied(pictures, color.hue(torch.full((12,), t))) for t in (turn, -turn))
    theirs = tv.adjust_hue(pictures, turn)
    moved = (theirs - pictures).abs().mean()
    assert (view - theirs).abs().mean() < 0.6 * moved
    assert (back - theirs).abs().mean() > 1.4 * moved


@pytest.mark.parametrize("turn", [-1 / 3, 1 / 3])
def test_a_third_of_a_turn_of_hue_is_torchvisions(pictures: Tensor, turn: float) -> None:
    view = applied(pictures, color.hue(torch.full((12,), turn)))
    torch.testing.assert_close(view, tv.adjust_hue(pictures, turn), atol=1e-4, rtol=0)


def test_hue_goes_round_and_keeps_the_mean_of_the_channels(pictures: Tensor) -> None:
    dull = 0.5 + 0.2 * (pictures - 0.5)  # no clamp
    once = applied(dull, color.hue(torch.full((12,), 0.25)))
    torch.testing.assert_close(once.mean(1), dull.mean(1), atol=1e-5, rtol=0)
    back = applied(once, color.hue(torch.full((12,), 0.75)))
    torch.testing.assert_close(back, dull, atol=1e-5, rtol=0)


def test_grayscale_is_torchvisions(pictures: Tensor) -> None:
    view = applied(pictures, color.saturation(torch.zeros(12), 3))
    torch.testing.assert_close(view, tv.rgb_to_grayscale(pictures, 3), atol=3e-4, rtol=0)


def test_a_chain_in_every_order_is_the_operations_one_by_one(pictures: Tensor) -> None:
    """Values that no step clamps, as the only clamp comes last."""
    factors = {color.brightness: 0.8, color.contrast: 1.4, color.saturation: 0.5}
    orders = list(permutations(range(3))) * 2
    dull = 0.5 + 0.3 * (pictures - 0.5)
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


def test_values_stay_in_range(pictures: Tensor) -> None:
    view = applied(pictures, color.brightness(torch.full((12,), 1.8), 3))
    assert view.min() >= 0 and view.max() == 1
