"""The statistics of the views against lightly's, on real pictures; and that they would see a wrong option."""

import random
from collections.abc import Callable
from dataclasses import replace
from functools import cache

import numpy as np
import pytest
import torch
from lightly.transforms import SimCLRTransform
from lightly.transforms.byol_transform import BYOLView1Transform, BYOLView2Transform
from PIL import Image
from torch import Tensor

from sslkit.data.views.augmentation import augment, view_generator
from sslkit.data.views.color import LUMA
from sslkit.data.views.recipe import BYOL, SIMCLR, View, ViewRecipe

SIZE, DRAWS = 48, 40

LIGHTLY: dict[str, tuple[View, Callable[[], Callable[[Image.Image], Tensor]]]] = {
    "simclr": (SIMCLR.views[0], lambda: SimCLRTransform(SIZE, normalize=None).transforms[0]),
    "simclr without hue": (
        replace(SIMCLR.views[0], hue=0.0),
        lambda: SimCLRTransform(SIZE, cj_hue=0, normalize=None).transforms[0],
    ),
    "simclr small": (
        SIMCLR.at(32).views[1],
        lambda: SimCLRTransform(SIZE, cj_strength=0.5, gaussian_blur=0, normalize=None).transforms[1],
    ),
    "byol 1": (BYOL.views[0], lambda: BYOLView1Transform(SIZE, normalize=None)),
    "byol 2": (BYOL.views[1], lambda: BYOLView2Transform(SIZE, normalize=None)),
}

# The largest difference from lightly's, absolute: four standard errors of the mean of 2,560 views, and for the
# share of white what clamping once does. Of contrast and the channels' correlation see the next line.
TOLERANCE = {
    "mean": 0.018,
    "spread of brightness": 0.015,
    "contrast": 0.008,
    "sharpness": 0.0012,
    "blurred share": 0.045,
    "gray share": 0.035,
    "colourfulness": 0.018,
    "spread of colourfulness": 0.010,
    "hue kept": 0.04,
    "red with blue": 0.04,
    "side kept": 0.03,
    "white share": 0.07,
}
# Full colours are where a turned hue changes the gray value otherwise than HSV's shift: 12 % more contrast at most.
HUE_TOLERANCE = {"contrast": 0.022, "sharpness": 0.002, "red with blue": 0.08}


def statistics(x: Tensor, pictures: Tensor) -> dict[str, float]:
    """Numbers that each depend on another option. x: (64 * DRAWS, 3, 48, 48), the pictures DRAWS times over."""
    gray = (x * torch.tensor(LUMA)[:, None, None]).sum(1)
    gradient = (gray.diff(dim=2).abs().mean((1, 2)) + gray.diff(dim=1).abs().mean((1, 2))) / 2
    edge = gray.diff(dim=2).abs().flatten(1).topk(20).values.mean(1) / gray.std((1, 2)).clamp(min=0.02)
    chroma = x - x.mean(1, keepdim=True)
    colour = chroma.square().sum(1).sqrt().mean((1, 2))
    gray_view = chroma.abs().amax((1, 2, 3)) < 0.01
    source = pictures.repeat(DRAWS, 1, 1, 1) / 255
    source_chroma = (source - source.mean(1, keepdim=True)).mean((2, 3))
    same_hue = torch.cosine_similarity(chroma.mean((2, 3))[~gray_view], source_chroma[~gray_view])
    return {
        "mean": float(x.mean()),
        "spread of brightness": float(gray.mean((1, 2)).std()),
        "contrast": float(gray.std((1, 2)).mean()),
        "sharpness": float(gradient.mean()),
        "blurred share": float((edge < 1.2).float().mean()),
        "gray share": float(gray_view.float().mean()),
        "colourfulness": float(colour.mean()),
        "spread of colourfulness": float(colour.std()),
        "hue kept": float(same_hue.mean()),
        "red with blue": float(torch.corrcoef(x[:, [0, 2]].transpose(0, 1).flatten(1))[0, 1]),
        "side kept": float(torch.cosine_similarity(odd(gray), odd(source.mean(1))).mean()),
        "white share": float((x > 0.98).float().mean()),
    }


def odd(gray: Tensor) -> Tensor:
    """What a flip turns to its negative."""
    return (gray - gray.flip(-1)).flatten(1)


@cache
def lightlys(name: str, pictures: Tensor) -> dict[str, float]:
    torch.manual_seed(0), np.random.seed(0), random.seed(0)
    transform = LIGHTLY[name][1]()
    originals = [Image.fromarray(image) for image in pictures.permute(0, 2, 3, 1).numpy()]
    return statistics(torch.stack([transform(image) for _ in range(DRAWS) for image in originals]), pictures)


def outside(name: str, view: View, pictures: Tensor) -> dict[str, tuple[float, float]]:
    """The statistics of `view` (ours, the mean of four seeds, and lightly's) that differ by more than the tolerance."""
    images = pictures.repeat(DRAWS, 1, 1, 1)
    each = [
        statistics(augment(images, ViewRecipe((view,)), SIZE, view_generator(seed, 0, 0))[0], pictures)
        for seed in range(4)
    ]
    ours = {name: sum(one[name] for one in each) / len(each) for name in each[0]}
    tolerance = TOLERANCE | (HUE_TOLERANCE if LIGHTLY[name][0].hue else {})
    return {k: (ours[k], v) for k, v in lightlys(name, pictures).items() if abs(ours[k] - v) > tolerance[k]}


@pytest.mark.parametrize(
    "name", [pytest.param(name, marks=[] if name == "simclr small" else pytest.mark.nightly) for name in LIGHTLY]
)
def test_statistics_are_lightlys(name: str, pictures: Tensor) -> None:
    assert not outside(name, LIGHTLY[name][0], pictures)


@pytest.mark.nightly
@pytest.mark.parametrize(
    ("name", "change"),
    [
        ("simclr", {"scale": (0.5, 1.0)}),
        ("simclr without hue", {"flip": 0.0}),
        ("simclr without hue", {"flip": 1.0}),
        ("simclr", {"jitter": 0.0}),
        ("simclr without hue", {"brightness": 0.0}),
        ("simclr without hue", {"contrast": 0.0}),
        ("simclr without hue", {"saturation": 0.0}),
        ("simclr", {"hue": 0.0}),
        ("simclr", {"grayscale": 0.0}),
        ("simclr without hue", {"blur": 0.0}),
        ("byol 1", {"blur": 0.5}),
        ("byol 1", {"sigma": (0.1, 1.0)}),
        ("byol 2", {"solarize": 0.0}),
        ("byol 2", {"solarize": 0.4}),
        ("byol 2", {"threshold": 0.8}),
        ("simclr small", {"blur": 0.5}),
    ],
    ids=str,
)
def test_the_statistics_see_every_option(name: str, change: dict, pictures: Tensor) -> None:
    """That the test above passes means something: a wrong option fails it."""
    assert outside(name, replace(LIGHTLY[name][0], **change), pictures)
