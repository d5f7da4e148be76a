"""Runs from given weights whose batch normalisation keeps its means and variances (freeze_norm)."""

import copy
from pathlib import Path

import pytest
import safetensors.torch
import timm
import torch
from torch import Tensor

import sslkit
from sslkit.errors import UserError
from sslkit.zoo.start import start

STATISTICS = ("running_mean", "running_var", "num_batches_tracked")


@pytest.fixture(scope="module")
def resnet(tmp_path_factory) -> tuple[str, dict[str, Tensor]]:
    torch.manual_seed(7)
    path = tmp_path_factory.mktemp("weights") / "resnet.safetensors"
    state = {name: value + 0.1 if value.is_floating_point() else value for name, value in _net("resnet10t").items()}
    safetensors.torch.save_file(state, path)
    return f"timm:resnet10t:{path}", state


def _net(name: str) -> dict[str, Tensor]:
    return timm.create_model(name, num_classes=0).state_dict()


@pytest.fixture
def colour(small_run) -> dict:
    return {**small_run, "epochs": 1, "data": {**small_run["data"], "channels": 3}, "optimizer": {"lr": 1e-3}}


@pytest.mark.parametrize("method", ["simclr", pytest.param("byol", marks=pytest.mark.nightly)])
def test_weights_learn_and_statistics_stay(method: str, colour, resnet, capsys) -> None:
    word, state = resnet
    entry = sslkit.pretrain({**colour, "method": method, "init": word, "freeze_norm": True})
    assert "batch normalisation keeps its means and variances" in capsys.readouterr().out
    assert any("keeps its means and variances" in note for note in entry.card["init"]["notes"])
    trained = entry.state_dict()
    kept = [name for name in state if name.endswith(STATISTICS)]
    assert kept and all(torch.equal(trained[name], state[name]) for name in kept)
    assert not torch.equal(trained["layer1.0.bn1.weight"], state["layer1.0.bn1.weight"])
    moved = sslkit.pretrain({**colour, "method": method, "init": word}).state_dict()
    assert not any(torch.equal(moved[name], state[name]) for name in kept)


def test_training_uses_the_statistics_and_so_does_a_copy(resnet) -> None:
    body = start(resnet[0], image_size=64, in_chans=3, frames=None)
    body.freeze_norm()
    x = torch.randn(4, 3, 64, 64)
    expected = body.eval()(x)
    torch.testing.assert_close(body.train()(x), expected)
    torch.testing.assert_close(copy.deepcopy(body).train()(x), expected)
    assert body.training and body.net.layer1.training


def test_it_is_refused_without_given_weights_and_without_batch_normalisation(colour, tmp_path: Path) -> None:
    with pytest.raises(UserError, match="freeze_norm=true keeps the batch normalisation of init="):
        sslkit.pretrain({**colour, "method": "simclr", "freeze_norm": True})
    torch.manual_seed(7)
    safetensors.torch.save_file(_net("vit_tiny_patch16_224"), tmp_path / "vit.safetensors")
    word = f"timm:vit_tiny_patch16_224:{tmp_path / 'vit.safetensors'}"
    with pytest.raises(UserError, match="vit_tiny_patch16_224 has no batch normalisation"):
        sslkit.pretrain({**colour, "method": "simclr", "init": word, "freeze_norm": True})
    assert not (tmp_path / "zoo").exists()
