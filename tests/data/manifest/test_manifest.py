"""The table of a data set: `data=` takes it back, also corrected by hand; wrong ones end in one line."""

import csv
import os
import re
import warnings
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
from manifests import look, names, opened, rewrite, table, write_folder
from PIL import Image

import sslkit
from sslkit.data.manifest.decisions import RULES
from sslkit.data.manifest.head import MARK
from sslkit.errors import UserError

ROOT = Path(__file__).parents[3]


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    return write_folder(tmp_path / "set")


@pytest.mark.parametrize("out", ["manifest.csv", "other/place.csv"])
def test_data_takes_a_manifest_back(folder: Path, out: str) -> None:
    pattern = {"group": "(p[0-9]+)_"}
    manifest = look(folder, out=str(folder.parent / out), columns=pattern)
    assert len(manifest) == 12 and manifest.splits.tolist() == ["train"] * 8 + ["test"] * 4
    for split in ("train", "test"):
        before, after = opened(folder, split, columns=pattern), opened(folder.parent / out, split)
        assert names(after) == names(before) and after.classes == before.classes == ["a", "b"]
        assert after.labels.tolist() == before.labels.tolist()
        assert (after[0]["images"] == before[0]["images"]).all()
        same = np.equal.outer(before.groups, before.groups)
        assert (np.equal.outer(after.groups, after.groups) == same).all()
    _, rows = table(folder.parent / out)
    assert [row["group"] for row in rows] == [Path(row["path"]).name[:2] for row in rows], "values, not their numbers"


def test_a_row_says_what_its_file_is(folder: Path) -> None:
    manifest = look(folder)
    (*_, first), rows = table(folder.parent / "manifest.csv")
    assert first[0] == "# size" and rows[0]["path"] == "set/train/a/p0_0.png"
    assert (rows[0]["width"], rows[0]["height"], rows[0]["channels"], rows[0]["bits"]) == ("9", "8", "3", "8")
    size = (folder / "train/a/p0_0.png").stat().st_size
    assert rows[0]["bytes"] == str(size) and re.fullmatch("sha256:[0-9a-f]{16}", rows[0]["digest"])
    assert "12 images (8 train, 4 test), 2 classes" in str(manifest)


def test_what_is_corrected_by_hand_counts(folder: Path) -> None:
    look(folder)
    path = folder.parent / "manifest.csv"

    def change(rows: list[dict[str, str]]) -> None:
        rows[0]["label"], rows[1]["left out"], rows[2]["split"], rows[3]["label"] = "c", "blur", "test", ""
        for row in rows:
            row["group"] = row["path"][-5]

    rewrite(path, change)
    train, test = opened(path), opened(path, "test")
    assert (len(train), len(test)) == (6, 5) and train.classes == ["a", "b", "c"] and train.labels[0] == 2
    assert train.labels.min() == -1 and train.groups is not None
    assert names(test)[0] == Path(table(path)[1][2]["path"]).name


def test_a_spreadsheet_may_quote_and_fill_the_head(folder: Path) -> None:
    look(folder)
    path = folder.parent / "manifest.csv"
    head, rows = table(path)
    width = len(rows[0])
    with path.open("w", newline="", encoding="utf-8-sig") as file:
        writer = csv.writer(file, delimiter=";", quoting=csv.QUOTE_ALL)
        writer.writerows([*(cells + [""] * (width - len(cells)) for cells in head), list(rows[0])])
        writer.writerows(list(row.values()) for row in rows)
    assert len(opened(path)) == 8


def test_what_cannot_be_read_is_left_out_with_its_reason(folder: Path) -> None:
    bad = folder / "train/a/p0_0.png"
    bad.write_bytes(bad.read_bytes()[:60])
    manifest = look(folder)
    assert manifest.left_out[0].startswith("unreadable: ") and not manifest.left_out[1:].any()
    assert len(opened(folder.parent / "manifest.csv")) == 7


def test_several_labels_come_back(tmp_path: Path) -> None:
    rng = np.random.default_rng(0)
    lines = ["path,cat,dog"]
    for row in range(6):
        Image.fromarray(rng.integers(0, 255, (8, 8, 3), np.uint8)).save(tmp_path / f"{row}.png")
        lines.append(f"{row}.png,{row % 2},{['1', '0', ''][row % 3]}")
    (tmp_path / "some.csv").write_text("\n".join(lines))
    columns = {"label": ["cat", "dog"]}
    look(tmp_path / "some.csv", columns=columns, out=str(tmp_path / "manifest.csv"))
    before, after = opened(tmp_path / "some.csv", columns=columns), opened(tmp_path / "manifest.csv")
    assert after.classes == ["cat", "dog"] and (after.multi_labels == before.multi_labels).all()


def _double(rows: list[dict[str, str]]) -> None:
    rows.append(rows[0])


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (lambda rows: rows[2].update(split="fold 3"), "manifest.csv, line 15: 'fold 3' is no split"),
        (lambda rows: [row.pop("split") for row in rows], "has no column 'split' any more"),
        (lambda rows: [row.pop("path") for row in rows], "has no column 'path' any more"),
        (_double, "lines 13 and 25 name the same file"),
        (lambda rows: rows[1].update(bytes="many"), "line 14: 'many' in the column 'bytes' is no number"),
        (lambda rows: rows[1].update(bytes="7"), "1 of 12 files changed since it was written; the first, in line 14"),
        (lambda rows: [row.update({"left out": "x"}) for row in rows], "all of 12 rows are left out"),
        (lambda rows: rows[0].update(path="set/no.png"), "1 of 12 files cannot be found; the first, in line 13, is"),
        (
            lambda rows: [row.update(path=f"{row['path']}.x.y") for row in rows],
            "It is of another data set, or its files were moved. Paths are relative to",
        ),
        (lambda rows: [row.update(group="p1") for row in rows], "are of one group"),
        (lambda rows: [row.update(split="test") for row in rows], "and there is none to train on"),
    ],
)
def test_a_wrong_table_ends_in_one_line(folder: Path, change: Callable, message: str) -> None:
    look(folder)
    path = folder.parent / "manifest.csv"
    rewrite(path, change)
    with pytest.raises(UserError, match=re.escape(message)):
        opened(path)


@pytest.mark.parametrize(
    ("change", "line"),
    [
        (
            lambda rows: [row.update(quality="good", author="me") for row in rows],
            "its 2 columns quality, author are not read: columns.label=quality and the like name one",
        ),
        (
            lambda rows: rows[0].update(label="A"),
            "'A' and 'a' are classes of their own, though people read them as one",
        ),
        (lambda rows: rows[0].update(split=""), "1 file without a split left out"),
        (
            lambda rows: [row.update(group=n // 4 if n else "") for n, row in enumerate(rows)],
            "has no value for 1 of 12 images, each a group of its own",
        ),
        (lambda rows: rows[0].update(label="a "), None),
        (lambda rows: rows[0].update(digest="", bytes=""), None),
    ],
)
def test_what_is_doubtful_in_a_table_is_one_line(folder: Path, change: Callable, line: str | None) -> None:
    look(folder)
    path = folder.parent / "manifest.csv"
    rewrite(path, change)
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        images = sslkit.open_images(path, cache=None)
    told = [str(warning.message) for warning in caught]
    assert len(images.classes) == (3 if line and line.startswith("'A'") else 2)
    assert [line in text for text in told if "intervals" not in text].count(True) == (line is not None), told
    assert len(told) == (line is not None), told


def test_what_to_type_is_in_the_line_on_changed_files(folder: Path) -> None:
    look(folder)
    path = folder.parent / "manifest.csv"
    image = folder / "train/a/p0_0.png"
    image.write_bytes(image.read_bytes() + b"\0")
    with pytest.raises(UserError, match=r"python recipes/look.py .*data=.*set.* out=.*manifest.csv.*empty their cells"):
        opened(path)
    rewrite(path, lambda rows: rows[0].update(bytes=""))
    assert len(opened(path)) == 8
    os.rename(folder, folder.with_name("moved"))
    with pytest.raises(UserError, match=r"12 of 12 files cannot be found.*to write it anew python recipes/look.py"):
        opened(path)


@pytest.mark.parametrize(
    ("before", "after", "message"),
    [
        (f"{MARK},2", f"{MARK},1", "is a manifest of version '1', and this sslkit reads version 2: write it anew"),
        ("2,files", "2,members", "lists images that are no files of their own"),
    ],
)
def test_another_version_and_images_in_an_archive_are_refused(
    folder: Path, before: str, after: str, message: str
) -> None:
    look(folder)
    path = folder.parent / "manifest.csv"
    path.write_text(path.read_text().replace(before, after, 1))
    with pytest.raises(UserError, match=re.escape(message)):
        opened(path)


def test_the_page_of_the_package_lists_every_decision() -> None:
    text = (ROOT / "sslkit/README.md").read_text(encoding="utf-8")
    listed = text.partition("| decision |")[2].partition("\n## ")[0]
    rows = re.findall(r"^\| (.+?) \| (.+?) \| (.+?) \| `(.+?)` \|$", listed, re.M)
    assert rows == [(rule.subject, rule.how, rule.said, rule.override) for rule in RULES]


CHANGES = [  # an option that decides otherwise, and what the decision then is
    ("splits", {"columns": {"split": "(train|test)-"}}, "train 9, test 3"),
    ("labels", {"columns": {"label": "(p[0-9])_"}}, "6 classes: p0, p1, p2, p3, p4, p5"),
    ("groups", {"columns": {"group": "(p[0-9])_"}}, "6 groups"),
    ("channels", {"channels": 1}, "1"),
    ("range", {"range": [0, 4000]}, "[0,4000]"),
    ("fill", {"fill": 0}, "0, and what tags name"),
    ("opacity", {"opacity": False}, "a channel like the others"),
    ("pages", {"pages": "all"}, "each is an image"),
    ("mirror", {"mirror": False}, "may have another class"),
    ("size", {"max_pixels": 1000}, "up to 1,000 pixels"),
]


@pytest.mark.parametrize(("subject", "option", "value"), CHANGES)
def test_each_option_of_the_table_decides_otherwise(folder: Path, subject: str, option: dict, value: str) -> None:
    rng = np.random.default_rng(0)
    for path in folder.rglob("*.png"):
        if subject in ("range", "fill"):
            Image.fromarray(rng.integers(0, 3000, (8, 8), np.uint16)).save(path)
        if subject == "splits":
            path.rename(path.with_name(f"{'test' if path.name < 'p1_3' else 'train'}-{path.name}"))
        if subject == "opacity":
            Image.fromarray(rng.choice([0, 255], (8, 8, 4)).astype(np.uint8)).save(path)
    usual = next(decision for decision in look(folder).decisions if decision.subject == subject)
    changed = next(decision for decision in look(folder, **option).decisions if decision.subject == subject)
    assert changed.value == value
    assert usual.value != value


def test_every_rule_has_its_change() -> None:
    assert sorted(subject for subject, _, _ in CHANGES) == sorted(rule.subject for rule in RULES)


def test_the_line_of_a_reader_is_the_reason_of_its_decision(folder: Path) -> None:
    rng = np.random.default_rng(0)
    for path in folder.rglob("*.png"):
        Image.fromarray(rng.integers(0, 3000, (8, 8), np.uint16)).save(path)
    (folder / "notes.pdf").write_text("beside the splits")
    manifest = look(folder)
    reasons = {decision.subject: decision.reason for decision in manifest.decisions}
    assert "are scaled to 8 bits by range=[0,4095]" in reasons["range"]
    assert any("left out beside them: notes.pdf" in remark for remark in manifest.remarks)


@pytest.mark.filterwarnings("ignore::UserWarning")
def test_names_that_a_spreadsheet_would_run_are_written_so_that_it_does_not(tmp_path: Path) -> None:
    """The ' before them is for the spreadsheet: `data=` reads the names as they were."""
    for number, label in enumerate(["=1+1", "bee"]):
        (tmp_path / label).mkdir()
        Image.fromarray(np.full((8, 8, 3), 80 * number, np.uint8)).save(tmp_path / label / "a.png")
    sslkit.look(tmp_path, out=str(tmp_path / "manifest.csv"), cache=None)
    lines = (tmp_path / "manifest.csv").read_text().splitlines()
    assert any(line.startswith("'=1+1/a.png,train,'=1+1,") for line in lines)
    images = sslkit.open_images(tmp_path / "manifest.csv")
    assert images.classes == ["=1+1", "bee"] and {images.image_name(row) for row in (0, 1)} == {
        "=1+1/a.png",
        "bee/a.png",
    }
