"""Any timm name, a function, a module: width measured, stem by image size, weights that go back into plain timm."""

from pathlib import Path

import pytest
import timm
import torch
from contract import MEMBERS, batch, build, enough, step
from torch import nn

from sslkit import backbones, zoo
from sslkit.backbones import network_lines
from sslkit.errors import UserError


def tiny_function() -> nn.Module:
    return nn.Sequential(nn.Flatten(), nn.Linear(8 * 8, 5))


@pytest.mark.parametrize(
    ("name", "size", "in_chans", "width"),
    [
        ("resnet10t", 32, 3, 512),
        ("resnet18", 32, 1, 512),
        ("narrow_resnet", 28, 1, 128),
        ("tf_efficientnet_lite0", 32, 3, 1280),
        ("vit_tiny_patch16_224", 32, 2, 192),
        ("convnext_atto", 64, 3, 320),
    ],
)
def test_export_loads_strict_into_plain_timm_and_gives_the_same_features(
    name, size, in_chans, width, tmp_path, monkeypatch
) -> None:
    monkeypatch.chdir(tmp_path)
    body = backbones.build(name, image_size=size, in_chans=in_chans).eval()
    assert body.width == width
    entry = zoo.save(tmp_path, body.export(), {"load": "\n".join(zoo.load_lines(body.recipe.lines, range=None))})
    *lines, last = entry.card["load"].splitlines()
    scope: dict = {}
    exec("\n".join(lines), scope)
    net = eval(last, scope)
    x = torch.rand(3, in_chans, size, size)
    with torch.no_grad():
        torch.testing.assert_close(net(x), body(x), atol=1e-4, rtol=1e-4)


@pytest.mark.parametrize(
    ("name", "size", "left"),
    [
        ("vit_tiny_patch16_224", 100, 4),
        ("vit_tiny_patch16_224", 96, 0),
        ("vit_tiny_patch16_224", 60, 0),  # patches of 4
        ("swin_tiny_patch4_window7_224", 102, 2),
        ("mixer_s16_224", 100, 4),
        ("resnet10t", 99, 0),
    ],
)
def test_pixels_that_no_patch_covers_are_known(name: str, size: int, left: int) -> None:
    body = backbones.build(name, image_size=size, in_chans=3).eval()
    x = torch.rand(1, 3, size, size, requires_grad=True)
    (body(x) * torch.linspace(-1, 1, body.width)).sum().backward()
    assert (x.grad[..., size - left :, :] == 0).all() and (x.grad[..., size - left :] == 0).all()
    assert (x.grad[..., size - left - 1] != 0).any()
    said = f"the last {left} rows and columns of every image are not seen; a size of {size - left} or "
    assert (said in body.unseen) if left else body.unseen == ""


def test_small_images_keep_their_resolution() -> None:
    x = torch.rand(1, 3, 32, 32)
    for name, said in (("resnet18", "3x3"), ("resnet10t", "stride 1")):
        small = backbones.build(name, image_size=32, in_chans=3).eval()
        large = backbones.build(name, image_size=224, in_chans=3).eval()
        assert small.net.forward_features(x).shape[-1] == 4
        assert large.net.forward_features(x).shape[-1] == 1
        assert said in small.recipe.stem and large.recipe.stem == "as published"


def test_convolutional_nets_run_channels_last() -> None:
    body = backbones.build("resnet10t", image_size=32, in_chans=3)
    assert body.convolutional and body.net.layer1[0].conv1.weight.is_contiguous(memory_format=torch.channels_last)
    body.train()(torch.rand(2, 3, 32, 32)).sum().backward()
    assert all(weight.stride() == weight.grad.stride() for weight in body.parameters() if weight.dim() == 4)
    assert not backbones.build("vit_tiny_patch16_224", image_size=32, in_chans=3).convolutional


@pytest.mark.parametrize("name", [name for name, family in MEMBERS if family == "resnet"])
def test_every_objective_keeps_maps_channels_last(name: str) -> None:
    """In student and teacher; a map in another order costs a copy before every kernel on a GPU."""
    m, others = build(name, "resnet"), []

    def look(layer: nn.Conv2d, given: tuple[torch.Tensor]) -> None:
        if not given[0].is_contiguous(memory_format=torch.channels_last):
            others.append(tuple(given[0].shape))

    layers = [layer for layer in m.modules() if isinstance(layer, nn.Conv2d)]
    for layer in layers:
        layer.register_forward_pre_hook(look)
    step(m, *batch(enough(m, 6)))
    assert layers and not others


class OverDepth(nn.Module):
    """A network of images that also has a 3-d kernel, over the channels of its maps, and a 5-d buffer."""

    def __init__(self) -> None:
        super().__init__()
        self.flat, self.deep = nn.Conv2d(3, 6, 3), nn.LazyConv3d(2, 3)
        self.register_buffer("positions", torch.ones(1, 1, 6, 1, 1))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.deep(self.flat(x)[:, None] * self.positions).mean((3, 4)).flatten(1)


class SpaceThenTime(nn.Module):
    """A network of clips that looks at each frame by itself, then at all."""

    def __init__(self) -> None:
        super().__init__()
        self.flat, self.deep = nn.Conv2d(3, 6, 3), nn.Conv3d(6, 5, 3)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        maps = self.flat(x.transpose(1, 2).flatten(0, 1)).unflatten(0, (len(x), -1))
        return self.deep(maps.transpose(1, 2)).mean((2, 3, 4))


@pytest.mark.parametrize(("net", "frames", "width"), [(OverDepth(), None, 8), (SpaceThenTime(), 4, 5)])
def test_a_network_of_2d_and_3d_kernels(net: nn.Module, frames: int | None, width: int) -> None:
    body = backbones.build(net, image_size=12, in_chans=3, frames=frames)
    layout = torch.channels_last if frames is None else torch.channels_last_3d
    laid_out = (net.flat if frames is None else net.deep).weight
    assert body.width == width and body.convolutional and laid_out.is_contiguous(memory_format=layout)
    x = torch.rand(2, *body.input_shape())
    body.train()(x).sum().backward()
    assert all(p.grad is not None for p in net.parameters())
    assert body.export().keys() == net.state_dict().keys()
    with pytest.raises(UserError, match="gives no feature map"):
        body.feature_map(x)


def test_a_function_and_a_module() -> None:
    body = backbones.build(f"{__name__}:tiny_function", image_size=8, in_chans=1)
    assert body.width == 5 and body.recipe.lines[-1] == "net = tiny_function()"
    assert backbones.build(tiny_function(), image_size=8, in_chans=1).width == 5


@pytest.mark.parametrize(
    ("backbone", "said"),
    [
        ("resnet81", "did you mean 'resnet18'|'resnet"),
        ("nowhere.module:net", "backbone: cannot import"),
        (nn.Conv2d(3, 4, 3), r"must return one \(B, width\) tensor"),
        (nn.Sequential(nn.Flatten(), nn.Linear(7, 2)), "cannot take images of shape"),
    ],
)
def test_bad_backbones_are_one_clear_error(backbone, said) -> None:
    with pytest.raises(UserError, match=said):
        backbones.build(backbone, image_size=32, in_chans=3)


@pytest.mark.parametrize("name", ["narrow_resnet", "narrow_vit", "resnet18", "vit_tiny_patch16_224"])
def test_the_feature_map_pools_to_the_features(name: str) -> None:
    body = backbones.build(name, image_size=32, in_chans=3).eval()
    x = torch.rand(2, 3, 32, 32)
    last, pooled = body.feature_map(x)
    torch.testing.assert_close(pooled, body(x))
    assert last.shape[:2] == (2, body.width) and last.shape[2] == last.shape[3] > 1
    if name == "narrow_vit":  # the mean of its patches, row by row
        tokens = body.net.forward_features(x)[:, 1:].unflatten(1, last.shape[2:])
        torch.testing.assert_close(last, tokens.permute(0, 3, 1, 2))


def test_a_network_without_maps_says_so() -> None:
    body = backbones.build(nn.Sequential(nn.Flatten(), nn.Linear(48, 5)), image_size=4, in_chans=3)
    with pytest.raises(UserError, match="feature map"):
        body.feature_map(torch.zeros(2, 3, 4, 4))


@pytest.mark.parametrize("name", ["narrow_vit", "vit_tiny_patch16_224", "deit_tiny_patch16_224"])
def test_vits_take_smaller_crops(name: str) -> None:
    body = backbones.build(name, image_size=32, in_chans=1)
    assert body.is_vit and body(torch.zeros(2, 1, 3 * body.patch, 3 * body.patch)).shape == (2, body.width)


def test_the_default_goes_with_family_and_size() -> None:
    names = {(f, s): backbones.default(f, s, frames=None) for f in ("resnet", "vit") for s in (28, 64, 224)}
    assert names["resnet", 28] == "narrow_resnet" and names["vit", 28] == "narrow_vit"
    assert names["resnet", 224] == "resnet50" and names["vit", 224] == "vit_small_patch16_224"
    for (_, size), name in names.items():
        if size < 224:
            assert backbones.build(name, image_size=size, in_chans=3).width


SIZED = {  # by module of timm, those that were refused once: the smallest member
    "davit": "davit_tiny",
    "efficientvit_mit": "efficientvit_b0",
    "fastvit": "fastvit_t8",
    "nextvit": "nextvit_small",
    "shvit": "shvit_s1",
    "tiny_vit": "tiny_vit_5m_224",
}


def shaped(name: str, size: int) -> backbones.Backbone:
    """The backbone without memory for its weights and without their values."""
    with torch.device("meta"):
        return backbones.build(name, image_size=size, in_chans=3)


@pytest.mark.parametrize("size", [32, 96])
@pytest.mark.parametrize("name", [*SIZED.values(), "deit_tiny_patch16_224", "eva02_tiny_patch14_224"])
def test_timm_is_told_the_size_where_it_takes_it(name: str, size: int) -> None:
    body = shaped(name, size)
    assert body.width and ("img_size" in body.recipe.lines[1]) == (name not in SIZED.values())


@pytest.mark.parametrize(
    ("name", "size"), [("swin_tiny_patch4_window7_224", 96), ("pit_ti_224", 96), ("pit_ti_224", 32)]
)
def test_a_network_that_does_not_take_the_size_as_it_is_is_made_for_it(name: str, size: int) -> None:
    torch.manual_seed(0)
    body = backbones.build(name, image_size=size, in_chans=3).eval()
    torch.manual_seed(0)
    plain = timm.create_model(name, num_classes=0, img_size=size).eval()
    x = torch.rand(1, 3, size, size)
    with torch.no_grad():  # what was tried in vain before has drawn nothing
        assert f"img_size={size})" in body.recipe.lines[1] and torch.equal(body(x), plain(x))


@pytest.mark.nightly
@pytest.mark.parametrize("size", [32, 96, 224])
@pytest.mark.parametrize("module", SIZED)
def test_every_network_of_these_modules_can_be_made(module: str, size: int) -> None:
    for name in timm.list_models(module=module):
        assert shaped(name, size).width


@pytest.mark.parametrize(
    ("name", "size", "in_chans"),
    [
        ("levit_128s", 97, 3),
        ("test_vit", 97, 3),
        ("resnet18", 0, 3),
        ("resnet18", 10**9, 3),
        ("resnet18", 32, 10**9),
        ("resnet18", 32, 0),
        ("vit_tiny_patch16_224", 10**9, 3),
    ],
)
def test_a_size_that_cannot_be_is_one_error(name: str, size: int, in_chans: int) -> None:
    with pytest.raises(UserError, match=f"backbone.* {name}") as error:
        backbones.build(name, image_size=size, in_chans=in_chans)
    assert "\n" not in str(error.value)


def test_whatever_timm_raises_is_one_error(monkeypatch: pytest.MonkeyPatch) -> None:
    def fails(*_args, **_options) -> None:
        raise ZeroDivisionError("integer division\nor modulo by zero")

    monkeypatch.setattr(timm, "create_model", fails)
    said = "^backbone: timm cannot make resnet18 for images of 3 x 32 x 32: ZeroDivisionError: integer division$"
    with pytest.raises(UserError, match=said):
        backbones.build("resnet18", image_size=32, in_chans=3)


@pytest.mark.parametrize("name", ["resnet18", "narrow_resnet", "resnet10t", "tf_efficientnet_lite0"])
def test_a_stem_is_kept_as_it_is_trained_and_fits_no_other_network(name: str, tmp_path: Path) -> None:
    body = backbones.build(name, image_size=32, in_chans=1)
    about = {"name": name, "lines": body.recipe.lines, "image_size": 32, "in_chans": 1}
    state, again = body.export(), zoo.save(tmp_path, body.export(), {"backbone": about}).backbone()
    trained = {key: value.shape for key, value in body.net.named_parameters()}
    assert {key: value.shape for key, value in again.named_parameters()} == trained
    plain = network_lines.parse(body.recipe.lines)
    with pytest.raises(RuntimeError, match=r"size mismatch|Missing key"):
        timm.create_model(plain.model, **plain.arguments).load_state_dict(state)


def test_a_tag_that_timm_does_not_know_is_one_error() -> None:
    with pytest.raises(UserError, match=r"timm knows no weights 'resnet18\.nope'; write resnet18"):
        backbones.build("resnet18.nope", image_size=32, in_chans=3)
