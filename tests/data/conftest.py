"""Real pictures for the tests of views."""

from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest
import torch
from photographs import write_jpegs
from torch import Tensor

import sslkit.data.embedded
from sslkit.data.decode.sandbox import client


@pytest.fixture(scope="session")
def pictures() -> Tensor:
    """The 64 most colourful of the embedded clip art: (64, 3, 48, 48) uint8."""
    with np.load(Path(sslkit.data.embedded.__file__).with_name("clipart.npz")) as arrays:
        x = arrays["x"]
    most = np.argsort(-x.astype(np.int16).std(-1).mean((1, 2)), kind="stable")[:64]
    return torch.from_numpy(x[most]).permute(0, 3, 1, 2).contiguous()


@pytest.fixture(scope="session")
def jpegs(tmp_path_factory) -> Path:
    """A folder of twelve JPEG files of 240 x 180."""
    return write_jpegs(tmp_path_factory.mktemp("jpegs"))


@pytest.fixture
def new_decoders() -> Iterator[None]:
    """The processes that decode are started anew, and not used after the test."""
    client.end()
    yield
    client.end()
