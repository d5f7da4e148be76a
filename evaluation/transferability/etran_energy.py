"""ETran's energy part: mean log-sum-exp of the features over the images where it is lowest."""

from typing import Annotated, Literal

import torch
from torch import Tensor

from evaluation.transferability.base import Sample, Score
from sslkit.options.settings import Limits

TAKES_NUMBERS = True
Percent = Annotated[float, Limits(above=0, most=100)]


def energies(sample: Sample) -> Tensor:
    """Return e_i = log sum_d exp(x_id), (N,), over the feature values."""
    return torch.cat([torch.logsumexp(x, 1) for _, x in sample.blocks()])


def tail_size(n: int, percent: float) -> int:
    """Return `percent` of N as a count of at least 1, in steps of a tenth of a percent as published."""
    return max(1, int(percent * 10) * n // 1000)


def score(sample: Sample, *, percent: Percent = 0.5, tail: Literal["bot", "top"] = "bot") -> Score:
    """The mean of the `percent` % lowest e_i = log sum_d exp(x_id): the free energy of the features, sign turned.

    percent: of the images, above 0 to 100. tail: "bot", the lowest, or "top", the highest.
    Range: any number. Higher is better. Cost: O(N D).
    Source: Gholami et al., ETran, ICCV 2023, section 3.1, and its code.
    Not for: models whose features differ in scale or width (it grows with both); use on its own: labels of any
    kind are required, as for every metric, but not used.
    """
    energy = energies(sample)
    k = tail_size(len(energy), percent)
    chosen = energy.topk(k, largest=tail == "top").values
    return Score(float(chosen.mean()), {"images": k, "mean_energy": float(energy.mean())})
