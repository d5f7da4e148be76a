"""Tar files as GNU tar, bsdtar, Python and webdataset write them: formats, names, links, several archives in a file."""

import os
import shutil
import subprocess
import tarfile
from pathlib import Path

import fuzzing
import pytest
from tars import labels, names, opened, picture, pngs, rows_read, tar

GNU = shutil.which("tar")
BSD = shutil.which("bsdtar")
FOLDERS = ("cat", "dog.v2")  # a dot in a folder belongs to its name
LONG = "a" * 120  # too long for a name in the header of ustar


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """Six digits in two class folders."""
    for row in range(6):
        path = tmp_path / "photos" / FOLDERS[row % 2] / f"{row}.png"
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(picture(row))
    return tmp_path / "photos"


def write(maker: str, form: str, whole: bool, folder: Path, out: Path) -> None:
    """whole: name the folder itself, as in `tar -C FOLDER .`; otherwise the folders in it."""
    inside = ["."] if whole else sorted(path.name for path in folder.iterdir())
    if maker == "python":
        with tarfile.open(out, "w", format=getattr(tarfile, f"{form.upper()}_FORMAT")) as opened:
            for name in inside:
                opened.add(folder / name, arcname=name)
        return
    if (program := {"gnu": GNU, "bsd": BSD}[maker]) is None:
        pytest.skip(f"there is no {maker} tar here")
    subprocess.run([program, "-C", folder, f"--format={form}", "-cf", out, *inside], check=True)


@pytest.mark.parametrize("whole", [True, False])
@pytest.mark.parametrize(
    ("maker", "form"),
    [(maker, form) for maker, forms in {
        "gnu": ("v7", "oldgnu", "gnu", "ustar", "pax"),
        "bsd": ("v7", "gnutar", "ustar", "pax"),
        "python": ("gnu", "ustar", "pax"),
    }.items() for form in forms],
)  # fmt: skip
def test_formats_of_all_makers_with_and_without_a_dot(
    maker: str, form: str, whole: bool, folder: Path, tmp_path: Path
) -> None:
    write(maker, form, whole, folder, tmp_path / "a.tar")
    images, said = opened(tmp_path / "a.tar")
    assert sorted(names(images)) == sorted(f"{FOLDERS[row % 2]}/{row}.png" for row in range(6))
    assert [name.partition("/")[0] for name in names(images)] == labels(images) and not said
    assert rows_read(images) == [int(Path(name).stem) for name in names(images)]


@pytest.mark.parametrize("form", ["gnu", "pax", "ustar"])
def test_long_and_foreign_names(form: str, tmp_path: Path) -> None:
    deep = "/".join(["d" * 60, "e" * 60, "x"]) if form == "ustar" else f"{LONG}/{LONG}/x"  # in the prefix of ustar
    members = pngs(f"{deep}/ü.png", f"{deep}/ü.cls=1", f"{deep}/名前.png", f"{deep}/名前.cls=0")
    tar(tmp_path / "a.tar", members, format=getattr(tarfile, f"{form.upper()}_FORMAT"))
    images, said = opened(tmp_path / "a.tar")
    assert names(images) == [f"{deep}/ü.png", f"{deep}/名前.png"] and labels(images) == ["1", "0"]
    assert rows_read(images) == [0, 1] and not said


@pytest.mark.parametrize("above", ["./", "/data/mine/", "../", ".//", "a/../"])
def test_what_stands_before_a_name_says_nothing(above: str, tmp_path: Path) -> None:
    tar(tmp_path / "a.tar", pngs(*(f"{above}{name}/{row}.png" for row in range(3) for name in ("cat", "dog"))))
    images, said = opened(tmp_path / "a.tar")
    assert labels(images) == ["cat", "dog"] * 3 and not said


def test_names_with_the_slashes_of_windows(tmp_path: Path) -> None:
    tar(tmp_path / "a.tar", pngs("cat\\0.png", "cat\\0.cls=5", "dog\\1.png", "dog\\1.cls=3"))
    images, _ = opened(tmp_path / "a.tar")
    assert images.classes == ["dog", "cat"] and labels(images) == ["cat", "dog"]


@pytest.mark.skipif(GNU is None, reason="there is no tar here")
@pytest.mark.parametrize("appended", ["tar -A", "cat", "tar -r"])
def test_archives_behind_each_other_are_all_read(appended: str, tmp_path: Path) -> None:
    """The zeros at the end of the first one are where tar, and Python, stop reading."""
    first = tar(tmp_path / "a.tar", pngs("0.png", "0.cls=7", "1.png", "1.cls=3"))
    second = tar(tmp_path / "b.tar", pngs("0.png", "0.cls=4"))
    if appended == "cat":
        first.write_bytes(first.read_bytes() + second.read_bytes() + bytes(9000))
    elif appended == "tar -A":
        subprocess.run([GNU, "-Af", first, second], check=True)
    else:
        with tarfile.open(first, "a") as more, tarfile.open(second) as old:
            for member in old:
                more.addfile(member, old.extractfile(member))
    images, said = opened(first)
    assert names(images) == ["0.png", "1.png", "0.png#2"] and labels(images) == ["7", "3", "4"]
    assert rows_read(images) == [0, 1, 0]
    assert said == ["a: 1 image with the name of an earlier one in the shard; each is a row of its own, as NAME#2"]


def test_what_is_no_archive_behind_the_end_is_said(tmp_path: Path) -> None:
    path = tar(tmp_path / "a.tar", pngs("0.png", "1.png"))
    end = path.stat().st_size
    path.write_bytes(path.read_bytes() + b"signature" * 100)
    images, said = opened(path)
    assert len(images) == 2 and len(said) == 1
    assert f"a.tar is damaged (there is no header and no end mark at byte {end}): its first 2 images" in said[0]


@pytest.mark.skipif(GNU is None, reason="there is no tar here")
def test_links_are_read_where_they_point(tmp_path: Path) -> None:
    all_of_them, cat = tmp_path / "in" / "all", tmp_path / "in" / "cat"
    for path in (all_of_them, cat, tmp_path / "in" / "zoo"):
        path.mkdir(parents=True)
    for row in range(3):
        (all_of_them / f"{row}.png").write_bytes(picture(row))
    os.link(all_of_them / "0.png", cat / "hard.png")
    (cat / "soft.png").symlink_to("../all/1.png")
    (cat / "chain.png").symlink_to("soft.png")
    (cat / "none.png").symlink_to("/nowhere/9.png")
    (cat / "circle.png").symlink_to("circle.png")
    (tmp_path / "in" / "zoo" / "later").symlink_to("../all/2.png")  # no extension: known by its content
    for order in (["all", "cat", "zoo"], ["cat", "zoo", "all"]):
        subprocess.run([GNU, "-C", tmp_path / "in", "--sort=name", "-cf", tmp_path / "a.tar", *order], check=True)
        images, said = opened(tmp_path / "a.tar")
        found = dict(zip(names(images), rows_read(images), strict=True))
        assert found == {
            "all/0.png": 0, "all/1.png": 1, "all/2.png": 2, "cat/hard.png": 0, "cat/soft.png": 1, "cat/chain.png": 1,
            "zoo/later": 2,
        }  # fmt: skip
        assert said == ["a: 7 images; left out 2 other members: 2 links to no file in the shard"]


@pytest.mark.skipif(GNU is None, reason="there is no tar here")
def test_labels_that_are_hard_links_of_one_file(tmp_path: Path) -> None:
    """As a tool that joins equal files leaves them: most labels are links."""
    for row in range(6):
        (tmp_path / "in").mkdir(exist_ok=True)
        (tmp_path / "in" / f"{row}.png").write_bytes(picture(row))
        label = tmp_path / "in" / f"{row}.cls"
        label.write_text(str(row % 2)) if row < 2 else os.link(tmp_path / "in" / f"{row % 2}.cls", label)
    subprocess.run([GNU, "-C", tmp_path / "in", "--sort=name", "-cf", tmp_path / "a.tar", "."], check=True)
    images, said = opened(tmp_path / "a.tar")
    assert labels(images) == ["0", "1"] * 3 and not said


@pytest.mark.skipif(GNU is None, reason="there is no tar here")
@pytest.mark.parametrize("form", ["gnu", "pax"])
def test_sparse_members_are_left_out(form: str, tmp_path: Path) -> None:
    """Their blocks are not in one piece, so that reading at their place gives other bytes."""
    (tmp_path / "in").mkdir()
    (tmp_path / "in" / "0.png").write_bytes(picture(0))
    with (tmp_path / "in" / "1.png").open("wb") as holes:
        holes.write(picture(1))
        holes.truncate(10**6)
    subprocess.run(
        [GNU, "-C", tmp_path / "in", f"--format={form}", "-Scf", tmp_path / "a.tar", "0.png", "1.png"], check=True
    )
    images, said = opened(tmp_path / "a.tar")
    assert names(images) == ["0.png"]
    assert said == ["a: 1 image; left out 1 other member: 1 sparse (tar -S)"]


def test_a_header_with_a_negative_size_ends(tmp_path: Path) -> None:
    """tarfile reads the same header for ever."""
    path = tar(tmp_path / "a.tar", pngs("0.png", "1.png"))
    content = bytearray(path.read_bytes())
    with tarfile.open(path) as whole:
        start = whole.getmember("1.png").offset
    content[start + 124 : start + 136] = (-1024).to_bytes(12, "big", signed=True)
    checksum = sum(content[start : start + 148]) + 8 * 32 + sum(content[start + 156 : start + 512])
    content[start + 148 : start + 156] = b"%06o\0 " % checksum
    path.write_bytes(content)
    with fuzzing.time_limit(10):
        images, said = opened(path)
    assert names(images) == ["0.png"] and "negative size" in said[0] and len(said) == 1


def test_headers_are_read_as_tarfile_reads_them(tmp_path: Path) -> None:
    """The quick way for plain files against the library's, on formats and odd names."""
    from sslkit.data.sources.tar_archives import members

    odd = ["x.png", "./a//b.png", "ü" * 40 + ".png", LONG + ".png", "dir/" + "c" * 98, "empty.png", " blank .png"]
    for form in (tarfile.GNU_FORMAT, tarfile.USTAR_FORMAT, tarfile.PAX_FORMAT):
        usable = [name for name in odd if form != tarfile.USTAR_FORMAT or len(name) < 100]
        path = tar(tmp_path / "a.tar", [(name, b"x" * 7 * len(name)) for name in usable], format=form)
        with tarfile.open(path) as whole, path.open("rb") as stream:
            want = [(one.name, one.size, one.offset_data, one.type) for one in whole]
            found = [(one.name, one.size, one.offset_data, one.type) for one in members(stream, 0) if one]
        assert found == want and len(want) == len(usable)


def test_shards_of_the_webdataset_package(tmp_path: Path) -> None:
    writer = pytest.importorskip("webdataset")
    with writer.ShardWriter(f"file:{tmp_path}/digits-%06d.tar", maxcount=4, verbose=0) as sink:
        for row in range(10):
            sample = {"__key__": f"sample{row:04}", "png": picture(row), "cls": row % 3, "json": {"caption": "a digit"}}
            sink.write(sample)
    images, said = opened(f"{tmp_path}/digits-{{000000..000002}}.tar")
    assert rows_read(images) == list(range(10)) and labels(images) == [str(row % 3) for row in range(10)]
    assert said == ["digits: 10 images; left out 10 other members: 10 .json"]
    samples = list(writer.WebDataset(str(tmp_path / "digits-000000.tar"), shardshuffle=False))
    assert [sample["cls"].decode() for sample in samples] == labels(images)[:4]


def test_an_empty_archive_before_another(tmp_path: Path) -> None:
    path = tar(tmp_path / "a.tar", [])
    path.write_bytes(path.read_bytes() + tar(tmp_path / "b.tar", pngs("0.png")).read_bytes())
    images, said = opened(path)
    assert rows_read(images) == [0] and not said
