"""source_probs: predictions of a model's source classes on extracted features."""

import numpy as np
import torch
from torch import nn

from evaluation.features.table import Features
from sslkit.errors import UserError
from sslkit.models.model import Model

ROWS = 4096  # per block of logits: 16 MB of float32 for 1,000 classes


def shape_of(head: nn.Module) -> tuple[int, int]:
    """Return the numbers of features and of classes of a head, from its first and its last linear layer."""
    weights = [value for value in head.parameters() if value.dim() == 2]
    return weights[0].shape[1], len(weights[-1])


@torch.inference_mode()
def source_probs(model: Model, features: Features, head: nn.Module | None = None) -> np.ndarray:
    """Return the probabilities (N, S) float32 of the model's S source classes; rows sum to 1.

    Computes the softmax of a head on the features, without a second forward pass, for LEEP and NCE.
    features: rows from `evaluation.extract` with this model. head: layers from these to the logits, such as those of
        `evaluation.ranking.inputs.source_heads`; None: `model.source_head`.
    Raises UserError for a model without classifier, and for features of another model or width.
    """
    head = model.source_head if head is None else head
    if head is None:
        raise UserError(
            f"{model.name} has no source classifier, which source_probs (leep, nce) need: use a timm model or a "
            "wheel with its classifier, or a metric without source_probs, such as nleep"
        )
    if features.model and features.model != model.name:
        raise UserError(f"the features are of {features.model}, not of {model.name}")
    width, classes = shape_of(head)
    device = next(head.parameters()).device
    if features.x.ndim != 2 or features.x.shape[1] != width:
        raise UserError(f"the classifier of {model.name} takes {width} features, these are of shape {features.x.shape}")
    probs = np.empty((len(features), classes), dtype=np.float32)
    for start in range(0, len(features), ROWS):
        rows = torch.from_numpy(np.array(features.x[start : start + ROWS], dtype=np.float32)).to(device)
        probs[start : start + ROWS] = head(rows).double().softmax(dim=1).float().cpu().numpy()
    return probs
