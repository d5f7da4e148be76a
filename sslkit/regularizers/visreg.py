"""VISReg beside any objective: centre, scale and shape of the embeddings (Wu et al. 2026, arXiv 2606.02572)."""

from typing import ClassVar

import torch
from torch import Tensor

from sslkit.embeddings import Embeddings, wide
from sslkit.layers import visreg
from sslkit.layers.sigreg import draw_slices
from sslkit.options.ranges import ChosenRatio, ChosenShare, Rows, Weight
from sslkit.regularizers.base import BESIDE_OTHERS, Regularizer


class VISReg(Regularizer):
    """Pull z, within each view, to mean 0, standard deviation 1 and a normal distribution on random directions.

    It is for z before a normalisation, as `sigreg` is, whose gradient vanishes where embeddings collapse; that of the
    scale does not. The step over all ranks is one sample. Where z is the backbone's output, as in MAE, it shapes the
    features themselves: there its weights cost MAE 39 points of probe on held-out images (recipes/benchmarks/plugins).

    scale, shape, centre: weights of the three terms, "visreg/scale" and so on; published for the objective as equal,
        times lambda / (1 - lambda): 1.5 for the lambda of 0.6 that the paper advises for small data, 9 for 0.9.
    slices: number of random directions of a step (published: 4096).
    balance: ratio of its gradient's norm to the objective's; None leaves the weights as they are. auto: None beside an
        objective that compares views, else 0.03.
    balance_until: finished share of the run from which on the factor of the balance is kept; None is 1.
    """

    needs_images = False
    automatic: ClassVar = {True: (None, 1.0), False: BESIDE_OTHERS}

    def __init__(
        self,
        dim: int,
        *,
        scale: Weight = 1.5,
        shape: Weight = 1.5,
        centre: Weight = 1.5,
        slices: Rows = 256,
        balance: ChosenRatio = "auto",
        balance_until: ChosenShare = None,
    ) -> None:
        super().__init__(balance=balance, balance_until=balance_until)
        self.scale, self.shape, self.centre = scale, shape, centre
        self.slices = slices
        self.step = 0

    def weights(self) -> dict[str, float]:
        return {"visreg/scale": self.scale, "visreg/shape": self.shape, "visreg/centre": self.centre}

    def terms(self, e: Embeddings, images: Tensor | None) -> dict[str, Tensor]:
        z = wide(e.z)
        directions = draw_slices(z.shape[-1], self.slices, self.step, like=z)
        self.step += self.training
        return {
            "visreg/scale": self.scale * visreg.scale(z),
            "visreg/shape": self.shape * visreg.shape(z, directions),
            "visreg/centre": self.centre * visreg.centre(z),
        }

    def get_extra_state(self) -> Tensor:
        return torch.tensor(self.step)

    def set_extra_state(self, state: Tensor) -> None:
        self.step = int(state)
