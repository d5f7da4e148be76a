"""columns.group=near-copies: the same numbers in every split and listing, measured once, joined with given groups."""

import re
import shutil
import warnings
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from coins import write_coins
from PIL import Image

import sslkit
from sslkit.data import near_groups
from sslkit.data.columns import Columns
from sslkit.data.manifest import head, survey
from sslkit.data.sources.shard_writer import write_shards
from sslkit.errors import UserError

NEAR = {"group": "near-copies"}
OBJECTS, SHOTS = 12, 5


@pytest.fixture(scope="module")
def coins(tmp_path_factory) -> Path:
    return write_coins(tmp_path_factory.mktemp("coins") / "coins", objects=OBJECTS, shots=SHOTS)


def opened(source: Any, **options: Any) -> sslkit.data.images.Images:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return sslkit.open_images(source, columns=NEAR, **{"cache": None, "image_size": 16} | options)


def groups_by_name(images: sslkit.data.images.Images) -> dict[str, int]:
    return {Path(images.path(row)).name: int(images.groups[row]) for row in range(len(images))}


def test_every_object_is_a_group(coins: Path) -> None:
    images = opened(str(coins))
    sizes = np.unique(images.groups, return_counts=True)[1]
    assert sizes.tolist() == [SHOTS] * OBJECTS
    for members in map(images.groups.__eq__, np.unique(images.groups)):
        assert len(set(images.labels[members].tolist())) == 1, "an object has one face"


def test_numbers_are_those_of_any_listing_and_of_every_split(coins: Path, tmp_path: Path) -> None:
    whole = groups_by_name(opened(str(coins)))
    files = sorted(coins.rglob("*.jpg"))
    for row, file in enumerate(files):
        target = tmp_path / "two" / ("test" if row % 3 == 0 else "train") / file.parent.name / file.name
        target.parent.mkdir(parents=True, exist_ok=True)
        shutil.copy(file, target)
    shuffled = [str(files[row]) for row in np.random.default_rng(1).permutation(len(files))]
    parts = [groups_by_name(opened(str(tmp_path / "two"), split=split)) for split in ("train", "test")]
    assert parts[0] | parts[1] == whole == groups_by_name(opened(shuffled))
    with pytest.warns(UserWarning, match=r"groups? of test are in train, too.*columns.group=near-copies"):
        sslkit.open_images(str(tmp_path / "two"), split="test", columns=NEAR, cache=None)


def test_arrays_and_datasets_have_groups(coins: Path) -> None:
    pixels = np.stack([np.asarray(Image.open(file).resize((32, 32))) for file in sorted(coins.rglob("*.jpg"))])
    images = opened(pixels)
    assert len(np.unique(images.groups)) == OBJECTS and sslkit.open_images(images, columns=NEAR).groups is images.groups
    part = sslkit.open_images(pixels).part(np.arange(10), "some")
    assert len(sslkit.open_images(part, split="some", columns=NEAR).groups) == 10
    dataset = torch.utils.data.TensorDataset(torch.from_numpy(pixels), torch.arange(len(pixels)) % 2)
    pairs = np.stack([opened(dataset).groups, images.groups])
    assert np.unique(pairs, axis=1).shape[1] == len(np.unique(pairs[0])) == OBJECTS


def test_the_pixels_are_read_once_for_all_commands(coins: Path, tmp_path: Path, monkeypatch) -> None:
    reads: list[int] = []
    of_file = survey._of_file
    monkeypatch.setattr(survey, "_of_file", lambda images, row: reads.append(row) or of_file(images, row))
    first = opened(str(coins), cache=tmp_path)
    again = opened(str(coins), cache=tmp_path, image_size=24, fit="crop")
    sslkit.look(str(coins), out=str(tmp_path / "manifest.csv"), cache=tmp_path, progress=False)
    assert len(reads) == OBJECTS * SHOTS and (first.groups == again.groups).all()


def test_groups_of_the_data_are_joined(coins: Path, tmp_path: Path) -> None:
    """A patient with two objects keeps both; objects of two patients join these."""
    near = groups_by_name(opened(str(coins)))
    numbers = {group: number for number, group in enumerate(sorted(set(near.values())))}
    files = sorted(coins.rglob("*.jpg"))
    mark = f"{head.MARK},{head.VERSION},files,"
    lines = [mark, "path,split,label,group"]
    lines += [f"{file},train,{file.parent.name},{numbers[near[file.name]] // 2}" for file in files]
    (tmp_path / "manifest.csv").write_text("\n".join(lines))
    joined = opened(str(tmp_path / "manifest.csv"))
    assert np.unique(joined.groups, return_counts=True)[1].tolist() == [2 * SHOTS] * (OBJECTS // 2)


def test_pages_of_a_file_stay_together(coins: Path, tmp_path: Path) -> None:
    """A film of two objects joins these."""
    files = sorted(coins.rglob("*.jpg"))
    near = groups_by_name(opened(str(coins)))
    unlike = next(file for file in files if near[file.name] != near[files[0].name])
    first, *others = [Image.open(file).resize((60, 60)) for file in (files[0], unlike)]
    shutil.copytree(coins, tmp_path / "films")
    first.save(tmp_path / "films" / "heads" / "film.tif", save_all=True, append_images=others)
    images = opened(str(tmp_path / "films"), pages="all")
    assert len(images) == OBJECTS * SHOTS + 2
    assert sorted(np.unique(images.groups, return_counts=True)[1])[-1] == 2 * SHOTS + 2
    assert len(np.unique(images.groups)) == OBJECTS - 1


def test_blank_images_stand_alone(tmp_path: Path) -> None:
    for row in range(40):
        Image.new("L", (20, 20), 200).save(tmp_path / f"{row}.png")
    with pytest.warns(UserWarning, match="differs for every image, so that no two belong together"):
        images = sslkit.open_images(str(tmp_path), columns=NEAR, cache=None)
    assert len(np.unique(images.groups)) == 40


def test_what_cannot_be_grouped_is_refused(coins: Path, monkeypatch) -> None:
    images = sslkit.open_images(np.zeros((3, 9, 9), np.uint8))
    images.name, images.source = "pets", "pets:data"
    with pytest.raises(UserError, match=r"columns.group=near-copies: pets is published with its own splits"):
        near_groups.group_images(images, Columns(**NEAR))
    with pytest.raises(UserError, match="shards are copies of the files, and near-copies are found where images are"):
        write_shards(coins, coins.parent / "shards", columns=NEAR, progress=False)
    monkeypatch.setattr(near_groups, "COMPARED", 59)
    with pytest.raises(UserError, match=re.escape("near-copies: coins has 60 images, and 59 are compared at most")):
        opened(str(coins))
