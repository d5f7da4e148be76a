"""The range that a sample decided is remembered while no file changes: every command reads alike, and samples once."""

import os
import warnings
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from manifests import write_folder
from PIL import Image
from tars import tar

import sslkit
from sslkit.data.decode import survey
from sslkit.data.images import Images


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    return write_folder(tmp_path / "set", deep=900)


@pytest.fixture
def samples(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """One entry for each time that values are measured."""
    measured: list[int] = []
    measure = survey._measure_values
    monkeypatch.setattr(survey, "_measure_values", lambda *a, **k: measured.append(1) or measure(*a, **k))
    return measured


def opened(folder: Path | str, split: str = "train", **options: Any) -> tuple[Images, list[str]]:
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        images = sslkit.open_images(folder, split=split, **{"cache": Path(folder).parent / "cache"} | options)
    return images, [str(warning.message) for warning in caught]


def test_the_same_files_are_measured_once_and_the_line_is_said_again(folder: Path, samples: list[int]) -> None:
    before, lines = opened(folder)
    assert len(samples) == 1 and any("range=[0,1023]" in line for line in lines)
    for split in ("train", "test", "train"):
        after, again = opened(folder, split)
        assert after.scale == before.scale and (split == "test" or again == lines)
    opened(folder, fit="crop", image_size=32)
    assert len(samples) == 1


@pytest.mark.parametrize("kind", ["shards", "hf"])
def test_shards_and_tables_are_measured_once_until_they_change(folder: Path, samples: list[int], kind: str) -> None:
    def write() -> str:
        if kind == "shards":
            tar(folder / "all.tar", [(path.name, path.read_bytes()) for path in sorted(folder.rglob("*.png"))])
            return f"shards:{folder / 'all.tar'}"
        datasets = pytest.importorskip("datasets")
        images = [{"bytes": path.read_bytes(), "path": None} for path in sorted(folder.rglob("*.png"))]
        table = datasets.Dataset.from_dict({"image": images}, datasets.Features({"image": datasets.Image()}))
        table.save_to_disk(folder.parent / "saved")
        return f"hf:{folder.parent / 'saved'}"

    source, about = write(), {"cache": folder.parent / "cache"}
    before, _ = opened(source, **about)
    after, _ = opened(source, **about)
    assert len(samples) == 1 and after.scale == before.scale
    deeper = np.random.default_rng(1).integers(0, 60000, (8, 9), np.uint16)
    Image.fromarray(deeper).save(next(folder.rglob("*.png")))
    assert opened(write(), **about)[0].range == (0.0, 65535.0) and len(samples) == 2


@pytest.mark.parametrize("options", [{"range": "auto"}, {"fill": "none"}, {"channels": 3}, {"cache": None}])
def test_other_options_are_measured_anew(folder: Path, samples: list[int], options: dict[str, Any]) -> None:
    opened(folder)
    opened(folder, **options)
    assert len(samples) == 2


@pytest.mark.parametrize("how", ["same time", "exchanged", "added", "damaged"])
def test_changed_files_are_measured_anew(folder: Path, samples: list[int], how: str) -> None:
    opened(folder)
    first, other, *_ = sorted((folder / "train").rglob("*.png"))
    if how == "same time":
        stat = first.stat()
        Image.fromarray(np.random.default_rng(1).integers(0, 60000, (8, 9), np.uint16)).save(first)
        os.utime(first, ns=(stat.st_atime_ns, stat.st_mtime_ns))
    if how == "exchanged":
        first.rename(folder / "x")
        other.rename(first)
        (folder / "x").rename(other)
    if how == "added":
        Image.fromarray(np.random.default_rng(1).integers(0, 60000, (8, 9), np.uint16)).save(
            folder / "train/a/more.png"
        )
    if how == "damaged":
        [kept] = (folder.parent / "cache").glob("scale-*.json")
        kept.write_text("[1]")
    images, _ = opened(folder)
    assert len(samples) == 2
    assert images.range == ((0.0, 65535.0) if how in ("same time", "added") else (0.0, 1023.0))
