"""What a stranger mistakes in the first hour, each once on the command line and once in Python: one clear line."""

import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
import torchvision
from random_entries import made

import evaluation
import sslkit
from sslkit.errors import UserError

IMAGES = torch.zeros(32, 1, 28, 28, dtype=torch.uint8)


@pytest.fixture
def place(tmp_path: Path, few_digits: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """An entry `zoo/a`, one of a run that goes on, and digits.npz; it is the working folder."""
    made(tmp_path / "zoo", "a", "fashion_mnist")
    (tmp_path / "zoo" / "a" / "checkpoints").mkdir()
    (tmp_path / "zoo" / "a" / "checkpoints" / "last.ckpt").touch()
    shutil.copytree(tmp_path / "zoo" / "a", tmp_path / "runs" / "b" / "checkpoints" / "b-newest")
    (tmp_path / "runs" / "b" / "checkpoints" / "last.ckpt").touch()
    (tmp_path / "digits.npz").symlink_to(few_digits)
    monkeypatch.chdir(tmp_path)
    return tmp_path


def entered(folder: str) -> Callable[[], Any]:
    return lambda: evaluation.evaluate(folder, "digits.npz", ["knn"])


def trained(**settings: Any) -> Callable[[], Any]:
    return lambda: sslkit.pretrain("simclr", data="digits.npz", **settings)


LAST = "checkpoints/last.ckpt"
OFFLINE = (
    r"cannot get the weights of .*timm:resnet18.* give a local file, timm:resnet18:FILE, or take efficientnet_lite"
)
NOWHERE = "there is no data 'nowhere'.*data is a folder of images"
BOTH = {  # what is wrong: words of a command, the same in Python, what both say
    "a checkpoint of a run": (f"evaluate checkpoint=zoo/a/{LAST}", entered(f"zoo/a/{LAST}"), "of this run is zoo/a$"),
    "a run that goes on": (f"evaluate checkpoint=runs/b/{LAST}", entered(f"runs/b/{LAST}"), "b-newest$"),
    "the folder of such a run": ("embed checkpoint=runs/b data=digits.npz out=x.npz", entered("runs/b"), "b-newest$"),
    "an export of a checkpoint": (
        f"export checkpoint=zoo/a/{LAST} to=timm",
        lambda: sslkit.zoo.export(f"zoo/a/{LAST}", to="timm"),
        "the entry of this run is zoo/a$",
    ),
    "a hub out of reach": (
        "rank zoo=[zoo,timm:resnet18] data=digits.npz",
        lambda: evaluation.rank(["zoo/a", "timm:resnet18"], "digits.npz"),
        OFFLINE,
    ),
    "lr": ("train lr=0.1", trained(lr=0.1), r"no setting 'lr': did you mean 'optimizer\.lr"),
    "batch_size": ("train data.batch_size=8", trained(**{"data.batch_size": 8}), "did you mean 'batch_size"),
    "a word of Lightning": (
        "train trainer.accelerator=gpu",
        trained(**{"trainer.accelerator": "gpu"}),
        "did you mean 'device",
    ),
    "model": ("train model=resnet18", trained(model="resnet18"), "did you mean 'backbone"),
    "an option that is gone": (
        "train data.detail=fast",
        lambda: sslkit.pretrain("simclr", data={"source": "digits.npz", "detail": "fast"}),
        r"there is no setting 'data\.detail'",
    ),
    "a protocol of another name": (
        "evaluate checkpoint=zoo/a protocols=[linear_probe]",
        lambda: evaluation.evaluate("zoo/a", "digits.npz", ["linear_probe"]),
        "did you mean 'linear'",
    ),
    "a method of no name": ("train method=simclrr", lambda: sslkit.pretrain("simclrr"), "did you mean 'simclr'"),
    "training on nothing": ("train data=nowhere", lambda: sslkit.pretrain("simclr", data="nowhere"), NOWHERE),
    "evaluation on nothing": (
        "evaluate checkpoint=zoo/a data=nowhere",
        lambda: evaluation.evaluate("zoo/a", "nowhere"),
        NOWHERE,
    ),
    "a ranking on nothing": ("rank zoo=zoo data=nowhere", lambda: evaluation.rank(["zoo/a"], "nowhere"), NOWHERE),
    "a model that is nowhere": (
        "evaluate checkpoint=zoo/c",
        lambda: evaluation.evaluate("zoo/c", "digits.npz"),
        "there is no model 'zoo/c'",
    ),
    "text for options": ("train optimizer.lr=fast", trained(optimizer={"lr": "fast"}), "optimizer.lr must be a number"),
    "a list for a number": (
        f"train epochs=[{','.join('0' * 230)}]",
        trained(epochs=np.zeros((230, 9))),
        "epochs must be a whole number",
    ),
}


@pytest.mark.parametrize("wrong", BOTH)
def test_one_line_on_the_command_line(wrong: str, place: Path, typed) -> None:
    command, *words = BOTH[wrong][0].split()
    done = typed(command, *words, cwd=place)
    with pytest.raises(UserError, match=BOTH[wrong][2]):
        raise UserError(done.stderr.splitlines()[-1])
    assert done.returncode == 2 and done.stderr.count("\n") == 1 and len(done.stderr) < 700, done.stderr


@pytest.mark.parametrize("wrong", BOTH)
def test_one_line_in_python(wrong: str, place: Path) -> None:
    with pytest.raises(UserError, match=BOTH[wrong][2]) as error:
        BOTH[wrong][1]()
    assert "\n" not in str(error.value) and len(str(error.value)) < 700


def simclr(**options: Any) -> sslkit.Method:
    return sslkit.method("simclr", **{"backbone": "narrow_resnet", "image_size": 28, "in_chans": 1} | options)


@pytest.mark.parametrize(
    ("call", "said"),
    [
        (lambda: simclr()(IMAGES.numpy(), torch.arange(32)), r"must be a tensor, got ndarray.*torch\.from_numpy"),
        (lambda: simclr()(IMAGES, torch.arange(10)), r"index must be \(32,\) whole numbers.*got torch.int64 \(10,\)"),
        (lambda: simclr()(IMAGES, torch.arange(32.0)), r"got torch.float32 \(32,\): .* torch.arange\(len\(images\)\)"),
        (lambda: sslkit.method(5), "method must be text, such as byol.dsa, got 5"),
        (lambda: sslkit.pretrain(method=np.zeros((230, 9))), r"method must be text or a mapping, got ndarray of shape"),
        (
            lambda: sslkit.pretrain("simclr", out=np.zeros((230, 9))),
            r"out must be text, got ndarray of shape \(230, 9\)",
        ),
        (lambda: sslkit.pretrain("simclr", data=[1, 2]), "data is a list of int, not of paths"),
    ],
)
def test_what_only_python_can_mistake(call: Callable[[], Any], said: str) -> None:
    with pytest.raises(UserError, match=said) as error:
        call()
    assert "\n" not in str(error.value) and len(str(error.value)) < 400


def test_a_classifier_as_a_backbone_and_a_name_of_weights_are_noticed_by_a_run(place: Path, typed, monkeypatch) -> None:
    monkeypatch.setattr("sslkit.training.pretrain.train", lambda *_: None)
    how = {"epochs": 1, "batch_size": 16, "eval.k": 3, "eval.tsne": 0, "out": "more", "data.channels": 3}
    with pytest.warns(UserWarning, match=r"the 1000 outputs of `fc`, .* net.fc = torch.nn.Identity\(\)"):
        trained(**how, backbone=torchvision.models.resnet18())()
    words = ["method=simclr", "data=digits.npz", *(f"{name}={value}" for name, value in how.items())]
    with pytest.warns(UserWarning, match="random weights: init=timm:resnet10t.c3_in1k starts from"):
        done = typed("train", *words, "backbone=resnet10t.c3_in1k", cwd=place)
    assert done.returncode == 0, done.stderr
