"""Tables in JSON lines, and the metadata file of a Hugging Face `imagefolder` beside its images."""

import json
import warnings
from pathlib import Path
from typing import Any

import pytest
from PIL import Image

from sslkit.data.sources import file_tables
from sslkit.data.sources.named import open_images, splits
from sslkit.errors import UserError

ROWS = [{"file_name": f"{number}.png", "label": ("bee", "ant")[number % 2], "text": "a photo"} for number in range(4)]


def save(folder: Path, *names: str) -> Path:
    for name in names:
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        Image.new("L", (4, 4), 9).save(folder / name)
    return folder


def write(folder: Path, rows: list[dict[str, Any]], form: str = "csv") -> Path:
    """A metadata file, and its images."""
    save(folder, *(row["file_name"] for row in rows))
    lines = [",".join(rows[0]), *(",".join(map(str, row.values())) for row in rows)] if form == "csv" else ()
    path = folder / f"metadata.{form}"
    path.write_text("\n".join(lines or map(json.dumps, rows)) + "\n", encoding="utf-8")
    return path


def opened(source: Path, split: str = "train") -> tuple[list[str] | None, list[str]]:
    """The classes of the images, in the order of their names, and what was said."""
    with warnings.catch_warnings(record=True) as said:
        warnings.simplefilter("always")
        images = open_images(source, split=split, image_size=4)
    named = None if images.labels is None else [[*images.classes, None][label] for label in images.labels]
    return named, [str(one.message).replace(str(source), "DATA") for one in said]


@pytest.mark.parametrize("form", ["csv", "jsonl"])
def test_labels_are_those_of_the_table_beside_the_images(form: str, tmp_path: Path) -> None:
    write(tmp_path, ROWS, form)
    columns = (
        "columns are read as paths from 'file_name', labels from 'label'; of the others, such as 'text', none is used"
    )
    assert opened(tmp_path) == (["bee", "ant"] * 2, [f"DATA/metadata.{form}: its {columns}"])


@pytest.mark.parametrize("form", ["csv", "jsonl"])
def test_each_split_has_its_own(form: str, tmp_path: Path) -> None:
    rows = [{"file_name": f"in/{number}.png", "label": number % 2} for number in range(4)]
    write(tmp_path / "train", rows, form)
    write(tmp_path / "validation", rows[2:][::-1], form)
    assert splits(tmp_path) == ("train", "test")
    assert opened(tmp_path)[0] == ["0", "1"] * 2 and opened(tmp_path, "test")[0] == ["0", "1"]


def test_a_table_without_labels_is_said(tmp_path: Path) -> None:
    write(tmp_path, [{"file_name": "0.png", "text": "a bee"}])
    labels, (columns, others) = opened(tmp_path)
    assert labels is None and others.endswith("1 image; left out 1 other file: metadata.csv")
    assert columns.endswith("columns.label=text)") and (
        "its columns are read as paths from 'file_name'; of the others, such as 'text', none is used (a column of "
        "classes is called label, labels, class, classname, target or category, or is named: columns.label=" in columns
    )


def test_folders_of_classes_come_before_it(tmp_path: Path) -> None:
    save(tmp_path, "ant/0.png", "bee/1.png")
    write(tmp_path, [{"file_name": "ant/0.png", "label": "x"}, {"file_name": "bee/1.png", "label": "y"}])
    labels, (said,) = opened(tmp_path)
    assert labels == ["ant", "bee"] and said.endswith("left out 1 other file: metadata.csv")


def test_a_table_that_cannot_be_read_is_said_and_not_used(tmp_path: Path) -> None:
    save(tmp_path, "0.png")
    (tmp_path / "metadata.csv").write_text("camera,lens\nx,y\n")
    labels, said = opened(tmp_path)
    assert labels is None and said[0].startswith("DATA/metadata.csv: its first line names no column of files")
    assert said[0].endswith("; it is not used") and len(said) == 2


def test_images_that_it_does_not_name_have_no_label(tmp_path: Path) -> None:
    write(tmp_path, [*ROWS, {"file_name": "5.png", "label": "", "text": ""}])
    save(tmp_path, "4.png")
    labels, said = opened(tmp_path)
    assert labels == ["bee", "ant", "bee", "ant", None, None]
    assert said[1:] == ["DATA/metadata.csv: it has no label of 2 of 6 files"]


def test_what_of_it_is_not_used_is_said(tmp_path: Path) -> None:
    path = write(tmp_path, [{**row, "label": [1, 2], "split": "train"} for row in ROWS], "jsonl")
    labels, said = opened(tmp_path)
    assert labels is None and any("DATA/metadata.jsonl: its labels are lists, and not used: " in text for text in said)
    assert "DATA/metadata.jsonl: its splits are read where it is named, data=DATA/metadata.jsonl" in said
    assert splits(path) == ("train",)


def test_json_lines_are_a_list_of_files(tmp_path: Path) -> None:
    save(tmp_path, "a.png", "b.png", "c.png")
    rows = [{"path": "c.png", "class": "x", "set": "train"}, {"set": "test", "path": "a.png", "class": "\ud800x"}]
    path = tmp_path / "some.jsonl"
    path.write_text(
        "\n\n".join(map(json.dumps, [*rows, {"path": "b.png", "set": "train", "boxes": [1], "class": None}]))
    )
    assert splits(path) == ("train", "test") and opened(path)[0] == ["x", None] and opened(path, "test")[0] == ["?x"]


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ('{"file_name": "0.png"}\n{"file_name": ', "is no table of JSON objects, one a line: .*"),
        ('["0.png"]\n', "is no table of JSON objects, one a line$"),
        ("[" * 100_000, "is no table of JSON objects, one a line: .*"),
        ('{"camera": 3}\n', "names no column of files"),
        ('{"file_name": "0.png"}\n{"label": 3}\n', "line 2 names no file"),
        ("\n", "names no"),
    ],
)
def test_what_is_no_table_is_one_line(text: str, said: str, tmp_path: Path) -> None:
    save(tmp_path, "0.png")
    (tmp_path / "some.jsonl").write_text(text)
    with pytest.raises(UserError, match=said):
        open_images(tmp_path / "some.jsonl")


def test_lines_whose_keys_differ_are_read_in_time_with_their_number(tmp_path: Path, monkeypatch) -> None:
    """A table of as many columns as lines would have their square of cells."""
    asked, cell = [], file_tables._cell
    monkeypatch.setattr(file_tables, "_cell", lambda value: asked.append(value) or cell(value))
    rows = [{"file_name": f"{number}.png", f"key {number}": number} for number in range(50)]
    save(tmp_path, *(row["file_name"] for row in rows))
    path = tmp_path / "rows.jsonl"
    path.write_text("\n".join(map(json.dumps, rows)), encoding="utf-8")
    with pytest.warns(UserWarning, match="its columns are read as paths from 'file_name'"):
        assert len(open_images(path, image_size=4)) == 50
    assert len(asked) <= 4 * len(rows)  # the table is read for its splits and for its files
