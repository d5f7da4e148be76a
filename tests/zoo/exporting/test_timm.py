"""The safetensors file in plain timm: strict, the same numbers, the normalisation in pretrained_cfg."""

import os
from pathlib import Path

import pytest
import timm
import torch

import sslkit
from sslkit import zoo
from sslkit.backbones import NARROW, network_lines
from sslkit.errors import UserError
from sslkit.zoo import exporting

NETWORKS = [
    ("resnet18", 16, 1, "conv1, net.maxpool = torch.nn.Conv2d(1, 64, 3, (1, 1), 1, bias=False)"),
    pytest.param("resnet18", 72, 3, None, marks=pytest.mark.slow),
    ("resnet10t", 32, 3, "conv1[0][0].stride"),
    pytest.param("vit_tiny_patch16_224", 32, 3, None, marks=pytest.mark.slow),
    ("narrow_resnet", 28, 1, "torch.nn.Conv2d(1, 64, 3, (2, 2), 1, bias=False)"),
    ("narrow_vit", 28, 1, None),
    ("tf_efficientnet_lite0", 32, 3, "conv_stem[0].stride"),
    ("convnext_atto", 72, 3, None),
]


def run(lines: list[str], folder: Path, monkeypatch) -> torch.nn.Module:
    """The network that a person gets who pastes the lines."""
    monkeypatch.chdir(folder)
    scope: dict = {}
    exec("\n".join(lines), scope)
    return scope["net"]


@pytest.mark.parametrize(("name", "size", "in_chans", "changed"), NETWORKS)
def test_plain_timm_gives_the_same_numbers(name, size, in_chans, changed, entry_of, monkeypatch) -> None:
    entry = entry_of(name, size, in_chans)
    x, state = torch.randn(2, in_chans, size, size), entry.state_dict()
    expected = entry.backbone()(x).detach()
    for to in ("timm", "hf"):
        path = zoo.export(entry, to=to)
        lines = exporting.lines(path)
        assert (changed or "net.eval()") in "\n".join(lines) and "sslkit" not in "\n".join(lines)
        net = run(lines, path.parent, monkeypatch)
        loaded = net.state_dict()
        assert loaded.keys() == state.keys() and all(torch.equal(loaded[k], state[k]) for k in state)
        assert torch.equal(net(x), expected)
        torch.testing.assert_close(sslkit.load(path).net(x), expected)
        config = timm.data.resolve_model_data_config(net)
        assert config["input_size"] == (in_chans, size, size)
        assert {key: list(config[key]) for key in ("mean", "std")} == entry.card["normalize"]
        assert config["crop_pct"] == (1.0 if size <= 64 else 0.875) and config["interpolation"] == "bicubic"


CHANGED = [(*case[:3], case[0]) for case in NETWORKS if len(case) == 4 and case[3]]


@pytest.mark.parametrize(("name", "size", "in_chans", "architecture"), CHANGED)
def test_another_network_refuses_the_weights_of_a_changed_stem(name, size, in_chans, architecture, entry_of) -> None:
    entry = entry_of(name, size, in_chans)
    arguments = network_lines.parse(entry.card["backbone"]["lines"]).arguments
    plain = NARROW.get(architecture, (architecture,))[0]
    for file in (zoo.export(entry, to="timm"), entry.folder / "backbone.safetensors"):
        with pytest.raises(RuntimeError, match=r"size mismatch|Missing key"):
            timm.create_model(plain, checkpoint_path=str(file), **arguments)
    folder = zoo.export(entry, to="hf")
    with pytest.raises(RuntimeError, match=f"Unknown model .{plain}, its stem changed, see README.md"):
        timm.create_model(f"local-dir:{folder}", pretrained=True)


def test_the_lines_stand_in_the_file(exported, monkeypatch) -> None:
    from safetensors import safe_open

    monkeypatch.chdir(exported("timm").parent)
    path = Path(exported("timm").name)
    with safe_open(path, framework="pt") as file:
        assert file.metadata()["load"].splitlines() == exporting.lines(path)


def test_lines_of_another_kind_are_not_run(entry_of, tmp_path: Path) -> None:
    import json

    import safetensors.torch

    path = zoo.export(entry_of("narrow_resnet", 16, 1), to="timm")
    about = json.loads(_header(path)) | {"lines": [f"import os; os.mkdir({str(tmp_path / 'owned')!r})", "net = 1"]}
    state = safetensors.torch.load_file(path)
    path.write_bytes(safetensors.torch.save(state, metadata={"sslkit": json.dumps(about)}))
    with pytest.raises(UserError, match="make no timm network, and are not run"):
        sslkit.load(path)
    assert "owned" not in os.listdir(tmp_path)


def test_weights_of_another_network(entry_of) -> None:
    import safetensors.torch

    path = zoo.export(entry_of("narrow_resnet", 16, 1), to="timm")
    safetensors.torch.save_file({"a": torch.zeros(1)}, path, metadata={"sslkit": _header(path)})
    with pytest.raises(UserError, match="do not fit the network"):
        sslkit.load(path)


def _header(path: Path) -> str:
    from sslkit.zoo.exporting.timm import header

    return header(path)["sslkit"]


def test_pixels_of_any_type_are_normalised_alike(exported) -> None:
    net = sslkit.load(exported("timm"))
    pixels = torch.randint(0, 256, (2, 1, 16, 16), generator=torch.Generator().manual_seed(0))
    expected = net.normalize(pixels.byte())
    torch.testing.assert_close(net.normalize(pixels.float() / 255), expected)
    torch.testing.assert_close(net.normalize((pixels * 257).to(torch.uint16)), expected)
    for kind in (torch.int64, torch.int32, torch.int16):  # of 0 to 255, or of 16 bits
        with pytest.raises(UserError, match=r"give pixels\.byte\(\)"):
            net.normalize(pixels.to(kind))
