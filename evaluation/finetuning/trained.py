"""A trained model of either head, as it is handed on: the result, the classifier, its outputs of the test images."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np
from torch import nn

from evaluation.results.result import Result
from sslkit.backbones.base import Backbone


@dataclass(frozen=True, eq=False)
class Trained:
    """A trained model.

    result: on the test images. classes: of the outputs. made: how, in words. epochs: over the images; 0 for a network
    as it was. run: a digest of all that it depends on. beta, fitted_on: inverse temperature, and the images that it was
    fitted to; None and "" without any.
    network: makes it: backbone, and layers from its features to outputs. test: (M, K) outputs and labels (M,) or (M, K)
    of the test images, by that network.
    done: called once the model is kept.
    """

    result: Result
    classes: Sequence[str]
    made: str
    epochs: float
    run: str
    beta: float | None
    fitted_on: str
    network: Callable[[], tuple[Backbone, nn.Sequential]]
    test: Callable[[nn.Sequential], tuple[np.ndarray, np.ndarray]]
    done: Callable[[], None] = lambda: None
