"""Shards: tar files of images, read row by row at their offsets, equal to the folder that they were written from."""

import gzip
import os
import pickle
import tarfile
from pathlib import Path

import numpy as np
import pytest
import torch
from odd_disks import read_only
from patients import COLUMNS, SOURCES
from PIL import Image
from tars import DIGITS, picture, tar

from sslkit.data.sources.named import open_images, splits
from sslkit.data.sources.shard_writer import write_shards
from sslkit.data.sources.shards import name_of_shards
from sslkit.errors import UserError


def labelled(rows: range, part: int = 0, parts: int = 1) -> dict[str, bytes]:
    """WebDataset's form: image, class and more of a sample."""
    found = {}
    for row in [row for row in rows if row % parts == part]:
        found |= {f"{row:06}.png": picture(row), f"{row:06}.cls": b"%d" % DIGITS.labels[row], f"{row:06}.json": b"{}"}
    return found


@pytest.fixture
def shards(tmp_path: Path) -> str:
    for split, rows in (("train", range(30)), ("test", range(30, 42))):
        for part in range(3):
            tar(tmp_path / f"digits-{split}-{part:06}.tar", labelled(rows, part, 3))
    return f"shards:{tmp_path}/digits-{{train,test}}-{{000000..000002}}.tar"


def rows_of(images) -> list[int]:
    return [int(images.path(row).rpartition("/")[2][:6]) for row in range(len(images))]


def test_every_row_is_the_image_and_the_label_of_its_sample(shards: str, tmp_path: Path) -> None:
    assert splits(shards) == ("train", "test")
    for split, want in (("train", range(30)), ("test", range(30, 42)), ("val", range(30, 42))):
        images = open_images(shards, split=split, image_size=8, cache=tmp_path / "cache")
        rows = rows_of(images)
        assert sorted(rows) == list(want) and images.name == "digits" and images.channels == 1
        batch = pickle.loads(pickle.dumps(images)).__getitems__(list(range(len(images))))
        assert np.array_equal(batch["images"], DIGITS.pixels[rows])
        assert images.classes == list("0123456789") and batch["label"].tolist() == DIGITS.labels[rows].tolist()


@pytest.mark.parametrize(
    "form",
    ["{folder}", "{folder}/*.tar", "{folder}/digits-*-00000[0-2].tar", "file://{folder}/*.tar", "file://{folder}"],
)
def test_a_folder_a_pattern_and_a_url_name_the_same_shards(form: str, shards: str, tmp_path: Path) -> None:
    found = open_images("shards:" + form.format(folder=tmp_path), image_size=8, cache=None)
    known = open_images(shards, image_size=8, cache=None)
    every = list(range(len(known)))
    assert torch.equal(found.__getitems__(every)["images"], known.__getitems__(every)["images"])
    assert found.labels.tolist() == known.labels.tolist() and found.splits == known.splits


def test_shards_of_another_file_system(tmp_path: Path) -> None:
    import fsspec

    with fsspec.open("memory://bucket/train-000.tar", "wb") as file:
        file.write(tar(tmp_path / "a.tar", labelled(range(5))).read_bytes())
    images = open_images("shards:memory://bucket/train-*.tar", image_size=8, cache=None)
    assert np.array_equal(images.__getitems__([3, 1])["images"], DIGITS.pixels[[3, 1]])
    with pytest.raises(UserError, match=r"there are no shards memory://bucket/none-\*\.tar"):
        open_images("shards:memory://bucket/none-*.tar")
    with pytest.raises(UserError, match=r"cannot reach the shard memory://bucket/none\.tar"):
        open_images("shards:memory://bucket/none.tar", cache=None)
    with pytest.raises(UserError, match=r"nosuch://a/b\.tar: .*Protocol not known"):
        open_images("shards:nosuch://a/b.tar")


@pytest.mark.parametrize("classes", [True, False])
def test_shards_of_a_folder_are_that_folder(classes: bool, tmp_path: Path) -> None:
    for row in range(24):
        below = ("train", "test")[row % 4 == 0]
        top = f"{below}/digit.{DIGITS.labels[row]}" if classes else below
        path = tmp_path / "folder" / top / f"{row:03}.v2.{('png', 'PNG', 'jpg')[row % 3]}"
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(picture(row, "jpeg" if path.suffix == ".jpg" else "png"))
    (tmp_path / "folder" / "train" / "notes.txt").write_text("no image")
    written = write_shards(tmp_path / "folder", tmp_path / "shards", megabytes=1)
    assert [(one.split, one.images) for one in written] == [("train", 18), ("test", 6)]
    for split in ("train", "test"):
        want = open_images(tmp_path / "folder", split=split, image_size=8)
        found = open_images(f"shards:{tmp_path / 'shards'}", split=split, image_size=8, cache=None)
        every = list(range(len(want)))
        assert torch.equal(found.__getitems__(every)["images"], want.__getitems__(every)["images"])
        assert found.classes == want.classes and found.splits == want.splits
        assert (found.labels is None) == (want.labels is None)
        assert found.labels is None or found.labels.tolist() == want.labels.tolist()


def test_shards_are_closed_at_their_size_and_the_same_bytes_again(tmp_path: Path) -> None:
    (tmp_path / "folder").mkdir()
    noise = np.random.default_rng(0).integers(0, 256, (5, 400, 400, 3), np.uint8)
    for row, pixels in enumerate(noise):
        Image.fromarray(pixels).save(tmp_path / "folder" / f"{row}.png")
    same_but_for_its_ending = tmp_path / "folder" / "0.bmp"
    same_but_for_its_ending.write_bytes((tmp_path / "folder" / "0.png").read_bytes())
    for out in ("a", "b"):
        (written,) = write_shards(tmp_path / "folder", tmp_path / out, megabytes=1)
    assert len(written.shards) == 2 and written.images == 6
    names = []
    for path in written.shards:
        with tarfile.open(path) as opened:
            names += opened.getnames()
    assert len(names) == 6 and len({name.partition(".")[0] for name in names}) == 6
    for path in written.shards:
        assert path.read_bytes() == (tmp_path / "a" / path.name).read_bytes()
    with pytest.raises(UserError, match="has files in it"):
        write_shards(tmp_path / "folder", tmp_path / "a")


def test_folders_in_a_shard_are_classes_unless_numbers_are_given(tmp_path: Path) -> None:
    tops = {f"{'cat' if row % 2 else 'dog'}/{row}.png": picture(row) for row in range(6)}
    tar(tmp_path / "a" / "x.tar", tops)
    found = open_images(f"shards:{tmp_path / 'a'}", image_size=8, cache=None)
    assert found.classes == ["cat", "dog"] and found.labels.tolist() == [1, 0, 1, 0, 1, 0]
    numbers = {f"{name[:-4]}.cls": b"7" if "cat" in name else b"3" for name in tops}
    tar(tmp_path / "b" / "x.tar", tops | numbers)
    found = open_images(f"shards:{tmp_path / 'b'}", image_size=8, cache=None)
    assert found.classes == ["dog", "cat"] and found.labels.tolist() == [0, 1, 0, 1, 0, 1]
    tar(tmp_path / "c" / "x.tar", tops | dict(list(numbers.items())[:2]) | {"dog/4.cls": b"many"})
    with pytest.warns(UserWarning, match=r"in 1 \.cls file, such as dog/4\.cls \('many'\)"):
        found = open_images(f"shards:{tmp_path / 'c'}", image_size=8, cache=None)
    assert found.classes == ["3", "7"] and found.labels.tolist() == [0, 1, -1, -1, -1, -1]


def test_only_new_and_changed_shards_are_indexed_again(shards: str, tmp_path: Path, monkeypatch) -> None:
    from sslkit.data.sources import tar_index

    scanned = []
    scan = tar_index.scan
    monkeypatch.setattr(
        tar_index, "scan", lambda files, shard, *more: scanned.append(shard) or scan(files, shard, *more)
    )
    first = open_images(shards, cache=tmp_path / "cache")
    assert len(scanned) == 6
    assert open_images(shards, cache=tmp_path / "cache").digest == first.digest and len(scanned) == 6
    changed = tar(tmp_path / "digits-train-000001.tar", labelled(range(100, 110)))
    again = open_images(shards, cache=tmp_path / "cache")
    assert scanned[6:] == [str(changed)] and again.digest != first.digest and len(again) == 30
    (index,) = (tmp_path / "cache").glob("shards-*.npz")
    index.write_bytes(b"damaged")
    with pytest.warns(UserWarning, match="making the index of shards again"):
        assert open_images(shards, cache=tmp_path / "cache").digest == again.digest


def test_a_read_only_index_is_used_if_it_knows_all_shards(monkeypatch, tmp_path: Path) -> None:
    from sslkit.data.sources import tar_index

    first, second = (tar(tmp_path / f"{part}.tar", labelled(range(20), part, 2)) for part in range(2))
    os.truncate(second, 9000)
    source, cache = f"shards:{tmp_path}/{{0..1}}.tar", tmp_path / "cache"
    with pytest.warns(UserWarning, match="is damaged"):
        known = open_images(source, cache=cache).digest
    monkeypatch.setattr(tar_index, "scan", lambda *_: 1 / 0)
    assert read_only(cache, lambda: open_images(source, cache=cache).digest) == known
    tar(first, labelled(range(30)))
    said = read_only(cache, lambda: open_images(source, cache=cache).digest)
    assert said.startswith(f"UserError: cannot write the index of shards in {cache}: Permission denied; choose")


def test_another_archive_in_the_place_of_the_index_is_replaced(shards: str, tmp_path: Path) -> None:
    first = open_images(shards, cache=tmp_path / "cache")
    (index,) = (tmp_path / "cache").glob("shards-*.npz")
    np.savez(index, x=np.arange(3))
    with pytest.warns(UserWarning, match=r"npz is damaged \('ends'\): making the index of shards again"):
        assert open_images(shards, cache=tmp_path / "cache").digest == first.digest


@pytest.mark.parametrize("bytes_left", [512 * 20, 512 * 20 + 100, 512 * 20 + 600, 300])
def test_a_cut_shard_is_named_and_used_as_far_as_it_goes(bytes_left: int, shards: str, tmp_path: Path) -> None:
    cut = tmp_path / "digits-train-000001.tar"
    cut.write_bytes(cut.read_bytes()[:bytes_left])
    with pytest.warns(UserWarning, match=r"digits-train-000001\.tar is damaged .* its first \d+ images are used"):
        images = open_images(shards, image_size=8, cache=tmp_path / "cache")
    batch = images.__getitems__(list(range(len(images))))
    assert 20 <= len(images) < 30 and not batch["bad"]
    assert np.array_equal(batch["images"], DIGITS.pixels[rows_of(images)])
    tar(cut, labelled(range(30), 1, 3))  # mended
    assert len(open_images(shards, cache=tmp_path / "cache")) == 30


def test_a_damaged_image_is_named_and_another_is_used(shards: str, tmp_path: Path) -> None:
    tar(tmp_path / "digits-train-000002.tar", {**labelled(range(2, 8), 2, 3), "bad.jpg": b"no image"})
    images = open_images(shards, image_size=8, cache=None)
    batch = images.__getitems__(list(range(len(images))))
    assert batch["bad"] == [f"{tmp_path}/digits-train-000002.tar/bad.jpg"]
    strict = open_images(shards, image_size=8, on_error="raise", cache=None)
    with pytest.raises(UserError, match=r"cannot read .*bad\.jpg: it is no image of a known format"):
        strict.__getitems__(list(range(len(strict))))
    os.truncate(tmp_path / "digits-train-000000.tar", 600)  # while it is used
    assert "digits-train-000000.tar" in images.__getitems__([0])["bad"][0]


@pytest.mark.parametrize(
    ("name", "said"),
    [
        ("none-{000..002}.tar", "there is no shard .*none-000.tar"),
        ("none-*.tar", r"there are no shards .*none-\*\.tar"),
        ("a.tar.gz", "is compressed, so that no image in it can be read alone"),
        ("more", r"more/deep/b\.TGZ is compressed"),  # in a folder, beside a shard
        ("gzip.tar", r"gzip\.tar is compressed"),
        ("text.tar", "there is no image in 1 shard, such as"),
    ],
)
def test_what_is_no_set_of_shards_is_one_line(name: str, said: str, tmp_path: Path) -> None:
    (tmp_path / "a.tar.gz").write_bytes(b"")
    text = tar(tmp_path / "text.tar", {"a.txt": b"text"})
    (tmp_path / "gzip.tar").write_bytes(gzip.compress(text.read_bytes()))
    tar(tmp_path / "more" / "a.tar", labelled(range(3)))
    (tmp_path / "more" / "deep").mkdir()
    (tmp_path / "more" / "deep" / "b.TGZ").write_bytes(b"")
    with pytest.raises(UserError, match=said):
        open_images(f"shards:{tmp_path / name}", cache=None)


def test_several_classes_an_image(tmp_path: Path) -> None:
    classes = {0: b"7 3", 1: b"3,12", 2: b"", 3: None, 4: b"12\n", 5: b"-1"}
    members = {}
    for row, text in classes.items():
        members |= {f"{row}.png": picture(row)} | ({} if text is None else {f"{row}.cls": text})
    tar(tmp_path / "some-train.tar", members)
    tar(tmp_path / "some-test.tar", {"9.png": picture(9), "9.cls": b"20"})
    source = f"shards:{tmp_path}/*.tar"
    for _ in range(2):  # read from the shards, and from the kept index
        images = open_images(source, image_size=8, cache=tmp_path / "cache")
        assert images.labels is None and images.classes == ["3", "7", "12", "20"]
        yes, no = 1, -1
        want = [[yes, yes, no, no], [yes, no, yes, no], [no] * 4, [0] * 4, [no, no, yes, no], [0] * 4]
        assert images.multi_labels.tolist() == want
        held_out = open_images(source, split="test", image_size=8, cache=tmp_path / "cache")
        assert held_out.multi_labels.tolist() == [[no, no, no, yes]]
        some = images.part(np.array([4, 0]), "some")
        assert some.multi_labels.tolist() == [want[4], want[0]] and rows_of_names(some) == ["4.png", "0.png"]
    changed = open_images(source, image_size=8, cache=tmp_path / "cache")
    tar(tmp_path / "some-train.tar", {**members, "0.cls": b"3 20"})
    assert open_images(source, image_size=8, cache=tmp_path / "cache").digest != changed.digest


def test_wrong_class_numbers_are_named_whenever_the_shards_are_opened(tmp_path: Path) -> None:
    classes = {0: b"3", 1: b"1.5", 2: b"-1", 3: b"cat", 4: b"5 " * 2**16}
    for row, text in classes.items():
        tar(tmp_path / f"{row}.tar", {f"{row}.png": picture(row), f"{row}.cls": text})
    said = (
        r"no whole number from 0 on in 3 \.cls files, such as 1\.cls \('1\.5'\) in .*1\.tar: "
        r"their images have no label"
    )
    for _ in range(2):  # read from the shards, and from the kept index
        with pytest.warns(UserWarning, match=said):
            images = open_images(f"shards:{tmp_path}", image_size=8, cache=tmp_path / "cache")
        assert images.labels.tolist() == [0, -1, -1, -1, -1]


@pytest.mark.parametrize(
    ("source", "name"),
    [
        ("shards:FOLDER/{000..010}.tar", "FOLDER"),
        ("shards:FOLDER/train-{000..010}.tar", "FOLDER"),
        ("shards:FOLDER/birds_train-*.tar", "birds_train"),
        ("shards:s3://FOLDER/{train,val}/00.tar", "FOLDER"),
        ("shards:*.tar", "shards"),
    ],
)
def test_names_of_sets_of_shards(source: str, name: str) -> None:
    assert name_of_shards(source) == name


def rows_of_names(images) -> list[str]:
    return [images.image_name(row).rpartition("/")[2] for row in range(len(images))]


def test_names_of_images_do_not_depend_on_the_place(tmp_path: Path) -> None:
    for place in ("here", "there"):
        for part in ("a", "b"):  # shards of the same name in two folders
            tar(tmp_path / place / part / "0.tar", {"x.png": picture(0)})
    names = []
    for place in ("here", "there"):
        images = open_images(f"shards:{tmp_path}/{place}/*/0.tar", image_size=8, cache=None)
        names.append([images.image_name(row) for row in range(len(images))])
    assert names == [["a/0.tar/x.png", "b/0.tar/x.png"]] * 2


GIVEN = {"one": COLUMNS, "several": {"label": ["edema", "fracture"], "split": "part", "group": "patient"}}


@pytest.mark.filterwarnings("ignore::UserWarning")
@pytest.mark.parametrize("name", ["folder", "table"])
@pytest.mark.parametrize("given", GIVEN)
def test_labels_and_groups_of_columns_come_back(name: str, given: str, tmp_path: Path) -> None:
    """Patient 3 has no cell for fractures: not known."""
    (tmp_path / "mine").mkdir()
    source = SOURCES[name](tmp_path / "mine")
    written = write_shards(source, tmp_path / "shards", columns=GIVEN[given])
    assert [(part.split, part.images) for part in written] == [("train", 32), ("test", 8)]
    words = {"columns.group": "group", **({"columns.label": ["edema", "fracture"]} if given == "several" else {})}
    assert written[0].columns == words
    columns = {option.removeprefix("columns."): value for option, value in words.items()}
    for split in ("train", "test"):
        before = open_images(source, split=split, columns=GIVEN[given], cache=None)
        after = open_images(f"shards:{tmp_path}/shards", split=split, columns=columns, cache=None)
        assert [after.content(row) for row in range(len(after))] == [before.content(row) for row in range(len(before))]
        assert after.classes == before.classes and after.splits == before.splits
        for facts in ("labels", "multi_labels"):
            assert np.array_equal(getattr(after, facts), getattr(before, facts))
        same = [images.groups[:, None] == images.groups for images in (before, after)]
        assert np.array_equal(*same)


@pytest.mark.filterwarnings("ignore::UserWarning")
def test_groups_of_class_folders_and_several_labels_in_texts_come_back(tmp_path: Path) -> None:
    for row in range(6):
        path = tmp_path / "mine" / ("cat" if row % 2 else "dog") / f"p{row // 2}_{row}.png"
        path.parent.mkdir(parents=True, exist_ok=True)
        Image.new("L", (4, 4), row).save(path)
    write_shards(tmp_path / "mine", tmp_path / "a", columns={"group": "(p[0-9])_"})
    images = open_images(f"shards:{tmp_path}/a", columns={"group": "group"}, cache=None)
    assert images.classes == ["cat", "dog"] and len(set(images.groups.tolist())) == 3
    names = sorted(path.relative_to(tmp_path) for path in (tmp_path / "mine").rglob("*.png"))
    lines = [f"{name},{text}" for name, text in zip(names, ["a|b", "a", "b", "", "b|c", "c"], strict=True)]
    (tmp_path / "list.csv").write_text("\n".join(["path,kinds", *lines]))
    (written,) = write_shards(tmp_path / "list.csv", tmp_path / "b", columns={"label": "kinds"})
    assert written.columns == {}
    before = open_images(tmp_path / "list.csv", columns={"label": "kinds"}, cache=None)
    after = open_images(f"shards:{tmp_path}/b", cache=None)
    assert after.classes == ["a", "b", "c"] and after.multi_labels.tolist() == before.multi_labels.tolist()
