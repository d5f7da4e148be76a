"""source_probs: what a model's own classifier says of images whose features are extracted already."""

import numpy as np
import torch

from evaluation.features.models import LoadedModel
from evaluation.features.table import Features
from sslkit.errors import UserError

ROWS = 4096  # whose logits are made at a time


@torch.inference_mode()
def source_probs(model: LoadedModel, features: Features) -> np.ndarray:
    """(N, S) float32: the probabilities of the S classes that the model was trained to tell apart, rows sum to 1.

    They are the softmax of `model.classifier` on the features, without a second forward pass; LEEP and NCE take them.
    features: the rows that `evaluation.extract` made with this model.
    Raises UserError for a model without classifier, and for features of another model or width.
    """
    classifier = model.classifier
    if classifier is None:
        raise UserError(
            f"{model.name} has no source classifier, which source_probs (leep, nce) come from: take a timm model or a "
            "wheel with its classifier, or a metric that needs none, such as nleep"
        )
    if features.model and features.model != model.name:
        raise UserError(f"the features are those of {features.model}, not of {model.name}")
    width = classifier.weight.shape[1]
    if features.x.ndim != 2 or features.x.shape[1] != width:
        raise UserError(f"the classifier of {model.name} takes {width} features, these are of shape {features.x.shape}")
    probs = np.empty((len(features), classifier.weight.shape[0]), dtype=np.float32)
    place = classifier.weight.device
    for start in range(0, len(features), ROWS):
        rows = torch.from_numpy(np.array(features.x[start : start + ROWS], dtype=np.float32)).to(place)
        probs[start : start + ROWS] = classifier(rows).double().softmax(dim=1).float().cpu().numpy()
    return probs
