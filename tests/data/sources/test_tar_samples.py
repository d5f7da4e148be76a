"""Samples: which label belongs to which image, by how webdataset groups members and by what people's tars look like."""

from pathlib import Path

import numpy as np
import pytest
from tars import labels, names, opened, picture, pngs, rows_read, tar

from evaluation.datasets._sources import of_source
from sslkit.data.held_out import held_out
from sslkit.data.images import ImageOptions
from sslkit.data.sources.tar_names import parse, plain
from sslkit.errors import UserError


def test_repeated_names_keep_the_label_they_stand_beside(tmp_path: Path) -> None:
    """webdataset raises "duplicate file name in tar file" (its issues 157 and 286): here a new sample begins."""
    tar(
        tmp_path / "a.tar",
        [one for row in range(6) for one in (("x.png", picture(row)), ("x.cls", b"%d" % (row // 3)))],
    )
    images, said = opened(tmp_path / "a.tar")
    assert labels(images) == ["0", "0", "0", "1", "1", "1"] and rows_read(images) == list(range(6))
    assert names(images) == ["x.png", *(f"x.png#{row}" for row in range(2, 7))]
    assert said == ["a: 5 images with the name of an earlier one in the shard; each is a row of its own, as NAME#2"]


@pytest.mark.parametrize("order", ["png cls", "cls png"])
def test_a_key_that_comes_again_is_another_sample(order: str, tmp_path: Path) -> None:
    members = [
        f"{key}.{kind}" + f"={label}" * (kind == "cls")
        for key, label in (("a", "1"), ("b", "2"), ("a", "3"))
        for kind in order.split()
    ]
    tar(tmp_path / "a.tar", pngs(*members))
    images, _ = opened(tmp_path / "a.tar")
    assert names(images) == ["a.png", "b.png", "a.png#2"] and labels(images) == ["1", "2", "3"]


def test_labels_that_stand_apart_are_matched_where_that_is_clear(tmp_path: Path) -> None:
    """An unsorted tar (webdataset's issues 11, 100, 140 and 407): it gives samples without their label there."""
    tar(tmp_path / "a.tar", pngs("a.png", "b.png", "c.png", "a.cls=1", "b.cls=2", "c.cls=3"))
    images, said = opened(tmp_path / "a.tar")
    assert labels(images) == ["1", "2", "3"]
    assert said == ["a: 3 labels stand apart from their images (an unsorted tar) and are matched by name"]
    tar(tmp_path / "a.tar", pngs("a.png", "a.png", "a.cls=1", "a.cls=2", "z.cls=9", "b.png", "b.cls=5"))
    images, said = opened(tmp_path / "a.tar")
    assert labels(images) == [None, "1", "5"]
    assert said[0] == "a: 3 images; left out 2 other members: 2 .cls beside no image"


def test_unsorted_archives_behind_each_other_keep_their_own_labels(tmp_path: Path) -> None:
    first = tar(tmp_path / "a.tar", pngs("a.png", "b.png", "a.cls=1", "b.cls=2"))
    second = tar(tmp_path / "b.tar", pngs("a.png", "b.png", "a.cls=3", "b.cls=4"))
    first.write_bytes(first.read_bytes() + second.read_bytes())
    images, _ = opened(first)
    assert labels(images) == ["1", "2", "3", "4"]


@pytest.mark.parametrize(
    ("members", "want"),
    [
        (["22.05.png", "22.05.cls=1", "22.06.png", "22.06.cls=2"], ["1", "2"]),  # datasets' issues 6880 and 7144
        (["img.1.png", "img.2.png", "img.3.png", "img.1.cls=1", "img.2.cls=2", "img.3.cls=0"], ["1", "2", "0"]),
        (["2.0 (Clean).png", "2.0 (Clean).cls=4", "2.1 (Live).png", "2.1 (Live).cls=5"], ["4", "5"]),  # webdataset 237
        (["a.1/x.png", "a.1/x.cls=1", "a.2/x.png", "a.2/x.cls=2"], ["a.1", "a.2"]),  # datasets' issue 7150
        (["St.Paul.png", "St.Paul.cls=1", "St.Peter.png", "St.Peter.cls=2"], ["1", "2"]),
        (["i.1.png", "i.2.png", "i.json={\"label\": 3}", "j.1.png", "j.json={\"label\": 4}"], ["3", "3", "4"]),  # 7055
        (["a.image.png", "a.label.cls=1", "b.image.png", "b.label.cls=2"], ["1", "2"]),  # as datasets exports them
    ],
)  # fmt: skip
def test_dots_in_names(members: list[str], want: list[str], tmp_path: Path) -> None:
    path = tar(tmp_path / "a.tar", pngs(*members))
    images, _ = opened(path)
    assert labels(images) == want and rows_read(images) == list(range(len(want)))


def test_the_parts_of_names() -> None:
    assert parse("a.b/c.0001.seg.PNG") == ("a.b/c", "a.b/c.0001", "seg", "png", "0001.seg.png")
    assert parse("a.b/c") == ("a.b/c", "a.b/c", "", "", "") and parse("x.PNG")[3:] == ("png", "png")
    assert [plain(name) for name in ("./a", "/a//b", "../../a", "a/./b/../c", "a..b", ".a", "...")] == [
        "a", "a/b", "a", "a/c", "a..b", ".a", "...",
    ]  # fmt: skip


def test_images_are_known_by_their_content_too(tmp_path: Path) -> None:
    kinds = {
        "0.jfif": "jpeg",
        "1.tga": "tga",
        "2": "png",
        "3.img": "jpeg",
        "4.0": "png",
        "5.PNG": "png",
        "6.jp2": "jpeg2000",
    }
    members = {name: picture(row, kind) for row, (name, kind) in enumerate(kinds.items())}
    others = {"a.txt": b"text", "notes": b"text", "b.npy": b"\x93NUMPY", "c.xml": b"<a/>", "d.xml": b"<a/>"}
    tar(tmp_path / "a.tar", members | others)
    images, said = opened(tmp_path / "a.tar")
    assert names(images) == list(kinds) and not images.__getitems__(list(range(7)))["bad"]
    assert said == ["a: 7 images; left out 5 other members: 2 .xml, 1 .npy, 1 .txt, 1 without extension"]


def test_what_systems_leave_behind_is_no_data(tmp_path: Path) -> None:
    usual = ["._0.png", "__MACOSX/._0.png", ".DS_Store", "x/Thumbs.db", "x/.ipynb_checkpoints/0-checkpoint.png"]
    tar(
        tmp_path / "a.tar",
        pngs("0.png", *(f"{name}=text" for name in usual), "0.cls=3", ".hidden/1.png", "x/2.png", "x/2.cls=4"),
    )
    images, said = opened(tmp_path / "a.tar")
    assert names(images) == ["0.png", "x/2.png"] and labels(images) == ["3", "4"]  # they part no sample
    assert said == ["a: 2 images; left out 1 other member: 1 hidden"]


def test_shards_without_images_say_what_is_in_them(tmp_path: Path) -> None:
    tar(tmp_path / "a.tar", {f"{row}.{kind}": b"x" for row in range(3) for kind in ("tar", "mp4")} | {"a.json": b"{}"})
    with pytest.raises(
        UserError,
        match=r"no image in 1 shard, such as .*a\.tar; left out 7 other members: 3 \.mp4, 3 \.tar, 1 \.json$",
    ):
        opened(tmp_path / "a.tar")


def test_every_row_has_an_identity_of_its_own(tmp_path: Path) -> None:
    """Ids decide what is held out and drawn: with the same one, an image would be in neither part, or in both."""
    for shard in ("a/0.tar", "b/0.tar"):
        tar(
            tmp_path / shard,
            [one for row in range(20) for one in (("x.png", picture(row)), ("x.cls", b"%d" % (row % 2)))],
        )
    tar(
        tmp_path / "b/1.tar",
        pngs("x.png", "x.cls=0", "y.png", "y.cls=1", "x.png#2", "w.png", "w.cls=1", "x.png", "x.cls=0"),
    )
    whole = of_source(f"shards:{tmp_path}", ImageOptions(split="all", image_size=8, cache=None))
    assert len(set(whole.ids)) == len(whole) == 45 and whole.ids[0] == "a/0.tar/x.png"
    assert whole.ids[-4:].tolist() == [f"b/1.tar/{name}" for name in ("y.png", "x.png#2", "w.png", "x.png#3")]
    parts = [
        of_source(f"shards:{tmp_path}", ImageOptions(split=part, image_size=8, cache=None))
        for part in ("train", "test")
    ]
    assert sorted([*parts[0].ids, *parts[1].ids]) == sorted(whole.ids)
    assert held_out(whole.y, whole.ids, seed=0).sum() == len(parts[1])


def test_names_and_labels_are_those_of_the_kept_index(tmp_path: Path) -> None:
    members = pngs("x.png", "x.cls=cat", "x.png", "x.cls=ü 1", "y.png", "y.mask.png", "y.json={}", "z.txt=a", "w.cls=1")
    tar(tmp_path / "a.tar", members)
    first, said = opened(tmp_path / "a.tar", cache=tmp_path / "cache")
    again, said_again = opened(tmp_path / "a.tar", cache=tmp_path / "cache")
    assert said == said_again and first.digest == again.digest and names(first) == names(again)
    assert labels(first) == labels(again) == ["cat", "ü 1", None]
    assert np.array_equal(first.index.offset, again.index.offset)


@pytest.mark.parametrize("seed", range(20))
def test_any_order_within_samples_gives_each_image_its_label(seed: int, tmp_path: Path) -> None:
    """Drawn keys, with folders, dots and repetitions, and members in any order of each sample."""
    rng = np.random.default_rng(seed)
    kind = ("cls", "json", "txt")[rng.integers(3)]
    keys = ["a", "b.01", "x/c", "./x/d-e", "Ü", "x.y/f"]
    members, wanted, before = [], [], ""
    for row in range(rng.integers(2, 12)):
        key = rng.choice([one for one in keys if one != before])
        label = int(rng.integers(3)) if row and rng.random() < 0.8 else 0 if not row else None
        sample = [(f"{key}.png", picture(row)), (f"{key}.md", b"about it")][: rng.integers(1, 3)]
        if label is not None:
            text = f'{{"label": {label}, "from": "drawn"}}' if kind == "json" else f"{label}\n"
            sample.append((f"{key}.{kind}", text.encode()))
        members += [sample[place] for place in rng.permutation(len(sample))]
        wanted.append(None if label is None else str(label))
        before = key
    images, _ = opened(tar(tmp_path / "a.tar", members, format=int(rng.integers(3))))
    assert rows_read(images) == list(range(len(wanted))) and labels(images) == wanted
    assert len(set(names(images))) == len(wanted)
