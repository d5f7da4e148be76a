"""Published checkpoints: files of each project's form with random weights, named by the module trees of the projects.

No real file was at hand; the modules below say how the projects nest theirs, and torch itself makes the names.
"""

import argparse
import pickle
from collections.abc import Callable, Iterator
from functools import cache, partial
from pathlib import Path
from unittest import mock

import numpy as np
import pytest
import safetensors.torch
import timm
import torch
from torch import nn

from sslkit.backbones import published
from sslkit.errors import UserError

CREATE_MODEL = timm.create_model


@pytest.fixture(scope="module")
def narrow() -> Iterator[None]:
    """timm's resnet50 with every layer that it has, but an eighth as wide: files of 2 MB instead of 100."""
    with mock.patch.object(timm, "create_model", partial(timm.create_model, channels=(8, 16, 32, 64))):
        yield


@pytest.fixture(scope="module")
def net(narrow: None) -> nn.Module:
    return trained()


def trained() -> nn.Module:
    """A network whose statistics of batch norm differ everywhere, too."""
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(3)
        net = timm.create_model("resnet50", pretrained=False, num_classes=0)
        for buffer in net.buffers():
            buffer.copy_(torch.rand(buffer.shape) * 2 + 1 if buffer.is_floating_point() else torch.tensor(7))
    return net.eval()


def test_a_network_of_the_published_width(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(timm, "create_model", CREATE_MODEL)  # whether or not another test made it narrow
    net = trained()
    torch.save(FORMS["byol"](net), tmp_path / "byol.pth")
    loaded = published.network("byol", tmp_path / "byol.pth")
    assert (
        same(loaded, net) and loaded.num_features == 2048 and loaded.layer4[2].conv3.weight.shape == (2048, 512, 1, 1)
    )


@cache
def other() -> nn.Module:
    """Of the same shapes, filled with a number, which takes no room in a file."""
    with torch.device("meta"):
        net = timm.create_model("resnet50", pretrained=False, num_classes=0)
    for layer in net.modules():
        for name, tensor in [*layer._parameters.items(), *layer._buffers.items()]:
            if tensor is not None:
                full = torch.full((), 3, dtype=tensor.dtype).expand(tensor.shape)
                getattr(layer, "_parameters" if name in layer._parameters else "_buffers")[name] = (
                    nn.Parameter(full, False) if name in layer._parameters else full
                )
    return net


def held(**parts: nn.Module) -> nn.Module:
    """A module with these children."""
    whole = nn.Module()
    for name, part in parts.items():
        whole.add_module(name, part)
    return whole


def with_fc(net: nn.Module, fc: nn.Module) -> nn.Module:
    """The backbone's children and a layer `fc` beside them, as torchvision's ResNet has."""
    return held(**{**dict(net.named_children()), "fc": fc})


def parallel(**parts: nn.Module) -> dict[str, torch.Tensor]:
    return held(module=held(**parts)).state_dict()


def mlp() -> nn.Module:
    return nn.Sequential(nn.Linear(8, 8), nn.ReLU(), nn.Linear(8, 4))


def moco(net: nn.Module, head: nn.Module) -> dict:
    state = parallel(encoder_q=with_fc(net, head), encoder_k=with_fc(other(), head))
    state |= {"module.queue": torch.rand(4, 9), "module.queue_ptr": torch.zeros(1, dtype=torch.long)}
    optimizer = {"state": {0: {"momentum_buffer": torch.rand(3)}}, "param_groups": [{"lr": 0.03}]}
    return {"epoch": 200, "arch": "resnet50", "state_dict": state, "optimizer": optimizer}


def swav(net: nn.Module, prototypes: nn.Module) -> dict:
    head = nn.Sequential(nn.Linear(8, 8), nn.BatchNorm1d(8), nn.ReLU(), nn.Linear(8, 4))
    return parallel(**dict(net.named_children()), projection_head=head, prototypes=prototypes)


def pycontrast(net: nn.Module, **heads: nn.Module) -> dict:
    options = argparse.Namespace(arch="resnet50", lr=0.03, beta=[0.5, 0.9])
    return {
        "opt": options,
        "model": parallel(encoder=net, **heads),
        "model_ema": parallel(encoder=other(), **heads),
        "contrast": {"memory": torch.rand(4, 5)},
        "epoch": np.float64(800),
    }


def norm(layer: nn.Module) -> nn.Module:
    return nn.Sequential(layer, nn.ReLU())


def simclr_v2_block(block: nn.Module) -> nn.Module:
    layers = [part for i in (1, 2, 3) for part in (getattr(block, f"conv{i}"), norm(getattr(block, f"bn{i}")))]
    short = block.downsample
    projection = nn.Identity() if short is None else held(shortcut=short[0], bn=norm(short[1]))
    return held(projection=projection, net=nn.Sequential(*layers))


def simclr_v2(net: nn.Module) -> dict:
    stages = [held(blocks=nn.ModuleList(map(simclr_v2_block, getattr(net, f"layer{i}")))) for i in (1, 2, 3, 4)]
    stem = nn.Sequential(net.conv1, norm(net.bn1), nn.MaxPool2d(3))
    resnet = held(net=nn.Sequential(stem, *stages), fc=nn.Linear(8, 10))
    return {"resnet": resnet.state_dict(), "head": held(layers=nn.ModuleList([nn.Linear(8, 8)])).state_dict()}


def pirl_head() -> nn.Module:
    return held(fc1=mlp(), fc2=nn.Linear(36, 4))


FORMS: dict[str, Callable[[nn.Module], dict]] = {
    "byol": lambda net: {"state_dict": with_fc(net, nn.Linear(8, 10)).state_dict()},
    "deepcluster-v2": lambda net: swav(net, held(prototypes0=nn.Linear(4, 9), prototypes1=nn.Linear(4, 9))),
    "infomin": lambda net: pycontrast(net, head=mlp(), head_jig=pirl_head()),
    "insdis": lambda net: pycontrast(net, head=nn.Sequential(nn.Linear(8, 4))),
    "moco-v1": lambda net: moco(net, nn.Linear(8, 4)),
    "moco-v2": lambda net: moco(net, mlp()),
    "pcl-v1": lambda net: moco(net, nn.Linear(8, 4)),
    "pcl-v2": lambda net: moco(net, mlp()),
    "sela-v2": lambda net: swav(net, held(prototypes0=nn.Linear(4, 9))),
    "simclr-v1": lambda net: {"state_dict": with_fc(net, nn.Linear(8, 10)).state_dict()},
    "simclr-v2": simclr_v2,
    "swav": lambda net: swav(net, nn.Linear(4, 9, bias=False)),
}


def same(one: nn.Module, other: nn.Module) -> bool:
    ours, theirs = one.state_dict(), other.state_dict()
    return ours.keys() == theirs.keys() and all(torch.equal(ours[key], theirs[key]) for key in theirs)


def test_every_checkpoint_of_the_paper_is_here() -> None:
    assert set(published.CHECKPOINTS) == set(FORMS) and len(FORMS) == 12
    for checkpoint in published.CHECKPOINTS.values():
        assert checkpoint.layout in published.LAYOUTS and checkpoint.title.lower() == checkpoint.name
    with pytest.raises(UserError, match=r"no published checkpoint 'moco-v3': did you mean 'moco-v"):
        published.find("moco-v3")


@pytest.mark.parametrize("name", FORMS)
def test_each_form_gives_back_the_network(name: str, net: nn.Module, tmp_path: Path) -> None:
    file = tmp_path / published.find(name).file
    torch.save(FORMS[name](net), file)
    loaded = published.network(name, file)
    assert same(loaded, net) and not loaded.training
    image = torch.rand(1, 3, 64, 64)
    with torch.no_grad():
        assert torch.equal(loaded(image), net(image)) and loaded(image).shape == (1, 256)


def test_files_of_the_old_torch_format(net: nn.Module, tmp_path: Path) -> None:
    torch.save(FORMS["infomin"](net), tmp_path / "old.pth", _use_new_zipfile_serialization=False)
    assert same(published.network("infomin", tmp_path / "old.pth"), net)


def test_numbers_pickled_by_numpy_1(net: nn.Module, tmp_path: Path) -> None:
    """numpy 1 called its module numpy.core; the line of the pickle that names it has no length before it."""
    torch.save(FORMS["insdis"](net), tmp_path / "new.pth", _use_new_zipfile_serialization=False)
    old = (tmp_path / "new.pth").read_bytes()
    assert b"cnumpy._core.multiarray\nscalar\n" in old or b"cnumpy.core.multiarray\nscalar\n" in old
    (tmp_path / "old.pth").write_bytes(old.replace(b"cnumpy._core.multiarray\n", b"cnumpy.core.multiarray\n"))
    assert same(published.network("insdis", tmp_path / "old.pth"), net)


@pytest.mark.parametrize("name", ["moco-v2", "simclr-v2"])
def test_safetensors_and_the_prepared_form(name: str, net: nn.Module, tmp_path: Path) -> None:
    form = FORMS[name](net)
    state = form.get("state_dict", form.get("resnet"))
    own = {key: value.clone() for key, value in state.items()}
    safetensors.torch.save_file(own, tmp_path / "own.safetensors")
    assert same(published.network(name, tmp_path / "own.safetensors"), net)
    torch.save(net.state_dict(), tmp_path / f"{name}.pth")
    assert same(published.network(name, tmp_path / f"{name}.pth"), net)


def test_weights_of_half_precision_are_made_whole(net: nn.Module, tmp_path: Path) -> None:
    half = {key: value.half() if value.is_floating_point() else value for key, value in net.state_dict().items()}
    torch.save(half, tmp_path / "half.pth")
    weight = published.network("byol", tmp_path / "half.pth").conv1.weight
    assert weight.dtype == torch.float32 and torch.equal(weight, net.conv1.weight.half().float())


def test_loading_draws_no_random_number(net: nn.Module, tmp_path: Path) -> None:
    torch.save(net.state_dict(), tmp_path / "byol.pth")
    before = torch.get_rng_state()
    published.network("byol", tmp_path / "byol.pth")
    assert torch.equal(torch.get_rng_state(), before)


def refused(name: str, form: object, folder: Path, match: str) -> None:
    torch.save(form, folder / "file.pth")
    with pytest.raises(UserError, match=match):
        published.network(name, folder / "file.pth")


def test_what_is_missing_left_over_or_of_another_shape_is_named(net: nn.Module, tmp_path: Path) -> None:
    form = FORMS["moco-v1"](net)
    state = form["state_dict"]
    cut = {key: value for key, value in state.items() if "encoder_q.layer4" not in key}
    refused(
        "moco-v1", form | {"state_dict": cut}, tmp_path, r"MoCo-v1.* 60 missing: layer4\.0\.conv1\.weight, .*\.\.\."
    )
    more = state | {"module.encoder_q.layer5.weight": torch.rand(2), "stray": torch.rand(2)}
    refused("moco-v1", {"state_dict": more}, tmp_path, r": 2 left over: module\.encoder_q\.layer5\.weight, stray$")
    wide = state | {"module.encoder_q.conv1.weight": torch.rand(128, 3, 7, 7)}
    shape = r"1 of another shape: conv1\.weight \(128, 3, 7, 7\) instead of \(64, 3, 7, 7\)$"
    refused("moco-v1", {"state_dict": wide}, tmp_path, shape)
    for odd in (torch.zeros(1).expand(64, 3, 7, 7), torch.empty(64, 3, 7, 7, device="meta")):
        refused(
            "moco-v1", {"state_dict": state | {"module.encoder_q.conv1.weight": odd}}, tmp_path, "holds conv1.weight"
        )
    kind = state | {"module.encoder_q.conv1.weight": torch.zeros(64, 3, 7, 7, dtype=torch.complex64)}
    refused("moco-v1", {"state_dict": kind}, tmp_path, r": 1 of another kind of number: conv1\.weight$")
    number = state | {"module.encoder_q.conv1.weight": 3}
    refused("moco-v1", {"state_dict": number}, tmp_path, r"1 missing: conv1\.weight; 1 left over: module\.encoder_q\.c")


def test_each_layout_drops_only_its_own_heads(net: nn.Module, tmp_path: Path) -> None:
    """MoCo's queue is no part of SwAV's files, nor are SwAV's prototypes of MoCo's."""
    refused("swav", FORMS["swav"](net) | {"module.queue": torch.rand(2)}, tmp_path, r"1 left over: module\.queue$")
    state = FORMS["moco-v1"](net)["state_dict"] | {"module.prototypes.weight": torch.rand(2)}
    refused("moco-v1", {"state_dict": state}, tmp_path, r"1 left over: module\.prototypes\.weight$")
    prepared = net.state_dict() | {"head.weight": torch.rand(2)}
    refused("simclr-v2", prepared, tmp_path, r"1 left over: head\.weight$")


@pytest.mark.parametrize("name", ["moco-v1", "swav", "insdis", "simclr-v2"])
def test_another_projects_file_is_refused(name: str, net: nn.Module, tmp_path: Path) -> None:
    for other in {"moco-v1", "swav", "insdis", "simclr-v2"} - {name}:
        refused(name, FORMS[other](net), tmp_path, r"\d+ missing: .*; \d+ left over: ")


def test_other_architectures_are_refused(tmp_path: Path) -> None:
    resnet18 = timm.create_model("resnet18", pretrained=False, num_classes=0)
    refused("byol", resnet18.state_dict(), tmp_path, r"missing: .*layer1\.0\.conv3\.weight")
    refused("byol", [1, 2], tmp_path, "holds no state dict but list")
    refused("moco-v1", {"state_dict": {}}, tmp_path, "318 missing")


def test_truncated_and_absent_files(net: nn.Module, tmp_path: Path) -> None:
    torch.save(FORMS["swav"](net), tmp_path / "whole.pth")
    (tmp_path / "cut.pth").write_bytes((tmp_path / "whole.pth").read_bytes()[:100_000])
    with pytest.raises(UserError, match=r"published checkpoint swav: .*cut\.pth is no state dict of tensors"):
        published.network("swav", tmp_path / "cut.pth")
    with pytest.raises(UserError, match=r"published checkpoint byol: there is no file .*none\.pth$"):
        published.network("byol", tmp_path / "none.pth")


class Code:
    """Makes a file when it is unpickled."""

    def __init__(self, path: Path) -> None:
        self.path = path

    def __reduce__(self) -> tuple:
        return Path.touch, (self.path,)


def test_no_pickle_is_executed(net: nn.Module, tmp_path: Path) -> None:
    trace = tmp_path / "trace"
    form = FORMS["infomin"](net) | {"opt": Code(trace)}
    refused("infomin", form, tmp_path, "is no state dict of tensors")
    (tmp_path / "byol.pkl").write_bytes(pickle.dumps({"experiment_state": Code(trace)}, protocol=2))
    with pytest.raises(UserError, match=r"no state dict of tensors.*download_and_prepare_models\.py"):
        published.network("byol", tmp_path / "byol.pkl")
    assert not trace.exists()
    torch.load(tmp_path / "file.pth", weights_only=False)
    assert trace.exists()  # the code was there to be run
    assert argparse.Namespace not in torch.serialization.get_safe_globals()
