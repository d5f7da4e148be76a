"""A run on image files: what its judges read is decoded once, and changes nothing."""

import csv
import shutil
from pathlib import Path

import numpy as np
import pytest
import torch
from photographs import write_jpegs
from PIL import Image

import sslkit
from sslkit.data import cached_images, loader
from sslkit.data.decoded_images import DecodedImages
from sslkit.errors import UserError
from sslkit.training import build
from sslkit.training import data as data_of_runs
from sslkit.training.config import Config
from sslkit.training.data import open_data

COUNT = 40


@pytest.fixture(scope="module")
def files(tmp_path_factory) -> Path:
    """Forty photographs in two classes, of which one cannot be read."""
    root = tmp_path_factory.mktemp("files")
    for number, path in enumerate(sorted(write_jpegs(root / "all", COUNT, (60, 45)).iterdir())):
        (root / "images" / "ab"[number % 2]).mkdir(parents=True, exist_ok=True)
        shutil.move(path, root / "images" / "ab"[number % 2] / path.name)
    (root / "images" / "a" / "06.jpg").write_bytes(b"not an image")
    return root / "images"


@pytest.mark.parametrize("alone", [False, True])
def test_pages_of_a_held_out_file_are_not_learned_from(alone: bool, tmp_path: Path) -> None:
    """Pages of a file are alike: with its other pages in the bank the neighbours of a page would know its class."""
    for number in range(20):
        folder = tmp_path / "stacks" / "ab"[number % 2]
        folder.mkdir(parents=True, exist_ok=True)
        pages = [Image.fromarray(np.full((8, 8), 10 * number + page, np.uint8)) for page in range(1 if alone else 5)]
        pages[0].save(folder / f"{number}.tif", save_all=True, append_images=pages[1:])
    about = config(tmp_path / "stacks", tmp_path / "out", 0)
    about["data"] |= {"pages": "all"}
    about["image_size"] = 8
    data = open_data(Config.from_mapping(about))
    of_bank, of_query = (
        {part.images.image_name(row).partition("#")[0] for row in part.rows} for part in (data.bank, data.query)
    )
    assert not of_bank & of_query and (len(of_bank), len(of_query)) == (16, 4)
    assert np.bincount(data.query.images.labels[data.query.rows]).tolist() == [2 * len(pages)] * 2
    assert np.array_equal(data.withheld, data.query.rows)


def config(files: Path, out: Path, workers: int) -> dict:
    return {
        "method": "simclr",
        "batch_size": 8,
        "image_size": 16,
        "workers": workers,
        "data": {"source": str(files)},
        "epochs": 1,
        "eval": {"k": 3, "tsne": 0},
        "progress": False,
        "precision": "float32",
        "device": "cpu",
        "out": str(out),
    }


class NoRoom:
    """Room for nothing: images are read again for each evaluation."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder

    def array(self, shape: tuple[int, ...]) -> None:
        return None


def judged(folder: Path) -> list[dict[str, str]]:
    with (folder / "metrics.csv").open(newline="") as file:
        return [{name: row[name] for name in ("knn", "probe", "rankme")} for row in csv.DictReader(file) if row["knn"]]


def test_kept_images_change_nothing_and_are_decoded_once(files: Path, tmp_path: Path, monkeypatch) -> None:
    read: list[tuple[int, ...]] = []
    plainly = DecodedImages.__getitems__

    def watched(self: DecodedImages, rows: list[int]) -> dict:
        if self.fit == "crop":
            read.append(tuple(rows))
        return plainly(self, rows)

    monkeypatch.setattr(DecodedImages, "__getitems__", watched)
    monkeypatch.setattr("sslkit.training.finish.plot_terms", lambda *_: None)
    entries, reads = {}, {}
    for name, room in {"kept": lambda folder: cached_images.Room(folder, 0), "plain": NoRoom}.items():
        monkeypatch.setattr(data_of_runs, "Room", room)
        read.clear()
        entries[name] = sslkit.pretrain(config(files, tmp_path / name, workers=0))
        reads[name] = sum(map(len, read))
    assert reads["kept"] == COUNT
    assert (
        reads["plain"] == COUNT * 5 + 32
    )  # before, after the epoch, at the end twice the training images; and as pixels
    ours, plain = entries["kept"], entries["plain"]
    assert judged(ours.folder) == judged(plain.folder) and len(judged(plain.folder)) == 1
    for key in ("before", "after", "features", "unreadable"):
        assert ours.card[key] == plain.card[key]


def test_a_run_whose_labelled_images_cannot_be_read_is_not_evaluated(files: Path, tmp_path: Path, caplog) -> None:
    shutil.copytree(files, tmp_path / "images")
    for path in (tmp_path / "images" / "b").iterdir():
        path.write_bytes(b"not an image")
    caplog.set_level("INFO", logger="sslkit.say")
    entry = sslkit.pretrain(config(tmp_path / "images", tmp_path / "zoo", workers=0))
    assert entry.card["before"] == entry.card["after"] == {} and len(entry.card["unreadable"]) == COUNT // 2 + 1
    assert "too few of the labelled images can be read: this run is not evaluated" in caplog.text


def test_one_readable_image_is_refused(files: Path, tmp_path: Path) -> None:
    (tmp_path / "images").mkdir()
    for number, path in enumerate(sorted((files / "b").iterdir())[:8]):
        (tmp_path / "images" / path.name).write_bytes(path.read_bytes() if number == 3 else b"not an image")
    with pytest.raises(UserError, match=r"only one of 8 images of images can be read, .*07\.jpg"):
        sslkit.pretrain(config(tmp_path / "images", tmp_path / "zoo", workers=0))
    assert not (tmp_path / "zoo").exists() or not list((tmp_path / "zoo").glob("[!.]*"))


def test_withheld_labels_do_not_depend_on_how_many_images_are_judged(files: Path, tmp_path: Path) -> None:
    hidden = []
    for most in (3, 1000):
        given = config(files, tmp_path, workers=0)
        data = open_data(Config.from_mapping({**given, "eval": {**given["eval"], "max_images": most}}))
        data_of_runs.withhold(data)
        hidden.append(np.flatnonzero(data.train.labels < 0).tolist())
    assert hidden[0] == hidden[1] and len(hidden[0]) == COUNT // 5


def test_a_folder_is_listed_once(files: Path, tmp_path: Path, monkeypatch) -> None:
    from sslkit.data.sources import folder

    listed = []
    walk = folder.walk
    monkeypatch.setattr(folder, "walk", lambda place, *how, **more: listed.append(place) or walk(place, *how, **more))
    opened = open_data(Config.from_mapping(config(files, tmp_path, workers=3)))
    assert listed == [files]
    assert (opened.train.image_size, opened.bank.images.image_size, opened.bank.images.fit) == (18, 16, "crop")
    assert opened.train.workers == opened.bank.images.workers == opened.query.images.workers == 3
    fresh = sslkit.open_images(files, image_size=16, channels=3, fit="crop", interpolation="bicubic")
    ours, theirs = (images.__getitems__([0, 3, 5]) for images in (opened.query.images, fresh))
    assert all(torch.equal(ours[key], theirs[key]) for key in ("images", "index", "label", "aspect"))
    assert opened.query.images.digest == fresh.digest


def test_statistics_of_gray_files_are_the_same_by_workers(files: Path, monkeypatch) -> None:
    images = sslkit.open_images(files, image_size=16, channels=1)
    images.workers = 0
    alone = build.normalization(images)
    pixels = images.__getitems__(list(range(COUNT)))["images"].numpy() / 255
    assert np.allclose(alone, [[pixels.mean()], [pixels.std()]], atol=2e-4)
    monkeypatch.setattr(loader, "FEWEST", 4)
    monkeypatch.setattr(build, "_AT_ONCE", 7)
    images.workers = 2
    assert build.normalization(images) == alone
