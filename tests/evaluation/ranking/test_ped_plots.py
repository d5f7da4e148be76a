"""PED's pictures, and what they show."""

from pathlib import Path

import numpy as np
import pytest

import evaluation
from evaluation.ranking.ped_plots import plot_energy, plot_moves
from evaluation.ranking.samples import as_sample
from evaluation.transferability.ped import moves
from sslkit.data.sources.named import open_images
from sslkit.errors import UserError


@pytest.fixture(scope="module")
def digits() -> tuple[np.ndarray, np.ndarray]:
    images = open_images("digits")
    return images.pixels[:300, 0].reshape(300, -1) / 16.0, images.labels[:300]


@pytest.mark.slow
def test_energy_falls_and_is_drawn(digits: tuple, tmp_path: Path) -> None:
    reference = digits[0].mean(0), digits[0].std(0)
    found = evaluation.evaluate_metric("ped+logme", *digits, reference=reference)
    energies = found.diagnostics["potential_energy"]
    assert len(energies) == found.diagnostics["steps"] + 1 > 1 and (np.diff(energies) < 0).all()
    path = plot_energy({"digits": energies, "far apart": [0.0]}, tmp_path / "energy.png")
    assert path.read_bytes()[:4] == b"\x89PNG"
    with pytest.raises(UserError, match="no model"):
        plot_energy({}, tmp_path / "none.png")


def test_a_map_before_and_after(digits: tuple, tmp_path: Path) -> None:
    reference = digits[0].mean(0), digits[0].std(0)
    path = plot_moves(*digits, tmp_path / "moves.png", reference=reference, n_classes=3, per_class=20)
    assert path.read_bytes()[:4] == b"\x89PNG"
    with pytest.raises(UserError, match="n_classes=13"):
        plot_moves(*digits, tmp_path / "many.png", reference=reference, n_classes=13)


def test_moves_are_rigid(digits: tuple) -> None:
    sample = as_sample(*digits, reference=(digits[0].mean(0), digits[0].std(0)))
    after, path = moves(sample, lam=0.6)
    shift = after.features - sample.features
    for label in range(10):
        assert (shift[sample.y == label] - shift[sample.y == label][0]).abs().max() < 1e-12
    assert path.steps > 0 and float(shift.abs().max()) > 0
