"""Any folder of images."""

import os
import pickle
import re
import warnings
from pathlib import Path

import numpy as np
import pytest
import torch
from named_pipes import pipe
from PIL import Image
from torch.utils.data import DataLoader

from sslkit.data.loader import collate
from sslkit.data.path_list import PathList
from sslkit.data.sources.named import open_images, splits
from sslkit.errors import UserError


def write(path: Path, value: int = 0, size: tuple[int, int] = (4, 4)) -> Path:
    """A gray image of one value; size is (width, height)."""
    path.parent.mkdir(parents=True, exist_ok=True)
    Image.new("L", size, value).save(path)
    return path


@pytest.fixture
def folder(tmp_path) -> Path:
    """Ten images, valued 0 to 9, in the order of their names."""
    for i in range(10):
        write(tmp_path / "images" / f"{i}.png", i)
    return tmp_path / "images"


def values(batch: dict) -> list[int]:
    return batch["images"][:, 0, 0, 0].tolist()


def test_a_flat_folder_has_no_labels(folder) -> None:
    images = open_images(str(folder), image_size=4)
    assert len(images) == 10 and images.labels is None and images.classes is None and images.native_size is None
    batch = images.__getitems__([3, 7])
    assert values(batch) == [3, 7] and batch["index"].tolist() == [3, 7] and batch["label"].tolist() == [-1, -1]
    assert images.name == "images" and splits(folder) == ("train",) and images.licence is None
    assert [int(row["index"]) for row in images] == list(range(10))


def test_the_default_size_is_256(folder) -> None:
    images = open_images(folder)
    assert images.image_size == 256 and images[0]["images"].shape == (1, 256, 256)


def test_it_is_walked_recursively_but_for_what_is_hidden(tmp_path) -> None:
    for name in ("z.PNG", "a/b/c/deep.jpg", "a/.hidden.png", ".cache/x.png", "a/b/x.tiff"):
        write(tmp_path / name)
    (tmp_path / "notes.txt").write_text("no image")
    images = open_images(tmp_path)
    assert [os.path.relpath(images.path(row), tmp_path) for row in range(len(images))] == [
        "a/b/c/deep.jpg",
        "a/b/x.tiff",
        "z.PNG",
    ]
    assert images.labels is None  # one lies beside the folder


def test_links_are_followed_once(tmp_path) -> None:
    write(tmp_path / "far" / "x.png")
    write(tmp_path / "here" / "y.png")
    (tmp_path / "here" / "link").symlink_to(tmp_path / "far")
    (tmp_path / "here" / "loop").symlink_to(tmp_path / "here")
    assert len(open_images(tmp_path / "here")) == 2


def test_class_folders_are_labels(tmp_path) -> None:
    for i, name in enumerate(["dog/1.png", "dog/more/2.png", "cat/1.png", "ant/1.png"]):
        write(tmp_path / name, i)
    (tmp_path / "empty").mkdir()
    images = open_images(tmp_path, image_size=4)
    assert images.classes == ["ant", "cat", "dog"] and images.labels.tolist() == [0, 1, 2, 2]
    batch = images.__getitems__([0, 1, 2, 3])
    assert values(batch) == [3, 2, 0, 1] and batch["label"].tolist() == [0, 1, 2, 2]


def test_one_sub_folder_is_no_class(tmp_path) -> None:
    write(tmp_path / "images" / "1.png")
    write(tmp_path / "images" / "2.png")
    assert open_images(tmp_path).labels is None


@pytest.mark.parametrize(
    ("folders", "expected"),
    [
        (["train", "test"], {"train": "train", "test": "test"}),
        (["train", "val"], {"train": "train", "test": "val", "val": "val"}),
        (["train", "valid", "test"], {"train": "train", "val": "valid", "test": "test"}),
        (["training", "testing"], {"train": "training", "test": "testing"}),
        (["Train", "VAL", "Test"], {"train": "Train", "val": "VAL", "test": "Test"}),
        (["TRAINING", "Dev"], {"train": "TRAINING", "test": "Dev", "val": "Dev"}),
    ],
)
def test_split_folders(tmp_path, folders: list[str], expected: dict[str, str]) -> None:
    for name in folders:
        write(tmp_path / name / "cat" / "1.png")
        write(tmp_path / name / ("dog" if name.lower().startswith("train") else "eel") / "1.png")
    assert set(splits(tmp_path)) == set(expected) - ({"val"} if len(folders) == 2 else set())
    for split, name in expected.items():
        images = open_images(tmp_path, split=split)
        assert images.root.name == name and images.classes == ["cat", "dog", "eel"]
        assert images.labels.tolist() == ([0, 1] if split == "train" else [0, 2])
    with pytest.raises(UserError, match="no split 'tests'"):
        open_images(tmp_path, split="tests")


def test_train_with_nothing_beside_it_is_the_source(tmp_path) -> None:
    for kind in ("cat", "dog"):
        write(tmp_path / "train" / kind / "1.png")
    (tmp_path / ".hidden").touch()
    images = open_images(tmp_path)
    assert splits(tmp_path) == ("train",) and images.classes == ["cat", "dog"]
    (tmp_path / "read.me").touch()
    assert open_images(tmp_path).classes == ["cat", "dog"], "a text beside it changes nothing"
    write(tmp_path / "cover.png")
    with pytest.warns(UserWarning, match="train/ is read as any folder, since other folders or images lie beside it"):
        assert open_images(tmp_path).classes is None, "an image is beside it, so it is no split"


def test_train_beside_folders_that_are_no_split_is_a_class(tmp_path) -> None:
    write(tmp_path / "train" / "1.png")
    write(tmp_path / "more" / "1.png")
    images = open_images(tmp_path)
    assert splits(tmp_path) == ("train",) and images.classes == ["more", "train"]


@pytest.mark.parametrize("others", [0, 3])
def test_an_empty_folder(tmp_path, others: int) -> None:
    for i in range(others):
        (tmp_path / f"{i}.raw").write_bytes(b"x")
    with pytest.raises(UserError, match=rf"no images in .*looked for \.jpg \.jpeg .*there are {others} other files"):
        open_images(tmp_path)


@pytest.mark.parametrize(
    ("file", "said"),
    [
        ("film.MP4", "; for videos: data=video:"),
        ("a.tar", "; for images in tar files: data=shards:"),
        ("train-0.arrow", "; for a Hugging Face data set: data=hf:"),
        ("a.parquet", "; for a Hugging Face data set: data=hf:"),
    ],
)
def test_a_folder_of_another_kind_names_its_source(file: str, said: str, tmp_path) -> None:
    (tmp_path / file).write_bytes(b"x")
    with pytest.raises(UserError, match=f"such as {re.escape(file)}{said}{tmp_path}"):
        open_images(tmp_path)


def test_one_image_is_enough(tmp_path) -> None:
    write(tmp_path / "1.png", 7)
    images = open_images(tmp_path, image_size=4)
    assert len(images) == 1 and values(images.__getitems__([0, 0])) == [7, 7]


def test_all_corrupt(tmp_path) -> None:
    for i in range(3):
        (tmp_path / f"{i}.jpg").write_bytes(b"broken")
    with pytest.raises(UserError, match=r"none of its 3 images can be read; the last was .*2\.jpg"):
        open_images(tmp_path)


@pytest.mark.parametrize("coloured", [0, 17, 39])
def test_gray_images_among_coloured_ones_do_not_decide(coloured: int, tmp_path) -> None:
    for number in range(40):
        Image.new("RGB" if number >= coloured else "L", (4, 4), 9).save(tmp_path / f"{number:02d}.png")
    assert open_images(tmp_path, image_size=4).channels == 3


def test_gray_images_have_one_channel(tmp_path) -> None:
    for number in range(3):
        Image.new("L", (4, 4), 9).save(tmp_path / f"{number}.png")
    (tmp_path / "3.png").write_bytes(b"broken")
    assert open_images(tmp_path, image_size=4).channels == 1


def test_channels_come_from_the_first_readable_image(tmp_path) -> None:
    (tmp_path / "0.png").write_bytes(b"broken")
    Image.new("RGB", (4, 4), (255, 0, 0)).save(tmp_path / "1.png")
    Image.new("L", (4, 4), 9).save(tmp_path / "2.png")
    images = open_images(tmp_path, image_size=4)
    assert images.channels == 3
    assert images.__getitems__([1, 2])["images"][:, :, 0, 0].tolist() == [[255, 0, 0], [9, 9, 9]]
    assert open_images(tmp_path, channels=1).channels == 1
    with pytest.raises(UserError, match=r"data.channels=2, but .*1.png has 3: image files give"):
        open_images(tmp_path, channels=2)


def test_a_corrupt_image_is_replaced_and_reported(folder) -> None:
    for name in ("4.png", "5.png", "9.png"):
        (folder / name).write_bytes(b"broken")
    images = open_images(folder, image_size=4)
    batch = images.__getitems__([3, 4, 9, 5])
    assert batch["index"].tolist() == [3, 6, 0, 6] and values(batch) == [3, 6, 0, 6]
    assert batch["bad"] == [str(folder / name) for name in ("4.png", "9.png", "5.png")]
    assert images.__getitems__([4])["bad"] == [str(folder / "4.png")], "those that were asked for"
    assert images.__getitems__([3])["bad"] == []


def test_a_pipe_among_the_images_is_counted_as_not_read(folder) -> None:
    (folder / "3.png").unlink()
    with pipe(folder / "3.png"):
        images = open_images(str(folder), image_size=4)
        batch = images.__getitems__(list(range(10)))
        assert batch["bad"] == [str(folder / "3.png")] and values(batch)[3] == 4
        with pytest.raises(UserError, match=r"3\.png: OSError: .*it is a named pipe, not a file"):
            open_images(str(folder), image_size=4, on_error="raise").__getitems__([3])


def test_the_label_is_that_of_the_image_that_took_the_place(tmp_path) -> None:
    write(tmp_path / "a" / "1.png")
    write(tmp_path / "b" / "1.png")
    images = open_images(tmp_path)
    (tmp_path / "a" / "1.png").write_bytes(b"")
    row = images[0]
    assert row["label"] == 1 and row["index"] == 1


def test_a_corrupt_image_is_decoded_once(folder, monkeypatch) -> None:
    (folder / "4.png").write_bytes(b"broken")
    images = open_images(folder, image_size=4)
    opened = []
    inner = images._open
    monkeypatch.setattr(images, "_open", lambda row: opened.append(row) or inner(row))
    for _ in range(3):
        images.__getitems__([4])
    assert opened == [4, 5, 5, 5]


def test_on_error_raise(folder) -> None:
    (folder / "4.png").write_bytes(b"broken")
    images = open_images(folder, on_error="raise")
    with pytest.raises(UserError, match=r"cannot read .*4\.png: it is no image of a known format.*on_error=skip"):
        images.__getitems__([3, 4])
    (folder / "0.png").write_bytes(b"broken")
    with pytest.raises(UserError, match=r"cannot read .*0\.png"):
        open_images(folder, on_error="raise")


def test_images_that_vanish_all_at_once(folder) -> None:
    images = open_images(folder)
    for path in folder.iterdir():
        path.unlink()
    with pytest.raises(UserError, match="none of its 10 images can be read"):
        images.__getitems__([2])


def test_the_digest_follows_the_files(folder) -> None:
    first = open_images(folder).digest
    assert open_images(folder).digest == first
    os.utime(folder / "3.png", ns=(0, 0))
    assert open_images(folder).digest == first
    write(folder / "3.png", 200, (40, 40))
    grown = open_images(folder).digest
    (folder / "3.png").rename(folder / "33.png")
    renamed = open_images(folder).digest
    options = [{"image_size": 8}, {"channels": 3}, {"fit": "crop"}]
    others = [open_images(folder, **option).digest for option in options]
    assert len({first, grown, renamed, *others}) == 6


def test_aspect_is_that_of_each_original(tmp_path) -> None:
    write(tmp_path / "1.png", size=(30, 10))
    write(tmp_path / "2.png", size=(10, 40))
    assert open_images(tmp_path).__getitems__([0, 1])["aspect"].tolist() == [3, 0.25]
    assert open_images(tmp_path, fit="crop").__getitems__([0, 1])["aspect"].tolist() == [1, 1]


def test_paths_are_kept_in_one_block() -> None:
    names = [f"class/{i:06d}.jpg" for i in range(1000)] + ["grün/ñ.png", os.fsdecode(b"latin\xe9.png"), ""]
    paths = PathList(names)
    assert len(paths) == 1003 and [paths[row] for row in range(1003)] == names
    assert len(pickle.dumps(paths)) < 1003 * 26 + 1000


def test_an_odd_name_opens(tmp_path) -> None:
    write(tmp_path / "grün ñ:1.png", 5)
    assert values(open_images(tmp_path, image_size=4).__getitems__([0])) == [5]


@pytest.mark.parametrize("context", [pytest.param("spawn", marks=pytest.mark.slow), "fork"])
def test_workers_give_what_one_process_gives(folder, context: str) -> None:
    (folder / "4.png").write_bytes(b"broken")
    images = open_images(folder, image_size=6)
    batches = [[1, 4, 2], [9, 8, 4], [0, 0, 7]]

    def all_of(**workers: int | str) -> list[dict]:
        return list(DataLoader(images, batch_sampler=batches, collate_fn=collate, **workers))

    alone, together = all_of(), all_of(num_workers=2, multiprocessing_context=context)
    assert [batch["bad"] for batch in together] == [batch["bad"] for batch in alone]
    assert alone[0]["bad"] == [str(folder / "4.png")]
    for ours, theirs in zip(alone, together, strict=True):
        for key in ("images", "index", "label", "aspect"):
            assert torch.equal(ours[key], theirs[key])


def test_real_pictures_survive_the_way_through_files(tmp_path) -> None:
    clipart = open_images("clipart", split="test")
    rows = list(range(0, len(clipart), 40))
    for row in rows:
        path = tmp_path / clipart.classes[clipart.labels[row]] / f"{row:04d}.png"
        path.parent.mkdir(exist_ok=True)
        Image.fromarray(np.ascontiguousarray(clipart.pixels[row].transpose(1, 2, 0))).save(path)
    images = open_images(tmp_path, image_size=48)
    by_row = {int(Path(images.path(i)).stem): i for i in range(len(images))}
    back = images.__getitems__([by_row[row] for row in rows])
    assert torch.equal(back["images"], clipart.__getitems__(rows)["images"])
    names = [images.classes[label] for label in back["label"]]
    assert names == [clipart.classes[label] for label in clipart.labels[rows]]


@pytest.mark.parametrize("name", ["unlabeled", "Unlabelled", "no_label", "unlabeled_images", "unsup"])
def test_a_folder_of_unlabelled_images_beside_classes_is_no_class(name: str, tmp_path) -> None:
    for folder in ("ant", "bee", name):
        (tmp_path / folder).mkdir()
        Image.new("L", (8, 8)).save(tmp_path / folder / "a.png")
    with pytest.warns(UserWarning, match=f"no label for 1 file in {name}/, which by its name is no class"):
        images = open_images(tmp_path, image_size=8)
    assert images.classes == ["ant", "bee"] and sorted(images.labels.tolist()) == [-1, 0, 1]


def test_colours_that_were_not_looked_at_are_said_once(tmp_path) -> None:
    """3 of 600, and none of the 32 that are looked at."""
    for row in range(600):
        Image.new("RGB" if row in (5, 300, 592) else "L", (8, 8)).save(tmp_path / f"{row:03}.png")
    images = open_images(tmp_path, image_size=8, cache=None)
    assert images.channels == 1
    with pytest.warns(UserWarning, match=r"005.png is coloured and is read as gray.* data.channels=3 keeps") as said:
        for rows in (range(300), range(300, 600), range(600)):
            images.__getitems__(list(rows))
    assert sum("is coloured" in str(one.message) for one in said) == 1
    asked = open_images(tmp_path, image_size=8, cache=None, channels=1)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        asked.__getitems__([5])
