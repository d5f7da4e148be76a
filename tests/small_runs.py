"""A run small enough for a test: 96 real images, three steps an epoch. Fixtures of tests/training and tests/runtime."""

import io
from contextlib import redirect_stdout
from pathlib import Path

import numpy as np
import pytest
import torch

import sslkit
from sslkit.data.sources.named import open_images


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


@pytest.fixture(scope="session")
def settings(small_npz) -> dict:
    """A config for sslkit.pretrain but for `out`, without the picture of the embedding."""
    return {
        "method": "byol+koleo",
        "batch_size": 32,
        "data": {"source": str(small_npz)},
        "epochs": 2,
        "eval": {"k": 3, "tsne": 0},
        "progress": False,
        "precision": "float32",
        "trainer": {"log_every": 1},
    }


@pytest.fixture
def illustrated_run(settings, tmp_path) -> dict:
    """A config for sslkit.pretrain."""
    return {**settings, "out": str(tmp_path / "zoo")}


@pytest.fixture
def small_run(illustrated_run, monkeypatch) -> dict:
    """A config for sslkit.pretrain, which then draws no loss.png: a third of the time of a run of this size."""
    monkeypatch.setattr("sslkit.training.finish.plot_terms", lambda *_: None)
    return illustrated_run


@pytest.fixture(scope="session")
def finished(settings, tmp_path_factory) -> tuple[dict, sslkit.ZooEntry, str]:
    """A run as `small_run` with every picture: its config, its entry and what it said; not to be changed."""
    config = {**settings, "out": str(tmp_path_factory.mktemp("finished") / "zoo"), "eval": {"k": 3, "tsne": 30}}
    torch.set_num_threads(1)
    with redirect_stdout(io.StringIO()) as said:
        entry = sslkit.pretrain(config)
    return config, entry, said.getvalue()
