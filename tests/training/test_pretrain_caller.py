"""A call of `sslkit.pretrain` keeps its caller's random state, and warns of a module that is given twice."""

import os
import random
import subprocess
import sys
import warnings

import matplotlib
import numpy as np
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


def test_the_caller_s_process_is_left_alone(small_run) -> None:
    """A notebook's backend, the environment, threads, filters of warnings, random numbers of NumPy and Python."""
    matplotlib.use("svg")
    np.random.seed(3)
    random.seed(3)

    def state() -> tuple[object, ...]:
        numbers = repr(np.random.get_state()), random.getstate()
        return matplotlib.get_backend(), dict(os.environ), torch.get_num_threads(), list(warnings.filters), numbers

    before = state()
    sslkit.pretrain({**small_run, "epochs": 1, "trainer": {**small_run["trainer"], "deterministic": True}})
    assert state() == before


@pytest.mark.slow
def test_importing_the_pictures_leaves_the_backend() -> None:
    code = "import matplotlib; matplotlib.use('svg'); import sslkit.numerics.curves, sslkit.training.finish; "
    code += "assert matplotlib.get_backend() == 'svg', matplotlib.get_backend()"
    subprocess.run([sys.executable, "-c", code], check=True)


def test_a_module_object_is_trained_itself_and_a_second_run_with_it_warns(small_run, capsys) -> None:
    net = timm.create_model("resnet10t", in_chans=1, num_classes=0)
    first = net.conv1[0].weight.detach().clone()
    with pytest.raises(UserError, match="no run"):  # refused: nothing is trained
        sslkit.pretrain({**small_run, "epochs": 1, "resume": True}, backbone=net)
    sslkit.pretrain({**small_run, "epochs": 1}, backbone=net)
    assert not torch.equal(net.conv1[0].weight, first) and "earlier run" not in capsys.readouterr().out
    sslkit.pretrain({**small_run, "epochs": 1}, backbone=net)
    assert "this backbone object was trained by an earlier run" in capsys.readouterr().out
