"""The resize of a prior's images is the one that open_clip's networks were made with."""

import numpy as np
import pytest
import torch
from PIL import Image
from torch import Tensor

from sslkit.priors.base import resize_and_crop

SHAPES = [(30, 20), (427, 640), (333, 500), (225, 227), (31, 224), (224, 224), (500, 333)]


@pytest.mark.parametrize("mode", ["shortest", "squash"])
@pytest.mark.parametrize("interpolation", ["bicubic", "bilinear"])
@pytest.mark.parametrize("shape", SHAPES)
def test_the_resize_is_open_clips_own(shape: tuple[int, int], interpolation: str, mode: str) -> None:
    """To 1e-5 for a tensor and for PIL's images of floats; those of bytes, which PIL rounds twice, by under a level."""
    transforms = pytest.importorskip("open_clip.transform")
    plain = {"mean": (0.0,) * 3, "std": (1.0,) * 3}
    config = transforms.PreprocessCfg(size=64, interpolation=interpolation, resize_mode=mode, **plain)
    transform = transforms.image_transform_v2(config, is_train=False)
    coarse = torch.rand(1, 3, 9, 9, generator=torch.Generator().manual_seed(0))
    pixels = (torch.nn.functional.interpolate(coarse, shape, mode="bicubic") * 255).clamp(0, 255).byte()
    got = resize_and_crop(pixels.float() / 255, 64, interpolation, squash=mode == "squash")[0]
    want = as_floats(transform, pixels[0])
    assert got.shape == want.shape == (3, 64, 64) and (got - want.clamp(0, 1)).abs().max() < 1e-5
    floats = np.asarray(resized(transform, Image.fromarray(pixels[0, 0].numpy().astype(np.float32) / 255)))
    assert np.abs(got[0].numpy() - floats.clip(0, 1)).max() < 1e-5
    picture = transform(Image.fromarray(pixels[0].permute(1, 2, 0).numpy()))
    assert (got - picture).abs().mean() < 1 / 255


def as_floats(transform: object, pixels: Tensor) -> Tensor:
    """By the transform's own steps on a tensor of floats, without its conversion of PIL's images."""
    return resized(transform, pixels.float() / 255)


def resized(transform: object, image: object) -> object:
    from torchvision.transforms import CenterCrop, Resize

    for step in transform.transforms:
        image = step(image) if isinstance(step, (Resize, CenterCrop)) else image
    return image
