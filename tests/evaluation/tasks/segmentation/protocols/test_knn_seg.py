"""Segmentation by neighbours against a loop over patches."""

import numpy as np
import pytest
import torch

from evaluation.tasks.segmentation.features import Patches
from evaluation.tasks.segmentation.protocols.knn_seg import knn_seg, shares


def test_a_patch_gets_the_weighted_shares_of_its_neighbours() -> None:
    rng = np.random.default_rng(0)
    bank = Patches(
        rng.normal(size=(40, 5)).astype(np.float32),
        rng.dirichlet(np.ones(3), 40).astype(np.float32),
        rng.uniform(0.1, 1, 40).astype(np.float32),
        np.zeros(40, np.int64),
        np.zeros(40, np.int64),
        np.zeros((40, 4), np.int64),
    )
    x = rng.normal(size=(7, 5)).astype(np.float32)
    found = shares(bank, torch.from_numpy(x), 6, 0.1).numpy()
    for row, query in enumerate(x):
        cosine = bank.x @ query / np.linalg.norm(bank.x, axis=1) / np.linalg.norm(query)
        near = np.argsort(-cosine)[:6]
        weight = np.exp(cosine[near] / 0.1) * bank.weight[near]
        np.testing.assert_allclose(found[row], weight @ bank.share[near] / weight.sum(), rtol=1e-4)


@pytest.mark.nightly
def test_more_neighbours_than_patches_are_all_patches() -> None:
    found = knn_seg("random:narrow_vit", image_size=16, patches=500, k=10**6, progress=False)
    assert found.details["k"] == found.details["patches"] == 500
    assert 0 < found.value < 1
