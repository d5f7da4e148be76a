"""Metadata that says other labels or splits than the folders and parts of its images: it wins, or one line says so."""

import ast
import warnings
import zipfile
from pathlib import Path
from typing import Any

import pytest
from PIL import Image

from sslkit.data.images import Images
from sslkit.data.sources.named import open_images
from sslkit.data.sources.split_words import SPLIT_OF_WORD

ROOT = Path(__file__).parents[3]


def opened(source: Any, part: str = "train", /, **columns: Any) -> tuple[Images, str]:
    with warnings.catch_warnings(record=True) as said:
        warnings.simplefilter("always", UserWarning)
        images = open_images(source, split=part, image_size=4, cache=None, columns=columns)
    return images, "\n".join(str(warning.message) for warning in said)


def labels(images: Images) -> list[str]:
    return [images.classes[label] for label in images.labels]


def write(folder: Path, table: Path, *rows: str, head: str = "file_name,label,split") -> Path:
    """Pictures below a folder, and a table of them."""
    for level, row in enumerate(rows):
        path = table.parent / row.partition(",")[0]
        path.parent.mkdir(parents=True, exist_ok=True)
        Image.new("L", (4, 4), level).save(path)
    table.write_text("\n".join([head, *rows]))
    return folder


OTHERS = [  # label and split of the table where the folders say cat/dog and train/test, and what is not the same
    ("cat", "train", "dog", "test", ""),
    ("0", "TRAIN", "1", "valid", ""),  # other names of the same
    ("cat", "test", "dog", "train", "splits"),
    ("x", "train", "x", "test", "labels"),
    ("x", "test", "x", "train", "labels and splits"),
]


@pytest.mark.parametrize(("of_cats", "of_train", "of_dogs", "of_test", "others"), OTHERS)
def test_class_folders_in_parts_and_a_table_above(
    of_cats: str, of_train: str, of_dogs: str, of_test: str, others: str, tmp_path: Path
) -> None:
    kinds = (("cat", of_cats), ("dog", of_dogs))
    parts = (("train", of_train), ("test", of_test))
    rows = [f"{part}/{kind}/{k}.png,{label},{word}" for part, word in parts for kind, label in kinds for k in range(2)]
    file = tmp_path / "metadata.csv"
    write(tmp_path, file, *rows)
    images, said = opened(tmp_path)
    assert labels(images) == ["cat", "cat", "dog", "dog"] and images.splits == ("train", "test")
    line = f"{file}: its {others} are not those of the folders, which count; data={file} reads its own"
    assert (line in said) if others else "which count" not in said
    by_table, _ = opened(file)
    assert set(labels(by_table)) == {of_cats, of_dogs} and by_table.splits == ("train", "test")
    named, _ = opened(tmp_path, label="label", split="split")
    assert set(labels(named)) == {of_cats, of_dogs}, "what is named wins"
    assert {named.image_name(row).partition("/")[0] for row in range(4)} == {"test" if of_train == "test" else "train"}


def test_a_table_inside_a_part(tmp_path: Path) -> None:
    table = tmp_path / "train" / "metadata.csv"
    write(tmp_path, table, "cat/0.png,x,test", "dog/1.png,x,test")
    Image.new("L", (4, 4)).save(tmp_path / "train" / "cat" / "2.png")
    write(tmp_path, tmp_path / "test" / "metadata.csv", "cat/0.png,cat,test", "dog/1.png,dog,test")
    images, said = opened(tmp_path)
    assert labels(images) == ["cat", "cat", "dog"]
    assert (
        f"{table}: its labels and splits are not those of the folders, which count; data={table} reads its own" in said
    )
    assert "which count" not in opened(tmp_path, "test")[1]


def test_parts_without_class_folders_take_the_labels_of_the_table(tmp_path: Path) -> None:
    rows = [f"{part}/{k}.png,{'ab'[k % 2]},{part}" for part in ("train", "test") for k in range(2)]
    write(tmp_path, tmp_path / "metadata.csv", *rows)
    images, said = opened(tmp_path, "test")
    assert labels(images) == ["a", "b"] and "its splits are read where it is named, data=" in said


def test_hugging_face_reads_the_table_and_says_that_its_splits_are_others(tmp_path: Path) -> None:
    pytest.importorskip("datasets")
    rows = [f"{part}/{k}.png,{'ab'[k % 2]},train" for part in ("train", "test") for k in range(2)]
    for part in ("train", "test"):
        inside = [row.partition("/")[2] for row in rows if row.startswith(part)]
        write(tmp_path, tmp_path / part / "metadata.csv", *inside)
    images, said = opened(f"hf:{tmp_path}")
    assert labels(images) == ["a", "b"]
    assert f"{tmp_path.name}: its column split says other splits; its own splits are read" in said
    datasets = pytest.importorskip("datasets")
    (tmp_path / "one").mkdir()
    pictures = datasets.Dataset.from_dict({"image": [Image.new("L", (4, 4))] * 3, "split": ["train", "train", "test"]})
    pictures.to_parquet(f"{tmp_path}/one/rows.parquet")
    images, said = opened(f"hf:{tmp_path}/one")
    assert len(images) == 3 and "one: its column split says other splits; columns.split=split reads it" in said
    images, said = opened(f"hf:{tmp_path}/one", split="split")
    assert len(images) == 2 and "says other splits" not in said


def test_a_table_in_a_zip_is_counted_with_what_is_left_out(tmp_path: Path) -> None:
    rows = [f"{part}/{kind}/0.png,x,train" for part in ("train", "test") for kind in ("cat", "dog")]
    write(tmp_path / "mine", tmp_path / "metadata.csv", *rows)
    with zipfile.ZipFile(tmp_path / "all.zip", "w") as packed:
        for path in sorted((*tmp_path.rglob("*.png"), tmp_path / "metadata.csv")):
            packed.write(path, path.relative_to(tmp_path))
    images, said = opened(f"shards:{tmp_path}/all.zip")
    assert labels(images) == ["cat", "dog"] and "left out 1 other member: 1 metadata.csv" in said


def test_there_is_one_list_of_the_words_of_splits() -> None:
    """Two rare ones in a file are a list."""
    rare, lists = {"valid", "validation", "dev", "testing", "heldout", "holdout"}, []
    assert rare < SPLIT_OF_WORD.keys()
    for path in (path for folder in ("sslkit", "evaluation") for path in sorted((ROOT / folder).rglob("*.py"))):
        nodes = ast.walk(ast.parse(path.read_text(encoding="utf-8")))
        words = {node.value for node in nodes if isinstance(node, ast.Constant) and isinstance(node.value, str)}
        lists += [path.relative_to(ROOT).as_posix()] * (len(words & rare) > 1)
    assert lists == ["sslkit/data/sources/split_words.py"]
