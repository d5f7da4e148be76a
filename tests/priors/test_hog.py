"""HOG against a loop over pixels in float64, on real images; nothing of it depends on the batch or on rounding."""

import math

import numpy as np
import pytest
import torch
from torch import Tensor

import sslkit
from sslkit.priors import build as build_prior
from sslkit.priors import hog
from sslkit.priors.base import resize_and_crop


@pytest.fixture(scope="module", params=["fashion_mnist", "clipart"])
def images(request) -> Tensor:
    """Five images, float in [0, 1]: gray at 28 pixels, RGB at 48."""
    return sslkit.open_images(request.param, split="test").__getitems__([0, 1, 20, 40, 60])["images"].float() / 255


def loop(gray: Tensor, *, cells: int = 8, orientations: int = 9, clip: float = 0.2) -> Tensor:
    """Features of one square image (S, S), pixel by pixel, from the definition."""
    image, size = gray.double().numpy(), len(gray)
    histograms = np.zeros((cells, cells, orientations))
    for y in range(size):
        for x in range(size):
            dy = image[y + 1, x] - image[y - 1, x] if 0 < y < size - 1 else 0.0
            dx = image[y, x + 1] - image[y, x - 1] if 0 < x < size - 1 else 0.0
            place = math.atan2(dy, dx) % math.pi / (math.pi / orientations) - 0.5
            low = math.floor(place)
            cell = histograms[y * cells // size, x * cells // size]
            cell[low % orientations] += math.hypot(dy, dx) * (1 - (place - low))
            cell[(low + 1) % orientations] += math.hypot(dy, dx) * (place - low)
    histograms /= (size // cells) ** 2
    blocks = []
    for y in range(cells - 1):
        for x in range(cells - 1):
            block = histograms[y : y + 2, x : x + 2].reshape(4, -1).T.ravel()  # bin by bin, the four cells of each
            for bound in (clip, math.inf):
                block = np.minimum(block / math.sqrt((block**2).sum() + 1e-10), bound)
            blocks.append(block)
    return torch.from_numpy(np.concatenate(blocks))


@pytest.mark.parametrize("size", [16, 32, 40])
def test_features_by_a_loop(images: Tensor, size: int) -> None:
    gray = resize_and_crop(images.double(), size, "bilinear").mean(1)
    want = torch.stack([loop(image) for image in gray])
    torch.testing.assert_close(hog.hog(gray), want, rtol=0, atol=1e-6)
    torch.testing.assert_close(hog.hog(images.double().mean(1), size=size), want, rtol=0, atol=1e-6)
    features = build_prior("hog", size=size)(images)
    assert features.dtype == torch.float32 and features.is_contiguous()
    # blocks of nearly even areas are divided by a norm near zero: float32 pixels are not known to more digits there
    error = (features - want).abs()
    assert error.max() < 5e-3 and error.mean() < 1e-5


def test_features_of_gray_images_agree_to_the_fifth_digit() -> None:
    images = sslkit.open_images("fashion_mnist", split="test").__getitems__(list(range(8)))["images"]
    gray = resize_and_crop(images.double() / 255, 32, "bilinear").mean(1)
    want = torch.stack([loop(image) for image in gray])
    torch.testing.assert_close(build_prior("hog", size=32)(images).double(), want, rtol=0, atol=1e-5)


@pytest.mark.parametrize(("cells", "orientations", "clip"), [(2, 9, 0.2), (4, 6, 0.3), (3, 1, 0.2), (8, 12, math.inf)])
def test_other_settings_by_a_loop(cells: int, orientations: int, clip: float, generator: torch.Generator) -> None:
    gray = torch.rand(2, 24, 24, generator=generator, dtype=torch.float64)
    options = {"cells": cells, "orientations": orientations, "clip": clip}
    want = torch.stack([loop(image, **options) for image in gray])
    torch.testing.assert_close(hog.hog(gray, **options), want, rtol=0, atol=1e-9)


@pytest.mark.parametrize("angle", range(0, 360, 10))
def test_a_ramp_votes_for_the_two_nearest_bins(angle: int) -> None:
    """Bins are 20 degrees wide, centred on 10, 30, ...: 0 degrees is halfway between the last and the first."""
    y, x = torch.meshgrid(
        torch.arange(16.0, dtype=torch.float64), torch.arange(16.0, dtype=torch.float64), indexing="ij"
    )
    ramp = y * math.sin(math.radians(angle)) + x * math.cos(math.radians(angle))
    middle = hog.hog(ramp[None], cells=4, clip=math.inf).view(9, 9, 4)[4].sum(1)  # block 4 has no border pixel
    upper = (angle % 180 + 10) // 20
    want = torch.zeros(9, dtype=torch.float64)
    if angle % 20:
        want[angle % 180 // 20] = 2.0  # four cells, of norm 1 together
    else:
        want[[(upper - 1) % 9, upper % 9]] = math.sqrt(2)
    torch.testing.assert_close(middle, want, rtol=0, atol=1e-6)


def test_even_areas_have_no_features() -> None:
    """Resizing must not add rounding errors to them, which the two normalisations would turn into features."""
    values = torch.linspace(0, 1, 301)
    even = values.view(-1, 1, 1, 1).expand(-1, 3, 28, 31)
    for size in (16, 32, 40):
        assert build_prior("hog", size=size)(even).count_nonzero() == 0


@pytest.mark.parametrize("shape", [(28, 28), (37, 53), (96, 60), (32, 40), (13, 200)])
@pytest.mark.parametrize("size", [16, 32])
def test_resizing_is_that_of_the_other_priors(shape: tuple[int, int], size: int, generator: torch.Generator) -> None:
    pixels = torch.rand(3, 1, *shape, generator=generator, dtype=torch.float64)
    got = hog._centre_square(pixels[:, 0], size).permute(2, 0, 1)
    torch.testing.assert_close(got, resize_and_crop(pixels, size, "bilinear")[:, 0])


def test_features_do_not_depend_on_the_batch(images: Tensor) -> None:
    prior = build_prior("hog", size=32)
    together = prior(images.repeat(60, 1, 1, 1))  # 300 images are more than are computed at once
    again = prior(images)
    torch.testing.assert_close(together, again.repeat(60, 1), rtol=0, atol=1e-6)
    for row, image in zip(again, images, strict=True):
        torch.testing.assert_close(prior(image[None])[0], row, rtol=0, atol=1e-6)
    assert torch.equal(prior(images), again)
    assert prior(images[:0]).shape == (0, 7 * 7 * 36)


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16])
def test_half_precision_is_only_that_of_the_pixels(images: Tensor, dtype: torch.dtype) -> None:
    prior, rounded = build_prior("hog", size=32), images.to(dtype)
    assert torch.equal(prior(rounded), prior(rounded.float()))
    assert hog.hog(rounded[:, 0], size=32).dtype == torch.float32
    with torch.autocast("cpu", torch.bfloat16):
        under = prior(images)
    assert torch.equal(under, prior(images))


def test_pixels_are_left_as_they_are(images: Tensor) -> None:
    for size in (16, images.shape[-1] // 8 * 8, 32):
        before = images.clone()
        build_prior("hog", size=size)(images)
        hog.hog(images[:, 0], size=size)
        assert torch.equal(images, before)


def test_features_are_targets_without_gradient(images: Tensor) -> None:
    """Of pixels that require one as well; a loss on the features has a gradient for its other argument."""
    pixels = images[:, 0].clone().requires_grad_()
    features = hog.hog(pixels, size=32)
    assert not features.requires_grad
    guess = torch.zeros_like(features, requires_grad=True)
    (guess - features).square().sum().backward()
    torch.testing.assert_close(guess.grad, -2 * features)
    (guess * features).sum().backward()  # saves the features
