"""Films that move, a network of clips, and lists of films."""

from collections.abc import Callable
from pathlib import Path

import pytest

from sslkit import backbones
from sslkit.models.loading import load
from sslkit.models.model import Model


@pytest.fixture(scope="session")
def motion(tmp_path_factory) -> Path:
    """train: 8 films of each of two motions, test: 3 of each, some of them shorter than a clip."""
    from motion_films import write_motions

    return write_motions(tmp_path_factory.mktemp("films") / "motion")


@pytest.fixture(scope="session")
def network() -> Model:
    """Clips of 4 frames of 16 pixels; random weights."""
    import torch

    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(0)
        return load(backbones.build("narrow_slow", image_size=16, in_chans=3, frames=4))


@pytest.fixture
def lines() -> Callable[..., None]:
    """Writes lines to a file."""

    def write(path: Path, *said: str) -> None:
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text("".join(f"{line}\n" for line in said))

    return write
