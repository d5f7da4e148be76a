"""Distill: the cosine to the prior's components, and nothing else."""

import torch
from torch import Tensor

from sslkit.embeddings import Embeddings
from sslkit.objectives.distill import Distill


def oracle(objective: Distill, e: Embeddings) -> Tensor:
    """One minus the cosine, view by view and image by image, of the prior called on each view."""
    total = torch.zeros((), dtype=torch.float64)
    for v, view in enumerate(e.views):
        for n, image in enumerate(view):
            features = objective.targets.prior(image[None])
            z, a = e.z[v, n].double(), objective.targets.whiten(features)[0].double()
            total = total + 1 - (z @ a) / (z.norm() * a.norm())
    return total / (len(e.views) * e.z.shape[1])
