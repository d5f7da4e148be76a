"""`look` holds few bytes of an image: the most memory that Python and numpy take, for two numbers of images."""

import tracemalloc
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

import sslkit
from sslkit.data import likeness
from sslkit.data.manifest import findings, page
from sslkit.files import blocks
from sslkit.numerics import near_copies

SIZES = (1_500, 1_500, 7_500)  # the first imports what is imported late
BYTES = 350  # an image: what is measured (150), what near-copies are told by, and of files their names and stamps


def arrays(_: Path, pixels: np.ndarray) -> np.ndarray:
    return pixels


def files(folder: Path, pixels: np.ndarray) -> Path:
    folder.mkdir()
    for row, image in enumerate(pixels):
        Image.fromarray(image).save(folder / f"image_{row:06}.png")
    return folder


@pytest.mark.parametrize("make", [arrays, pytest.param(files, marks=pytest.mark.slow)])
def test_memory_grows_by_few_bytes_an_image(tmp_path: Path, monkeypatch, make) -> None:
    """What does not grow with the images is made small: samples, and what a stop may lose."""
    for module, name, value in (
        (findings, "ASKED", 256),
        (likeness, "ASKED", 256),
        (near_copies, "SAMPLED", 2**14),
        (page, "PIXELS_OF", 256),
        (blocks, "_FLUSH_SECONDS", 0.0),
    ):
        monkeypatch.setattr(module, name, value)
    most = []
    for seed, count in enumerate(SIZES):
        source = make(tmp_path / f"{seed}", np.random.default_rng(seed).integers(0, 256, (count, 8, 8), np.uint8))
        about = {"out": str(tmp_path / f"{seed}.csv"), "cache": str(tmp_path / "cache")}
        tracemalloc.start()
        try:
            manifest = sslkit.look(source, **about, progress=False, workers=0)
            most.append(tracemalloc.get_traced_memory()[1])
        finally:
            tracemalloc.stop()
        assert len(manifest) == count
    grown = (most[2] - most[1]) / (SIZES[2] - SIZES[1])
    assert grown < BYTES, f"{grown:.0f} bytes an image"
