"""A call of `sslkit.pretrain` keeps its caller's random state, and warns of a module that is given twice."""

import pytest
import timm
import torch

import sslkit
from sslkit.errors import UserError


def test_the_caller_s_generator_is_left_alone(small_run) -> None:
    torch.manual_seed(7)
    expected = torch.rand(3)
    torch.manual_seed(7)
    sslkit.pretrain({**small_run, "epochs": 1})
    assert torch.equal(torch.rand(3), expected)


def test_a_module_object_is_trained_itself_and_a_second_run_with_it_warns(small_run, capsys) -> None:
    net = timm.create_model("resnet10t", in_chans=1, num_classes=0)
    first = net.conv1[0].weight.detach().clone()
    with pytest.raises(UserError, match="no run"):  # refused: nothing is trained
        sslkit.pretrain({**small_run, "epochs": 1, "resume": True}, backbone=net)
    sslkit.pretrain({**small_run, "epochs": 1}, backbone=net)
    assert not torch.equal(net.conv1[0].weight, first) and "earlier run" not in capsys.readouterr().out
    sslkit.pretrain({**small_run, "epochs": 1}, backbone=net)
    assert "this backbone object was trained by an earlier run" in capsys.readouterr().out
