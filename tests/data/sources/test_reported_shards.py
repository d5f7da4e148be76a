"""Public reports about tar shards in other libraries, each written down as the shards that it is about."""

import gzip
import io
import tarfile
from pathlib import Path

import pytest
from tars import labels, names, opened, picture, pngs, rows_read, tar

from sslkit.errors import UserError


@pytest.mark.parametrize(
    ("content", "said"),
    [
        (b"version https://git-lfs.github.com/spec/v1\noid sha256:4d7a\nsize 9\n", "git lfs pull"),
        (b"<html><body>403 Forbidden", "a failed download leaves it: download it again"),
        (b"", "it is empty: copy it again"),
    ],
)
def test_what_stands_in_the_place_of_a_shard_is_named(content: bytes, said: str, tmp_path: Path) -> None:
    """`invalid header` or `truncated header`, whatever the file was."""
    tar(tmp_path / "a.tar", pngs("a.png"))
    (tmp_path / "b.tar").write_bytes(content)
    images, warned = opened(tmp_path)
    assert len(images) == 1 and len(warned) == 1 and said in warned[0] and "b.tar is damaged" in warned[0]


@pytest.mark.parametrize(
    ("members", "want"),
    [
        (["a.png", "a.png.cls=1", "b.png", "b.png.cls=2"], ["1", "2"]),  # named after the whole file
        (["a.png", "a.cls=1", "b.webp", "b.cls=2", "c.jpeg", "c.cls=3"], ["1", "2", "3"]),  # formats among the samples
        (["/data/cat/a.png", "/data/dog/b.png"], ["cat", "dog"]),  # packed from the root of the file system
        (["../x/cat/a.png", "../x/dog/b.png"], ["cat", "dog"]),
        (["a.png", "a.cls=1000", "b.png", "b.cls=1"], ["1000", "1"]),  # numbers from 1 on
        (["a.png", "a.cls=01", "b.png", "b.cls=10"], ["1", "10"]),
        (["a.png", 'a.json={"label":true}', "b.png", 'b.json={"label":false}'], ["1", "0"]),
        (["a.png", 'a.json={"label":"10"}', "b.png", 'b.json={"label":"9"}'], ["10", "9"]),
    ],
)
def test_labels_of_other_makers(members: list[str], want: list[str], tmp_path: Path) -> None:
    """Samples were dropped for a missing key, or labels shifted by one."""
    images, _ = opened(tar(tmp_path / "a.tar", pngs(*members)))
    assert labels(images) == want and rows_read(images) == list(range(len(want)))
    assert images.classes == sorted(images.classes, key=lambda name: int(name) if name.isdecimal() else 0)


@pytest.mark.parametrize(
    "cls", [b"(3,)", b"1\tcat", (3).to_bytes(8, "little"), "3".encode("utf-16"), b"\x80\x04K\x03."]
)
def test_what_holds_no_class_is_shown(cls: bytes, tmp_path: Path) -> None:
    """Labels written by repr, pickle, tobytes or another encoding: a traceback in a worker, or no label."""
    tar(tmp_path / "a.tar", [("a.png", picture(0)), ("a.cls", cls), ("b.png", picture(1)), ("b.cls", cls)])
    images, said = opened(tmp_path / "a.tar")
    assert images.labels is None and len(said) == 1
    assert said[0].startswith("no class in 2 .cls files, such as a.cls (") and "have no label" in said[0]


@pytest.mark.parametrize(
    ("more", "said"),
    [
        (['metadata.jsonl={"file_name":"a.png","label":1}'], "1 other member: 1 metadata.jsonl"),
        (["labels.csv=file,label"], "1 other member: 1 .csv"),
        (["a.label.npy=x", "b.label.npy=x"], "2 other members: 2 .npy"),
        (["a.png.txt=a cat", "b.png.txt=a dog"], "2 other members: 2 .png.txt"),
        (['a.json={"meta":{"label":3}}', 'b.json={"meta":{"label":4}}'], "2 other members: 2 .json"),
    ],
)
def test_labels_that_are_not_read_are_counted(more: list[str], said: str, tmp_path: Path) -> None:
    """Tables, arrays and nested keys beside the images: they were ignored without a word."""
    images, warned = opened(tar(tmp_path / "a.tar", pngs("a.png", "b.png", *more)))
    assert images.labels is None and warned[0] == f"a: 2 images; left out {said}"


def test_names_in_one_shard_and_numbers_in_another(tmp_path: Path) -> None:
    for number, label in enumerate(("cat", "3", "4")):
        tar(tmp_path / f"s-{number}.tar", pngs("a.png", f"a.cls={label}"))
    images, said = opened(tmp_path)
    assert labels(images) == [None, "3", "4"] and len(said) == 1 and "('cat')" in said[0]


@pytest.mark.parametrize("pattern", ["s-{000..002}.tar", "s-{0..2}.tar"])
def test_a_gap_in_the_numbers_and_other_zeros(pattern: str, tmp_path: Path) -> None:
    """Makers skip shards that failed: training ended in the middle of an epoch, in a worker."""
    for number in (0, 2):
        tar(tmp_path / f"s-{number:03}.tar", pngs("a.png"))
    with pytest.raises(UserError, match=r"there is no shard .*s-(001|0)\.tar"):
        opened(tmp_path / pattern)


def test_an_image_without_bytes_is_replaced(tmp_path: Path) -> None:
    """A download that failed and left its label: the sample's label went to another image."""
    members = [("a.png", picture(0)), ("a.cls", b"1"), ("b.png", b""), ("b.cls", b"2"), ("c.png", picture(2))]
    images, _ = opened(tar(tmp_path / "a.tar", [*members, ("c.cls", b"3")]))
    batch = images.__getitems__([0, 1, 2])
    assert batch["label"].tolist()[::2] == [0, 2] and rows_read(images)[::2] == [0, 2]
    assert batch["label"][1] == {0: 0, 2: 2}[rows_read(images)[1]], "the label is that of the image in its place"


@pytest.mark.parametrize("kind", [tarfile.USTAR_FORMAT, tarfile.GNU_FORMAT, tarfile.PAX_FORMAT])
def test_names_that_are_no_utf_8(kind: int, tmp_path: Path) -> None:
    """`'utf-8' codec can't decode byte` while the index of a shard was made."""
    path = tar(tmp_path / "a.tar", pngs("caf\udce9.png", "caf\udce9.cls=1", "b.png", "b.cls=2"), format=kind,
               errors="surrogateescape")  # fmt: skip
    images, _ = opened(path)
    assert labels(images) == ["1", "2"] and names(images) == ["caf\udce9.png", "b.png"]


@pytest.mark.parametrize(("held_out", "split"), [("heldout", "test"), ("holdout", "test"), ("eval", "test")])
def test_shards_called_held_out_in_another_way_are_not_learned_from(held_out: str, split: str, tmp_path: Path) -> None:
    tar(tmp_path / "train-0.tar", pngs("a.png", "b.png"))
    tar(tmp_path / f"{held_out}-0.tar", pngs("c.png"))
    images, _ = opened(tmp_path)
    assert images.splits == ("train", split) and len(images) == 2


def test_shards_of_no_split_beside_train_are_said(tmp_path: Path) -> None:
    tar(tmp_path / "train-0.tar", pngs("a.png", "b.png"))
    tar(tmp_path / "query-0.tar", pngs("c.png"))
    images, said = opened(tmp_path)
    assert len(images) == 3 and any(
        "1 shard whose names tell no split, such as query-0.tar, are learned" in one for one in said
    )
    tar(tmp_path / "val-0.tar", pngs("d.png"))
    assert any("such as query-0.tar" in one for one in opened(tmp_path)[1])
    assert not any("tell no split" in one for one in opened(tmp_path, split="test")[1])
    (tmp_path / "query-0.tar").unlink()
    assert not any("tell no split" in one for one in opened(tmp_path)[1])


def test_members_in_a_folder_of_unlabelled_ones_have_no_label(tmp_path: Path) -> None:
    images, said = opened(tar(tmp_path / "a.tar", pngs("ant/a.png", "bee/b.png", "unlabeled/c.png")))
    assert images.classes == ["ant", "bee"] and images.labels.tolist() == [0, 1, -1]
    assert any("no label for 1 image in unlabeled/" in one for one in said)


def test_a_link_to_another_member_is_that_image(tmp_path: Path) -> None:
    """mxmlnkn/ratarmount's issue 28: tar writes a file of two names once, and a link for the second."""
    with tarfile.open(tmp_path / "a.tar", "w") as archive:
        for name, content in pngs("ant/a.png", "bee/b.png"):
            about = tarfile.TarInfo(name)
            about.size = len(content)
            archive.addfile(about, io.BytesIO(content))
        about = tarfile.TarInfo("bee/c.png")
        about.type, about.linkname = tarfile.LNKTYPE, "ant/a.png"
        archive.addfile(about)
    images, said = opened(tmp_path / "a.tar")
    assert rows_read(images) == [0, 1, 0] or any("left out 1" in one and "link" in one for one in said), said


def test_shards_written_one_behind_the_other_are_said(tmp_path: Path) -> None:
    """`cat a.tar b.tar`: readers end at the first end, and half of the images were never seen."""
    first, second = (tar(tmp_path / f"{name}.tar", pngs(f"{name}.png")) for name in "ab")
    (tmp_path / "both").mkdir()
    (tmp_path / "both" / "c.tar").write_bytes(first.read_bytes() + second.read_bytes())
    images, said = opened(tmp_path / "both")
    assert len(images) == 2 or any("c.tar" in one for one in said), said


def test_what_macos_writes_beside_each_file_is_no_image(tmp_path: Path) -> None:
    """mvt-project/mvt's pull 922: `._NAME` members are listed by tarfile alone, and begin samples of their own."""
    about = bytes.fromhex("00051607") + bytes(200)
    members = [("./._a.png", about), *pngs("./a.png", "./a.cls=1"), ("./._b.png", about), *pngs("./b.png", "./b.cls=2")]
    images, _ = opened(tar(tmp_path / "a.tar", members))
    assert labels(images) == ["1", "2"] and len(images) == 2


def test_a_comment_for_the_whole_archive_is_no_member(tmp_path: Path) -> None:
    """`git archive` and forges write one, pax_global_header."""
    path = tar(tmp_path / "a.tar", pngs("ant/a.png", "bee/b.png"), format=tarfile.PAX_FORMAT,
               pax_headers={"comment": "26dd1f3"})  # fmt: skip
    images, said = opened(path)
    assert labels(images) == ["ant", "bee"] and rows_read(images) == [0, 1] and not any("pax" in one for one in said)


@pytest.mark.parametrize("text", ["1\r\n", "\ufeff1", " 1\n\n", "1\x00"])
def test_numbers_as_windows_and_c_write_them(text: str, tmp_path: Path) -> None:
    """`invalid literal for int()`, or a class of its own for each way to write it."""
    members = [("a.png", picture(0)), ("a.cls", text.encode()), ("b.png", picture(1)), ("b.cls", b"1")]
    images, said = opened(tar(tmp_path / "a.tar", [*members, ("c.png", picture(2)), ("c.cls", b"2")]))
    assert labels(images) == ["1", "1", "2"] or (labels(images) == [None, "1", "2"] and said), (labels(images), said)


def test_a_compressed_shard_called_tar_is_named(tmp_path: Path) -> None:
    """`tar czf a.tar`: an invalid header."""
    content = tar(tmp_path / "a.tar", pngs("a.png", "b.png")).read_bytes()
    (tmp_path / "a.tar").write_bytes(gzip.compress(content))
    with pytest.raises(UserError, match=r"a\.tar.*(gzip|compressed|gunzip)"):
        opened(tmp_path / "a.tar")
