"""Features of several layers and poolings of a network, extracted in one pass and kept as one table."""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import torch

from sslkit.models.loading import at_pooling
from sslkit.models.model import Model
from sslkit.models.pooling import parts_of


@dataclass(frozen=True)
class Levels:
    """A model whose features are those of several poolings side by side.

    columns: of each pooling, by its word, (D,) int64 places among these features.
    """

    model: Model
    columns: dict[str, np.ndarray]


def open_levels(model: Model, poolings: Sequence[str]) -> Levels:
    """Join poolings of a network, by the words of `sslkit.models.pooling`; what two have in common stands once.

    Raises UserError for one that the network has not.
    """
    joined = at_pooling(model, *poolings)
    net = joined.net
    with torch.inference_mode():
        pixels = torch.zeros(1, *model.backbone.input_shape()).to(next(net.parameters()))
        widths = [features.shape[1] for features in net.pool_parts(pixels)]
    starts = np.cumsum([0, *widths])
    by_part = {key: np.arange(*starts[at : at + 2]) for at, key in enumerate(net.parts)}
    columns = {
        pooling: np.concatenate([by_part[key] for key in parts_of(model.backbone, pooling, model.name)])
        for pooling in poolings
    }
    return Levels(joined, columns)
