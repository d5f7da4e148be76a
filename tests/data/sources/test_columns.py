"""`columns.label`, `.split` and `.group` of every source: columns, keys, arrays, attributes, patterns of names."""

import json
import re
import warnings
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from patients import COLUMNS, LABELS, NAMES, PATIENTS, SOURCES, of_folder, patient_of, picture, split_of
from tars import tar
from torch.utils.data import ConcatDataset, Dataset, Subset

import evaluation
from sslkit.data.columns import Columns
from sslkit.data.images import Images
from sslkit.data.sources.named import open_images, splits
from sslkit.errors import UserError
from sslkit.training.config import Config
from sslkit.training.data import open_data


@pytest.fixture(params=SOURCES)
def source(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    return SOURCES[request.param](tmp_path)


def check_rows(images: Images, names: list[str]) -> None:
    """The images, labels and groups are those of these names, in some order."""
    pixels = {picture(name): name for name in names}
    found = [pixels.pop(images.content(row)) for row in range(len(images))]
    assert not pixels
    assert [images.classes[label] for label in images.labels] == [
        ["none", "mass"][LABELS[patient_of(name)]] for name in found
    ]
    of_patient = {patient_of(name): group for name, group in zip(found, images.groups.tolist(), strict=True)}
    assert images.groups.tolist() == [of_patient[patient_of(name)] for name in found]
    assert len(set(of_patient.values())) == len(of_patient)


@pytest.mark.filterwarnings("ignore::UserWarning")
@pytest.mark.parametrize("split", ["train", "test"])
def test_the_same_words_in_every_source(source: str, split: str) -> None:
    images = open_images(source, split=split, image_size=8, columns=COLUMNS, cache=None)
    assert images.splits == splits(source, None, Columns(**COLUMNS)) == ("train", "test")
    check_rows(images, [name for name in NAMES if split_of(name) == split])
    again = open_images(source, split=split, image_size=8, columns=COLUMNS, cache=None)
    assert images.digest == again.digest


@pytest.mark.filterwarnings("ignore::UserWarning")
def test_groups_are_part_of_the_identity_and_stay_with_their_rows(source: str) -> None:
    with_groups = open_images(source, image_size=8, columns={"label": "finding", "group": "patient"}, cache=None)
    without = open_images(source, image_size=8, columns={"label": "finding"}, cache=None)
    assert without.groups is None and with_groups.digest != without.digest
    assert with_groups.content_digest == without.content_digest
    part = with_groups.part(np.array([7, 2]), "some")
    assert part.groups.tolist() == with_groups.groups[[7, 2]].tolist()


@pytest.mark.filterwarnings("ignore::UserWarning")
@pytest.mark.parametrize("name", ["folder", "shards"])
def test_patterns_of_names(name: str, tmp_path: Path) -> None:
    source = SOURCES[name](tmp_path)
    patterns = {"label": "^p([0-9])", "split": "_([0-9])", "group": "^(p[0-9])_"}
    with pytest.raises(UserError, match=r"'[0-3]' is no split: these are called train"):
        open_images(source, columns=patterns, cache=None)
    images = open_images(source, image_size=8, columns={**patterns, "split": None}, cache=None)
    assert images.classes == [str(patient) for patient in range(PATIENTS)]
    assert len(set(images.groups.tolist())) == PATIENTS and len(images) == len(NAMES)


@pytest.mark.filterwarnings("ignore::UserWarning")
def test_a_pattern_of_names_divides_a_folder(tmp_path: Path) -> None:
    for name in NAMES:
        (tmp_path / f"{split_of(name)}-{name}").write_bytes(picture(name))
    columns = {"split": "^(train|test)-", "label": "(p[0-9])_"}
    for split, count in (("train", 32), ("test", 8)):
        images = open_images(tmp_path, split=split, image_size=8, columns=columns)
        assert images.splits == splits(tmp_path, columns=Columns(**columns)) == ("train", "test")
        assert len(images) == count and all(split in images.image_name(row) for row in range(count))


@pytest.mark.filterwarnings("ignore::UserWarning")
def test_several_columns_of_yes_or_no(source: str) -> None:
    """Patient 3 has no cell for fractures: not known."""
    images = open_images(source, image_size=8, columns={"label": ["edema", "fracture"], "group": "patient"}, cache=None)
    assert images.labels is None and images.classes == ["edema", "fracture"]
    found = {
        patient: set(map(tuple, images.multi_labels[images.groups == group].tolist()))
        for group in set(images.groups.tolist())
        for patient in [name_of(images, int(np.argmax(images.groups == group)))]
    }
    assert found == {
        patient: {(1 if patient % 2 else -1, 0 if patient == 3 else 1 if patient % 3 == 0 else -1)}
        for patient in range(PATIENTS)
    }


def test_columns_of_which_each_image_has_one_are_told(tmp_path: Path) -> None:
    lines = ["path,cat,dog"]
    for row, name in enumerate(NAMES[:6]):
        (tmp_path / name).write_bytes(picture(name))
        lines.append(f"{name},{row % 2},{1 - row % 2}")
    (tmp_path / "some.csv").write_text("\n".join(lines))
    told = r"columns.label=cat, dog: each image has one of them, and they are read as several labels an image"
    with pytest.warns(UserWarning, match=told):
        open_images(str(tmp_path / "some.csv"), columns={"label": ["cat", "dog"]}, cache=None)
    (tmp_path / "some.csv").write_text("\n".join([*lines[:-1], lines[-1].replace("1,0", "1,1")]))
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        open_images(str(tmp_path / "some.csv"), columns={"label": ["cat", "dog"]}, cache=None)
    assert not any("each image has one" in str(warning.message) for warning in caught)


@pytest.mark.parametrize("word", ["train", "test"])
def test_other_splits_in_the_json_of_shards_are_told(tmp_path: Path, word: str) -> None:
    about = json.dumps({"split": word, "label": 1}).encode()
    tar(tmp_path / "all.tar", [("a.png", picture("a")), ("a.json", about), ("b.png", picture("b"))])
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        open_images(f"shards:{tmp_path / 'all.tar'}", image_size=8, cache=None)
    told = "the key 'split' of its .json members says other splits; columns.split=split reads it"
    assert any(told in str(warning.message) for warning in caught) is (word == "test")


def name_of(images: Images, row: int) -> int:
    """The patient of a row, by its picture."""
    content = images.content(row)
    return next(patient_of(name) for name in NAMES if picture(name) == content)


WRONG = {
    "another name": ({"group": "patients"}, "columns.group=patients"),
    "a pattern without a group": ({"group": "p[0-9](?:_)"}, "has no group: put parentheses round what is the value"),
    "no pattern": ({"label": "(p"}, "columns.label='(p' is no pattern: missing )"),
    "another option": ({"groups": "patient"}, "there is no setting 'columns.groups': did you mean 'group'?"),
    "a number": ({"group": 3}, "columns.group must be text or null, got 3"),
}


@pytest.mark.filterwarnings("ignore::UserWarning")
@pytest.mark.parametrize("given", WRONG)
def test_what_is_wrong_is_one_line(given: str, tmp_path: Path) -> None:
    columns, message = WRONG[given]
    with pytest.raises(UserError, match=re.escape(message)) as raised:
        open_images(of_folder(tmp_path), columns=columns)
    assert "\n" not in str(raised.value)


def write(folder: Path, head: str, *lines: str) -> Path:
    for line in lines:
        (folder / line.partition(",")[0]).write_bytes(picture(line.partition(",")[0]))
    (folder / "list.csv").write_text("\n".join([head, *lines]))
    return folder / "list.csv"


@pytest.mark.filterwarnings("ignore:.*its columns are read as")
def test_groups_that_say_nothing(tmp_path: Path) -> None:
    file = write(tmp_path, "path,label,slide,empty,same", "a.png,x,1,,s", "b.png,y,2,,s", "c.png,x,3,,s")
    with pytest.raises(UserError, match=r"columns.group=empty: list has no value there for any of 3 images"):
        open_images(file, columns={"group": "empty"})
    with pytest.raises(UserError, match=r"columns.group=same: all of 3 images of list are of one group, s"):
        open_images(file, columns={"group": "same"})
    with pytest.warns(UserWarning, match="columns.group=slide differs for every image, so that no two belong together"):
        assert len(set(open_images(file, columns={"group": "slide"}).groups)) == 3


LABELS_OF_SIX = {  # of four images of train, and two of test
    "same": (["x"] * 4, ["x"] * 2, "columns.label=kind is x for all of 4 images with a label"),
    "different": ([*"abcd"], [*"ab"], "columns.label=kind differs for every image, so that no two are of one class"),
    "only in test": ([*"abab"], [*"az"], "columns.label=kind: no image of train has 1 of 3 classes: z"),
    "empty": ([""] * 4, [""] * 2, None),
    "usual": ([*"abab"], [*"ab"], ""),
}


@pytest.mark.parametrize("kind", ["table", "hf", "shards", "npz", "dataset", "pattern", "parquet"])
@pytest.mark.parametrize("given", LABELS_OF_SIX)
def test_labels_that_say_nothing(given: str, kind: str, tmp_path: Path) -> None:
    train, test, message = LABELS_OF_SIX[given]
    if kind == "dataset" and given == "only in test":
        pytest.skip("a Dataset is one split")
    source, columns = labelled(kind, train, test, tmp_path)
    with warnings.catch_warnings(record=True) as said:
        warnings.simplefilter("always")
        if message is None:
            with pytest.raises(UserError, match=r"columns\.label=.*(has a class there|matches none of)") as raised:
                open_images(source, image_size=8, columns=columns, cache=None)
            assert "\n" not in str(raised.value)
            return
        open_images(source, image_size=8, columns=columns, cache=None)
    texts = [str(warning.message).partition(": ")[2] for warning in said]
    texts = [text.replace(columns["label"], "kind") for text in texts if text.startswith("columns.label=")]
    assert texts == ([message] if message else [])


def labelled(kind: str, train: list[str], test: list[str], folder: Path) -> tuple[Any, dict[str, str]]:
    """Six images with these labels in a column called kind, or in their names, and the words that name it."""
    columns = {"label": "kind", "split": "part"}
    labels, splits = [*train, *test], ["train"] * len(train) + ["test"] * len(test)
    if kind in ("npz", "dataset"):
        pixels = np.random.default_rng(0).integers(0, 255, (6, 8, 8, 3), np.uint8)
        cut = {"x_train": pixels[:4], "x_test": pixels[4:], "kind_train": train, "kind_test": test}
        np.savez(folder / "some.npz", **cut)
        own = Scans()
        own.kind = [*train, *test]
        return (Subset(own, range(4)) if kind == "dataset" else folder / "some.npz"), {"label": "kind"}
    names = [f"{row}{label or 'none'}.png" for row, label in enumerate(labels)]
    table = {"path": names, "kind": labels, "part": splits}
    for name in names:
        (folder / name).write_bytes(picture(name))
    if kind == "pattern":
        return write_table(folder, table), {"label": "^[0-9]([a-z])[.]", "split": "part"}
    if kind == "parquet":
        parquet, pa = pytest.importorskip("pyarrow.parquet"), pytest.importorskip("pyarrow")
        parquet.write_table(pa.table(table), folder / "list.parquet")
        return folder / "list.parquet", columns
    if kind == "hf":
        datasets = pytest.importorskip("datasets")
        images = [{"bytes": picture(name), "path": None} for name in names]
        features = {"image": datasets.Image(), **{name: datasets.Value("string") for name in ("kind", "part")}}
        rows = {"image": images, "kind": labels, "part": splits}
        return datasets.Dataset.from_dict(rows, features=datasets.Features(features)), columns
    if kind == "shards":
        entries = {}
        for name, label, split in zip(names, labels, splits, strict=True):
            entries[name] = picture(name)
            entries[name.replace(".png", ".json")] = json.dumps({"kind": label, "part": split}).encode()
        return f"shards:{tar(folder / 'all.tar', entries)}", columns
    return write_table(folder, table), columns


def write_table(folder: Path, table: dict[str, list[str]]) -> Path:
    lines = [",".join(table), *(",".join(row) for row in zip(*table.values(), strict=True))]
    (folder / "list.csv").write_text("\n".join(lines))
    return folder / "list.csv"


@pytest.mark.filterwarnings("ignore:.*its columns are read as")
def test_groups_on_both_sides_of_a_given_split_are_counted(tmp_path: Path) -> None:
    lines = ["a.png,x,train,1", "b.png,y,train,2", "c.png,x,test,1", "d.png,y,test,3", "e.png,y,test,"]
    file = write(tmp_path, "path,label,split,slide", *lines)
    with pytest.warns(UserWarning) as warned:
        open_images(file, split="test", columns={"group": "slide"})
    texts = [str(warning.message) for warning in warned]
    assert any("columns.group=slide has no value for 1 of 5 images, each a group of its own" in text for text in texts)
    assert any("1 of 2 groups of test are in train, too (1 of 2 images): columns.group=slide" in text for text in texts)


@pytest.mark.filterwarnings("ignore:.*its columns are read as")
def test_minus_one_among_yes_and_no_is_not_guessed(tmp_path: Path) -> None:
    """CheXpert's -1 is uncertain, others' is no (D12)."""
    file = write(tmp_path, "path,edema,mass", "a.png,1,1", "b.png,0,-1", "c.png,-1,1")
    with pytest.raises(UserError, match="its column edema holds -1, 0 and 1, and -1 may be no or not known"):
        open_images(file, columns={"label": ["edema", "mass"]})
    file = write(tmp_path, "path,edema,mass", "a.png,1,1", "b.png,0,-1", "c.png,,maybe")
    with pytest.raises(UserError, match="its column mass holds 'maybe', and one of a class holds 1 or 0, yes or no"):
        open_images(file, columns={"label": ["edema", "mass"]})


def test_arrays_of_an_npz_file(tmp_path: Path) -> None:
    pixels = np.random.default_rng(0).integers(0, 255, (6, 8, 8, 3), np.uint8)
    arrays = {"x_train": pixels[:4], "x_test": pixels[4:], "breed_train": [*"abba"], "breed_test": [*"ab"]}
    np.savez(tmp_path / "some.npz", **arrays, owner_train=[1, 1, 2, 2], owner_test=[3, 4])
    columns = {"label": "breed", "group": "owner"}
    images = open_images(tmp_path / "some.npz", columns=columns)
    assert images.labels.tolist() == [0, 1, 1, 0] and images.classes == ["a", "b"]
    assert images.groups[0] == images.groups[1] != images.groups[2] == images.groups[3]
    assert open_images(tmp_path / "some.npz", split="test", columns=columns).labels.tolist() == [0, 1]
    with pytest.raises(UserError, match=r"columns.label=bred: .*some.npz has no such array: did you mean 'breed"):
        open_images(tmp_path / "some.npz", columns={"label": "bred"})
    with pytest.raises(UserError, match=r"columns.split=part: .*some.npz is read by its arrays x_train"):
        open_images(tmp_path / "some.npz", columns={"split": "part"})


class Scans(Dataset):
    def __init__(self) -> None:
        self.pixels = np.random.default_rng(0).integers(0, 255, (6, 3, 8, 8), np.uint8)
        self.breed, self.owner = [*"abcabc"], torch.tensor([1, 1, 2, 2, 3, 3])

    def __len__(self) -> int:
        return 6

    def __getitem__(self, row: int) -> np.ndarray:
        return self.pixels[row]


def test_attributes_of_a_dataset_also_of_its_parts() -> None:
    columns = {"label": "breed", "group": "owner"}
    images = open_images(Scans(), columns=columns)
    assert images.classes == ["a", "b", "c"] and images.labels.tolist() == [0, 1, 2] * 2
    assert len(set(images.groups.tolist())) == 3
    both = open_images(ConcatDataset([Subset(Scans(), [5, 0]), Scans()]), columns=columns)
    assert both.labels.tolist() == [2, 0, 0, 1, 2, 0, 1, 2] and both.groups[0] == both.groups[-1]
    with pytest.raises(UserError, match=r"columns.group=owners: Scans has no attribute 'owners' with a value for each"):
        open_images(Scans(), columns={"group": "owners"})
    with pytest.raises(UserError, match=r"columns.split=part: Scans is a Dataset, one split of images: give each"):
        open_images(Scans(), columns={"split": "part"})


@pytest.mark.parametrize(
    "source", ["digits", "pets", np.zeros((4, 8, 8, 3), np.uint8)], ids=["own", "published", "array"]
)
def test_sources_without_columns_say_so(source: Any) -> None:
    with pytest.raises(UserError, match=r"columns.group=patient: (digits|pets|an array) (is|has)"):
        open_images(source, columns={"group": "patient"})


def test_a_folder_without_a_table_says_how_groups_are_named(tmp_path: Path) -> None:
    (tmp_path / "a.png").write_bytes(picture("a"))
    with pytest.raises(UserError, match=r"columns.group=patient: there is no metadata.csv .* or give a pattern"):
        open_images(tmp_path, columns={"group": "patient"})
    with pytest.raises(UserError, match=r"columns.group=patient: no table describes the files of .*\*.png: name the"):
        open_images(f"{tmp_path}/*.png", columns={"group": "patient"})


@pytest.mark.filterwarnings("ignore::UserWarning")
def test_evaluation_and_training_hold_out_whole_groups(tmp_path: Path) -> None:
    source, columns = of_folder(tmp_path), {"label": "finding", "group": "patient"}
    train, test = (evaluation.open_split(source, split, columns=columns, cache=None) for split in ("train", "test"))
    assert not set(train.groups) & set(test.groups) and len(train) + len(test) == len(NAMES)
    assert test.note == "test: a fifth of each class, held out by name, whole groups"
    asked = {"method": "simclr", "data": source, "columns": columns, "batch_size": 4, "cache": None}
    config = Config.from_mapping({**asked, "eval": {"k": 2}})
    data = open_data(config)
    learned, judged = (set(data.train.groups[part.rows].tolist()) for part in (data.bank, data.query))
    assert not learned & judged and learned | judged == set(data.train.groups.tolist())
    assert Config.from_mapping({**asked, "columns.group": "^(p[0-9])_"} | {"columns": {"label": "finding"}})
