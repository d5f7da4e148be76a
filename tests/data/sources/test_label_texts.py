"""Several classes in one text of a column of labels that is named."""

import io
import json
import tarfile
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from PIL import Image
from torch.utils.data import Dataset

from sslkit.data.sources.label_texts import labels_in_texts, separator_of
from sslkit.data.sources.named import open_images

TEXTS = {"a": "mass|edema", "b": "edema", "c": "mass", "d": ""}
ROWS = {"a": (1, 1), "b": (1, -1), "c": (-1, 1), "d": (0, 0)}  # edema, mass


@pytest.mark.parametrize(
    ("texts", "separator"),
    [
        (["cat|dog", "bird"], "|"),
        (["Edema;Mass", "Mass;Nodule", "Edema", "Nodule"], ";"),
        (["1, 4", "4", "1"], ","),
        (["['cat', 'dog']", "['bird']", "[]"], ","),
        (["scab rust", "scab", "rust", "healthy"], " "),
        (["missile, projectile", "missile", "crane, bird"], None),
        (["polar bear", "brown bear", "bear"], None),
        (["cat", "dog"], None),
        ([3, 4, None], None),
        ([], None),
    ],
)
def test_the_sign_between_classes(texts: list[Any], separator: str | None) -> None:
    assert separator_of(texts) == separator


def test_classes_of_all_splits_are_numbered_together() -> None:
    texts = {"train": ["2|10", "", "2"], "test": ["7|2"]}
    with pytest.warns(UserWarning, match=r"some: columns.label=kinds is .* with '\|' between them \(3 classes\)"):
        several = labels_in_texts(texts["train"], texts, "kinds", "some")
    assert several["classes"] == ["2", "7", "10"]
    assert several["multi_labels"].tolist() == [[1, -1, 1], [0, 0, 0], [1, -1, -1]]


def picture(level: int) -> bytes:
    stream = io.BytesIO()
    Image.new("L", (8, 8), level).save(stream, "png")
    return stream.getvalue()


PICTURES = {name: picture(40 * row) for row, name in enumerate(TEXTS)}


def of_table(folder: Path) -> str:
    for name, content in PICTURES.items():
        (folder / f"{name}.png").write_bytes(content)
    (folder / "list.csv").write_text("path,finding\n" + "".join(f"{k}.png,{v}\n" for k, v in TEXTS.items()))
    return f"{folder}/list.csv"


def of_metadata(folder: Path) -> str:
    Path(of_table(folder)).rename(folder / "metadata.csv")
    return str(folder)


def of_lists(folder: Path) -> str:
    of_table(folder)
    lists = {name: [part for part in text.split("|") if part] or None for name, text in TEXTS.items()}
    lines = [json.dumps({"path": f"{name}.png", "finding": parts}) for name, parts in lists.items()]
    (folder / "list.jsonl").write_text("\n".join(lines))
    return f"{folder}/list.jsonl"


def of_shards(folder: Path) -> str:
    with tarfile.open(folder / "all.tar", "w") as tar:
        for name, content in PICTURES.items():
            about = json.dumps({"finding": TEXTS[name]}).encode()
            for member, value in ((f"{name}.png", content), (f"{name}.json", about)):
                entry = tarfile.TarInfo(member)
                entry.size = len(value)
                tar.addfile(entry, io.BytesIO(value))
    return f"shards:{folder}/all.tar"


def of_parquet(folder: Path) -> str:
    datasets = pytest.importorskip("datasets")
    images = [{"bytes": content, "path": None} for content in PICTURES.values()]
    features = datasets.Features({"image": datasets.Image(), "finding": datasets.Value("string")})
    table = datasets.Dataset.from_dict({"image": images, "finding": list(TEXTS.values())}, features=features)
    table.to_parquet(f"{folder}/rows.parquet")
    return f"hf:{folder}"


def of_array(folder: Path) -> str:
    pixels = np.stack([np.asarray(Image.open(io.BytesIO(content))) for content in PICTURES.values()])
    np.savez(folder / "some.npz", x=pixels, finding=list(TEXTS.values()))
    return f"{folder}/some.npz"


class Pictures(Dataset):
    finding = tuple(TEXTS.values())

    def __len__(self) -> int:
        return len(TEXTS)

    def __getitem__(self, row: int) -> torch.Tensor:
        return torch.full((1, 8, 8), 40 * row, dtype=torch.uint8)


def of_dataset(folder: Path) -> Dataset:
    return Pictures()


SOURCES = [of_table, of_metadata, of_lists, of_shards, of_parquet, of_array, of_dataset]


@pytest.mark.filterwarnings("ignore::UserWarning")
@pytest.mark.parametrize("source", SOURCES)
def test_every_source_reads_them_where_the_column_is_named(source: Any, tmp_path: Path) -> None:
    data = source(tmp_path)
    with pytest.warns(UserWarning, match=r"columns.label=finding is read as several labels an image, with "):
        images = open_images(data, image_size=8, cache=None, columns={"label": "finding"})
    assert images.labels is None and images.classes == ["edema", "mass"]
    assert [tuple(row) for row in images.multi_labels.tolist()] == list(ROWS.values())


@pytest.mark.filterwarnings("ignore:.*its columns are read as")
def test_a_column_of_a_usual_name_stays_one_class_and_the_line_names_the_option(tmp_path: Path) -> None:
    file = Path(of_table(tmp_path))
    file.write_text(file.read_text().replace("finding", "label"))
    with pytest.warns(UserWarning, match=r"'mass\|edema' looks like several .* columns.label= with the column's name"):
        images = open_images(file, image_size=8)
    assert images.multi_labels is None and images.classes == ["edema", "mass", "mass|edema"]
