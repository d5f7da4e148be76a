"""The .npz files of the original vision transformers: read by timm, and what timm does not see is refused."""

from pathlib import Path

import numpy as np
import pytest
import timm
import torch
from torch import nn

from sslkit.backbones.pretrained import load, timm_network
from sslkit.backbones.words import Word
from sslkit.errors import UserError

TINY = {"embed_dim": 24, "depth": 2, "num_heads": 2, "patch_size": 8, "img_size": 32}
NAME = "vit_tiny_patch16_224"


def vit(**options: object) -> nn.Module:
    return timm.create_model(NAME, **{**TINY, "num_classes": 0, **options})


def arrays(net: nn.Module) -> dict[str, np.ndarray]:
    """A network's weights by the names and in the shapes of the original code, whose heads are apart."""
    state = {name: value.numpy() for name, value in net.state_dict().items()}
    found = {
        "cls": state["cls_token"],
        "Transformer/posembed_input/pos_embedding": state["pos_embed"],
        "embedding/kernel": state["patch_embed.proj.weight"].transpose(2, 3, 1, 0),
        "embedding/bias": state["patch_embed.proj.bias"],
        "Transformer/encoder_norm/scale": state["norm.weight"],
        "Transformer/encoder_norm/bias": state["norm.bias"],
        "head/kernel": state["head.weight"].T,
        "head/bias": state["head.bias"],
    }
    for i in range(len(net.blocks)):
        theirs, ours = f"Transformer/encoderblock_{i}/", f"blocks.{i}."
        attention = theirs + "MultiHeadDotProductAttention_1/"
        for place, part in enumerate(("query", "key", "value")):
            weight, bias = (
                state[f"{ours}attn.qkv.{kind}"][24 * place : 24 * (place + 1)] for kind in ("weight", "bias")
            )
            found |= {
                f"{attention}{part}/kernel": weight.T.reshape(24, 2, 12),
                f"{attention}{part}/bias": bias.reshape(2, 12),
            }
        found[f"{attention}out/kernel"] = state[f"{ours}attn.proj.weight"].T.reshape(2, 12, 24)
        found[f"{attention}out/bias"] = state[f"{ours}attn.proj.bias"]
        for number, norm in ((0, "norm1"), (2, "norm2")):
            found[f"{theirs}LayerNorm_{number}/scale"] = state[f"{ours}{norm}.weight"]
            found[f"{theirs}LayerNorm_{number}/bias"] = state[f"{ours}{norm}.bias"]
        for number in (0, 1):
            found[f"{theirs}MlpBlock_3/Dense_{number}/kernel"] = state[f"{ours}mlp.fc{number + 1}.weight"].T
            found[f"{theirs}MlpBlock_3/Dense_{number}/bias"] = state[f"{ours}mlp.fc{number + 1}.bias"]
    return found


def written(net: nn.Module, path: Path, **changes: object) -> str:
    np.savez(path, **{**arrays(net), **changes})
    return str(path)


@pytest.fixture
def whole() -> nn.Module:
    torch.manual_seed(0)
    net = vit(num_classes=5)
    for value in net.parameters():
        nn.init.normal_(value, std=0.1)
    return net.requires_grad_(False).eval()


def read(net: nn.Module, file: str) -> str:
    return load(net, file, network=NAME, where="init=x", remedy="REMEDY").line


def test_the_features_are_the_networks(whole: nn.Module, tmp_path: Path) -> None:
    net = vit().eval()
    line = read(net, written(whole, tmp_path / "w.npz"))
    assert line == f"{NAME}: 30 tensors from the 40 of w.npz (JAX, read by timm)"
    whole.reset_classifier(0)
    x = torch.rand(2, 3, 32, 32)
    with torch.no_grad():
        torch.testing.assert_close(net(x), whole(x))
    larger = vit(img_size=48)
    line = read(larger, str(tmp_path / "w.npz"))
    assert line.endswith("; resampled: pos_embed (1, 17, 24) -> (1, 37, 24)") and len(larger.pos_embed[0]) == 37


def test_evaluation_has_the_classifier(whole: nn.Module, tmp_path: Path, monkeypatch) -> None:
    file, make = written(whole, tmp_path / "w.npz"), timm.create_model
    monkeypatch.setattr(timm, "create_model", lambda name, pretrained=False, **options: make(name, **TINY, **options))
    made = timm_network(Word("timm", NAME, str(file)), where="model x", local="", head=True)
    x = torch.rand(2, 3, 32, 32)
    with torch.no_grad():
        torch.testing.assert_close(made.net(x), whole(x))
    assert "; its classifier of 5 classes is kept apart; mean 0.5 0.5 0.5 and std 0.5 0.5 0.5 are" in made.line


def test_what_is_for_another_network_is_refused(whole: nn.Module, tmp_path: Path) -> None:
    file = written(whole, tmp_path / "w.npz")
    with pytest.raises(UserError, match=r"w\.npz does not fit the network: it has 2 blocks, the network 1; REM"):
        read(vit(depth=1), file)
    with pytest.raises(UserError, match=r"w\.npz holds one network: leave out its part, teacher"):
        read(vit(), f"{file}:teacher")
    with pytest.raises(UserError, match="it has 2 blocks, the network 3"):
        read(vit(depth=3), file)
    with pytest.raises(UserError, match="it is for patches of 8 pixels, the network for 4"):
        read(vit(patch_size=4), file)
    with pytest.raises(UserError, match="does not fit the network: "):
        read(vit(embed_dim=36, num_heads=3), file)
    with pytest.raises(UserError, match=r"timm's resnet10t reads no \.npz files"):
        load(timm.create_model("resnet10t"), file, network="resnet10t", where="init=x", remedy="REMEDY")
    np.savez(tmp_path / "images.npz", x_train=np.zeros((2, 8, 8)))
    with pytest.raises(UserError, match=r"images\.npz does not fit the network"):
        read(vit(), str(tmp_path / "images.npz"))


def test_damaged_pickled_and_nan_files_are_refused(whole: nn.Module, tmp_path: Path) -> None:
    file = Path(written(whole, tmp_path / "w.npz"))
    (tmp_path / "cut.npz").write_bytes(file.read_bytes()[:3000])
    np.savez(tmp_path / "code.npz", x=np.array([object()], dtype=object))
    for name in ("cut", "code"):
        with pytest.raises(UserError, match=rf"init=x: .*{name}\.npz is no \.npz file of numbers"):
            read(vit(), str(tmp_path / f"{name}.npz"))
    bias = np.full(24, np.nan, np.float32)
    with pytest.raises(UserError, match=r"holds NaN or infinite weights \(patch_embed\.proj\.bias\)"):
        read(vit(), written(whole, tmp_path / "nan.npz", **{"embedding/bias": bias}))
