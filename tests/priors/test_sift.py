"""SIFT against the mean of OpenCV's descriptors, image by image in float64; images without keypoints, and the rest."""

import sys

import pytest
import torch
from torch import Tensor

import sslkit
from sslkit.errors import UserError
from sslkit.priors import build as build_prior
from sslkit.priors import sift
from sslkit.priors.base import resize_and_crop

cv2 = pytest.importorskip("cv2")


@pytest.fixture(scope="module", params=["fashion_mnist", "clipart"])
def images(request) -> Tensor:
    """Twelve images, float in [0, 1]: gray at 28 pixels, RGB at 48."""
    return sslkit.open_images(request.param, split="test").__getitems__(list(range(12)))["images"].float() / 255


def loop(pixels: Tensor, size: int) -> list[float]:
    """Features of one image (C, H, W), descriptor by descriptor."""
    square = resize_and_crop(pixels[None].double(), size, "bilinear")[0]
    gray = sum(square) / len(square)
    found = cv2.SIFT_create().detectAndCompute((gray * 255).round().byte().numpy(), None)[1]
    sums = [0.0] * 128
    for descriptor in [] if found is None else found.tolist():
        sums = [total + value / 512 for total, value in zip(sums, descriptor, strict=True)]
    return [total / max(1, 0 if found is None else len(found)) for total in sums]


@pytest.mark.parametrize("size", [32, 64])
def test_features_by_a_loop(images: Tensor, size: int) -> None:
    features = build_prior("sift", size=size)(images)
    want = torch.tensor([loop(image, size) for image in images], dtype=torch.float64)
    assert features.shape == (12, 128) and features.dtype == torch.float32
    torch.testing.assert_close(features.double(), want, rtol=0, atol=1e-5)


def test_the_default_size_is_64_and_uint8_is_read_as_floats(images: Tensor) -> None:
    features = build_prior("sift")(images)
    assert torch.equal(features, build_prior("sift", size=64)(images))
    torch.testing.assert_close(build_prior("sift")((images * 255).round().byte()), features)


def test_an_image_without_keypoints_is_zero_and_others_are_not(images: Tensor) -> None:
    even = torch.full_like(images[:1], 0.4)
    features = build_prior("sift")(torch.cat([even, images]))
    assert features[0].count_nonzero() == 0 and (features[1:].abs().sum(1) > 0.1).all()


def test_features_do_not_depend_on_the_batch_or_the_run(images: Tensor) -> None:
    prior = build_prior("sift")
    together = prior(images)
    assert torch.equal(prior(images), together)
    assert torch.equal(torch.cat([prior(image[None]) for image in images]), together)
    assert prior(images[:0]).shape == (0, 128)


def test_it_changes_less_with_a_quarter_turn_than_with_another_image(images: Tensor) -> None:
    prior = build_prior("sift")
    features, turned = prior(images), prior(images.rot90(1, (2, 3)))
    others = torch.cdist(features, features).sum(1) / 11
    assert ((features - turned).norm(dim=1) < others).float().mean() > 0.8


def test_the_key_of_the_cache_names_what_the_features_depend_on() -> None:
    keys = {build_prior("sift", size=size).identity for size in (32, 64)}
    assert len(keys) == 2 and all(cv2.__version__ in key for key in keys)


def test_a_size_too_small_is_refused() -> None:
    with pytest.raises(UserError, match="at least 16, got 8"):
        build_prior("sift", size=8)


def test_without_opencv_a_line_says_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    sift._opencv.cache_clear()
    monkeypatch.setitem(sys.modules, "cv2", None)
    try:
        with pytest.raises(UserError, match=r'prior sift needs OpenCV: pip install "sslkit\[sift\]"'):
            build_prior("sift")
    finally:
        sift._opencv.cache_clear()


def test_images_of_one_class_are_closer_than_others() -> None:
    data = sslkit.open_images("fashion_mnist")
    features = build_prior("sift")(data.__getitems__(list(range(60)))["images"])
    unit = torch.nn.functional.normalize(features - features.mean(0), dim=1)
    labels = torch.from_numpy(data.labels[:60])
    same = labels[:, None] == labels
    cosine, others = unit @ unit.T, ~torch.eye(60, dtype=torch.bool)
    assert cosine[same & others].mean() - cosine[~same].mean() > 0.05
