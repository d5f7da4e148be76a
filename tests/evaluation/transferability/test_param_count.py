"""Number of parameters: what counts as one, and what can be counted."""

import numpy as np
import pytest
from torch import nn

import evaluation
import sslkit
from sslkit.errors import UserError

Y = [0, 1, 1]


def test_a_network_by_hand() -> None:
    shared = nn.Linear(3, 3, bias=False)
    network = nn.Sequential(nn.Linear(4, 3), nn.BatchNorm1d(3), shared, shared)
    network[0].requires_grad_(False)
    assert evaluation.score("param_count", None, Y, model=network) == 4 * 3 + 3 + 3 + 3 + 9


def test_a_loaded_model_and_a_number() -> None:
    model = sslkit.load("random:narrow_resnet", image_size=28, in_chans=1)
    expected = sum(np.prod(tuple(part.shape)) for part in dict(model.net.named_parameters()).values())
    assert evaluation.score("param_count", None, Y, model=model) == expected > 1e4
    assert evaluation.score("param_count", None, Y, model=23_508_032) == 23_508_032
    assert evaluation.score("param_count", None, Y, model=np.int64(7)) == 7


@pytest.mark.parametrize("wrong", ["resnet50", 0, -3, True, 2.5])
def test_what_has_no_parameters_to_count(wrong: object) -> None:
    with pytest.raises(UserError, match=r"must be an nn\.Module, a Model or its number of parameters"):
        evaluation.score("param_count", None, Y, model=wrong)


def test_a_model_is_needed() -> None:
    with pytest.raises(UserError, match="param_count needs model"):
        evaluation.score("param_count", np.eye(3), Y)
