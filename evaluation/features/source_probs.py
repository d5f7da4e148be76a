"""source_probs: predictions of a model's own classifier on extracted features."""

import numpy as np
import torch

from evaluation.features.models import LoadedModel
from evaluation.features.table import Features
from sslkit.errors import UserError

ROWS = 4096  # rows per block of logits


@torch.inference_mode()
def source_probs(model: LoadedModel, features: Features) -> np.ndarray:
    """Return the probabilities (N, S) float32 of the model's S pretraining classes; rows sum to 1.

    Computes the softmax of `model.classifier` on the features, without a second forward pass, for LEEP and NCE.
    features: rows from `evaluation.extract` with this model.
    Raises UserError for a model without classifier, and for features of another model or width.
    """
    classifier = model.classifier
    if classifier is None:
        raise UserError(
            f"{model.name} has no source classifier, which source_probs (leep, nce) need: use a timm model or a "
            "wheel with its classifier, or a metric without source_probs, such as nleep"
        )
    if features.model and features.model != model.name:
        raise UserError(f"the features are of {features.model}, not of {model.name}")
    width = classifier.weight.shape[1]
    if features.x.ndim != 2 or features.x.shape[1] != width:
        raise UserError(f"the classifier of {model.name} takes {width} features, these are of shape {features.x.shape}")
    probs = np.empty((len(features), classifier.weight.shape[0]), dtype=np.float32)
    place = classifier.weight.device
    for start in range(0, len(features), ROWS):
        rows = torch.from_numpy(np.array(features.x[start : start + ROWS], dtype=np.float32)).to(place)
        probs[start : start + ROWS] = classifier(rows).double().softmax(dim=1).float().cpu().numpy()
    return probs
