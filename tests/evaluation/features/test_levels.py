"""Features of several layers in one pass are those of each alone, and those that DINOv2's evaluation joins."""

import numpy as np
import pytest
import torch

import sslkit
from evaluation.features.levels import open_levels
from sslkit.errors import UserError
from sslkit.models.loading import at_pooling
from sslkit.models.pooling import parts_of, readable_words

WORDS = {
    "narrow_vit": ("layer2", "class", "mean", "class+mean", "last1.class", "last3.mean", "last4.both"),
    "narrow_resnet": ("layer1", "layer5", "last1.mean", "last4.mean", "own"),
    "eva02_tiny_patch14_224": ("layer3", "last2.both"),
}


@pytest.mark.parametrize("name", list(WORDS))
def test_one_pass_gives_what_each_alone_gives(name: str) -> None:
    model = sslkit.load(f"random:{name}", image_size=28)
    levels = open_levels(model, WORDS[name])
    x = torch.rand(2, 3, 28, 28)
    with torch.inference_mode():
        together = levels.model.net(x)
        assert together.shape[1] == levels.model.width == len(np.unique(np.concatenate([*levels.columns.values()])))
        for word, columns in levels.columns.items():
            alone = at_pooling(model, word)
            torch.testing.assert_close(together[:, columns], alone.net(x))
            assert alone.name == f"{model.name}@{word}" and alone.width == len(columns)
        if "own" in WORDS[name]:
            torch.testing.assert_close(together[:, levels.columns["own"]], model.net(x))


def test_the_last_blocks_are_joined_as_in_dinov2() -> None:
    model = sslkit.load("random:vit_tiny_patch16_224", image_size=32)
    x = torch.rand(2, 3, 32, 32)
    with torch.inference_mode():
        blocks = model.net.get_intermediate_layers(x, n=2, return_prefix_tokens=True, norm=True)
        expected = torch.cat([blocks[1][1][:, 0], blocks[0][1][:, 0], blocks[1][0].mean(1)], 1)
        torch.testing.assert_close(at_pooling(model, "last2.both").net(x), expected)


def test_the_words_that_a_network_has() -> None:
    resnet, vit = (sslkit.load(f"random:{name}", image_size=32).backbone for name in ("narrow_resnet", "narrow_vit"))
    assert readable_words(resnet) == ("layer1", "layer2", "layer3", "layer4", "layer5")
    assert readable_words(vit) == ("layer1", "layer2", "layer3", "layer4", "class", "mean", "class+mean")
    for own, word, message in (
        (vit, "last5.class", "has 4 layers, so there are no last 5"),
        (vit, "last0.mean", "no last 0"),
        (resnet, "last2.both", "has no tokens"),
        (sslkit.load("pixels").backbone, "last1.mean", "its layers cannot be read"),
    ):
        with pytest.raises(UserError, match=message):
            parts_of(own, word, "a")
