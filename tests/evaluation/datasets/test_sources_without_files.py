"""Shards and Hugging Face data sets are judged like folders: names, a held-out fifth, several labels an image."""

import io
import tarfile
from pathlib import Path

import numpy as np
import pytest
import torch
from PIL import Image

from evaluation.datasets import note_of, open_split, overlap, splits_of
from evaluation.ranking.summary import rank_tasks
from sslkit import open_images
from sslkit.data.sources.shard_writer import write_shards
from sslkit.errors import UserError

DIGITS = open_images("digits")
COUNT = 60


def picture(row: int) -> bytes:
    content = io.BytesIO()
    Image.fromarray(DIGITS.pixels[row, 0]).save(content, "png")
    return content.getvalue()


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    for row in range(COUNT):
        file = tmp_path / "digits" / str(DIGITS.labels[row]) / f"{row}.png"
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_bytes(picture(row))
    return tmp_path / "digits"


@pytest.fixture(params=["shards", "hf"])
def source(request: pytest.FixtureRequest, folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> str:
    monkeypatch.chdir(tmp_path)  # the index of shards goes to runs/cache
    if request.param == "shards":
        write_shards(folder, tmp_path / "shards", progress=False)
        return f"shards:{tmp_path}/shards"
    datasets = pytest.importorskip("datasets")
    kinds = {"image": datasets.Image(), "label": datasets.ClassLabel(num_classes=10)}
    cells = [{"bytes": picture(row), "path": None} for row in range(COUNT)]
    table = {"image": cells, "label": DIGITS.labels[:COUNT].tolist()}
    datasets.Dataset.from_dict(table, features=datasets.Features(kinds)).save_to_disk(str(tmp_path / "mine"))
    return f"hf:{tmp_path}/mine"


def test_a_fifth_of_each_class_is_held_out(source: str) -> None:
    assert splits_of(source) == ("train", "test", "all") and note_of(source)
    train, test, whole = (open_split(source, split, image_size=8, channels=1) for split in ("train", "test", "all"))
    assert not set(train.ids) & set(test.ids) and sorted([*train.ids, *test.ids]) == sorted(whole.ids)
    assert len(set(whole.ids)) == COUNT and np.unique(test.y).tolist() == list(range(10))
    place = {name: row for row, name in enumerate(whole.ids)}
    for part in (train, test):
        batch = part.images.__getitems__(list(range(len(part))))
        rows = [place[name] for name in part.ids]
        assert np.array_equal(batch["images"], whole.images.__getitems__(rows)["images"])
        assert batch["label"].tolist() == part.y.tolist() == whole.y[rows].tolist()
    assert len({train.digest, test.digest, whole.digest}) == 3


def test_shards_hold_out_by_names_as_a_folder_does(folder: Path, tmp_path: Path, monkeypatch) -> None:
    monkeypatch.chdir(tmp_path)
    write_shards(folder, tmp_path / "a" / "shards", progress=False)
    (tmp_path / "b").mkdir()
    (tmp_path / "a" / "shards").rename(tmp_path / "b" / "shards")
    before = open_split(f"shards:{tmp_path}/b/shards", image_size=8).ids.tolist()
    (tmp_path / "b" / "shards").rename(tmp_path / "c")
    assert open_split(f"shards:{tmp_path}/c", image_size=8).ids.tolist() == before


def test_several_labels_an_image(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    with tarfile.open(tmp_path / "all.tar", "w") as tar:
        for row in range(COUNT):
            digit = int(DIGITS.labels[row])
            words = [str(k) for k, of in enumerate((digit % 2 == 0, digit > 4)) if of]
            for name, content in ((f"{row}.png", picture(row)), (f"{row}.cls", " ".join(words).encode())):
                about = tarfile.TarInfo(name)
                about.size = len(content)
                tar.addfile(about, io.BytesIO(content))
    train, test = (
        open_split(f"shards:{tmp_path}/all.tar", split, image_size=8, channels=1) for split in ("train", "test")
    )
    assert train.metric == "map11" and train.classes == ["0", "1"] and train.y.shape == (len(train), 2)
    want = {
        f"all.tar/{row}.png": [1 if DIGITS.labels[row] % 2 == 0 else -1, 1 if DIGITS.labels[row] > 4 else -1]
        for row in range(COUNT)
    }
    assert [want[name] for name in [*train.ids, *test.ids]] == [*train.y.tolist(), *test.y.tolist()]
    assert len(test) == round(COUNT / 5) and not set(train.ids) & set(test.ids)


def tar_of(path: Path, members: dict[str, bytes]) -> str:
    with tarfile.open(path, "w") as tar:
        for name, content in members.items():
            about = tarfile.TarInfo(name)
            about.size = len(content)
            tar.addfile(about, io.BytesIO(content))
    return f"shards:{path}"


def test_images_without_a_label_are_left_out(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.chdir(tmp_path)
    unknown = {3, 10, 11}
    members = {f"{row}.png": picture(row) for row in range(COUNT)}
    members |= {f"{row}.cls": b"%d" % DIGITS.labels[row] for row in range(COUNT) if row not in unknown}
    pixels, y = DIGITS.pixels[:COUNT, 0], DIGITS.labels[:COUNT].copy()
    y[list(unknown)] = -1
    np.savez(tmp_path / "some.npz", x_train=pixels, y_train=y, x_test=pixels, y_test=y)
    for source in (tar_of(tmp_path / "all.tar", members), tmp_path / "some.npz"):
        whole = "all" if str(source).startswith("shards:") else "train"
        with caplog.at_level("WARNING", "sslkit"):
            split = open_split(source, whole, image_size=8, channels=1)
        assert "3 of 60 images of" in caplog.text and "have no label and are left out" in caplog.text
        assert len(split) == len(split.images) == len(split.ids) == COUNT - 3 and (split.y >= 0).all()
        assert split.note.endswith("3 images without a label left out")
        images = split.images.__getitems__(list(range(len(split))))["images"]
        known = {pixel.tobytes(): int(y[row]) for row, pixel in enumerate(pixels)}
        classes = [int(split.classes[label]) for label in split.y]
        assert [known[image.numpy().tobytes()] for image in images] == classes
        everything = open_split(source, whole, image_size=8, channels=1, needs_labels=False)
        assert len(everything) == COUNT and everything.digest != split.digest


def test_one_class_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    source = tar_of(
        tmp_path / "all.tar",
        {f"{row}.{kind}": content for row in range(9) for kind, content in (("png", picture(row)), ("cls", b"7"))},
    )
    with pytest.raises(UserError, match=r"has one class, '7': a held-out part needs at least 2"):
        open_split(source, "test", image_size=8)
    monkeypatch.setattr("evaluation.features.extraction._extract", lambda *_, **__: pytest.fail("extracted"))
    with pytest.raises(UserError, match="has one class, '7'"):
        rank_tasks(
            {"a": torch.nn.Flatten()}, source, ["logme"], truth=None, layers=None, out="runs/ranking", pictures=True
        )


def test_test_images_among_the_training_images_are_found(
    tmp_path: Path, folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    train = {f"{row}.png": picture(row) for row in range(8)} | {f"{row}.cls": b"%d" % (row % 2) for row in range(8)}
    test = {"a.png": picture(5), "a.cls": b"1", "b.png": picture(9), "b.cls": b"0"}
    tar_of(tmp_path / "my-train.tar", train)
    tar_of(tmp_path / "my-test.tar", test)
    splits = [open_split(f"shards:{tmp_path}", split, image_size=8) for split in ("train", "test")]
    assert overlap(*splits) == [("my-train.tar/5.png", "my-test.tar/a.png")]
    assert len(overlap(open_split(folder, "all", image_size=8), splits[0])) == 8  # files against shards


def test_images_without_labels_are_one_line(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    with tarfile.open(tmp_path / "all.tar", "w") as tar:
        for row in range(4):
            about = tarfile.TarInfo(f"{row}.png")
            about.size = len(picture(row))
            tar.addfile(about, io.BytesIO(picture(row)))
    with pytest.raises(UserError, match="has no labels in its split"):
        open_split(f"shards:{tmp_path}/all.tar", "train", image_size=8)


def test_the_same_content_is_found_by_bytes_alone(source: str, folder: Path) -> None:
    from evaluation.embedding.near_duplicates import same_content
    from evaluation.embedding.sources import open_parts

    inside, files = (
        open_parts(source, None),
        open_parts(str(folder), None),
    )
    names = [[name for part in parts for name in part.names(part.split.ids)] for parts in (inside, files)]
    found = same_content([(inside, names[0]), (files, names[1])])
    assert found[:COUNT].tolist() == list(range(COUNT))  # sixty different digits
    by_label = np.concatenate([part.split.y for part in inside])[found[COUNT:]]
    assert sorted(found[COUNT:].tolist()) == list(range(COUNT))  # each file is one of them
    assert by_label.tolist() == np.concatenate([part.split.y for part in files]).tolist()
