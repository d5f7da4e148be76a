"""Lines of cards are read, never run: what sslkit writes is understood, anything else is refused."""

import pytest
import torch

from sslkit import backbones
from sslkit.backbones import network_lines
from sslkit.errors import UserError


@pytest.mark.parametrize(
    ("name", "size"),
    [
        ("resnet18", 32),
        ("resnet18", 96),
        ("resnet10t", 32),
        ("narrow_resnet", 28),
        ("narrow_vit", 28),
        ("vit_tiny_patch16_224", 32),
        ("tf_efficientnet_lite0", 32),
        ("convnext_atto", 64),
    ],
)
def test_what_backbones_write_is_understood(name: str, size: int) -> None:
    body = backbones.build(name, image_size=size, in_chans=3).eval()
    state, scope = torch.random.get_rng_state(), {}
    net = network_lines.build(body.recipe.lines, "x")
    assert torch.equal(state, torch.random.get_rng_state())
    exec("\n".join(body.recipe.lines), scope)  # what a person gets by hand
    assert repr(net) == repr(scope["net"])
    x = torch.randn(1, 3, size, size)
    net.load_state_dict(scope["net"].state_dict(), strict=True)
    assert torch.equal(net.eval()(x), scope["net"].eval()(x))
    network = network_lines.parse(body.recipe.lines)
    changes = [line for line in body.recipe.lines if "net." in line]
    assert [line for line in network.change_lines if "net." in line] == changes


@pytest.mark.parametrize(
    "lines",
    [
        ["import os", "net = timm.create_model('resnet18')"],
        ["import timm", "net = timm.create_model(input())"],
        ["import timm", "net = timm.create_model('resnet18', num_classes=len([]))"],
        ["import timm", "net = timm.create_model('resnet18', **{})"],
        ["import timm", "net = timm.create_model('resnet18')", "print(1)"],
        ["import timm", "net = timm.create_model('resnet18')", "net.x = print(1)"],
        ["import timm", "net = timm.create_model('resnet18')", "net.__class__ = 1"],
        ["import timm", "net = timm.create_model('resnet18')", "net.a, net.b = 1"],
        ["import timm as t", "net = t.create_model('resnet18')"],
        ["from os import abort", "net = abort(1)"],
        ["from os import abort", "net = getcwd()"],
        ["net ="],
        [],
    ],
)
def test_anything_else_is_refused(lines: list[str]) -> None:
    assert network_lines.parse(lines) is None
    with pytest.raises(UserError, match="not lines that sslkit writes, and are not run"):
        network_lines.build(lines, "card.json")


def test_a_trusted_function_is_imported_or_said_to_be_missing() -> None:
    lines = ["from torch.nn import Identity", "net = Identity()"]
    assert network_lines.build(lines, "x", trust="torch.nn:Identity").extra_repr() == ""
    with pytest.raises(UserError, match=r"x: cannot import 'nowhere\.module:f'"):
        network_lines.build(["from nowhere.module import f", "net = f()"], "x", trust="nowhere.module:f")
