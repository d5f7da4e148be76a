"""A run small enough for a test: 96 real images, three steps an epoch."""

from pathlib import Path

import numpy as np
import pytest

from sslkit.data.sources import open_images


@pytest.fixture(scope="session")
def small_npz(tmp_path_factory) -> Path:
    """96 training and 40 test images of Fashion-MNIST with labels."""
    path = tmp_path_factory.mktemp("data") / "small.npz"
    arrays = {}
    for split, n in (("train", 96), ("test", 40)):
        images = open_images("fashion_mnist", split=split)
        batch = images.__getitems__(list(range(n)))
        arrays |= {f"x_{split}": batch["images"][:, 0].numpy(), f"y_{split}": batch["label"].numpy()}
    np.savez(path, **arrays)
    return path


@pytest.fixture
def small_run(small_npz, tmp_path) -> dict:
    """A config for sslkit.pretrain."""
    return {
        "method": "byol+koleo",
        "data": {"source": str(small_npz), "batch_size": 32},
        "epochs": 2,
        "out": str(tmp_path / "zoo"),
        "eval": {"k": 3, "tsne": 30},
        "trainer": {"progress": False, "precision": "32-true", "log_every": 1},
    }
