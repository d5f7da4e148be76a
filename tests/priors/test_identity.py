"""The prior of the pixels themselves."""

import pytest
import torch
from contract import batch, build, step

from sslkit import priors
from sslkit.errors import UserError
from sslkit.priors.base import resize_and_crop


def test_features_are_the_pixels_in_a_row() -> None:
    images, _ = batch(4)
    features = priors.build("identity")(images)
    assert torch.equal(features, images.float().div(255).flatten(1))


def test_a_size_resizes_and_is_of_the_key() -> None:
    images, _ = batch(4)
    small = priors.build("identity", size=8)
    expected = resize_and_crop(images.float() / 255, 8, "bilinear").flatten(1)
    assert torch.equal(small(images), expected) and expected.shape == (4, 3 * 64)
    assert small.identity != priors.build("identity").identity


def test_of_clips_it_is_the_mean_frame() -> None:
    clips = torch.rand(2, 3, 5, 6, 6)
    torch.testing.assert_close(priors.build("identity")(clips), clips.mean(2).flatten(1))


@pytest.mark.filterwarnings("ignore:.*no data set.*", "ignore:.*eta.*")
@pytest.mark.parametrize("plugin", ["dsa", "adc", "guide"])
def test_each_plug_in_learns_from_it(plugin: str) -> None:
    m = build(f"simclr+{plugin}", **{plugin: {"prior": "identity", "mode": "view"}})
    terms = step(m, *batch(8))
    assert all(term.isfinite() for term in terms.values())


def test_a_size_below_one_is_one_line() -> None:
    with pytest.raises(UserError, match="prior identity: prior_size must be at least 1, got 0"):
        priors.build("identity", size=0)
