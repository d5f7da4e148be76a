"""Image files named in every way, and Datasets of a Python program, as data to judge on."""

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from random_entries import made
from sklearn.datasets import load_digits
from torch.utils.data import Dataset

import evaluation
from evaluation.datasets import note_of, open_split, overlap, splits_of
from evaluation.embedding.sources import open_parts
from sslkit import open_images
from sslkit.errors import UserError

DIGITS = load_digits()


class Own(Dataset):
    """The first digits, with their labels."""

    def __init__(self, count: int = 200) -> None:
        self.count = count

    def __len__(self) -> int:
        return self.count

    def __getitem__(self, row: int) -> tuple[np.ndarray, int]:
        return (DIGITS.images[row] / 16).astype(np.float32), int(DIGITS.target[row])


@pytest.fixture
def folder(tmp_path: Path, picture) -> Path:
    for number in range(10):
        picture(tmp_path / "first" / ("cat" if number % 2 else "dog") / f"{number}.png")
        picture(tmp_path / "second" / ("cat" if number % 2 else "dog") / f"{number}.png")
    files = sorted(path.relative_to(tmp_path) for path in tmp_path.rglob("*.png"))
    (tmp_path / "all.txt").write_text("".join(f"{path}\n" for path in files))
    rows = [f"{path},{path.parts[1]},{'test' if path.stem in '01' else 'train'}\n" for path in files]
    (tmp_path / "all.csv").write_text("path,label,split\n" + "".join(rows))
    return tmp_path


def ways(folder: Path) -> dict[str, Any]:
    return {
        "text": f"{folder / 'first'},{folder / 'second'}",
        "list": [folder / "first", folder / "second"],
        "pattern": str(folder / "first" / "**" / "*.png"),
        "lines": folder / "all.txt",
    }


@pytest.mark.parametrize("way", ["text", "list", "pattern"])
def test_a_fifth_of_each_class_is_held_out_by_name(way: str, folder: Path) -> None:
    source = ways(folder)[way]
    test, train, whole = (open_split(source, split, image_size=16) for split in ("test", "train", "all"))
    assert splits_of(source) == ("train", "test", "all") and note_of(source) == test.note != ""
    assert sorted([*test.ids, *train.ids]) == sorted(whole.ids) and len(set(whole.ids)) == len(whole)
    assert test.classes == ["cat", "dog"] and np.bincount(test.y).tolist() == [len(test) // 2] * 2
    assert overlap(train, test) == []
    name = test.ids[0]
    row = whole.ids.tolist().index(name)
    assert (test.images[0]["images"] == whole.images[row]["images"]).all() and whole.y[row] == test.y[0]


def test_a_list_by_lines_is_of_two_folders_and_has_their_names_as_classes(folder: Path) -> None:
    assert open_split(folder / "all.txt", "all", image_size=16).classes == ["first", "second"]


def test_a_table_has_its_own_test_images(folder: Path) -> None:
    test = open_split(folder / "all.csv", "test", image_size=16)
    assert sorted(test.ids) == [f"{name}/{kind}" for name in ("first", "second") for kind in ("cat/1.png", "dog/0.png")]
    assert splits_of(folder / "all.csv") == ("train", "test") and test.note == "" == note_of(folder / "all.csv")


def test_the_same_name_in_two_folders_is_two_images(folder: Path) -> None:
    whole = open_split(ways(folder)["text"], "all", image_size=16)
    assert len(set(whole.ids)) == len(whole) == 20
    assert not (whole.images[0]["images"] == whole.images[10]["images"]).all()


@pytest.mark.parametrize("way", ["text", "list", "pattern", "lines"])
def test_the_names_of_an_embedding_are_paths(way: str, folder: Path) -> None:
    (part,) = open_parts(ways(folder)[way], None)
    assert part.names(part.split.ids)[0] == ("cat/1.png" if way == "pattern" else "first/cat/1.png")


def test_the_splits_of_a_folder_stand_before_its_names(folder: Path) -> None:
    (folder / "first").rename(folder / "train")
    (folder / "second").rename(folder / "test")
    (folder / "all.txt").unlink()
    (folder / "all.csv").unlink()
    names = [name for part in open_parts(folder, None) for name in part.names(part.split.ids)]
    assert names[0] == "train/cat/1.png" and names[-1] == "test/dog/8.png" and len(set(names)) == 20


def test_a_dataset_is_divided_as_files_are() -> None:
    own = Own()
    test, train = (open_split(own, split) for split in ("test", "train"))
    assert splits_of(own) == ("train", "test", "all") and test.name == "Own" and len(test) + len(train) == 200
    assert overlap(train, test) == [] and set(test.ids).isdisjoint(train.ids)
    assert test.y.tolist() == [int(DIGITS.target[int(row)]) for row in test.ids]
    again = open_split(open_images(own), "test")
    assert again.digest == test.digest
    (part,) = open_parts(own, None)
    assert len(part.split) == 200


def test_a_dataset_is_judged_and_ranked(tmp_path: Path) -> None:
    entries = [made(tmp_path, name, "fashion_mnist", seed=seed) for seed, name in enumerate("ab")]
    own, said = Own(), []
    how = {"cache": tmp_path / "cache", "device": "cpu", "workers": 0}
    found = evaluation.evaluate(str(entries[0]), own, ["knn"], say=said.append, **how)
    assert found[0].data == "Own" and not any("object at" in line for line in said)
    assert any("Own has no test images of its own" in line for line in said)
    again = evaluation.evaluate(str(entries[0]), [open_images(own)], ["knn"], **how)
    assert again[0].value == found[0].value and again[0].digests == found[0].digests
    ranking = evaluation.rank(list(map(str, entries)), own, ["logme"], bootstrap=0, **how)
    assert ranking.data == "Own" and ranking.n == 160


def test_two_datasets_of_one_name_are_not_mixed_up(tmp_path: Path) -> None:
    entry = made(tmp_path, "a", "fashion_mnist")
    with pytest.raises(UserError, match="two data sets are called Own: evaluate them one after the other"):
        evaluation.evaluate(str(entry), [Own(100), Own(120)], ["knn"])
