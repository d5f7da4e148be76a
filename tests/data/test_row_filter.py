"""`columns.where`: which rows of a table are read."""

import csv
import json
import re
import warnings
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from manifests import look, opened, write_folder
from PIL import Image
from tars import tar

import sslkit
from sslkit.data.columns import Columns
from sslkit.data.row_filter import parse_filter
from sslkit.data.sources.named import splits
from sslkit.errors import UserError

CELLS = {
    "class": ["cat", "dog", "blur", "", "Cat "],
    "width": ["9", "64", "100", "", "64.0"],
    "left out": ["", "copies", "", "blank", ""],
    "ok": [True, False, None, True, False],
    "day": ["2024-03-01", "2023-12-31", "", "2024-01-01", "2022-01-01"],
    "code": ["007", "7", "x", "", "seven"],
}


@pytest.mark.parametrize(
    ("text", "rows"),
    [
        ("class != blur", [0, 1, 3, 4]),
        ("class == Cat", [4]),
        ("class == ''", [3]),
        ('class in (cat, "dog")', [0, 1]),
        ("class not in (cat, dog)", [2, 3, 4]),
        ("width == 64", [1, 4]),
        ("width == '64'", [1]),
        ("width < 64", [0]),
        ("width>=64", [1, 2, 4]),
        ("width in (9, 100.0)", [0, 2]),
        ("class == cat or class == dog and width > 80", [0]),
        ("(class == cat or class == dog) and width > 50", [1]),
        ("not class == cat and not (width < 60)", [1, 2, 3, 4]),
        ("not not class == cat", [0]),
        ("'left out' == '' and class != ''", [0, 2, 4]),
        ("ok == true", [0, 3]),
        ("ok != true", [1, 2, 4]),
        ("day >= 2024-01-01", [0, 3]),
        ("code == 7", [0, 1]),
        ("code == '007'", [0]),
        ("class == cat AND NOT width == 64", [0]),
        ("class == dog or class == blur or class == cat", [0, 1, 2]),
    ],
)
def test_what_a_filter_keeps(text: str, rows: list[int]) -> None:
    kept = parse_filter(text)(CELLS.__getitem__)
    assert [row for row, is_kept in enumerate(kept) if is_kept] == rows


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("", "it ends, where a name or a value is meant"),
        ("class", "it ends after 'class', where == or !="),
        ("class = cat", "write == for equal"),
        ("class ==", "it ends after '==', where a name or a value is meant"),
        ("class == cat dog", "'dog' where and, or, or the end is meant"),
        ("class == cat and", "it ends after 'and', where a name or a value is meant"),
        ("(class == cat", "it ends after 'cat', where a closing parenthesis is meant"),
        ("class == cat)", "')' where and, or, or the end is meant"),
        ("class == 'cat", '"\'cat" is not closed'),
        ("class in cat", "'cat' after 'in', where ( is meant"),
        ("class in ()", "')' after '(', where a name or a value is meant"),
        ("class not cat", "'cat' after 'not', where in is meant"),
        ("class < cat < dog", "'<' where and, or, or the end is meant"),
        ("__import__('os')", "'(' after '__import__', where == or !="),
        ("class ! cat", "'! cat' is not closed, or no sign of a filter"),
    ],
)
def test_what_is_no_filter(text: str, message: str) -> None:
    with pytest.raises(UserError, match=re.escape(message) + '.*such as "class != blur and width >= 64"'):
        parse_filter(text)


def test_order_is_asked_of_numbers_alone() -> None:
    with pytest.raises(UserError, match="code holds 'x', which is no number, so that it is not in order"):
        parse_filter("code > 3")(CELLS.__getitem__)


@pytest.fixture
def rows(tmp_path: Path) -> list[dict[str, Any]]:
    """Eight pictures, of which two are blurred, and what a table says of them."""
    rng = np.random.default_rng(0)
    table = []
    for row in range(8):
        name = f"{row}.png"
        Image.fromarray(rng.integers(0, 255, (8, 8, 3), np.uint8)).save(tmp_path / name)
        kind = "blur" if row in (2, 5) else "ab"[row % 2]
        table.append({"file_name": name, "path": name, "label": kind, "age": 10 * row, "split": "train"})
    return table


def write(folder: Path, kind: str, rows: list[dict[str, Any]]) -> Any:
    """The table as a file of a kind, or as what Python or `hf:` opens."""
    if kind in ("csv", "folder"):
        path = folder / ("metadata.csv" if kind == "folder" else "table.csv")
        keys = [key for key in rows[0] if key != ("path" if kind == "folder" else "file_name")]
        with path.open("w", newline="") as file:
            csv.writer(file).writerows([keys, *([row[key] for key in keys] for row in rows)])
        return str(folder if kind == "folder" else path)
    if kind == "jsonl":
        (folder / "table.jsonl").write_text("\n".join(map(json.dumps, rows)))
        return str(folder / "table.jsonl")
    if kind == "parquet":
        pyarrow, parquet = pytest.importorskip("pyarrow"), pytest.importorskip("pyarrow.parquet")
        parquet.write_table(pyarrow.Table.from_pylist(rows), folder / "table.parquet")
        return str(folder / "table.parquet")
    if kind == "manifest":
        look(Path(write(folder, "csv", rows)), out=str(folder / "manifest.csv"), cache=str(folder / "cache"))
        return str(folder / "manifest.csv")
    datasets = pytest.importorskip("datasets")
    columns = {"image": [str(folder / row["path"]) for row in rows]}
    columns |= {key: [row[key] for row in rows] for key in ("label", "age")}
    table = datasets.Dataset.from_dict(columns).cast_column("image", datasets.Image())
    table = table.class_encode_column("label")
    if kind == "object":
        return table
    table.save_to_disk(folder / "saved")
    return f"hf:{folder / 'saved'}"


KINDS = ["csv", "jsonl", "parquet", "manifest", "folder", "hf", "object"]


@pytest.mark.parametrize("kind", KINDS)
def test_every_table_is_filtered(tmp_path: Path, rows: list[dict[str, Any]], kind: str) -> None:
    source = write(tmp_path, kind, rows)
    column = "label" if kind in ("hf", "object") else "class"  # a usual name of the column, whatever it is called
    options = {"image_size": 8, "cache": None}
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        images = sslkit.open_images(source, columns={"where": f"{column} != blur"}, **options)
    assert len(images) == 6 and images.classes in (["a", "b"], ["a", "b", "blur"])
    told = [str(warning.message) for warning in caught if "left out" in str(warning.message)]
    assert len(told) == 1 and told[0].endswith(f"columns.where='{column} != blur': 2 of 8 rows left out")
    whole = sslkit.open_images(source, **options)
    assert len(whole) == 8 and whole.digest != images.digest
    if kind != "manifest":
        assert len(sslkit.open_images(source, columns={"where": "age < 30 or age == 70"}, **options)) == 4
    assert splits(source, None, Columns(where=f"{column} != blur")) == ("train",)


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize(
    ("where", "message"),
    [
        ("sharpness > 3", "has no column 'sharpness'"),
        ("label == nothing", "columns.where='label == nothing' leaves all of 8 rows of"),
        ("label = a", "write == for equal"),
    ],
)
def test_a_filter_that_cannot_be_right_ends_in_one_line(
    tmp_path: Path, rows: list[dict[str, Any]], kind: str, where: str, message: str
) -> None:
    source = write(tmp_path, kind, rows)
    with pytest.raises(UserError, match=re.escape(message)), warnings.catch_warnings():
        warnings.simplefilter("ignore")
        sslkit.open_images(source, columns={"where": where}, cache=None)


def test_a_filter_that_leaves_nothing_out_is_told(tmp_path: Path, rows: list[dict[str, Any]]) -> None:
    source = write(tmp_path, "csv", rows)
    with pytest.warns(UserWarning, match="columns.where='age >= 0': no row is left out"):
        assert len(sslkit.open_images(source, columns={"where": "age >= 0"}, cache=None)) == 8


@pytest.mark.parametrize("kind", ["array", "npz", "list", "folder", "pattern", "files", "digits", "torch", "shards"])
def test_what_is_no_table_refuses_a_filter(tmp_path: Path, kind: str) -> None:
    from sslkit.data.sources.shard_writer import write_shards

    folder = write_folder(tmp_path / "set")
    pixels = np.zeros((4, 8, 8, 3), np.uint8)
    np.savez(tmp_path / "some.npz", x=pixels)
    (tmp_path / "some.txt").write_text("\n".join(str(path) for path in sorted(folder.rglob("*.png"))))
    if kind == "shards":
        write_shards(folder / "train", tmp_path / "shards", progress=False)
    source = {
        "array": pixels,
        "npz": str(tmp_path / "some.npz"),
        "list": str(tmp_path / "some.txt"),
        "folder": str(folder),
        "pattern": f"{folder}/**/*.png",
        "files": [str(path) for path in sorted(folder.rglob("*.png"))],
        "digits": "digits",
        "torch": torch.utils.data.TensorDataset(torch.zeros(4, 3, 8, 8)),
        "shards": f"shards:{tmp_path / 'shards'}",
    }[kind]
    with pytest.raises(UserError, match=r"columns\.where="), warnings.catch_warnings():
        warnings.simplefilter("ignore")
        sslkit.open_images(source, columns={"where": "label != blur"}, cache=None)


class Scans(torch.utils.data.Dataset):
    """Pictures of a Python program, with an attribute for each column of a table."""

    def __init__(self, folder: Path, rows: list[dict[str, Any]]) -> None:
        self.files = [folder / row["path"] for row in rows]
        self.targets, self.age = ([row[key] for row in rows] for key in ("label", "age"))

    def __len__(self) -> int:
        return len(self.files)

    def __getitem__(self, row: int) -> tuple[Image.Image, str]:
        return Image.open(self.files[row]), self.targets[row]


def write_values(folder: Path, kind: str, rows: list[dict[str, Any]]) -> Any:
    """The table as keys of .json members, or as attributes of a Dataset."""
    if kind == "torch":
        return Scans(folder, rows)
    members = []
    for row in rows:
        about = {"label": row["label"], "targets": row["label"], "age": row["age"], "old": row["age"] > 30}
        members += [(row["path"], (folder / row["path"]).read_bytes()), (f"{row['path'][0]}.json", json.dumps(about))]
    tar(folder / "all.tar", [(name, text.encode() if isinstance(text, str) else text) for name, text in members])
    return f"shards:{folder / 'all.tar'}"


@pytest.mark.parametrize("kind", ["shards", "torch"])
def test_keys_of_shards_and_attributes_are_compared(tmp_path: Path, rows: list[dict[str, Any]], kind: str) -> None:
    source = write_values(tmp_path, kind, rows)
    options = {"image_size": 8, "cache": None}
    with pytest.warns(UserWarning, match=r"columns.where='targets != blur': 2 of 8 rows left out"):
        images = sslkit.open_images(source, columns={"where": "targets != blur"}, **options)
    assert len(images) == 6 and images.classes == ["a", "b"]
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        assert images.digest != sslkit.open_images(source, **options).digest
        assert len(sslkit.open_images(source, columns={"where": "age < 30 or age == 70"}, **options)) == 4
        if kind == "shards":
            assert len(sslkit.open_images(source, columns={"where": "old == true"}, **options)) == 4
            assert splits(source, None, Columns(where="old == true")) == ("train",)
    with pytest.raises(UserError, match=r"columns.where=nothing: .* has (no attribute 'nothing'|this key)"):
        sslkit.open_images(source, columns={"where": "nothing == 1"}, **options)
    with pytest.raises(UserError, match=r"columns\.where='age > 700' leaves all of 8 rows of"):
        sslkit.open_images(source, columns={"where": "age > 700"}, **options)


def test_a_split_of_shards_that_a_filter_leaves_empty_is_none(tmp_path: Path, rows: list[dict[str, Any]]) -> None:
    write_values(tmp_path, "shards", rows)
    (tmp_path / "all.tar").rename(tmp_path / "train.tar")
    write_values(tmp_path, "shards", [{**row, "label": "blur"} for row in rows])
    (tmp_path / "all.tar").rename(tmp_path / "test.tar")
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        assert splits(f"shards:{tmp_path}", None, Columns(where="age > 30")) == ("train", "test")
        assert splits(f"shards:{tmp_path}", None, Columns(where="label != blur")) == ("train",)
        images = sslkit.open_images(f"shards:{tmp_path}", columns={"where": "label != blur"}, cache=None)
    assert images.splits == ("train",) and len(images) == 6


def test_a_manifest_of_several_labels(tmp_path: Path) -> None:
    lines = ["path,cat,dog"]
    for row in range(6):
        Image.fromarray(np.full((8, 8, 3), 40 * row, np.uint8)).save(tmp_path / f"{row}.png")
        lines.append(f"{row}.png,{row % 2},{row % 3 == 0:d}")
    (tmp_path / "some.csv").write_text("\n".join(lines))
    look(tmp_path / "some.csv", columns={"label": ["cat", "dog"]}, out=str(tmp_path / "manifest.csv"))
    assert len(opened(tmp_path / "manifest.csv", columns={"where": "cat == 1"})) == 3
    assert len(opened(tmp_path / "manifest.csv", columns={"where": "'label cat' == 1 and width == 8"})) == 3
