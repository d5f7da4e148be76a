"""Images that a network saw in its pretraining are said to be, wherever they lie now."""

import dataclasses
import shutil
from pathlib import Path

import numpy as np
import pytest
from PIL import Image
from random_entries import made

import evaluation
from evaluation.features.seen import Judged, seen
from sslkit import open_images, zoo
from sslkit.data.columns import Columns
from sslkit.zoo.weights import sha256

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


def test_weights_that_a_network_began_from_count(tmp_path: Path) -> None:
    first = pretrained(tmp_path, write_digits(tmp_path / "digits", "train", 10))
    second = pretrained(tmp_path, write_digits(tmp_path / "others", "test", 10))
    begun = {"source": str(first.folder), "sha256": sha256(first.folder / "backbone.safetensors"), "notes": []}
    second = zoo.update(second, init=begun)
    note = notes_of(second, tmp_path / "digits")[1][0]
    their = "saw these images in their pretraining, without their labels"
    assert f"the weights that it began from, {first.folder}, {their}" in note
    assert WITHOUT in notes_of(second, tmp_path / "others")[1][0], "its own"
    for other in ({**begun, "sha256": "0" * 64}, {**begun, "source": "timm:resnet18"}, {**begun, "source": "gone"}):
        assert "saw" not in notes_of(zoo.update(second, init=other), tmp_path / "digits")[1][0]


def test_a_part_of_the_images(tmp_path: Path) -> None:
    """By the places of the files: a copy of a part is not known."""
    for name in ("a", "b"):
        write_digits(tmp_path / "all" / name, "train", 8)
    text = f"{tmp_path / 'all' / 'a'},{tmp_path / 'all' / 'b'}"
    entry = pretrained(tmp_path, tmp_path / "all" / "a")
    images = open_images(text, cache=None)
    known = {"source": text, "images": len(images), "digest": images.digest, "content": images.content_digest}
    entry = zoo.update(entry, data=known)
    assert WITHOUT in notes_of(entry, tmp_path / "all" / "b")[1][0]
    shutil.copytree(tmp_path / "all" / "b", tmp_path / "copy")
    assert "saw" not in notes_of(entry, tmp_path / "copy")[1][0]
    entry = pretrained(tmp_path, tmp_path / "all" / "a")
    part = "the network saw 24 of these 48 images in its pretraining"
    assert part in seen(entry.card, Judged(str(tmp_path / "all"), "train"))


@pytest.mark.filterwarnings("ignore::UserWarning")
def test_the_columns_of_the_run_and_of_the_evaluation(tmp_path: Path) -> None:
    """A network that learned from two folds has seen them where another fold is held out, also as a copy."""
    lines = []
    for row, path in enumerate(sorted(write_digits(tmp_path / "files", "train", 6).rglob("*.png"))):
        lines.append(f"{path.relative_to(tmp_path)},{path.parent.name},{row % 3}")
    table = tmp_path / "list.csv"
    table.write_text("\n".join(["path,kind,part", *lines]))
    how = {"label": "kind", "split": "part:0"}
    images = open_images(table, columns=how, cache=None)
    entry = pretrained(tmp_path, table)
    data = {"source": str(table), "images": len(images), "content": images.content_digest}
    entry = zoo.update(entry, data=data, config={"columns": how})
    assert seen(entry.card, Judged(str(table), "test", None, Columns(**how))) == ""
    assert seen(entry.card, Judged(str(table), "train", None, Columns(**how))) == WITHOUT
    assert seen(entry.card, Judged(str(table), "test", None, Columns(label="kind", split="part:1"))) == WITHOUT
    part = "the network saw 12 of these 18 images in its pretraining, without their labels"
    assert seen(entry.card, Judged(str(table), "train", None)) == part
    shutil.copytree(tmp_path / "files", tmp_path / "copy" / "files")
    copy = Path(shutil.copy(table, tmp_path / "copy"))
    assert seen(entry.card, Judged(str(copy), "train", None, Columns(**how))) == WITHOUT
    found = evaluation.evaluate(entry, str(table), ["knn"], columns={**how, "split": "part:1"}, cache=None)
    assert WITHOUT in found[0].details["notes"]


@pytest.mark.parametrize(
    ("source", "images", "judged", "split", "found"),
    [
        ("torchvision:CIFAR10:/data", 50000, "cifar10", "train", "these"),
        ("cifar10", 50000, "cifar10:/elsewhere", "train", "these"),
        ("cifar10", 50000, "cifar10", "test", ""),
        ("cifar10", 50000, "cifar100", "train", ""),
        ("cifar100", 50000, "fc100", "test", "some of these"),
        ("dtd", 1880, "dtd", "trainval", "some of these"),
        ("dtd", 1880, "dtd", "val", ""),
        ("caltech101", 8677, "caltech101", "test", "these"),
        ("torchvision:OxfordIIITPet", 3680, "pets", "trainval", "these"),
        ("torchvision:nothing", 50000, "cifar10", "train", ""),
        ("fashion_mnist", 60000, "cifar10", "train", ""),
    ],
)
def test_published_sets_are_known_by_name(source: str, images: int, judged: str, split: str, found: str) -> None:
    card = {"method": "byol", "data": {"source": source, "images": images, "content": "0" * 64}}
    note = f"the network saw {found} images in its pretraining, without their labels" if found else ""
    assert seen(card, Judged(judged, split)) == note
    opened = dataclasses.replace(evaluation.open_split("digits").take(np.arange(9)), source=judged, split=split)
    assert seen(card, Judged(opened, split)) == note
