"""Weights that fit by name and shape and compute something else are told by their running statistics."""

import copy
import warnings
from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np
import pytest
import timm
import torch
from photographs import photographs
from PIL import Image
from torch import Tensor, nn

import evaluation
import sslkit
from evaluation.features import contradicted
from evaluation.tuning.task import open_task
from sslkit.backbones import norm_statistics
from sslkit.backbones.norm_statistics import contradiction
from sslkit.backbones.pretrained import timm_network
from sslkit.backbones.words import parse
from sslkit.priors import build

IMAGENET, HALF = ((0.485, 0.456, 0.406), (0.229, 0.224, 0.225)), ((0.5,) * 3, (0.5,) * 3)
SIDE = 64
NETWORKS = [
    "resnet18",
    "resnet26",
    "resnet50",
    "resnet10t",
    "resnet14t",
    "skresnet18",
    "res2net50_14w_8s",
    "seresnet50",
    "ecaresnet26t",
    "regnetx_002",
    "regnety_002",
    "mobilenetv2_050",
    "mobilenetv3_small_050",
    "mobilenetv4_conv_small",
    "tf_efficientnet_lite0",
    "efficientnet_b0",
    "mnasnet_small",
    "semnasnet_075",
    "fbnetc_100",
    "ghostnet_050",
    "hardcorenas_a",
    "lcnet_050",
    "tinynet_e",
    "densenet121",
    "dla34",
    "hrnet_w18_small",
    "vgg11_bn",
    "dla46_c",
    "selecsls42b",
    "repvgg_a0",
    "repghostnet_050",
    "mobileone_s0",
    "resnext26ts",
    "starnet_s1",
    "ese_vovnet19b_dw",
    "cspdarknet53",
    "rexnet_100",
    "gernet_s",
    "mixnet_s",
    "repvit_m0_9",
    "fastvit_t8",
    "spnasnet_100",
]


def pieces(count: int, side: int = SIDE, seed: int = 0) -> Tensor:
    """(count, 3, side, side) uint8: pieces of two photographs, of several scales."""
    rng, found = np.random.default_rng(seed), []
    for number in range(count):
        photo = photographs()[number % 2]
        length = int(rng.integers(150, photo.height))
        left, top = (int(rng.integers(0, most - length + 1)) for most in photo.size)
        piece = photo.crop((left, top, left + length, top + length)).resize((side, side), Image.Resampling.BICUBIC)
        found.append(np.asarray(piece))
    return torch.from_numpy(np.stack(found)).permute(0, 3, 1, 2)


def of_other_kinds() -> dict[str, Tensor]:
    """Drawings, clothes, letters and digits, as large as the photographs."""
    found = {}
    for name in ("clipart", "fashion_mnist", "glyphs", "digits"):
        images = sslkit.open_images(name, split="test" if name == "digits" else "train", channels=3)
        pixels = images.__getitems__(np.linspace(0, len(images) - 1, 24).astype(int).tolist())["images"]
        larger = nn.functional.interpolate(pixels.float(), (SIDE, SIDE), mode="bicubic", antialias=True)
        found[name] = larger.clamp(0, 255).round().byte()
    return found


def trained(name: str, mean: tuple[float, ...], std: tuple[float, ...]) -> nn.Module:
    """A random network whose statistics are those of the photographs, less `mean` and over `std`."""
    torch.manual_seed(0)
    net = timm.create_model(name, num_classes=0)
    for layer in net.modules():
        if isinstance(layer, nn.modules.batchnorm._BatchNorm):
            layer.momentum = None
            layer.reset_running_stats()
    with torch.no_grad():
        for batch in pieces(96).split(32):
            net.train()(norm_statistics._normal(batch / 255, mean, std))
    return net.eval()


@pytest.fixture(scope="module")
def resnet() -> nn.Module:
    return trained("resnet10t", *IMAGENET)


@pytest.mark.parametrize(
    ("change", "norm", "said"),
    [
        (lambda x: x, IMAGENET, ""),
        (lambda x: x, HALF, "ImageNet's mean and std"),
        (lambda x: x, ((0, 0, 0), (1, 1, 1)), "ImageNet's mean and std"),
        (lambda x: x, ((0, 0, 0), (1 / 255,) * 3), "ImageNet's mean and std"),
        (lambda x: x.flip(1), IMAGENET, "channels in the order blue, green, red, but mean and std as here"),
        (lambda x: x[:4], HALF, ""),  # too few to tell
    ],
)
def test_another_scale_or_order_of_channels_is_named(
    resnet: nn.Module, change: Callable[[Tensor], Tensor], norm: tuple, said: str
) -> None:
    before = {name: value.clone() for name, value in resnet.state_dict().items()}
    resnet.layer1.train()
    assert contradiction(resnet, change(pieces(24, seed=1)), *norm) == said
    assert resnet.layer1.training and not resnet.layer2.training and not resnet._forward_hooks
    assert all(torch.equal(value, before[name]) for name, value in resnet.state_dict().items())
    assert not any(layer._forward_hooks or layer._forward_pre_hooks for layer in resnet.modules())


def test_weights_for_channels_in_another_order_are_named(resnet: nn.Module) -> None:
    """Those of OpenCV's users, with mean and std in the same order."""
    other = copy.deepcopy(resnet)
    with torch.no_grad():
        other.conv1[0].weight.copy_(resnet.conv1[0].weight.flip(1))
    assert contradiction(other, pieces(24, seed=1), *IMAGENET) == "channels in the order blue, green, red"
    gray = pieces(24, seed=1)[:, :1].expand(-1, 3, -1, -1)
    assert contradiction(resnet, gray, *IMAGENET) == ""


def test_images_of_another_kind_contradict_nothing(resnet: nn.Module) -> None:
    assert {
        name: contradiction(resnet, pixels, *IMAGENET) for name, pixels in of_other_kinds().items()
    } == dict.fromkeys(("clipart", "fashion_mnist", "glyphs", "digits"), "")


def test_without_batch_normalisation_nothing_is_read() -> None:
    """Also where it has not been trained."""
    for name in ("vit_tiny_patch16_224", "resnet10t"):
        assert not norm_statistics.has_statistics(timm.create_model(name, num_classes=0))


def test_the_distance_is_that_of_normal_distributions_over_the_layers() -> None:
    """One layer, whose inputs have mean 1 and variance 4 and are remembered as 0 and 1; eps is 0."""
    net = nn.Sequential(nn.BatchNorm2d(1, eps=0.0))
    net[0].running_mean.fill_(1e-9)  # not as it was made
    pixels = torch.tensor([-1.0, 3.0]).view(1, 1, 1, 2).expand(8, 1, 2, 2)
    divergence = 0.5 * (np.log(1 / 4) + 4 + 1 - 1)
    assert norm_statistics.distance(net, pixels, (0.0,), (1.0,)) == pytest.approx(np.log(divergence), abs=1e-6)


def test_a_network_that_pads_otherwise_is_named() -> None:
    """timm's efficientnet_lite0 takes the weights of tf_efficientnet_lite0 by name and shape, and the reverse."""
    same, images = trained("tf_efficientnet_lite0", *HALF), pieces(24, seed=1)
    symmetric = timm.create_model("efficientnet_lite0", num_classes=0).eval()
    symmetric.load_state_dict(same.state_dict())
    assert contradiction(same, images, *HALF) == ""
    assert "padded as TensorFlow pads" in contradiction(symmetric, images, *HALF)
    symmetric, other = trained("efficientnet_lite0", *HALF), timm.create_model("tf_efficientnet_lite0", num_classes=0)
    other.load_state_dict(symmetric.state_dict())
    assert contradiction(symmetric, images, *HALF) == ""
    assert "not as TensorFlow pads" in contradiction(other, images, *HALF)


def test_published_weights_do_not_contradict_photographs() -> None:
    """And do so where their mean and std are not theirs."""
    net, images = timm_network(parse("efficientnet_lite0", ""), where="", local="").net, pieces(16, 128)
    assert contradiction(net, images, *HALF) == ""
    assert contradiction(net, images, *IMAGENET) == "mean and std of 0.5"


def test_strides_in_the_first_convolution_of_a_block_are_named() -> None:
    """Caffe's ResNets have the same tensors. Filters of differences tell, as trained ones are; random ones hardly."""
    net = trained("resnet26", *IMAGENET)
    blocks = [net.layer2[0], net.layer3[0], net.layer4[0]]
    with torch.no_grad():
        for block in [block for layer in (net.layer1, net.layer2, net.layer3, net.layer4) for block in layer]:
            block.conv2.weight -= block.conv2.weight.mean((2, 3), keepdim=True)
    for block in blocks:
        block.conv1.stride, block.conv2.stride = (2, 2), (1, 1)
    for layer in net.modules():
        if isinstance(layer, nn.BatchNorm2d):
            layer.reset_running_stats()
    with torch.no_grad():
        for batch in pieces(96, 128).split(32):
            net.train()(norm_statistics._normal(batch / 255, *IMAGENET))
    assert contradiction(net.eval(), pieces(16, 128, seed=1), *IMAGENET) == ""
    for block in blocks:
        block.conv1.stride, block.conv2.stride = (1, 1), (2, 2)
    assert "strides in the blocks' first convolution" in contradiction(net, pieces(16, 128, seed=1), *IMAGENET)


def photographs_of_two_classes(folder: Path) -> Path:
    for number, piece in enumerate(pieces(24, seed=1).permute(0, 2, 3, 1).numpy()):
        path = folder / ("train", "test")[number % 4 == 3] / "ab"[number % 2] / f"{number:02}.png"
        path.parent.mkdir(parents=True, exist_ok=True)
        Image.fromarray(piece).save(path)
    return folder


def warned(call: Callable[[], object]) -> list[str]:
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        call()
    return [str(one.message) for one in caught if "contradicts these images" in str(one.message)]


def test_it_is_said_where_weights_and_images_meet(resnet: nn.Module, tmp_path: Path) -> None:
    """Features, also those that are kept; fine-tuning; a start of a training; a prior. Not of an entry's weights."""
    data, file = photographs_of_two_classes(tmp_path / "data"), tmp_path / "weights.pt"
    flipped = {name: value.clone() for name, value in resnet.state_dict().items()}
    flipped["conv1.0.weight"] = flipped["conv1.0.weight"] / 64  # as of values from 0 to 255
    torch.save(flipped, file)
    word = f"timm:resnet10t:{file}"
    how = {"image_size": SIDE, "cache": tmp_path / "cache", "workers": 0, "progress": False}
    for _ in range(2):
        (said,) = warned(lambda: evaluation.extract(word, data, "train", **how))
        assert said.startswith("resnet10t:weights: its batch normalisation contradicts") and "0 to 255" in said
    (said,) = warned(lambda: open_task(sslkit.load(word, image_size=SIDE), data))
    assert "0 to 255" in said
    images = sslkit.open_images(data, image_size=SIDE)
    assert len(warned(lambda: build(f"timm:resnet10t:{file}", size=SIDE).check(images))) == 1
    short = {"method": "simclr", "data": str(data), "out": str(tmp_path / "zoo"), "epochs": 1, "image_size": SIDE}
    short |= {"batch_size": 8, "workers": 0, "cache": str(tmp_path / "cache")}
    entries = []
    assert len(set(warned(lambda: entries.append(sslkit.pretrain(short, init=word))))) == 1
    assert warned(lambda: evaluation.extract(entries[0], data, "train", **how)) == []


def test_pictures_of_detection_are_looked_at_too(resnet: nn.Module) -> None:
    """A network of one's own: wide pictures, less the mean and std that are usual for three channels."""
    wide = nn.functional.interpolate(pieces(16, seed=1).float(), (SIDE, 2 * SIDE)).byte()
    model = sslkit.load(resnet, image_size=SIDE)
    assert warned(lambda: contradicted.warn_of_pictures(model, Wide(wide))) == []
    dark = replace(model, mean=(0, 0, 0), std=(1, 1, 1))
    (said,) = warned(lambda: contradicted.warn_of_pictures(dark, Wide(wide)))
    assert "ImageNet's mean and std" in said


@dataclass
class Wide:
    """N pictures as those of a detection set."""

    pixels: Tensor

    def __len__(self) -> int:
        return len(self.pixels)


@pytest.mark.slow
@pytest.mark.parametrize(
    "name", [*NETWORKS[:3], *(pytest.param(name, marks=pytest.mark.nightly) for name in NETWORKS[3:])]
)
def test_networks_with_their_own_statistics_raise_no_line(name: str) -> None:
    """And those with another scale raise one."""
    norm, other = (IMAGENET, HALF) if NETWORKS.index(name) % 2 else (HALF, IMAGENET)
    net, photos = trained(name, *norm), pieces(24, seed=1)
    told = {kind: contradiction(net, pixels, *norm) for kind, pixels in {"photos": photos, **of_other_kinds()}.items()}
    assert set(told.values()) == {""}, told
    wanted = "ImageNet's mean and std" if norm == IMAGENET else "mean and std of 0.5"
    for wrong in (other, ((0, 0, 0), (1, 1, 1)), ((0, 0, 0), (1 / 255,) * 3)):
        assert contradiction(net, photos, *wrong) == wanted
