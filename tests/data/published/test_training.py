"""A published set is data for every command."""

from pathlib import Path

import numpy as np
import pytest

import evaluation
import sslkit
from sslkit.errors import UserError


@pytest.fixture
def textures(tmp_path: Path, picture, text) -> Path:
    """Four textures of DTD with eight pictures each, half of them to train on."""
    for label in ("dotted", "striped", "woven", "zigzag"):
        for number in range(8):
            picture(tmp_path / f"dtd/dtd/images/{label}/{label}_{number:04}.jpg")
    for split, numbers in (("train", range(4)), ("val", range(4, 6)), ("test", range(6, 8))):
        names = [f"{a}/{a}_{n:04}.jpg" for a in ("dotted", "striped", "woven", "zigzag") for n in numbers]
        text(tmp_path / f"dtd/dtd/labels/{split}1.txt", *names)
    return tmp_path


def test_a_published_set_trains_and_is_judged_with_its_labels(textures: Path, tmp_path: Path) -> None:
    how = {"batch_size": 8, "image_size": 16, "epochs": 1, "eval.k": 3, "eval.tsne": 0, "workers": 0}
    how |= {"root": str(textures), "counts": "warn", "backbone": "narrow_resnet", "out": str(tmp_path / "zoo")}
    with pytest.warns(UserWarning, match="dtd: the split 'train' has 16 images instead of 1880"):
        entry = sslkit.pretrain("simclr", data="dtd", cache=str(tmp_path / "cache"), **how)
    assert entry.card["data"]["source"] == "dtd" and entry.card["data"]["images"] == 16
    assert entry.folder.name == "simclr-dtd-narrow_resnet-e1-s0" and entry.card["after"]["n"] == 8


def test_every_door_opens_the_same_images(textures: Path) -> None:
    how = {"split": "test", "image_size": 16, "counts": "warn"}
    with pytest.warns(UserWarning, match="instead of"):
        images = sslkit.open_images(f"dtd:{textures}", **how, fit="crop")
        opened = evaluation.open_split("dtd", root=textures, **how)
        again = evaluation.open_split(images, **how)
    assert images.classes == opened.classes and np.array_equal(images.labels, opened.y)
    assert images.digest == opened.digest == again.digest and again.metric == opened.metric


def test_a_published_set_in_the_place_of_a_folder_of_that_name_is_reported(
    textures: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "here" / "dtd").mkdir(parents=True)
    monkeypatch.chdir(tmp_path / "here")
    with pytest.warns(UserWarning, match=r"dtd is read as the published set below .*; the folder here is \./dtd"):
        sslkit.open_images("dtd", root=textures, counts="warn")


def test_a_folder_of_that_name_is_named_in_the_error(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "cars").mkdir()
    monkeypatch.chdir(tmp_path)
    with pytest.raises(UserError, match=r"Stanford Cars cannot be opened from .* For the images of .*cars: \./cars\."):
        sslkit.pretrain("simclr", data="cars")
