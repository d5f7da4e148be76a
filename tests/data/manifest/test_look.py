"""What `look` finds in a folder with planted faults, says on the terminal and shows on its page."""

import re
import warnings
from html import unescape
from pathlib import Path

import numpy as np
import pytest
import torch
from PIL import Image
from planted_faults import plant

import sslkit
from sslkit.data.manifest import survey
from sslkit.data.manifest.options import LEAVE_OUT
from sslkit.data.manifest.table import Manifest
from sslkit.data.sources.shard_writer import write_shards
from sslkit.errors import UserError


@pytest.fixture(scope="module")
def planted(tmp_path_factory) -> tuple[Path, dict[str, list[str]], Manifest]:
    root = tmp_path_factory.mktemp("planted")
    faults = plant(root / "pictures")
    return root, faults, look(root / "pictures")


def look(folder: Path, out: str = "manifest.csv", **options) -> Manifest:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        about = {"out": str(folder.parent / out), "cache": str(folder.parent / "cache"), "progress": False}
        return sslkit.look(str(folder), **about | options)


def sections(page: Path) -> dict[str, set[str]]:
    """The title of each finding of a page, and the names that stand in it."""
    text = page.read_text(encoding="utf-8")
    found = re.findall(r'<section class="finding">\s*<h3>(.*?)</h3>(.*?)</section>', text, re.S)
    return {unescape(title): set(map(unescape, re.findall("<li>(.*?)</li>", inside))) for title, inside in found}


TITLES = {  # words of the title of the finding that each planted fault belongs to
    "within": "copies of others of the same split",
    "across": "held-out images have a copy in train",
    "blank": "are blank",
    "dark": "are blank",
    "label": "neighbours by thumbnails contradict",
    "16 bit": "16 bits among those of 8",
    "bands": "of 4 channels among those of 3",
    "size": "of a size or shape unlike all others",
    "unreadable": "cannot be read, and left out",
    "small class": "of fewer than 5 images in train: dots (3)",
}


def test_nine_of_ten_planted_faults_stand_on_the_page(planted) -> None:
    root, faults, _ = planted
    found = sections(root / "manifest.html")
    shown = total = 0
    for fault, paths in faults.items():
        names = set().union(*(names for title, names in found.items() if TITLES[fault] in title))
        named = sum(any(name.endswith(path) for name in names) for path in paths)
        assert named, fault
        shown, total = shown + named, total + len(paths)
    assert shown >= 0.9 * total
    originals = len(faults["across"]) + len(faults["within"])
    assert sum(map(len, found.values())) - total - originals < 0.05 * 609


def test_images_of_more_bits_stand_on_the_page(tmp_path: Path) -> None:
    faults = plant(tmp_path / "pictures", images=100)
    for path in (*faults["bands"], *faults["unreadable"]):
        (tmp_path / "pictures" / path).unlink()
    look(tmp_path / "pictures")
    (names,) = (
        names for title, names in sections(tmp_path / "manifest.html").items() if "16 bits among those of" in title
    )
    assert len(names) == len(faults["16 bit"])


def test_the_terminal_says_what_it_is_the_worst_three_and_what_to_type(planted, capsys) -> None:
    root, _, _ = planted
    look(root / "pictures")
    said = " ".join(capsys.readouterr().out.split())
    assert "data pictures: 609 images (489 train, 120 test), 4 classes" in said
    assert "mend 1 6 of 120 held-out images have a copy in train: leave_out=copies" in said
    assert "mend 3" in said and "mend 4" not in said and "more on the page" in said
    assert "next python recipes/train.py method=byol+dsa" in said


def test_near_copies_are_groups_on_one_side_of_the_split(tmp_path: Path) -> None:
    """Ten photographs of each of 40 objects: groups that nobody named."""
    rng = np.random.default_rng(0)
    objects = [rng.integers(0, 256, (8, 8, 3), np.uint8) for _ in range(40)]
    (tmp_path / "pictures").mkdir()
    for row in range(400):
        image = Image.fromarray(objects[row // 10]).resize((60 + row % 10, 60), Image.Resampling.BICUBIC)
        pixels = np.asarray(image) * (0.8 + 0.02 * (row % 10)) + rng.normal(0, 3, (60, 60 + row % 10, 3))
        Image.fromarray(pixels.clip(0, 255).astype(np.uint8)).save(tmp_path / "pictures" / f"{row:03}.jpg")
    manifest = look(tmp_path / "pictures", columns={"group": "near-copies"})
    pairs = np.unique(np.stack([manifest.groups, np.arange(400) // 10]), axis=1)
    assert len(np.unique(manifest.groups)) == pairs.shape[1] <= 42, "no group has two objects"
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        images = sslkit.open_images(str(tmp_path / "manifest.csv"), cache=None)
    assert len(np.unique(images.groups)) == pairs.shape[1]


def test_what_is_left_out_is_not_read(planted) -> None:
    root, faults, before = planted
    manifest = look(root / "pictures", "clean.csv", leave_out=["copies", "near_copies", "blank", "odd"])
    marked = {reason for reason in manifest.left_out if reason and not reason.startswith("unreadable")}
    assert marked == {"copies", "near_copies", "blank", "odd"} and before.left_out.tolist().count("") == 609 - 2
    left_out = {Path(path).name for path, reason in zip(manifest.paths, manifest.left_out, strict=True) if reason}
    for fault in ("blank", "dark", "bands", "size", "unreadable"):
        assert {Path(path).name for path in faults[fault]} <= left_out
    again = look(root / "clean.csv", "again.csv")
    titles = " ".join(sections(root / "again.html"))
    assert "blank" not in titles and "cop" not in titles and "channels" not in titles and "unlike" not in titles
    assert (again.splits == "test").sum() == 120, "of a copy on both sides the held-out one stays"


def test_the_page_is_offline_and_escaped(tmp_path: Path) -> None:
    _plain(tmp_path / "<b>&")
    look(tmp_path / "<b>&")
    text = (tmp_path / "manifest.html").read_text(encoding="utf-8")
    assert "default-src 'none'" in text and "<b>" not in text and "&lt;b&gt;&amp;" in text
    assert not re.search(r"(src|href)=\"(?!data:)", text) and "<script" not in text


def test_clip_art_has_copies_of_two_labels(tmp_path: Path) -> None:
    manifest = sslkit.look("clipart", out=str(tmp_path / "clipart.csv"), cache=None, progress=False)
    assert len(manifest) == 2368 and not manifest.are_files
    titles = sections(tmp_path / "clipart.html")
    assert any("copies of them have different labels" in title for title in titles)
    with pytest.raises(UserError, match=r"images that are no files of their own.*data=clipart"):
        sslkit.open_images(str(tmp_path / "clipart.csv"))


def test_a_stopped_look_goes_on(tmp_path: Path, monkeypatch) -> None:
    folder = _plain(tmp_path / "pictures", 200)
    reads: list[int] = []
    of_file = survey._of_file

    def stop(images, row):
        reads.append(row)
        if len(reads) == 150:
            raise KeyboardInterrupt
        return of_file(images, row)

    monkeypatch.setattr(survey, "_of_file", stop)
    with pytest.raises(KeyboardInterrupt):
        look(folder, workers=0)
    first = len(reads)
    manifest = look(folder, workers=0)
    assert len(manifest) == 200 and len(reads) - first == 200 - 2 * survey.BLOCK
    before = len(reads)
    look(folder, workers=0)
    assert len(reads) == before, "all is kept"
    _save(folder / "007.png", np.random.default_rng(1))
    look(folder, workers=0)
    assert len(reads) == before + 200, "a changed file"


@pytest.mark.parametrize("kind", ["array", "pairs", "part", "dataset", "one file", "shards", "pages"])
def test_every_kind_of_source_is_looked_at(tmp_path: Path, kind: str, capsys) -> None:
    pixels = np.random.default_rng(0).integers(0, 255, (20, 9, 9, 3), np.uint8)
    folder = _plain(tmp_path / "pictures", 3)
    source: object = {"array": pixels, "pairs": (pixels, np.arange(20) % 2), "one file": [str(folder / "000.png")]}.get(
        kind
    )
    options = {}
    if kind == "part":
        source = sslkit.open_images(pixels).part(np.arange(5), "some")
    if kind == "dataset":
        source = torch.utils.data.TensorDataset(torch.from_numpy(pixels), torch.arange(20) % 2)
    if kind == "shards":
        write_shards(folder, tmp_path / "shards", progress=False)
        source = f"shards:{tmp_path / 'shards'}"
    if kind == "pages":
        frames = [Image.fromarray(some) for some in pixels[:4]]
        frames[0].save(folder / "film.tif", save_all=True, append_images=frames[1:])
        source, options = str(folder), {"pages": "all"}
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        manifest = sslkit.look(source, out=str(tmp_path / "manifest.csv"), cache=None, progress=False, **options)
    images = {"part": 5, "one file": 1, "shards": 3, "pages": 7}.get(kind, 20)
    assert len(manifest) == images and manifest.are_files is (kind == "one file")
    assert len(set(manifest.paths)) == images and not manifest.unreadable.any()
    assert (manifest.measures["shape"] == [9, 9, 3, 8]).all()
    told = " ".join(capsys.readouterr().out.split())
    assert ("next " in told) is (kind in ("one file", "shards", "pages"))
    assert told.endswith("data.pages=all") is (kind == "pages")


def test_videos_are_refused() -> None:
    with pytest.raises(UserError, match="data=video:films are videos, and look reads images"):
        sslkit.look("video:films")


def _plain(folder: Path, images: int = 20) -> Path:
    """A folder of small pictures without labels."""
    rng = np.random.default_rng(0)
    folder.mkdir()
    for row in range(images):
        _save(folder / f"{row:03}.png", rng)
    return folder


def _save(path: Path, rng: np.random.Generator) -> None:
    Image.fromarray(rng.integers(0, 255, (9, 9, 3), np.uint8)).save(path)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"out": "manifest.txt"}, "out=manifest.txt must end with .csv or .parquet"),
        ({"leave_out": ["blur"]}, f"leave_out=blur: it is a list of {', '.join(LEAVE_OUT)}"),
        ({"image_size": 0}, "image_size must be a whole number"),
    ],
)
def test_wrong_options_end_before_anything_is_read(tmp_path: Path, options: dict, message: str) -> None:
    with pytest.raises(UserError, match=re.escape(message)):
        sslkit.look(str(tmp_path / "nowhere"), **options)


def test_parquet_holds_the_same_table(tmp_path: Path) -> None:
    parquet = pytest.importorskip("pyarrow.parquet")
    _plain(tmp_path / "pictures")
    look(tmp_path / "pictures", "manifest.parquet")
    table = parquet.read_table(tmp_path / "manifest.parquet")
    assert table.column_names[:4] == ["path", "split", "label", "group"] and len(table) == 20
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        images = sslkit.open_images(str(tmp_path / "manifest.parquet"), image_size=9)
    assert len(images) == 20
    with pytest.raises(UserError, match=r"pixels.parquet holds images themselves.*data=hf:"):
        parquet.write_table(table.append_column("image", [[b""] * 20]), tmp_path / "pixels.parquet")
        sslkit.open_images(str(tmp_path / "pixels.parquet"))
    (tmp_path / "bad.parquet").write_bytes(b"PAR1 and no more")
    with pytest.raises(UserError, match=r"cannot read .*bad.parquet"):
        sslkit.open_images(str(tmp_path / "bad.parquet"))
    assert b"# splits" in table.schema.metadata[b"# sslkit manifest"]
