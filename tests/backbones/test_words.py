"""The one parser of model words: kind, network, arguments of timm, file and part."""

from pathlib import Path

import pytest
import timm
import torch

import sslkit
from sslkit.backbones.words import Word, parse, split_size
from sslkit.errors import UserError
from sslkit.zoo.start import start

VIT = "vit_small_patch16_224"


@pytest.mark.parametrize(
    ("text", "word"),
    [
        ("timm:resnet18", Word("timm", "resnet18")),
        ("timm:resnet18.a1_in1k:w(1).pth", Word("timm", "resnet18.a1_in1k", "w(1).pth")),
        (
            f"timm:{VIT}(num_heads=12):/a (1)/b.pth:teacher",
            Word("timm", VIT, "/a (1)/b.pth:teacher", {"num_heads": 12}),
        ),
        ("timm:resnet10t(channels=(1,2)):f", Word("timm", "resnet10t", "f", {"channels": (1, 2)})),
        ("published:byol:file", Word("published", "byol", "file")),
        ("random:narrow_resnet:3", Word("random", "narrow_resnet", "3")),
        ("runs/zoo/a:b", Word("", "runs/zoo/a:b")),
    ],
)
def test_a_word_in_its_parts(text: str, word: Word) -> None:
    assert parse(text, "model") == word


@pytest.mark.parametrize("call", ["(1)", "(file=1)", "(num_heads=__import__('os'))", "(**{'a': 1})", "(num_heads=0)"])
def test_other_arguments_are_refused(call: str) -> None:
    with pytest.raises(UserError, match=r"^model x: "):
        parse(f"timm:resnet18{call}:file", "model x")


def test_weights_that_fit_another_number_of_heads_need_it_said(tmp_path: Path) -> None:
    state = timm.create_model(VIT, num_classes=0).state_dict()
    file = tmp_path / "moco.pth"
    torch.save({"state_dict": {f"module.base_encoder.{name}": value for name, value in state.items()}}, file)
    for load in (sslkit.load, lambda word: start(word, image_size=224, in_chans=3, frames=None)):
        with pytest.raises(UserError, match=rf"MoCo v3's, whose ViT-S has 12 heads .* timm:{VIT}\(num_heads=12\):FILE"):
            load(f"timm:{VIT}:{file}")
        assert load(f"timm:{VIT}(num_heads=12):{file}").net.blocks[0].attn.num_heads == 12


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("efficientnet_lite0(image_size=64)", ("efficientnet_lite0", 64)),
        (f"timm:{VIT}(num_heads=12, image_size=96):a/b:c", (f"timm:{VIT}(num_heads=12):a/b:c", 96)),
        (f"timm:{VIT}(image_size=96,num_heads=12):a", (f"timm:{VIT}(num_heads=12):a", 96)),
        ("timm:resnet10t(a=1, image_size = 96, channels=(1,2)):f", ("timm:resnet10t(a=1, channels=(1,2)):f", 96)),
        ("random:narrow_resnet(image_size=32):1", ("random:narrow_resnet:1", 32)),
        ("published:byol(image_size=96):file", ("published:byol:file", 96)),
        ("timm:resnet18:w(1).pth", ("timm:resnet18:w(1).pth", None)),
    ],
)
def test_the_size_of_images_in_a_word(text: str, expected: tuple[str, int | None]) -> None:
    assert split_size(text) == expected
