"""Labels that are numbers: the same from every kind of source, told where they are guessed, refused by their row."""

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from PIL import Image
from tars import picture, tar

import sslkit
from sslkit import UserError
from sslkit.data.columns import NUMBER
from sslkit.data.sources.shard_writer import write_shards

AGES = [float(k) * 1.5 - 3 for k in range(12)]
COLUMNS = {"label": "age", "label_kind": NUMBER}


def cells(values: list[Any]) -> list[str]:
    return ["" if value is None else str(value) for value in values]


def write_table(folder: Path, values: list[Any], ending: str = ".csv") -> str:
    for row in range(len(values)):
        Image.new("L", (8, 8), 20 * row).save(folder / f"{row:02}.png")
    table = folder / f"{'list' if ending == '.csv' else 'metadata'}{ending}"
    if ending == ".csv":
        table.write_text("\n".join(["path,age", *(f"{k:02}.png,{v}" for k, v in enumerate(cells(values)))]))
    else:
        rows = [{"file_name": f"{row:02}.png", "age": value} for row, value in enumerate(values)]
        table.write_text("\n".join(map(json.dumps, rows)))
    return str(table)


def of_csv(folder: Path, values: list[Any]) -> Any:
    return write_table(folder, values)


def of_json_lines(folder: Path, values: list[Any]) -> Any:
    return write_table(folder, values, ".jsonl").removesuffix("metadata.jsonl")


def of_npz(folder: Path, values: list[Any]) -> Any:
    file = folder / "images.npz"
    y = np.array([np.nan if value is None else value for value in values])
    np.savez(file, x_train=np.zeros((len(values), 8, 8), np.uint8), age_train=y)
    return file


def of_dataset(folder: Path, values: list[Any]) -> Any:
    class Own(torch.utils.data.Dataset):
        age = values

        def __len__(self) -> int:
            return len(values)

        def __getitem__(self, row: int) -> Any:
            return np.full((8, 8), row, np.uint8), 0

    return Own()


def of_shards(folder: Path, values: list[Any]) -> Any:
    members = {}
    for row, value in enumerate(values):
        members |= {f"{row:02}.png": picture(row), f"{row:02}.json": json.dumps({"age": value}).encode()}
    tar(folder / "a.tar", members)
    return f"shards:{folder}/a.tar"


def of_table(folder: Path, values: list[Any]) -> Any:
    datasets = pytest.importorskip("datasets")
    pictures = [Image.new("L", (8, 8), row) for row in range(len(values))]
    table = datasets.Dataset.from_dict({"image": pictures, "age": values})
    return table.cast_column("image", datasets.Image())


SOURCES: dict[str, Callable[[Path, list[Any]], Any]] = {
    name.removeprefix("of_"): make
    for name, make in list(globals().items())
    if name.startswith("of_") and callable(make)
}
OF_TEXTS = ["csv", "json_lines", "dataset", "shards"]


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("source", SOURCES)
def test_numbers_are_those_of_the_column_and_missing_ones_are_nan(source: str, tmp_path: Path) -> None:
    values = [*AGES[:5], None, *AGES[6:]]
    images = sslkit.open_images(SOURCES[source](tmp_path, values), columns=COLUMNS, cache=None)
    expected = [np.nan if value is None else value for value in values]
    np.testing.assert_array_equal(images.numbers, expected)
    assert images.labels is None and images.multi_labels is None and images.classes == ["age"]
    part = images.part(np.array([3, 1]), "train") if source != "npz" else images
    assert source == "npz" or part.numbers.tolist() == [AGES[3], AGES[1]]
    assert images[0]["label"] == -1


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("source", OF_TEXTS)
def test_a_text_among_numbers_is_named_with_its_row(source: str, tmp_path: Path) -> None:
    data = SOURCES[source](tmp_path, [*AGES[:5], "old", *AGES[6:]])
    with pytest.raises(UserError, match=r"(05(\.png)?|item 5): the label 'old' is no finite number") as error:
        sslkit.open_images(data, columns=COLUMNS, cache=None)
    assert len(str(error.value).splitlines()) == 1


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize(
    ("values", "said"),
    [([1.5] * 12, "age: it is 1.5 for all of 12 images"), ([None] * 12, "no image of .* has a number there")],
)
def test_numbers_that_say_nothing_are_one_line(values: list[Any], said: str, tmp_path: Path) -> None:
    with pytest.raises(UserError, match=said):
        sslkit.open_images(of_csv(tmp_path, values), columns=COLUMNS, cache=None)


@pytest.mark.filterwarnings("ignore")
def test_infinite_numbers_are_refused(tmp_path: Path) -> None:
    with pytest.raises(UserError, match=r"02\.png: the label 'inf' is no finite number"):
        sslkit.open_images(of_csv(tmp_path, [1.0, 2.0, "inf"]), columns=COLUMNS, cache=None)


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("source", [name for name in SOURCES if name != "shards"])
def test_a_column_of_decimal_numbers_is_said_to_be_no_classes(source: str, tmp_path: Path) -> None:
    data = SOURCES[source](tmp_path, AGES)
    with pytest.raises(UserError, match=r"numbers such as -1\.5, which are no classes.*columns\.label_kind=number"):
        sslkit.open_images(data, columns={"label": "age"}, cache=None)


def test_whole_numbers_stay_classes_and_those_with_gaps_are_told(tmp_path: Path) -> None:
    with pytest.warns(UserWarning, match="its numbers are read as 3 classes; columns.label_kind=number"):
        images = sslkit.open_images(of_csv(tmp_path, [1, 5, 7, 1, 5, 7]), columns={"label": "age"}, cache=None)
    assert images.classes == ["1", "5", "7"] and images.numbers is None


def test_one_column_is_one_number() -> None:
    with pytest.raises(UserError, match="reads one column"):
        sslkit.open_images("digits", columns={"label": ["a", "b"], "label_kind": NUMBER})


def test_sources_with_labels_of_their_own_refuse_it() -> None:
    with pytest.raises(UserError, match="label_kind=number: digits"):
        sslkit.open_images("digits", columns={"label_kind": NUMBER})


@pytest.mark.filterwarnings("ignore")
def test_a_pair_and_a_pattern_of_names_have_numbers(tmp_path: Path) -> None:
    images = sslkit.open_images((np.zeros((12, 8, 8), np.uint8), np.array(AGES)), columns={"label_kind": NUMBER})
    assert images.numbers.tolist() == AGES and images.classes == ["number"]
    write_table(tmp_path, AGES)
    named = {"label": r"^(\d+)", "label_kind": NUMBER}
    assert sslkit.open_images(tmp_path, columns=named, cache=None).numbers.tolist() == list(map(float, range(12)))


@pytest.mark.filterwarnings("ignore")
def test_written_shards_hold_the_numbers_and_a_manifest_refuses_them(tmp_path: Path) -> None:
    data = of_csv(tmp_path, [*AGES[:5], None, *AGES[6:]])
    (written,) = write_shards(data, tmp_path / "shards", columns=COLUMNS)
    columns = {name.removeprefix("columns."): value for name, value in written.columns.items()}
    again = sslkit.open_images(f"shards:{tmp_path}/shards", columns=columns, cache=None)
    np.testing.assert_array_equal(again.numbers, [*AGES[:5], np.nan, *AGES[6:]])
    with pytest.raises(UserError, match="a manifest holds classes"):
        sslkit.look(data, out=tmp_path / "m.csv", columns=COLUMNS)
