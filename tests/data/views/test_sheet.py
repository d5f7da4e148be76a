"""The cells of the picture of views of images."""

import pytest
import torch

from sslkit.data.views.sheet import in_proportion


@pytest.mark.parametrize(("aspect", "size"), [(2.0, (8, 16)), (0.5, (16, 8)), (1.0, (16, 16)), (100.0, (1, 16))])
def test_squares_get_their_proportions_back(aspect: float, size: tuple[int, int]) -> None:
    found = in_proportion(torch.full((1, 3, 16, 16), 7, dtype=torch.uint8), torch.tensor([aspect]))
    dark = (found[0, 0] == 7).nonzero()
    assert found.shape == (1, 3, 16, 16) and tuple((dark.amax(0) - dark.amin(0) + 1).tolist()) == size
