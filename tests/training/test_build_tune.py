"""Runs that train a part of given weights (tune=): what learns, what a checkpoint holds, what is refused."""

import copy
import re
import signal
from pathlib import Path

import pytest
import safetensors.torch
import timm
import torch
from forks import exit_code
from killed_runs import die_at
from torch import Tensor
from unfolded import unfolded

import sslkit
from sslkit.backbones.tune import parse
from sslkit.backbones.tuning import train_part
from sslkit.errors import UserError
from sslkit.zoo.start import start

STATISTICS = ("running_mean", "running_var", "num_batches_tracked")


@pytest.fixture(scope="module")
def resnet(tmp_path_factory) -> tuple[str, dict[str, Tensor]]:
    torch.manual_seed(7)
    path = tmp_path_factory.mktemp("weights") / "resnet.safetensors"
    state = {name: value + 0.1 if value.dim() == 1 else value for name, value in _net("resnet10t").items()}
    safetensors.torch.save_file(state, path)
    return f"timm:resnet10t:{path}", state


def _net(name: str) -> dict[str, Tensor]:
    return timm.create_model(name, num_classes=0).state_dict()


@pytest.fixture
def colour(small_run) -> dict:
    return {**small_run, "epochs": 1, "data": {**small_run["data"], "channels": 3}, "optimizer": {"lr": 1e-3}}


def learned(entry: sslkit.ZooEntry, state: dict[str, Tensor]) -> set[str]:
    """Names of the tensors that a run has changed."""
    return {name for name, value in entry.state_dict().items() if not torch.equal(value, state[name])}


@pytest.mark.parametrize("method", ["simclr", pytest.param("byol", marks=pytest.mark.nightly)])
def test_all_weights_learn_and_statistics_stay_or_move(method: str, colour, resnet, capsys) -> None:
    word, state = resnet
    statistics = {name for name in state if name.endswith(STATISTICS)}
    assert learned(sslkit.pretrain({**colour, "method": method, "init": word}), state) == set(state) - statistics
    assert "all of the network; batch norm keeps its means and variances: 4.92 M of 4.92 M" in unfolded(
        capsys.readouterr().out
    )
    assert learned(sslkit.pretrain({**colour, "method": method, "init": word, "tune": "all+statistics"}), state) == set(
        state
    )


@pytest.mark.parametrize(
    ("tune", "learns"),
    [
        ("norms", None),
        ("last:2", r"layer[34]\..*(weight|bias)"),
        ("lora(4)", r".*downsample\.1\.weight"),
        ("last:1+statistics", r"layer4\..*"),
    ],
)
def test_the_part_that_is_named_learns_alone(tune: str, learns: str, colour, resnet) -> None:
    word, state = resnet
    entry = sslkit.pretrain({**colour, "method": "byol", "init": word, "tune": tune, "unfreeze": 0})
    vectors = {name for name in state if state[name].dim() == 1 and not name.endswith(STATISTICS)}  # all of norms
    expected = {name for name in state if learns and re.fullmatch(learns, name)} or vectors
    assert learned(entry, state) == expected
    assert entry.card["config"]["tune"] == tune


@pytest.mark.parametrize("tune", ["last:1", "lora"])
def test_a_checkpoint_holds_what_learns_and_a_resumed_run_is_bitwise_the_unbroken_one(
    tune: str, colour, resnet, tmp_path
) -> None:
    word, _ = resnet
    run = {**colour, "method": "byol", "init": word, "tune": tune, "epochs": 2}
    unbroken = sslkit.pretrain({**run, "name": "unbroken"}).state_dict()
    stopped = {**run, "name": "broken", "save_seconds": 0}
    assert exit_code(tmp_path / "said", die_at, stopped, 4) == -signal.SIGKILL
    kept = torch.load(tmp_path / "zoo" / "broken" / "checkpoints" / "last.ckpt", weights_only=True)
    weights = {name for name, _ in timm.create_model("resnet10t", num_classes=0).named_parameters()}
    for net in ("method.objective.backbone.net.", "method.objective.teacher.0.net."):
        saved = {name.removeprefix(net) for name in kept["module"] if name.startswith(net)}
        assert {name for name in saved if not name.endswith(STATISTICS)} == {
            "last:1": {name for name in weights if name.startswith("layer4")},
            "lora": {f"layer{i}.0.downsample.1.lora_{x}" for i in (2, 3, 4) for x in "AB"},
        }[tune]
    resumed = sslkit.pretrain({**stopped, "resume": True}).state_dict()
    assert all(torch.equal(unbroken[key], resumed[key]) for key in unbroken)
    with pytest.raises(UserError, match=r"other settings .*is 'norms'"):
        sslkit.pretrain({**run, "name": "unbroken", "epochs": 3, "tune": "norms", "resume": True})


def test_training_uses_the_statistics_and_so_does_a_copy(resnet) -> None:
    body = start(resnet[0], image_size=64, in_chans=3, frames=None)
    train_part(body, parse("all"))
    x = torch.randn(4, 3, 64, 64)
    expected = body.eval()(x)
    torch.testing.assert_close(body.train()(x), expected)
    torch.testing.assert_close(copy.deepcopy(body).train()(x), expected)
    assert body.training and body.net.layer1.training


def test_refused_before_anything_is_written(colour, resnet, tmp_path: Path) -> None:
    torch.manual_seed(7)
    safetensors.torch.save_file(_net("vit_tiny_patch16_224"), tmp_path / "vit.safetensors")
    vit = f"timm:vit_tiny_patch16_224:{tmp_path / 'vit.safetensors'}"
    for given, said in (
        ({"tune": "norms"}, "tune=norms says what of init= is trained: give init="),
        (
            {"init": resnet[0], "tune": "last:5"},
            "tune=last of 5 blocks: resnet10t has 4: give at most 4 blocks",
        ),
        (
            {"init": vit, "tune": "all+statistics"},
            r"vit_tiny_patch16_224 has no batch normalisation",
        ),
        ({"init": resnet[0], "tune": "lora(blocks=5)"}, "tune=lora of 5 blocks: resnet10t has 4"),
        ({"init": resnet[0], "tune": "lora(999)"}, "tune=lora: none of 14 layers of resnet10t is linear or a 1 x 1"),
        ({"init": vit, "tune": "lora(0)"}, "LoRA takes rank, alpha and blocks, numbers above 0"),
        ({"init": vit, "tune": "last:0"}, "tune=last:0 is not known: give all, norms, last:2"),
        ({"init": vit, "tune": "some"}, "tune=some is not known"),
        ({"init": vit, "tune": "all+norms"}, r"only \+statistics can be added"),
    ):
        with pytest.raises(UserError, match=said):
            sslkit.pretrain({**colour, "method": "simclr", **given})
    assert not (tmp_path / "zoo").exists()
