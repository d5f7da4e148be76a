"""Real images in class folders, and a small network."""

from pathlib import Path

import pytest
import torch
from PIL import Image
from torch import nn

from sslkit.data.sources.named import open_images

CLASSES = ("animals", "food", "tools")
EACH = 12


@pytest.fixture(scope="session")
def clipart(tmp_path_factory) -> Path:
    """36 embedded clip arts as PNG files in three class folders."""
    root, images = tmp_path_factory.mktemp("clip") / "clips", open_images("clipart")
    for name in CLASSES:
        rows = (images.labels == images.classes.index(name)).nonzero()[0][:EACH]
        (root / name).mkdir(parents=True)
        for place, row in enumerate(rows):
            Image.fromarray(images.pixels[row].transpose(1, 2, 0)).save(root / name / f"{place:02d}.png")
    return root


@pytest.fixture
def net() -> nn.Module:
    """A network: images (B, 3, 16, 16) -> 24 features."""
    torch.manual_seed(0)
    return nn.Sequential(nn.Conv2d(3, 24, 5, stride=3), nn.Tanh(), nn.AdaptiveAvgPool2d(1), nn.Flatten())
