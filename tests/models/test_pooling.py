"""Features by the class token, the mean of the patches, or both."""

from pathlib import Path

import pytest
import torch
from random_entries import made

import sslkit
from evaluation.features.untrained import with_random_weights
from sslkit.errors import UserError
from sslkit.models.pooling import split_pooling


@pytest.mark.parametrize("name", ["random:narrow_vit", "random:vit_tiny_patch16_224"])
def test_each_pooling_is_made_of_the_networks_own_tokens(name: str) -> None:
    own = sslkit.load(name, image_size=32)
    x = torch.rand(2, 3, 32, 32)
    with torch.inference_mode():
        tokens = own.net.forward_features(x)
        expected = [own.net.fc_norm(tokens[:, 0]), own.net.fc_norm(tokens[:, 1:].mean(1))]
        found = {word: sslkit.load(f"{name}@{word}", image_size=32) for word in ("class", "mean", "class+mean")}
        made = {word: model.net(x) for word, model in found.items()}
        pools = "class" if name.endswith("224") else "mean"
        torch.testing.assert_close(made[pools], own.net(x))
    for word, x in (("class", expected[0]), ("mean", expected[1]), ("class+mean", torch.cat(expected, 1))):
        torch.testing.assert_close(made[word], x)
        assert found[word].width == x.shape[1] and found[word].name == f"{name}@{word}"
    assert len({own.digest, *(model.digest for model in found.values())}) == 4


@pytest.mark.parametrize(("name", "module"), [("narrow_resnet", "layer1"), ("narrow_vit", "blocks.1")])
def test_a_layer_is_the_mean_over_the_positions_behind_it(name: str, module: str) -> None:
    own, second = (sslkit.load(f"random:{name}{at}", image_size=32) for at in ("", "@layer2"))
    seen = []
    handle = own.net.get_submodule(module).register_forward_hook(lambda _, __, out: seen.append(out))
    x = torch.rand(2, 3, 32, 32)
    with torch.inference_mode():
        own.net(x)
        found = second.net(x)
    handle.remove()
    expected = seen[0].mean((2, 3)) if seen[0].ndim == 4 else seen[0][:, own.net.num_prefix_tokens :].mean(1)
    torch.testing.assert_close(found, expected)
    assert second.name == f"random:{name}@layer2" and second.digest != own.digest and second.width == found.shape[1]


def test_a_word_without_pooling_is_left_as_it_is() -> None:
    assert split_pooling("runs/zoo/A") == ("runs/zoo/A", "")
    assert split_pooling("runs@home/zoo/A") == ("runs@home/zoo/A", "")
    assert split_pooling("runs@home/zoo/A@mean") == ("runs@home/zoo/A", "mean")


def test_a_file_or_folder_whose_name_has_the_sign_is_no_pooling(tmp_path: Path, monkeypatch) -> None:
    (tmp_path / "A@home").mkdir()
    (tmp_path / "w@1.pth").touch()
    for word in (f"{tmp_path}/A@home", f"timm:resnet18:{tmp_path}/w@1.pth", f"random:{tmp_path}/A@home"):
        assert split_pooling(word) == (word, "") and split_pooling(f"{word}@mean") == (word, "mean")
    monkeypatch.chdir(tmp_path)
    assert split_pooling("A@home") == ("A@home", "") and split_pooling("A@home@layer2") == ("A@home", "layer2")


def test_an_entry_whose_name_has_the_sign_is_loaded(tmp_path: Path) -> None:
    entry = made(tmp_path, "A@home", "fashion_mnist", seed=1)  # 0 is that of an untrained network
    own, pooled = sslkit.load(str(entry)), sslkit.load(f"{entry}@layer2")
    assert own.name == "A@home" and pooled.name == "A@home@layer2"
    assert with_random_weights(own, seed=0).digest != own.digest and with_random_weights(pooled, seed=0) is None


@pytest.mark.parametrize(
    ("word", "message"),
    [
        (
            "random:narrow_vit@max",
            "must be one of class, mean, class.mean, layer1, layer2, ..., last1.class, .*; got 'max'",
        ),
        ("random:narrow_resnet@mean", "no tokens"),
        ("random:vit_medium_patch16_gap_240@class+mean", "no class token"),
        ("random:narrow_resnet@layer6", "has no layer6: it has layer1, layer2, layer3, layer4, layer5"),
        ("random:narrow_resnet@layer0", "has no layer0"),
        ("random:slow_r50@layer1", "has no layer1: its layers cannot be read"),
    ],
)
def test_what_cannot_be_pooled_is_one_line(word: str, message: str) -> None:
    with pytest.raises(UserError, match=message):
        sslkit.load(word, image_size=32)
