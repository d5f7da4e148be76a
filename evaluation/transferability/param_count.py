"""Number of parameters: a baseline that uses only the size of a model."""

from numbers import Integral
from typing import Any

from torch import nn

from evaluation.transferability.base import Sample, Score
from sslkit.errors import UserError
from sslkit.models.model import Model

NEEDS = ("model",)
TAKES_NUMBERS = True


def param_count(model: Any) -> int:
    """Count all parameters, also frozen ones; shared ones count once, buffers do not count.

    model: an nn.Module, what `sslkit.load` returns, of which the classifiers do not count, or the number itself.
    """
    network = model.net if isinstance(model, Model) else model
    if isinstance(network, nn.Module):
        return sum(parameter.numel() for parameter in network.parameters())
    if isinstance(model, Integral) and not isinstance(model, bool) and model > 0:
        return int(model)
    raise UserError(f"model must be an nn.Module, a Model or its number of parameters, not {model!r}")


def score(sample: Sample) -> Score:
    """The number of parameters of the model: larger models mostly transfer better.

    Range: above 0. Higher is better. Cost: none. Labels of any kind are required, as for every metric,
    but neither they nor the images are used.
    Source: none; a baseline, used as one by Bolya et al., Scalable Diverse Model Selection, NeurIPS 2021.
    Not for: models of one architecture, which all get the same number.
    """
    return Score(float(param_count(sample.model)))
