"""The resampling against torchvision's and scipy's, on real pictures."""

import numpy as np
import pytest
import torch
import torchvision.transforms.v2.functional as tv
from scipy.ndimage import gaussian_filter
from scipy.stats import ks_2samp, kstest
from torch import Tensor
from torchvision.transforms import RandomResizedCrop

from sslkit.data.views import resample

SCALE, RATIO = (0.08, 1.0), (3 / 4, 4 / 3)


@pytest.fixture
def images(pictures: Tensor) -> Tensor:
    """(16, 3, 48, 48) float in [0, 1]."""
    return pictures[:16] / 255


def crop(images: Tensor, boxes: Tensor, size: int, flip: Tensor | None = None) -> Tensor:
    y, x, h, w = boxes.float().unbind(1)
    top, left, bottom, right = (int(v) for v in (y.min(), x.min(), (y + h).max(), (x + w).max()))
    rows = resample.axis_weights(y, h, size, range(top, bottom))
    columns = resample.axis_weights(x, w, size, range(left, right), flip)
    return resample.resample(images[:, :, top:bottom, left:right], rows, columns)


@pytest.mark.parametrize("size", [5, 16, 31, 48, 96])
def test_crop_is_torchvisions_antialiased_one(images: Tensor, size: int, generator: torch.Generator) -> None:
    boxes = resample.draw_boxes(torch.rand(16, resample.BOX_UNIFORMS, generator=generator), SCALE, RATIO, 48, 48,
                                torch.ones(16))  # fmt: skip
    flip = torch.arange(16) % 2
    ours = crop(images, boxes, size, flip.float())
    for image, box, mirrored, view in zip(images, boxes.int().tolist(), flip, ours, strict=True):
        theirs = tv.resized_crop(image, *box, [size, size], antialias=True)
        torch.testing.assert_close(view, theirs.flip(-1) if mirrored else theirs, atol=1e-5, rtol=0)


@pytest.mark.parametrize("box", [(0, 0, 48, 48), (47, 47, 1, 1), (3, 10, 1, 30), (20, 0, 25, 2)])
@pytest.mark.parametrize("size", [1, 7, 60])
def test_boxes_of_any_shape(images: Tensor, box: tuple[int, ...], size: int) -> None:
    view = crop(images[:1], torch.tensor([box]), size)
    theirs = tv.resized_crop(images[0], *box, [size, size], antialias=True)
    torch.testing.assert_close(view[0], theirs, atol=1e-5, rtol=0)


@pytest.mark.parametrize("shape", [(48, 48), (40, 64), (90, 30), (8, 8)])
def test_boxes_are_distributed_as_torchvisions(shape: tuple[int, int], generator: torch.Generator) -> None:
    n, (height, width) = 3000, shape
    uniform = torch.rand(n, resample.BOX_UNIFORMS, generator=generator)
    ours = resample.draw_boxes(uniform, SCALE, RATIO, height, width, torch.full((n,), width / height)).numpy()
    torch.manual_seed(1)
    blank = torch.empty(1, height, width)
    theirs = np.array([RandomResizedCrop.get_params(blank, list(SCALE), list(RATIO)) for _ in range(n)], float)
    for measure in (area, log_ratio, place_down, place_right):
        assert ks_2samp(measure(ours, shape), measure(theirs, shape)).pvalue > 1e-3, measure.__name__


def area(boxes: np.ndarray, shape: tuple[int, int]) -> np.ndarray:
    return boxes[:, 2] * boxes[:, 3] / (shape[0] * shape[1])


def log_ratio(boxes: np.ndarray, shape: tuple[int, int]) -> np.ndarray:
    return np.log(boxes[:, 3] / boxes[:, 2])


def place_down(boxes: np.ndarray, shape: tuple[int, int]) -> np.ndarray:
    return boxes[:, 0] / shape[0]


def place_right(boxes: np.ndarray, shape: tuple[int, int]) -> np.ndarray:
    return boxes[:, 1] / shape[1]


@pytest.mark.parametrize("shape", [(4, 100), (100, 4), (30, 30)])
def test_where_nothing_fits_the_centre_is_taken(shape: tuple[int, int], generator: torch.Generator) -> None:
    ratio = RATIO if shape[0] != shape[1] else (2.0, 3.0)
    uniform = torch.rand(50, resample.BOX_UNIFORMS, generator=generator)
    boxes = resample.draw_boxes(uniform, (1.0, 1.0), ratio, *shape, torch.full((50,), shape[1] / shape[0]))
    central = RandomResizedCrop.get_params(torch.empty(1, *shape), [1.0, 1.0], list(ratio))
    assert (boxes == torch.tensor(central)).all()


def test_squashed_images_are_cropped_in_the_shape_of_the_originals(generator: torch.Generator) -> None:
    n, stored, original = 3000, 200, (200, 350)
    uniform = torch.rand(n, resample.BOX_UNIFORMS, generator=generator)
    boxes = resample.draw_boxes(uniform, (0.1, 0.4), RATIO, stored, stored, torch.full((n,), 350 / 200)).numpy()
    assert kstest(area(boxes, (stored, stored)), "uniform", args=(0.1, 0.3)).pvalue > 1e-3
    boxes[:, [1, 3]] *= original[1] / stored
    low, high = np.log(RATIO)
    assert kstest(log_ratio(boxes, original), "uniform", args=(low, high - low)).pvalue > 1e-3


@pytest.mark.parametrize("size", [3, 9, 48])
def test_blur_is_a_mirrored_gaussian(images: Tensor, size: int) -> None:
    images = images[:4, :, :size, :size]
    sigma = torch.tensor([0.3, 0.9, 1.4, 2.0])
    g = resample.blur_matrix(sigma, size, longest=2.0)
    ours = resample.resample(images, g, g)
    for image, s, blurred in zip(images, sigma.tolist(), ours, strict=True):
        theirs = gaussian_filter(image.double().numpy(), (0, s, s), mode="reflect", truncate=min(8 / s, size / s))
        np.testing.assert_allclose(blurred.numpy(), theirs, atol=2e-4)


def test_blur_is_torchvisions_away_from_the_border(images: Tensor) -> None:
    g = resample.blur_matrix(torch.full((16,), 1.5), 48, longest=2.0)
    ours = resample.resample(images, g, g)[..., 8:-8, 8:-8]
    theirs = tv.gaussian_blur(images, [17, 17], [1.5, 1.5])[..., 8:-8, 8:-8]
    torch.testing.assert_close(ours, theirs, atol=1e-4, rtol=0)


def test_no_blur_is_the_identity_and_blur_keeps_the_mean(images: Tensor) -> None:
    g = resample.blur_matrix(torch.tensor([0.0, 2.0]), 48, longest=2.0)
    assert torch.equal(g[0], torch.eye(48))
    blurred = resample.resample(images[:2], g, g)
    torch.testing.assert_close(blurred.mean((2, 3)), images[:2].mean((2, 3)), atol=1e-5, rtol=0)


def test_blur_has_no_denormal_numbers() -> None:
    """They are right but many times slower in a matrix product."""
    g = resample.blur_matrix(torch.linspace(0.1, 2, 50), 64, longest=2.0)
    assert not ((g > 0) & (g < torch.finfo(torch.float32).tiny)).any()


@pytest.mark.parametrize("size", [7, 32, 75])
def test_blur_in_blocks_is_the_blur_by_matrices(size: int) -> None:
    generator = torch.Generator().manual_seed(0)
    pixels, sigma = torch.rand(3, 2, size, size, generator=generator), torch.tensor([0.1, 1.0, 2.0])
    matrix = resample.blur_matrix(sigma, size, 2.0)
    expected = resample.resample(pixels, matrix, matrix)
    assert torch.allclose(resample.blur(pixels, sigma, 2.0), expected, atol=1e-5)
