"""Number of parameters: the baseline that looks at the size of a model only."""

from numbers import Integral
from typing import Any

from torch import nn

from evaluation.transferability.base import Sample, Score
from sslkit.errors import UserError

NEEDS = ("model",)
TAKES_NUMBERS = True


def param_count(model: Any) -> int:
    """Numbers in all parameters, frozen ones too; one that two modules share counts once, buffers do not.

    model: an nn.Module, what has one as `net` (evaluation.features.models.LoadedModel), or the number itself.
    """
    network = getattr(model, "net", model) if not isinstance(model, nn.Module) else model
    if isinstance(network, nn.Module):
        return sum(parameter.numel() for parameter in network.parameters())
    if isinstance(model, Integral) and not isinstance(model, bool) and model > 0:
        return int(model)
    raise UserError(f"model must be an nn.Module, a LoadedModel or its number of parameters, not {model!r}")


def score(sample: Sample) -> Score:
    """The number of parameters of the model: larger models mostly transfer better.

    Range: above 0. Higher is better. Cost: none. Labels must be given, as to every metric, and
    may be of any kind: neither they nor images say anything here.
    Source: none; a baseline, used as one by Bolya et al., Scalable Diverse Model Selection, NeurIPS 2021.
    Not for: models of one architecture, which all get the same number.
    """
    return Score(float(param_count(sample.model)))
