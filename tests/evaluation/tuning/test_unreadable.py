"""An image that cannot be read is left out, and said once, by everything that tunes on images."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from photographs import write_jpegs

from evaluation.datasets import open_split
from evaluation.datasets._readable import readable
from evaluation.judging.run import evaluate
from evaluation.protocols.fine_tune import fine_tune
from evaluation.protocols.semi_supervised import semi_supervised
from evaluation.ranking.choice.halving import successive_halving
from evaluation.ranking.truth.ground_truth import ground_truth
from sslkit.terminal import say

SAID = "cannot be read and are left out"
GRID = {"lr": [0.01], "optimizer": "adamw"}
QUICK: dict[str, Any] = {"steps": 2, "batch_size": 8, "device": "cpu", "progress": False}


@pytest.fixture
def photos(tmp_path: Path) -> str:
    """A folder of two classes; 2 of its 32 photographs are the beginnings of files."""
    folder = tmp_path / "photos"
    for name in ("one", "two"):
        write_jpegs(folder / name, 15)
        (folder / name / "damaged.jpg").write_bytes((folder / name / "00.jpg").read_bytes()[:300])
    return str(folder)


@pytest.fixture
def warned(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    said: list[str] = []
    monkeypatch.setattr(say, "warning", said.append)
    return said


def counted(warned: list[str]) -> int:
    """The images that the warnings count; each of them is named once."""
    names = [line.partition(": ")[2] for line in warned]
    assert warned and len(set(names)) == len(names) and all(SAID in line for line in warned), warned
    return sum(int(line.split()[0]) for line in warned)


def chosen(photos: str, out: Path) -> int:
    zoo = {f"seed {seed}": f"random:narrow_resnet:{seed}" for seed in range(2)}
    more = {"first": 2, "image_size": 16, "lr": [0.01], "cache": out / "cache", "out": out}
    found = successive_halving(zoo, photos, metrics=["knn"], seeds=[0], **QUICK, **more)
    return found.train + found.held_out


def measured(photos: str, out: Path) -> int:
    how = {**QUICK, "lr": [0.01], "seeds": [0], "image_size": 16, "out": out}
    found = ground_truth(["random:narrow_resnet:0", "random:narrow_resnet:1"], photos, **how)
    assert not found.failures, found.failures
    (record, *_) = found.results[photos].values()
    return record["train_images"] + record["test_images"]


def tuned(photos: str, out: Path) -> int:
    result = fine_tune("random:narrow_resnet", photos, grid=GRID, image_size=16, **QUICK)
    return result.details["images"] + result.n


def few_labels(photos: str, out: Path) -> int:
    one = {"epochs": 1, "batch_size": 8, "lrs": [0.01], "head_lrs": [0.01], "draws": 1, "fraction": 4}
    return 8 + semi_supervised("random:narrow_resnet", photos, image_size=16, progress=False, **one).n


def on_views(photos: str, out: Path) -> int:
    options = {"linear_aug": {"epochs": 1, "batch_size": 8}}
    (result,) = evaluate("random:narrow_resnet", photos, ["linear_aug"], options=options, image_size=16, out=out)
    return result.n


@pytest.mark.parametrize(
    ("act", "images"), [(chosen, None), (measured, 30), (tuned, 30), (few_labels, None), (on_views, None)]
)
def test_it_goes_on_without_them(
    act: Callable[[str, Path], int], images: int | None, photos: str, warned: list[str], tmp_path: Path
) -> None:
    left = act(photos, tmp_path / "out")
    lost = counted(warned)
    if act is chosen:  # of the training images alone
        assert left == len(open_split(photos, "train")) - lost and lost > 0
    else:
        assert lost == 2 and images in (left, None)


def test_a_split_without_damage_is_the_same_one(tmp_path: Path, warned: list[str]) -> None:
    write_jpegs(tmp_path / "one", 3)
    write_jpegs(tmp_path / "two", 3)
    split = open_split(str(tmp_path), "all")
    assert readable(split).images is split.images and len(readable(split).pixel_digests) == 6 and not warned
