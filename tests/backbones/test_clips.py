"""The networks of clips against torchvision's 2D ResNets, published parameter counts, and their own card lines."""

import pytest
import torch
import torchvision
from torch import nn

import sslkit
from sslkit import backbones, zoo
from sslkit.backbones import clips as video_backbones
from sslkit.backbones import network_lines
from sslkit.errors import UserError


def count(net: nn.Module) -> int:
    return sum(p.numel() for p in net.parameters())


def head(width: int, classes: int) -> int:
    return (width + 1) * classes


def test_parameter_counts_are_the_published_ones() -> None:
    slow_r50, slow_r18 = count(video_backbones.slow_r50()), count(video_backbones.slow_r18())
    assert slow_r50 == 31_634_496
    assert round((slow_r50 + head(2048, 400)) / 1e6, 2) == 32.45  # SLOW_8x8_R50
    assert round((slow_r50 + head(2048, 101)) / 1e6, 1) == 31.8  # DSA, table V: R3D-50
    flat = count(torchvision.models.resnet18()) - head(512, 1000)
    inflated = 2 * 9 * sum(a * b for a, b in ((128, 256), (256, 256), (256, 512), (512, 512)))
    assert slow_r18 == flat + inflated == 20_023_872
    assert count(video_backbones.r3d_18()) + head(512, 400) == count(torchvision.models.video.r3d_18())


@pytest.mark.parametrize("name", ["resnet18", "resnet50"])
def test_of_one_frame_it_is_torchvisions_2d_resnet(name: str) -> None:
    slow = {"resnet18": video_backbones.slow_r18, "resnet50": video_backbones.slow_r50}[name]().eval()
    flat = torchvision.models.get_model(name).eval()
    flat.fc = nn.Identity()
    state = {k: v[:, :, v.shape[2] // 2] if v.dim() == 5 else v for k, v in slow.state_dict().items()}
    flat.load_state_dict(state, strict=True)
    x = torch.randn(2, 3, 1, 64, 64)
    with torch.no_grad():
        torch.testing.assert_close(slow(x), flat(x[:, :, 0]), atol=1e-4, rtol=1e-4)


@pytest.mark.parametrize("net", [video_backbones.narrow_slow(), video_backbones.slow_r50()])
def test_only_res4_and_res5_see_neighbouring_frames_and_time_is_not_strided(net: nn.Module) -> None:
    convolutions = {name: layer for name, layer in net.named_modules() if isinstance(layer, nn.Conv3d)}
    blocks = [name for name, layer in net.named_modules() if isinstance(layer, video_backbones.Bottleneck)]
    blocks += [name for name, layer in net.named_modules() if isinstance(layer, video_backbones.BasicBlock)]
    temporal = {f"{name}.conv1" for name in blocks if name.startswith(("layer3", "layer4"))}
    assert {name for name, layer in convolutions.items() if layer.kernel_size[0] > 1} == temporal
    shapes = []
    net.layer4.register_forward_hook(lambda module, given, out: shapes.append(out.shape))
    with torch.no_grad():
        net.eval()(torch.zeros(1, 3, 5, 64, 64))
    assert shapes[0][2:] == (5, 2, 2)


@pytest.mark.parametrize(
    ("name", "size"), [("narrow_slow", 32), ("narrow_slow", 72), ("r3d_18", 32), ("slow_r18", 72), ("slow_r50", 72)]
)
def test_the_lines_of_a_card_make_it_again(name: str, size: int) -> None:
    body = backbones.build(name, image_size=size, in_chans=3, frames=2).eval()
    assert body.item.frames == 2 and body.input_shape() == (3, 2, size, size)
    scope: dict = {}
    exec("\n".join(body.recipe.lines), scope)  # what a person gets by hand
    state = torch.random.get_rng_state()
    net = network_lines.build(body.recipe.lines, "card.json")
    assert torch.equal(state, torch.random.get_rng_state())
    assert repr(net) == repr(scope["net"]) == repr(body.net)
    net.load_state_dict(body.export(), strict=True)
    x = torch.randn(1, *body.input_shape(32))
    with torch.no_grad():
        torch.testing.assert_close(net.eval()(x), body(x), atol=1e-4, rtol=1e-4)
    needs_sslkit = any("sslkit" in line for line in body.recipe.lines)
    assert needs_sslkit == (name != "r3d_18")


@pytest.mark.parametrize(
    "lines",
    [
        ["from sslkit.backbones.clips import slow_r18", "net = slow_r18(width=2)"],
        ["from sslkit.backbones.clips import slow_r18", "net = slow_r18()", "net.conv1 = print(1)"],
        ["from sslkit.backbones.clips import slow_r18, slow_r50", "net = slow_r18()"],
        ["from sslkit.backbones.clips import slow_r18", "net = slow_r18()", "print(1)"],
        ["import os", "from sslkit.backbones.clips import slow_r18", "net = slow_r18()"],
    ],
)
def test_other_lines_are_refused(lines: list[str]) -> None:
    with pytest.raises(UserError, match="not lines that sslkit writes, and are not run"):
        network_lines.build(lines, "card.json")


def test_small_clips_keep_their_resolution_and_the_stem_says_so() -> None:
    for name in ("narrow_slow", "r3d_18"):
        small, large = (backbones.build(name, image_size=size, in_chans=3, frames=2) for size in (64, 65))
        assert "stride 1" in small.recipe.stem and large.recipe.stem == "as published"
    assert backbones.build("narrow_slow", image_size=112, in_chans=3).item.frames == video_backbones.FRAMES


def test_the_default_goes_with_the_size() -> None:
    for size, name in ((32, "narrow_slow"), (112, "slow_r18"), (224, "slow_r50")):
        assert backbones.default("vit", size, frames=8) == name
    method = sslkit.method("byol", image_size=32, frames=4)
    assert method.backbone.recipe.name == "narrow_slow" and method.backbone.item.frames == 4


def frame_mean() -> nn.Module:
    return nn.Sequential(nn.AdaptiveAvgPool3d(1), nn.Flatten())


@pytest.mark.parametrize("backbone", [frame_mean(), f"{__name__}:frame_mean"])
def test_a_module_or_function_of_clips(backbone) -> None:
    body = backbones.build(backbone, image_size=16, in_chans=2, frames=3)
    assert body.width == 2 and body(torch.zeros(4, 2, 3, 16, 16)).shape == (4, 2)


@pytest.mark.parametrize(
    ("backbone", "options", "said"),
    [
        ("resnet18", {"frames": 8}, "resnet18 takes images, and the data are clips: did you mean 'r3d_18'"),
        ("vit_tiny_patch16_224", {"frames": 8}, "takes images, and the data are clips: give one of slow_r18"),
        ("slow_r18", {"in_chans": 1}, "clips in RGB, not of 1 channels"),
        (nn.Conv2d(3, 4, 3), {"frames": 8}, r"cannot take clips of shape \(1, 3, 8, 32, 32\)"),
    ],
)
def test_bad_backbones_are_one_clear_error(backbone, options: dict, said: str) -> None:
    with pytest.raises(UserError, match=said):
        backbones.build(backbone, **{"image_size": 32, "in_chans": 3, **options})


@pytest.fixture
def entry(tmp_path) -> zoo.ZooEntry:
    torch.manual_seed(0)
    body = backbones.build("narrow_slow", image_size=32, in_chans=3, frames=4)
    card = {
        "method": "byol",
        "backbone": {**vars(body.recipe), "image_size": 32, "in_chans": 3, "frames": 4, "stride": 2},
        "normalize": {"mean": [0.1, 0.2, 0.3], "std": [0.4, 0.5, 0.6]},
    }
    return zoo.save(tmp_path / "entry", body.export(), card)


def test_an_entry_of_clips_loads_frozen_with_frames_and_stride(entry) -> None:
    frozen = sslkit.load(entry.folder)
    assert (frozen.item.frames, frozen.stride, frozen.backbone.input_shape()) == (4, 2, (3, 4, 32, 32))
    pixels = torch.randint(0, 256, (2, 3, 4, 32, 32), dtype=torch.uint8)
    x = frozen.normalize(pixels)
    assert torch.equal(x[:, 1, 2], frozen.normalize(pixels[:, :, 2])[:, 1])
    torch.testing.assert_close(x[:, 2], (pixels[:, 2] / 255 - 0.3) / 0.6)
    with torch.no_grad():
        torch.testing.assert_close(frozen(pixels), entry.backbone()(x))


@pytest.mark.parametrize("to", ["timm", "hf", "torchvision"])
def test_other_libraries_have_no_form_for_it(entry, to: str) -> None:
    with pytest.raises(
        UserError, match=r"made by narrow_slow, not by timm; possible for this network: onnx, torch_export$"
    ):
        zoo.export(entry, to=to)


@pytest.mark.slow
def test_onnx_holds_it(entry) -> None:
    pytest.importorskip("onnxscript")
    pytest.importorskip("onnxruntime")
    frozen = sslkit.load(zoo.export(entry, to="onnx"))
    x = torch.randn(3, 3, 4, 32, 32)
    with torch.no_grad():
        torch.testing.assert_close(frozen.net(x), entry.backbone()(x), atol=1e-4, rtol=1e-4)
    assert (frozen.item.frames, frozen.stride) == (4, 2)
