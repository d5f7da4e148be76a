"""What all images say against what a sample decided stands on the page, with the option that mends it."""

from pathlib import Path

import numpy as np
import pytest
from manifests import look, opened, rewrite_head, write_folder
from PIL import Image

from sslkit.data.decode import survey
from sslkit.data.manifest.sampled import contradictions


@pytest.fixture(autouse=True)
def few_are_looked_at(monkeypatch: pytest.MonkeyPatch) -> None:
    """The first and the last image of each kind, so that the others are in no sample."""
    monkeypatch.setattr(survey, "LOOKED_AT", 2)
    monkeypatch.setattr("sslkit.data.decoded_images.LOOKED_AT", 2)
    monkeypatch.setattr(survey, "MEASURED", 1)


def odd(folder: Path) -> Path:
    """An image between those that are looked at."""
    return sorted((folder / "train").rglob("*.png"))[3]


def test_values_beyond_the_range(tmp_path: Path) -> None:
    folder = write_folder(tmp_path / "set", deep=900)
    Image.fromarray(np.random.default_rng(2).integers(0, 40000, (9, 9), np.uint16)).save(odd(folder))
    manifest = look(folder)
    [found] = contradictions(manifest)
    assert found.option == "range=[0,65535]" and [Path(manifest.paths[row]) for row in found.rows] == [odd(folder)]
    assert found.title.startswith("1 image with values beyond the range of a sample, values ")
    page = (tmp_path / "manifest.html").read_text(encoding="utf-8")
    assert found.title in page and "range=[0,65535]" in page
    rewrite_head(tmp_path / "manifest.csv", {"range": found.option})
    assert opened(tmp_path / "manifest.csv").range == (0.0, 65535.0)
    assert not list(contradictions(look(tmp_path / "manifest.csv", out=str(tmp_path / "again.csv"))))


def test_a_coloured_image_and_one_with_opacity_in_a_gray_set(tmp_path: Path) -> None:
    folder = write_folder(tmp_path / "set")
    for path in folder.rglob("*.png"):
        Image.open(path).convert("L").save(path)
    pixels = np.random.default_rng(2).integers(0, 255, (9, 9, 4), np.uint8)
    Image.fromarray(pixels).save(odd(folder))
    coloured, opaque = contradictions(look(folder))
    assert coloured.option == "channels=3" and len(coloured.rows) == 1
    assert opaque.option == "opacity=true or opacity=false" and opaque.rows.tolist() == coloured.rows.tolist()
    assert not list(contradictions(look(folder, channels=3, opacity=False)))


@pytest.mark.parametrize("is_opacity", [True, False])
def test_a_last_plane_that_is_not_what_those_of_the_sample_are(tmp_path: Path, is_opacity: bool) -> None:
    folder = write_folder(tmp_path / "set")
    rng = np.random.default_rng(2)

    def save(path: Path, *, as_opacity: bool) -> None:
        pixels = rng.integers(1, 255, (9, 9, 4), np.uint8)
        pixels[..., 3] = 255 * (pixels[..., 3] > 100) if as_opacity else pixels[..., 3]
        Image.fromarray(pixels).save(path)

    for path in folder.rglob("*.png"):
        save(path, as_opacity=is_opacity)
    save(odd(folder), as_opacity=not is_opacity)
    manifest = look(folder)
    [found] = contradictions(manifest)
    assert found.option == f"opacity={str(not is_opacity).lower()}"
    assert [Path(manifest.paths[row]) for row in found.rows] == [odd(folder)]
    assert found.title == (
        f"1 image whose last plane is {'none' if is_opacity else 'opacity'} by its values, unlike those of a sample"
    )
    assert not list(contradictions(look(folder, opacity=is_opacity)))


def test_nothing_contradicts_what_is_given_or_right(tmp_path: Path) -> None:
    folder = write_folder(tmp_path / "set", deep=900)
    assert not list(contradictions(look(folder)))
    assert not list(contradictions(look(folder, range=[100, 200], channels=1)))
