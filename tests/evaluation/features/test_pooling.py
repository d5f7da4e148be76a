"""Features by the class token, the mean of the patches, or both."""

import pytest
import torch

from evaluation.features.models import load_model
from evaluation.features.pooling import parted
from sslkit.errors import UserError


@pytest.mark.parametrize("name", ["random:narrow_vit", "random:vit_tiny_patch16_224"])
def test_each_pooling_is_made_of_the_networks_own_tokens(name: str) -> None:
    own = load_model(name, image_size=32)
    x = torch.rand(2, 3, 32, 32)
    with torch.inference_mode():
        tokens = own.net.forward_features(x)
        expected = [own.net.fc_norm(tokens[:, 0]), own.net.fc_norm(tokens[:, 1:].mean(1))]
        found = {word: load_model(f"{name}@{word}", image_size=32) for word in ("class", "mean", "class+mean")}
        made = {word: model.net(x) for word, model in found.items()}
        pools = "class" if name.endswith("224") else "mean"
        torch.testing.assert_close(made[pools], own.net(x))
    for word, x in (("class", expected[0]), ("mean", expected[1]), ("class+mean", torch.cat(expected, 1))):
        torch.testing.assert_close(made[word], x)
        assert found[word].width == x.shape[1] and found[word].name == f"{name}@{word}"
    assert len({own.digest, *(model.digest for model in found.values())}) == 4


def test_a_word_without_pooling_is_left_as_it_is() -> None:
    assert parted("runs/zoo/A") == ("runs/zoo/A", "")
    assert parted("runs@home/zoo/A") == ("runs@home/zoo/A", "")
    assert parted("runs@home/zoo/A@mean") == ("runs@home/zoo/A", "mean")


@pytest.mark.parametrize(
    ("word", "message"),
    [
        ("random:narrow_vit@max", "must be one of class, mean, class.mean, got 'max'"),
        ("random:narrow_resnet@mean", "no tokens"),
        ("random:vit_medium_patch16_gap_240@class+mean", "no class token"),
    ],
)
def test_what_cannot_be_pooled_is_one_line(word: str, message: str) -> None:
    with pytest.raises(UserError, match=message):
        load_model(word, image_size=32)
