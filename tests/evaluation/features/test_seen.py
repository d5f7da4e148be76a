"""Images that a network saw in its pretraining are said to be, wherever they lie now."""

import shutil
from pathlib import Path

import numpy as np
import pytest
from PIL import Image
from random_entries import made

import evaluation
from sslkit import open_images, zoo

WITHOUT = "the network saw these images in its pretraining, without their labels"


def write_digits(folder: Path, split: str, n: int) -> Path:
    """n images of each of 3 digits."""
    digits = open_images("digits", split=split)
    for kind in range(3):
        (folder / str(kind)).mkdir(parents=True)
        for row in np.flatnonzero(digits.labels == kind)[:n]:
            Image.fromarray(digits.pixels[row, 0]).save(folder / str(kind) / f"{row}.png")
    return folder


def pretrained(tmp_path: Path, source: Path, method: str = "byol+dsa", split: str = "train") -> zoo.ZooEntry:
    """An entry whose card says that it was trained on these images, as the end of a run writes it."""
    folder = made(tmp_path / "zoo", f"{method} {source.name}", str(source))
    images = open_images(source, split=split, cache=None)
    data = {"source": str(source), "images": len(images), "digest": images.digest, "content": images.content_digest}
    return zoo.update(zoo.ZooEntry.load(folder), data=data, method=method)


def notes_of(model: object, data: Path, protocols: tuple[str, ...] = ("knn",)) -> tuple[list[str], list[str]]:
    """What is said while the model is judged, and the notes of its results."""
    said: list[str] = []
    options = {"few_shot": {"episodes": 5, "n_query": 3, "n_way": 3, "k_shot": 1}}
    options = {name: own for name, own in options.items() if name in protocols}
    found = evaluation.evaluate(model, str(data), protocols, options=options, say=said.append, cache=None)
    return said, [result.details.get("notes", "") for result in found]


@pytest.fixture(autouse=True)
def elsewhere(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)  # where the contents of files are remembered


def test_the_folder_of_the_training_and_a_copy_of_it(tmp_path: Path) -> None:
    entry = pretrained(tmp_path, write_digits(tmp_path / "digits", "train", 15))
    shutil.copytree(tmp_path / "digits", tmp_path / "elsewhere" / "copy")
    for data in (tmp_path / "digits", tmp_path / "elsewhere" / "copy"):
        said, notes = notes_of(entry, data, ("knn", "few_shot"))
        assert said.count(f"note: {WITHOUT}") == 1
        assert [WITHOUT in note for note in notes] == [True, True]
    table = evaluation.table(evaluation.results.store.read(entry.folder), "markdown")
    assert WITHOUT in table  # as on the page, whose flags are these


def test_one_other_pixel_or_file_is_another_set(tmp_path: Path) -> None:
    entry = pretrained(tmp_path, write_digits(tmp_path / "digits", "train", 15))
    path = next((tmp_path / "digits" / "0").glob("*.png"))
    pixels = np.array(Image.open(path))
    pixels[0, 0] ^= 1
    Image.fromarray(pixels).save(path)
    assert WITHOUT not in "".join(notes_of(entry, tmp_path / "digits")[1])
    path.unlink()
    assert WITHOUT not in "".join(notes_of(entry, tmp_path / "digits")[1])


def test_a_test_split_is_new_and_the_training_split_is_not(tmp_path: Path) -> None:
    for split in ("train", "test"):
        write_digits(tmp_path / "digits" / split, split, 10)
    entry = pretrained(tmp_path, tmp_path / "digits")
    said, notes = notes_of(entry, tmp_path / "digits")
    assert not any("saw these images" in text for text in [*said, *notes])
    said, notes = notes_of(entry, tmp_path / "digits" / "train")
    assert f"note: {WITHOUT}" in said and WITHOUT in notes[0]
    on_test = pretrained(tmp_path, tmp_path / "digits" / "test")
    assert WITHOUT in notes_of(on_test, tmp_path / "digits")[1][0]


@pytest.mark.parametrize(
    ("method", "how"), [("supervised", "with"), ("mae", "without"), ("own.module:Objective", "maybe with")]
)
def test_it_says_whether_the_labels_were_used(method: str, how: str, tmp_path: Path) -> None:
    entry = pretrained(tmp_path, write_digits(tmp_path / "digits", "train", 10), method.replace(":", "-"))
    entry = zoo.update(entry, method=method)
    notes = notes_of(entry, tmp_path / "digits")[1]
    assert f"in its pretraining, {how} their labels" in notes[0]


def test_another_layer_has_seen_them_and_random_weights_have_not(tmp_path: Path) -> None:
    entry = pretrained(tmp_path, write_digits(tmp_path / "digits", "train", 10))
    assert WITHOUT in notes_of(f"{entry.folder}@layer2", tmp_path / "digits")[1][0]
    assert WITHOUT not in notes_of(f"random:{entry.folder}", tmp_path / "digits")[1][0]
