"""Colours of patches, and the number that both a run and an evaluation have of them."""

import numpy as np
import torch

from sslkit.models.patches import components


def test_components_are_those_of_all_patches_together() -> None:
    generator = torch.Generator().manual_seed(0)
    kinds = torch.randint(2, (3, 4, 4), generator=generator)
    maps = torch.stack([kinds.float(), 1 - kinds.float()], 1) + 0.01 * torch.randn(3, 2, 4, 4, generator=generator)
    colours = components(maps)
    assert colours.shape == (3, 4, 4, 3) and colours.dtype is torch.uint8
    first = colours[..., 0].numpy().astype(int)
    assert np.ptp(first[kinds.numpy() == 0]) < 60 and np.ptp(first[kinds.numpy() == 1]) < 60 < np.ptp(first)
    assert (colours[..., 2] == 0).all(), "two features have no third component"
