"""A run from given weights: what it starts from, what it says, what it refuses, how it goes on."""

import hashlib
import os
import pickle
import signal
from pathlib import Path

import pytest
import safetensors.torch
import timm
import torch
from forks import exit_code
from torch import Tensor, nn

import sslkit
from sslkit import objectives
from sslkit.errors import UserError
from sslkit.options.members import signature
from sslkit.runtime.loop import Hook, Loop
from sslkit.training import pretrain
from sslkit.training.build import build_method
from sslkit.training.config import Config
from sslkit.training.data import open_data

VIT, RESNET = "vit_tiny_patch16_224", "resnet10t"
SMALL = {"dim": 8, "hidden": 16, "queue_size": 40, "prototypes": 12, "queue_start": 1}


def saved(name: str, path: Path, **options) -> tuple[str, dict[str, Tensor]]:
    """The word of a file with random weights of a timm network, as its author might publish it, and the weights."""
    torch.manual_seed(7)
    net = timm.create_model(name, **options)
    state = {key: value + 0.1 if value.is_floating_point() else value for key, value in net.state_dict().items()}
    safetensors.torch.save_file(state, path)
    return f"timm:{name}:{path}", state


@pytest.fixture(scope="module")
def resnet(tmp_path_factory) -> tuple[str, dict[str, Tensor]]:
    return saved(RESNET, tmp_path_factory.mktemp("weights") / "resnet.safetensors")


@pytest.fixture(scope="module")
def vit(tmp_path_factory) -> tuple[str, dict[str, Tensor]]:
    return saved(VIT, tmp_path_factory.mktemp("weights") / "vit.safetensors")


@pytest.fixture
def colour(small_run) -> dict:
    """A run on the gray images as colour ones, of one epoch."""
    data = {**small_run["data"], "channels": 3}
    return {**small_run, "method": "simclr", "epochs": 1, "data": data, "optimizer": {"lr": 1e-3}}


def made(config: dict) -> sslkit.Method:
    checked = Config.from_mapping(config)
    return build_method(checked, open_data(checked))


def test_a_run_from_a_file_says_so_and_starts_there(colour, resnet, monkeypatch, capsys) -> None:
    word, state = resnet
    seen = {}

    def look(self, loop) -> None:
        seen.update({k: v.clone() for k, v in loop.module.method.backbone.net.state_dict().items()})

    monkeypatch.setattr(pretrain.Prepare, "begin", look)
    entry = sslkit.pretrain({**colour, "init": word})
    said = " ".join(capsys.readouterr().out.split())
    digest = hashlib.sha256(Path(word.split(":")[2]).read_bytes()).hexdigest()
    assert f"init {word}, sha256 {digest}" in said
    assert "resnet10t: 84 of 86 tensors from resnet.safetensors; left out: fc.* (2)" in said
    assert "before pixels pretrained" in said
    assert seen.keys() == state.keys() - {"fc.weight", "fc.bias"}
    assert all(torch.equal(value, state[name]) for name, value in seen.items())

    assert entry.card["init"]["source"] == word and entry.card["init"]["sha256"] == digest
    assert entry.card["config"]["init"] == word and entry.card["backbone"]["name"] == RESNET
    trained = sslkit.ZooEntry.load(entry.folder).backbone()
    assert trained.conv1[0].stride == (2, 2)  # the published stem, also for images of 28 pixels
    assert not torch.equal(trained.state_dict()["layer1.0.conv1.weight"], state["layer1.0.conv1.weight"])
    assert f"init: {word}" in (entry.folder / "config.yaml").read_text()


def test_before_is_the_evaluation_of_the_given_weights(colour, resnet, tmp_path) -> None:
    first = sslkit.pretrain({**colour, "init": resnet[0]})
    again = sslkit.pretrain({**colour, "init": str(first.folder), "out": str(tmp_path / "second")})
    assert again.card["before"] == pytest.approx(first.card["after"], abs=1e-6)
    assert (
        again.card["init"]["sha256"] == hashlib.sha256((first.folder / "backbone.safetensors").read_bytes()).hexdigest()
    )


@pytest.mark.parametrize("name", objectives.names())
def test_student_and_teacher_start_alike(name: str, colour, resnet, vit) -> None:
    word, state = vit if objectives.find(name).families[0] == "vit" else resnet
    known = signature(name)["objective"]
    own = {k: v for k, v in SMALL.items() if k in known} | ({"position": "learned"} if "position" in known else {})
    views = {"views": {"local_size": 16}} if "n_local" in str(signature(name)["views"]) else {}
    method = made({**colour, "image_size": 32, "init": word, "method": {"name": name, "objective": own, **views}})
    copies = [m for m in method.modules() if type(m) is type(method.backbone.net)]
    assert len(copies) == (2 if hasattr(method.objective, "teacher") else 1)
    for net in copies:
        for key, value in net.state_dict().items():
            if key != "pos_embed":
                assert torch.equal(value, state[key]), key


@pytest.mark.nightly
def test_resumed_is_bitwise_the_unbroken_run_and_the_weights_come_from_the_checkpoint(colour, resnet, tmp_path) -> None:
    run = {**colour, "method": "byol", "epochs": 3, "init": resnet[0]}
    unbroken = sslkit.pretrain({**run, "name": "unbroken"})
    assert exit_code(tmp_path / "said", die_in_the_second_epoch, {**run, "name": "broken"}) == -signal.SIGKILL
    resumed = sslkit.pretrain({**run, "name": "broken", "resume": True})
    before, after = unbroken.state_dict(), resumed.state_dict()
    assert all(torch.equal(before[k], after[k]) for k in before)
    assert resumed.card["init"] == unbroken.card["init"] and resumed.card["before"] == unbroken.card["before"]


def die_in_the_second_epoch(config: dict) -> None:
    class Die(Hook):
        def batch_end(self, loop: Loop, *_: object) -> None:
            if loop.step == 5:
                os.kill(os.getpid(), signal.SIGKILL)

    make = pretrain.make_loop
    pretrain.make_loop = lambda *given: make(*given[:-1], [Die(), *given[-1]])
    sslkit.pretrain(config)


def test_other_weights_are_another_run(colour, tmp_path, monkeypatch) -> None:
    word, state = saved(RESNET, tmp_path / "own.safetensors")
    run = {**colour, "init": word, "name": "x"}
    with monkeypatch.context() as patch:
        patch.setattr(pretrain, "finish", lambda *_, **__: None)
        sslkit.pretrain(run)
    other, _ = saved(RESNET, tmp_path / "other.safetensors")
    with pytest.raises(UserError, match=r"other settings.*init was"):
        sslkit.pretrain({**run, "init": other, "resume": True})
    safetensors.torch.save_file({k: v * 2 for k, v in state.items()}, tmp_path / "own.safetensors")
    with pytest.raises(UserError, match="weights of init= have changed"):
        sslkit.pretrain({**run, "resume": True})


class Code:
    """A pickle of this writes a file when it is loaded with its code."""

    def __init__(self, path: Path) -> None:
        self.path = str(path)

    def __reduce__(self):
        return os.mkdir, (self.path,)


def test_refused_before_anything_is_written(colour, resnet, vit, tmp_path) -> None:
    files = {name: tmp_path / name for name in ("gone.pth", "text.pth", "code.pth", "part.safetensors", "nan.pth")}
    files["text.pth"].write_text("no weights")
    files["code.pth"].write_bytes(pickle.dumps({"state_dict": Code(tmp_path / "ran")}))
    files["part.safetensors"].write_bytes(Path(resnet[0].split(":")[2]).read_bytes()[:100_000])
    torch.save({k: v * float("nan") for k, v in resnet[1].items()}, files["nan.pth"])
    lacking = {k: v for k, v in resnet[1].items() if k != "layer2.0.conv2.weight"}
    torch.save(lacking, tmp_path / "lacking.pth")
    for init, match in {
        f"timm:{RESNET}:{files['gone.pth']}": "there is no file",
        f"timm:{RESNET}:{files['text.pth']}": "no state dict",
        f"timm:{RESNET}:{files['code.pth']}": "no state dict",
        f"timm:{RESNET}:{files['part.safetensors']}": "no state dict",
        f"timm:{RESNET}:{files['nan.pth']}": "NaN",
        f"timm:{RESNET}:{tmp_path / 'lacking.pth'}": r"1 missing: layer2.0.conv2.weight; name the network",
        f"timm:resnet18:{resnet[0].split(':')[2]}": r"does not fit the network: 56 of its 120 tensors",
        f"timm:resnet10tt:{files['nan.pth']}": "resnet10t",
        "somewhere": "no such zoo entry",
        str(tmp_path): "is no zoo entry",
        f"published:swav:{tmp_path / 'lacking.pth'}": "is not the published SwAV",
        "published:swav": "write published:NAME:FILE",
    }.items():
        with pytest.raises(UserError, match=match):
            sslkit.pretrain({**colour, "init": init})
    with pytest.raises(UserError, match=r"backbone=resnet18, but init=.* is the network resnet10t"):
        sslkit.pretrain({**colour, "init": resnet[0], "backbone": "resnet18"})
    with pytest.raises(UserError, match=r"takes 3 channels, and the images have 1: data.channels=3"):
        sslkit.pretrain({**colour, "data": {**colour["data"], "channels": 1}, "init": resnet[0]})
    with pytest.raises(UserError, match="leave out the module"):
        sslkit.pretrain({**colour, "init": resnet[0]}, backbone=nn.Identity())
    with pytest.raises(UserError, match=r"would replace pos_embed .*position=learned"):
        mae = {"name": "mae", "objective": {"position": "sincos"}}
        sslkit.pretrain({**colour, "image_size": 224, "method": mae, "init": vit[0]})
    assert not Path(colour["out"]).exists() and not (tmp_path / "ran").exists()
