"""SIGReg: pull the embeddings towards a standard normal distribution (Balestriero & LeCun 2025, arXiv 2511.08544)."""

from typing import ClassVar

import torch
from torch import Tensor

from sslkit.embeddings import Embeddings, own_rows, wide
from sslkit.layers.sigreg import draw_slices, sigreg
from sslkit.options.ranges import ChosenRatio, ChosenShare, Knots, Rows, Temperature, Weight
from sslkit.regularizers.base import BESIDE_OTHERS, Regularizer


class SIGReg(Regularizer):
    """The mean statistic of Epps and Pulley of z on random directions, within each view: LeJEPA's term for any method.

    It is for z before a normalisation: it fixes the scale of z, so an objective on cosines does not mind it.
    Where z is the backbone's output, as in MAE, it shapes the features themselves: there its weight costs MAE 34 points
    of probe on held-out images (recipes/benchmarks/plugins).

    weight: multiplies the term (lambda / (1 - lambda) in LeJEPA: 0.05 / 0.95).
    slices: number of random directions of a step. knots, t_max: points of the integral, see `layers.sigreg`.
    balance: ratio of its gradient's norm to the objective's; None leaves the weight as it is. auto: None beside an
        objective that compares views, else 0.03.
    balance_until: finished share of the run from which on the factor of the balance is kept; None is 1.
    """

    needs_images = False
    automatic: ClassVar = {True: (None, 1.0), False: BESIDE_OTHERS}

    def __init__(
        self,
        dim: int,
        *,
        weight: Weight = 0.05,
        slices: Rows = 256,
        knots: Knots = 9,
        t_max: Temperature = 5.0,
        balance: ChosenRatio = "auto",
        balance_until: ChosenShare = None,
    ) -> None:
        super().__init__(balance=balance, balance_until=balance_until)
        self.weight, self.slices, self.knots, self.t_max = weight, slices, knots, t_max
        self.step = 0

    def weights(self) -> dict[str, float]:
        return {"sigreg": self.weight}

    def terms(self, e: Embeddings, images: Tensor | None) -> dict[str, Tensor]:
        z = wide(e.z)
        directions = draw_slices(z.shape[-1], self.slices, self.step, like=z)
        self.step += self.training
        return {"sigreg": self.weight * sigreg(own_rows(z), directions, knots=self.knots, t_max=self.t_max)}

    def get_extra_state(self) -> Tensor:
        return torch.tensor(self.step)

    def set_extra_state(self, state: Tensor) -> None:
        self.step = int(state)
