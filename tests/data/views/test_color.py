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


OPERATIONS = ("brightness", "contrast", "saturation", "turn")


def applied(images: Tensor, maps: Tensor) -> Tensor:
    return color.apply(images, *maps, out=torch.empty_like(images))


def chain(n: int, channels: int = 3, order: Tensor | None = None, **changes: float | Tensor) -> Tensor:
    """The maps of these changes alone, in the order of OPERATIONS unless another is given."""
    given = {"brightness": 1.0, "contrast": 1.0, "saturation": 1.0, "turn": 0.0, "gray": 0.0} | changes
    order = torch.arange(4.0).expand(n, 4) if order is None else order
    values = {name: torch.as_tensor(value).expand(n) for name, value in given.items()}
    return color.chain(**values, order=order, channels=channels)


FACTORS = [0.0, 0.2, 0.9, 1.0, 1.3, 1.8]
ADJUST = {"brightness": tv.adjust_brightness, "contrast": tv.adjust_contrast, "saturation": tv.adjust_saturation}


@pytest.mark.parametrize("factor", FACTORS)
@pytest.mark.parametrize("ours", ADJUST)
def test_one_operation_is_torchvisions(images: Tensor, ours: str, factor: float) -> None:
    """Exactly so, for one clamp at the end is one clamp; torchvision's weight of red, 0.2989, costs 1e-4."""
    view = applied(images, chain(12, **{ours: factor}))
    torch.testing.assert_close(view, ADJUST[ours](images, factor), atol=3e-4, rtol=0)


@pytest.mark.parametrize("turn", [-0.1, -0.05, -0.02, 0.02, 0.05, 0.1])
def test_small_turns_of_hue_are_near_torchvisions(images: Tensor, turn: float) -> None:
    """On full colours a circle and a hexagon differ by about half of the way; the other sign by almost twice it."""
    view, back = (applied(images, chain(12, turn=t)) for t in (turn, -turn))
    theirs = tv.adjust_hue(images, turn)
    moved = (theirs - images).abs().mean()
    assert (view - theirs).abs().mean() < 0.6 * moved
    assert (back - theirs).abs().mean() > 1.4 * moved


@pytest.mark.parametrize("turn", [-1 / 3, 1 / 3])
def test_a_third_of_a_turn_of_hue_is_torchvisions(images: Tensor, turn: float) -> None:
    view = applied(images, chain(12, turn=turn))
    torch.testing.assert_close(view, tv.adjust_hue(images, turn), atol=1e-4, rtol=0)


def test_hue_goes_round_and_keeps_the_mean_of_the_channels(images: Tensor) -> None:
    dull = 0.5 + 0.2 * (images - 0.5)  # no clamp
    once = applied(dull, chain(12, turn=0.25))
    torch.testing.assert_close(once.mean(1), dull.mean(1), atol=1e-5, rtol=0)
    back = applied(once, chain(12, turn=0.75))
    torch.testing.assert_close(back, dull, atol=1e-5, rtol=0)


def test_grayscale_is_torchvisions(images: Tensor) -> None:
    view = applied(images, chain(12, gray=1.0))
    torch.testing.assert_close(view, tv.rgb_to_grayscale(images, 3), atol=3e-4, rtol=0)


def test_a_chain_in_every_order_is_the_operations_one_by_one(images: Tensor) -> None:
    """Values that no step clamps, as the only clamp comes last; then gray."""
    values = {"brightness": 0.8, "contrast": 1.4, "saturation": 0.5, "turn": 0.2}
    orders = list(permutations(range(4)))
    dull = (0.5 + 0.3 * (images[:1] - 0.5)).expand(24, -1, -1, -1)
    places = torch.tensor(orders).argsort(1).float()  # of each operation
    for gray in (0.0, 1.0):
        view = applied(dull, chain(24, order=places, gray=gray, **values))
        for image, order, ours in zip(dull, orders, view, strict=True):
            for k in order:
                name = OPERATIONS[k]
                turned = applied(image[None], chain(1, turn=values[name]))[0] if name == "turn" else None
                image = ADJUST[name](image, values[name]) if turned is None else turned
            image = tv.rgb_to_grayscale(image, 3) if gray else image
            torch.testing.assert_close(ours, image, atol=5e-4, rtol=0)
        assert len({tuple(one.flatten().mul(500).round().tolist()) for one in view}) > (1 if gray else 3)


@pytest.mark.parametrize("channels", [1, 2, 5])
def test_contrast_for_any_number_of_channels(channels: int, generator: torch.Generator) -> None:
    images = torch.rand(3, channels, 8, 8, generator=generator)
    view = applied(images, chain(3, channels, contrast=torch.tensor([0.3, 1.0, 0.7])))
    mean = images.mean((1, 2, 3), keepdim=True)
    factor = torch.tensor([0.3, 1.0, 0.7])[:, None, None, None]
    torch.testing.assert_close(view, factor * images + (1 - factor) * mean)
    if channels == 1:
        theirs = tv.adjust_contrast(images[0], 0.3)
        torch.testing.assert_close(view[0], theirs)


def test_values_stay_in_range(images: Tensor) -> None:
    view = applied(images, chain(12, brightness=1.8))
    assert view.min() >= 0 and view.max() == 1
