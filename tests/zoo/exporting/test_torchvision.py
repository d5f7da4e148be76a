"""The state dict in plain torchvision: strict, the same features; which networks it has; the file beside it."""

import json
import pickle
from pathlib import Path

import pytest
import torch
import torchvision

import sslkit
from sslkit import zoo
from sslkit.errors import UserError
from sslkit.zoo import exporting
from sslkit.zoo.exporting.torchvision import RESNETS


@pytest.mark.parametrize(("size", "in_chans"), [(16, 1), (72, 3)])
def test_plain_torchvision_gives_the_same_features(size: int, in_chans: int, entry_of, monkeypatch) -> None:
    entry = entry_of("resnet18", size, in_chans)
    path = zoo.export(entry, to="torchvision")
    monkeypatch.chdir(path.parent)
    scope: dict = {}
    exec("\n".join(exporting.lines(path)), scope)
    net, state = scope["net"], entry.state_dict()
    assert type(net) is torchvision.models.ResNet
    assert net.state_dict().keys() == state.keys() and all(torch.equal(net.state_dict()[k], state[k]) for k in state)
    x = torch.randn(2, in_chans, size, size)
    torch.testing.assert_close(net(x), entry.backbone()(x), rtol=1e-6, atol=1e-6)
    side = json.loads(path.with_suffix(".json").read_text())
    assert side["load"] == exporting.lines(path.name)
    assert (side["mean"], side["image_size"]) == (entry.card["normalize"]["mean"], size)


@pytest.mark.parametrize("name", RESNETS)
def test_timm_and_torchvision_agree_on_names_and_shapes(name: str) -> None:
    import timm

    with torch.device("meta"):
        theirs = getattr(torchvision.models, name)(weights=None).state_dict()
        ours = timm.create_model(name, num_classes=0).state_dict()
    shapes = {key: value.shape for key, value in theirs.items() if not key.startswith("fc.")}
    assert {key: value.shape for key, value in ours.items()} == shapes


@pytest.mark.parametrize("name", ["narrow_resnet", "narrow_vit", "vit_tiny_patch16_224"])
def test_other_networks_are_refused_with_what_is_possible(name: str, entry_of) -> None:
    entry = entry_of(name, 32, 3)
    with pytest.raises(UserError, match=f"{name} is none of torchvision's.*possible for this network: hf, onnx, timm"):
        zoo.export(entry, to="torchvision")
    assert not (entry.folder / "exports").exists()


def test_the_file_beside_it(entry_of, tmp_path: Path) -> None:
    path = zoo.export(entry_of("resnet18", 16, 1), to="torchvision")
    state = torch.load(path, weights_only=True)
    torch.save({key: value + 1 for key, value in state.items()}, path)
    with pytest.raises(UserError, match=r"is about another file than byol-entry-torchvision\.pth"):
        sslkit.load(path)
    path.with_suffix(".json").unlink()
    with pytest.raises(UserError, match=r"needs byol-entry-torchvision\.json beside it"):
        sslkit.load(path)


def test_another_file_beside_it_is_not_replaced(entry_of, tmp_path: Path) -> None:
    entry = entry_of("resnet18", 16, 1)
    card = (entry.folder / "card.json").read_text()
    with pytest.raises(UserError, match=r"card\.json exists and is no earlier export to torchvision"):
        zoo.export(entry, to="torchvision", out=entry.folder / "card.pth")
    assert (entry.folder / "card.json").read_text() == card and not (entry.folder / "card.pth").exists()
    path = zoo.export(entry, to="torchvision", out=tmp_path / "a.pth")
    assert zoo.export(entry, to="torchvision", out=path) == path  # over its own


class Evil:
    def __init__(self, path: Path) -> None:
        self.path = path

    def __reduce__(self):
        return (Path.touch, (self.path,))


@pytest.mark.parametrize("content", ["code", "numbers", "tensor"])
def test_pickles_that_are_no_state_dicts_are_refused_and_not_run(content: str, tmp_path: Path) -> None:
    path = tmp_path / "x.pth"
    if content == "code":
        path.write_bytes(pickle.dumps(Evil(tmp_path / "owned")))
    else:
        torch.save({"a": 1} if content == "numbers" else torch.zeros(3), path)
    with pytest.raises(UserError, match=r"x\.pth is no state dict of tensors"):
        sslkit.load(path)
    assert not (tmp_path / "owned").exists()
