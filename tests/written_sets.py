"""Fixtures: real pictures, written to disk in the layouts of the published sets."""

from collections.abc import Callable
from pathlib import Path

import pytest
from PIL import Image

from evaluation.datasets import Split, open_split
from sslkit import open_images


@pytest.fixture(scope="session")
def picture() -> Callable[[Path], None]:
    """Writes the next of the embedded clip art to a path, as its ending says; no two are the same."""
    pixels = open_images("clipart").pixels.transpose(0, 2, 3, 1)
    rows = iter(range(len(pixels)))

    def write(path: Path) -> None:
        path.parent.mkdir(parents=True, exist_ok=True)
        Image.fromarray(pixels[next(rows) % 1500]).save(path, format="PNG" if path.suffix == ".png" else "JPEG")

    return write


@pytest.fixture
def text() -> Callable[..., None]:
    """Writes lines to a file."""

    def write(path: Path, *lines: str) -> None:
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text("".join(f"{line}\n" for line in lines))

    return write


@pytest.fixture
def opened() -> Callable[..., Split]:
    """Opens a split of a tiny copy, which has the wrong counts."""

    def open_it(name: str, root: Path, split: str = "test", **options) -> Split:
        with pytest.warns(UserWarning, match=f"{name}: the split '.*' has .* instead of"):
            return open_split(f"{name}:{root}", split, counts="warn", **{"image_size": 16, **options})

    return open_it


@pytest.fixture
def named() -> Callable[[Split], dict[str, str]]:
    """The class of each image by its id."""

    def names_of(split: Split) -> dict[str, str]:
        return {name: split.classes[label] for name, label in zip(split.ids.tolist(), split.y, strict=True)}

    return names_of
